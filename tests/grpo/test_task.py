"""A run with a task: its grades are logged, watched and kept; they never touch the gradient."""

import pytest

from helpers import MathTask, UserError
from helpers.grpo.batch import Generation
from helpers.tasks import Grade
from tests.grpo.small import adapter, same, trainer_in


@pytest.fixture(scope="module")
def problems():
    return MathTask().dataset("train", 12)


class Odd(MathTask):
    """A task whose grades say what the test wants."""

    alarms = {"odd": "are odd"}

    def grade(self, rows, completions):
        assert [row["prompt"] for row in rows] and set(rows[0]) >= {"answer", "cluster"}
        first = Grade(0.0, False, "refused", "not allowed", {"odd": True})
        return [first, *super().grade(rows, completions)[1:]]


def test_grades_are_logged_and_watched(tmp_path, problems):
    task = Odd()
    trainer = trainer_in(tmp_path, problems, max_steps=1, task=task)
    logs = trainer.train().log_history[0]
    shares = [logs[f"outcomes/{outcome}"] for outcome in task.outcomes]
    assert sum(shares) == pytest.approx(7 / 8), "one was refused, which is no outcome of this task"
    assert logs["monitor/refused"] == {"not allowed": 1} and logs["monitor/tags"] == {"odd": 1}
    assert "1 of the 8 completions are odd" in logs["monitor/signs"]
    assert trainer.last_completions[0]["outcome"] == "refused"
    assert trainer.last_completions[0]["reason"] == "not allowed"


def test_grades_are_kept_with_a_generation(tmp_path, problems):
    """A resumed step must log what the interrupted one would have."""
    generation = trainer_in(tmp_path, problems, task=Odd()).generate(0)
    again = Generation.from_dict(generation.to_dict())
    assert again.grades == generation.grades and again.completions == generation.completions
    assert again.rewards.equal(generation.rewards)


def test_a_task_does_not_move_the_gradient(tmp_path, problems):
    found = []
    for task in (None, Odd()):
        trainer = trainer_in(tmp_path / str(task is None), problems, max_steps=2, task=task)
        trainer.train()
        found.append(adapter(trainer))
    assert same(*found)


def test_another_task_is_another_run(tmp_path, problems):
    """Its checkpoints must not be gone on with."""
    trainer_in(tmp_path, problems, max_steps=1, task=MathTask()).train()
    with pytest.raises(UserError, match="written with task='math' and this run has 'custom'"):
        other = Odd()
        other.name = "custom"
        trainer_in(tmp_path, problems, max_steps=2, task=other).train(resume_from_checkpoint=True)


def raises(rows, completions):
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("grade", "words"),
    [
        (raises, r"The grader of task 'math' raised ZeroDivisionError: division by zero \(test_task.py, line \d+\)"),
        (lambda rows, completions: [], "The grader of task 'math' returned 0 grades: return a list of 8"),
    ],
)
def test_a_grader_that_fails_is_one_sentence(tmp_path, problems, grade, words):
    task = MathTask()
    task.grade = grade
    with pytest.raises(UserError, match=words):
        trainer_in(tmp_path, problems, task=task).train()


def test_a_prompt_that_is_too_long_is_one_sentence(tmp_path, problems):
    """Memory was planned for `max_prompt_length`; a longer prompt would end a run on a GPU without a word."""
    trainer = trainer_in(tmp_path, problems, max_prompt_length=20)
    assert trainer.engine.max_length == 20 + 24
    with pytest.raises(UserError, match=r"A prompt of \d+ tokens and max_completion_length=24 exceed"):
        trainer.train()

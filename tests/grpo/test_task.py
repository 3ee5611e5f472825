"""A run with a task: its grades are logged, watched and kept; they never touch the gradient."""

import json

import pytest

from helpers import SamplingParams, UserError, sample_records
from helpers.gallery.math.task import MathTask
from helpers.grpo.batch import Generation
from helpers.tasks import Grade, Measure
from tests.grpo.small import adapter, constant_reward, same, toy_reward, trainer_in


@pytest.fixture(scope="module")
def problems():
    return MathTask().dataset("train", 12)


class Odd(MathTask):
    """A task whose grades say what the test wants."""

    outcomes = (*MathTask.outcomes, "refused")
    alarms = {"odd": "are odd"}

    def grade(self, rows, completions, rewards=None):
        assert [row["prompt"] for row in rows] and set(rows[0]) >= {"answer", "cluster"}
        first = Grade(0.0, False, "refused", "not allowed", {"odd": True})
        return [first, *super().grade(rows, completions)[1:]]


def test_grades_are_logged_and_watched(tmp_path, problems):
    task = Odd()
    trainer = trainer_in(tmp_path, problems, max_steps=1, task=task)
    logs = trainer.train().log_history[0]
    shares = [logs[f"outcomes/{outcome}"] for outcome in task.outcomes]
    assert sum(shares) == pytest.approx(1) and logs["outcomes/refused"] == 1 / 8
    assert logs["monitor/refused"] == {"not allowed": 1} and logs["monitor/tags_raised"] == {"odd": 1}
    assert "1 of 1 answers are odd" in logs["monitor/signs"]
    assert trainer.last_completions[0]["outcome"] == "refused"
    assert trainer.last_completions[0]["reason"] == "not allowed"


def test_grades_are_kept_with_a_generation(tmp_path, problems):
    """A resumed step must log what the interrupted one would have."""
    generation = trainer_in(tmp_path, problems, task=Odd()).generate(0)
    again = Generation.from_dict(json.loads(json.dumps(generation.to_dict())))
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


def raises(rows, completions, rewards):
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("grade", "words"),
    [
        (raises, r"The grader of task 'math' raised ZeroDivisionError: division by zero \(test_task.py, line \d+\)"),
        (lambda *_: [], "The grader of task 'math' returned 0 grades: return a list of 8"),
        (lambda *_: None, "The grader of task 'math' returned a NoneType: return a list of 8"),
        (lambda *_: [True] * 8, "The grader of task 'math' returned True: return a Grade"),
        (lambda *_: [Grade(0.0, False, "odd")] * 8, "the outcome 'odd', and the task has correct, wrong, unanswered"),
    ],
)
def test_a_grader_that_fails_is_one_sentence(tmp_path, problems, grade, words):
    task = MathTask()
    task.grade = grade
    with pytest.raises(UserError, match=words):
        trainer_in(tmp_path, problems, task=task).train()


def test_a_prompt_that_is_too_long_is_one_sentence(tmp_path, problems):
    """Memory was planned for `max_prompt_length`; a longer prompt would end a run on a GPU without a word."""
    with pytest.raises(UserError, match=r"prompt of row 1 of train_dataset has \d+ tokens and there is room for 20"):
        trainer_in(tmp_path, problems, max_prompt_length=20)
    assert trainer_in(tmp_path, problems, max_prompt_length=200).engine.max_length == 200 + 24


def test_a_tasks_weights_are_paid(tmp_path, problems):
    """A reward of weight 0 is only logged, also where the configuration says nothing of weights."""
    task = MathTask()
    task.reward_funcs = [constant_reward, toy_reward]
    task.reward_weights = [0.0, 1.0]
    trainer = trainer_in(tmp_path, problems, reward=task.reward_funcs, task=task)
    assert trainer.args.reward_weights == (0.0, 1.0)
    assert trainer_in(tmp_path, problems, reward=task.reward_funcs).args.reward_weights is None


def test_an_evaluation_checks_grades_too(tmp_path, problems):
    trainer = trainer_in(tmp_path, problems)
    task = MathTask()
    task.measures = (Measure("pace", "pace"),)
    task.grade = lambda *_: [Grade(1.0, True, "correct")]
    with pytest.raises(UserError, match="gave a correct answer pace = None: a measure is a positive number"):
        sample_records(trainer.engine, task, problems.select([0]), SamplingParams(max_new_tokens=4), "base")

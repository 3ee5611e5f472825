"""An evaluation in training beside that of the adapter that was loaded: the same adapter gives the same answers."""

import hashlib
import json
from copy import copy
from dataclasses import replace

import pytest
import torch

from helpers import CustomTask, Grade, RolloutEngine, load_model, read_metrics
from helpers.evaluation import difference
from helpers.grpo.posthoc import Posthoc, compare_with_training
from tests.grpo.copies import AccumulatingBackend, CopyingBackend
from tests.grpo.small import toy_reward, trainer_in

STEPS = 3
#: Prompts of an evaluation, and answers to each.
ITEMS, TIMES = 10, 2
SEED = 5
SETTINGS = {
    "seed": SEED,
    "max_steps": STEPS,
    "learning_rate": 1e-2,
    "eval_strategy": "steps",
    "eval_steps": 1,
    "num_generations_eval": TIMES,
    "max_completion_length": 12,
}


class HalfRight(CustomTask):
    """Finds about half of the answers right, by their tokens alone: where another text is drawn, it shows."""

    def grade(self, rows, completions, rewards=None):
        digests = [hashlib.sha256(str(completion.token_ids).encode()).digest() for completion in completions]
        rights = [digest[0] % 2 == 0 for digest in digests]
        return [Grade(float(right), right, "correct" if right else "wrong") for right in rights]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(12) for b in range(12)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return HalfRight(path, [toy_reward])


@pytest.fixture(scope="module")
def asked(task):
    return task.dataset("monitor", ITEMS, seed=SEED)


def trainer_for(folder, task, asked, backend=None, **settings):
    """backend: a class of `tests.grpo.copies` that draws in training."""
    settings = SETTINGS | settings
    trainer = trainer_in(folder, task.dataset("train"), toy_reward, task=task, eval_dataset=asked, **settings)
    if backend is not None:
        trainer.engine.backend = backend(trainer)
    return trainer


@pytest.fixture(scope="module")
def trained(tmp_path_factory, task, asked):
    """A trainer after its last step, whose adapter is in the folder "adapter"."""
    folder = tmp_path_factory.mktemp("run")
    trainer = trainer_for(folder / "grpo", task, asked)
    trainer.train()
    trainer.save_model(folder / "adapter")
    return trainer


def loaded_engine(folder, args, factor=1.0):
    """An engine over the adapter in a folder, whose update is multiplied by a factor; it draws other batches."""
    model, tokenizer = load_model(profile="tiny", dense="fp32", adapter=folder)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name or "_B." in name:
                weight.mul_(factor)
    engine = RolloutEngine(model, tokenizer, max_batch_size=3, max_length=args.max_length + 50)
    engine.model = model
    return engine


@pytest.fixture(scope="module")
def found_with(trained, task):
    """A function that compares what an engine draws with the training."""
    folder = trained.args.output_dir

    def compare(engine, step=STEPS):
        return compare_with_training(engine.model, engine, task, trained.args, folder, step)

    return compare


@pytest.fixture(scope="module")
def engine(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "adapter"
    trained.save_model(folder)
    return loaded_engine(folder, trained.args)


def test_the_adapter_loaded_again_gives_the_answers_of_the_training(engine, found_with):
    found = found_with(engine)
    answers = found.answers
    assert found.agrees and found.moved < 1e-4 and found.tokens > 20
    assert answers.gained == answers.lost == 0 and answers.items == ITEMS * TIMES
    assert 0.2 < answers.base_rate < 0.8, "answers that are all alike could not differ"
    assert str(found).startswith(f"step {STEPS} in training and loaded again: the log-probabilities of ")
    assert str(found).endswith(" of 20 answers are right, the same ones")
    kept = json.loads(json.dumps(found.to_dict()))
    assert kept["agrees"] is True and kept["step"] == STEPS and kept["answers"]["gained"] == 0


def test_an_evaluation_later_may_have_other_settings(engine, found_with, trained, task):
    """05 once drew at its own temperature and length, and accused a healthy adapter."""
    others = replace(trained.args, temperature=0.3, max_completion_length=5, num_generations_eval=4, seed=99)
    found = compare_with_training(engine.model, engine, task, others, trained.args.output_dir, STEPS)
    assert found == found_with(engine)


def test_other_data_leave_the_texts_to_compare(engine, trained, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"Is {n} even?", "answer": "yes"}) for n in range(60)))
    found = compare_with_training(
        engine.model, engine, HalfRight(path, [toy_reward]), trained.args, trained.args.output_dir, STEPS
    )
    assert found.agrees and found.answers is None and str(found).endswith("its prompts are no longer in the data")


def says_that_it_is_another(found):
    return not found.agrees and "the adapter that was loaded is not the one that was trained" in str(found)


def test_an_adapter_of_another_step_is_another(engine, found_with):
    """A path to the wrong checkpoint: nothing else would say so."""
    assert says_that_it_is_another(found_with(engine, step=1))


@pytest.mark.parametrize("factor", [2.0, 0.0])
def test_an_adapter_at_another_scale_is_another(trained, tmp_path, found_with, factor):
    """Applied twice, or not at all."""
    trained.save_model(tmp_path / "adapter")
    assert says_that_it_is_another(found_with(loaded_engine(tmp_path / "adapter", trained.args, factor)))


@pytest.mark.parametrize(("backend", "agrees"), [(CopyingBackend, True), (AccumulatingBackend, False)])
def test_a_rollout_that_adds_the_adapter_each_time_is_found_out(tmp_path, task, asked, backend, agrees):
    """A pipeline reported 67 % in training and found 60 % afterwards: its rollouts had held more than the adapter."""
    trainer = trainer_for(tmp_path / "grpo", task, asked, backend, max_steps=2)
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    engine = loaded_engine(tmp_path / "adapter", trainer.args)
    found = compare_with_training(engine.model, engine, task, trainer.args, tmp_path / "grpo", 2)
    assert found.agrees == agrees != says_that_it_is_another(found)


def test_where_nothing_is_right_the_texts_decide(trained, task, tmp_path, engine):
    """Answers that are all wrong, then and now, once passed any adapter."""
    evaluation = trained.session.evaluations[-1]
    wrong = {**evaluation, "correct": [0] * (ITEMS * TIMES)}
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(wrong) + "\n")
    trained.save_model(tmp_path / "adapter")
    grades = [Grade(0.0, False, "wrong")] * (ITEMS * TIMES)
    hard = replace_grade(task, grades)
    sound = compare_with_training(engine.model, engine, hard, trained.args, tmp_path, STEPS)
    other = loaded_engine(tmp_path / "adapter", trained.args, factor=0.0)
    assert sound.agrees and sound.answers.base_rate == sound.answers.tuned_rate == 0
    assert says_that_it_is_another(compare_with_training(other.model, other, hard, trained.args, tmp_path, STEPS))


def replace_grade(task, grades):
    """The same prompts, graded so."""
    hard = copy(task)
    hard.grade = lambda rows, completions, rewards=None: grades
    return hard


def test_what_cannot_be_compared_is_none(tmp_path, trained, task, engine, found_with):
    """A step without an evaluation, a run without any, and one that graded nothing."""
    assert found_with(engine, step=STEPS + 1) is None
    assert compare_with_training(engine.model, engine, task, trained.args, tmp_path, STEPS) is None
    row = {key: value for key, value in trained.session.evaluations[-1].items() if key != "asked"}
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(row) + "\n")
    assert compare_with_training(engine.model, engine, task, trained.args, tmp_path, STEPS) is None


def test_each_answer_of_an_evaluation_is_kept_over_an_interruption(tmp_path, task, asked, trained):
    """The rate alone would not tell one set of answers from another."""
    trainer_for(tmp_path, task, asked, max_steps=1).train()
    trainer_for(tmp_path, task, asked, max_steps=2).train(resume_from_checkpoint=True)
    rows = read_metrics(tmp_path / "evaluations.jsonl")
    whole = read_metrics(f"{trained.args.output_dir}/evaluations.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert [row["correct"] for row in rows] == [row["correct"] for row in whole[:2]]
    for row in rows:
        assert len(row["correct"]) == ITEMS * TIMES and set(row["correct"]) == {0, 1}
        assert sum(row["correct"]) / len(row["correct"]) == pytest.approx(row["eval_outcomes/correct"])


@pytest.mark.parametrize(
    ("gained", "lost", "moved", "agrees"),
    [(0, 0, 1e-6, True), (30, 28, 1e-6, True), (9, 0, 1e-6, False), (0, 8, 1e-6, False), (0, 0, 1e-2, False)],
)
def test_what_rounding_may_change(gained, lost, moved, agrees):
    """In 16 bits many answers change, in both directions; a direction, or other probabilities, is a fault."""
    kept = 100 - gained - lost
    then = [True] * lost + [False] * gained + [True] * kept
    now = [False] * lost + [True] * gained + [True] * kept
    found = Posthoc(7, 400, moved, 1e-3, difference(then, now, range(100)))
    assert found.agrees == agrees != says_that_it_is_another(found)
    if gained + lost:
        assert f"{gained} only now and {lost} only then" in str(found)
    assert "\n" not in str(found)

from dataclasses import replace

import pytest

from helpers import (
    Grade,
    RolloutEngine,
    SamplingParams,
    UserError,
    evaluate,
    get_task,
    load_records,
    save_records,
)
from helpers.evaluation import SWEEPS, TEMPERATURES, check_task, sample_records, sweep_plan
from helpers.gallery.math.task import MathTask
from helpers.profiles import PROFILES
from helpers.tasks import UNJUDGED


@pytest.fixture
def engine(model, tokenizer):
    return RolloutEngine(model, tokenizer, max_batch_size=16, max_length=1024)


def test_every_answer_is_graded(engine, task):
    """One record an answer, those of a prompt together, with what the notebook shows of it."""
    prompts = get_task("matmul").dataset("monitor", 6)
    rows = sample_records(engine, task, prompts, SamplingParams(max_new_tokens=200, seed=1), "base", samples=2)
    assert [row["id"] for row in rows] == [item for item in prompts["id"] for _ in range(2)]
    assert [row["contract"] for row in rows] == [contract for contract in prompts["contract"] for _ in range(2)]
    assert [row["sample"] for row in rows] == [0, 1] * 6
    for row in rows:
        assert row["model"] == "base" and row["tokens"] > 0 and row["logprob"] <= 0 and row["temperature"] == 1
        assert row["correct"] == (row["reason"] == "") and (row["tags"]["speedup"] > 0) == row["correct"]
        assert row["outcome"] in task.outcomes and (row["outcome"] == "correct") == row["correct"] == bool(row["score"])


class Ungradable(MathTask):
    """A task whose grader fails for one answer."""

    def grade(self, rows, completions, rewards=None):
        return [Grade(0.0, False, UNJUDGED, "the grader is away"), *super().grade(rows, completions)[1:]]


def test_what_could_not_be_graded_is_no_failure_of_the_model(engine):
    prompts = get_task("math").dataset("monitor", 2)
    with pytest.raises(UserError, match=r"1 answers could not be graded \(the grader is away\)"):
        sample_records(engine, Ungradable(), prompts, SamplingParams(max_new_tokens=4), "base")


def test_an_adapter_of_another_task_is_one_sentence():
    """05_evaluate would compare a model with itself, in effect, and call it null."""
    check_task({"settings": {"task": "math"}}, MathTask())
    with pytest.raises(UserError, match="trained on the task 'matmul': set TASK = 'matmul'"):
        check_task({"settings": {"task": "matmul"}}, MathTask())


def test_an_evaluation_asks_at_every_temperature(engine, task):
    """With other random numbers each, which only the seed decides."""
    prompts = get_task("matmul").dataset("confirm", 8)
    params = SamplingParams(max_new_tokens=200, seed=1)
    found = evaluate(engine, task, prompts, params, "base", (0.0, 1.0))
    assert sorted(found.records) == [0.0, 1.0]
    assert [row["id"] for row in found.best] == prompts["id"] and len(found.all_records()) == 16
    again = evaluate(engine, task, prompts, params, "base", (0.0, 1.0))
    assert texts(again.records[1.0]) == texts(found.records[1.0])
    other = evaluate(engine, task, prompts, replace(params, seed=2), "base", (0.0, 1.0))
    assert texts(other.records[1.0]) != texts(found.records[1.0])
    assert texts(other.records[0.0]) == texts(found.records[0.0])


def texts(records):
    return [record["completion"] for record in records]


def test_the_plan_of_a_sweep():
    """The embedded model gets the whole of it, a model that takes hours the small one; a typo is a sentence."""
    assert (
        sweep_plan("auto", PROFILES["tiny"]) is SWEEPS["full"] and sweep_plan("auto", PROFILES["t4"]) is SWEEPS["small"]
    )
    assert all(plan.temperatures == TEMPERATURES for plan in SWEEPS.values())
    assert {0.0, 0.6, 0.8, 1.0} <= set(TEMPERATURES)
    with pytest.raises(UserError, match=r"no sweep 'ful' \(did you mean 'full'\?\): choose auto, full, small"):
        sweep_plan("ful", PROFILES["tiny"])


def test_records_survive_the_disk(tmp_path):
    rows = [{"id": "a", "text": "line\nline", "correct": True}]
    save_records(tmp_path / "r.jsonl", rows)
    assert load_records(tmp_path / "r.jsonl") == rows
    with pytest.raises(UserError, match="run the evaluation again"):
        load_records(tmp_path / "none.jsonl")

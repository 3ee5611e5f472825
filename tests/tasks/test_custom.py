"""Your own task: a JSONL file or a data set, and rewards written for TRL."""

import json
import re
from dataclasses import replace

import pytest
import torch

from helpers import CustomTask, Grade, UserError, compare, evaluate, get_task, list_tasks, read_metrics, register_task
from helpers.profiles import PROFILES
from helpers.rollout.completion import Completion
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import ROOT
from tests.grpo.small import trainer_in


def mentions(prompts, completions, word, **kwargs):
    """A reward as TRL's documentation writes them."""
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if word in content else 0.0 for content, word in zip(contents, word)]


def never(prompts, completions, **kwargs):
    return [None] * len(completions)


ROWS = [{"prompt": f"Write a text about number {n}.", "word": f"number {n}"} for n in range(60)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    return path


def answers(*texts):
    return [Completion([], [], [], text, "", "stop") for text in texts]


def test_every_prompt_is_in_one_split(path):
    """Training must not see what decides, whatever the size, the order or later additions."""
    task = CustomTask(path, mentions)
    splits = {split: task.dataset(split, 1000) for split in ("train", "monitor", "confirm")}
    ids = [item for rows in splits.values() for item in rows["id"]]
    assert len(ids) == len(set(ids)) == len(ROWS)
    assert len(splits["train"]) > len(splits["monitor"]) + len(splits["confirm"])
    assert splits["train"][0]["prompt"][0]["role"] == "user" and splits["train"][0]["word"].startswith("number")
    more = CustomTask(_dataset(ROWS[::-1] + [{"prompt": "Another.", "word": "a"}]), [mentions])
    for split, rows in splits.items():
        assert set(rows["id"]) <= set(more.dataset(split, 1000)["id"])
    assert task.dataset("train", 5, seed=1)["id"] == task.dataset("train", 5, seed=1)["id"]
    assert task.dataset("train", 5, seed=1)["id"] != task.dataset("train", 5, seed=2)["id"]


def _dataset(rows):
    from datasets import Dataset

    return Dataset.from_list(rows)


def test_without_a_grade_an_answer_is_correct_where_it_is_paid(path):
    task = CustomTask(path, mentions)
    rows = list(task.dataset("train", 2))
    right, wrong = task.grade(rows, answers(f"It is {rows[0]['word']}", "no"))
    assert (right.correct, right.outcome, right.score, right.reason) == (True, "correct", 1.0, "")
    assert (wrong.correct, wrong.outcome, wrong.score) == (False, "wrong", 0.0) and wrong.reason
    (unjudged,) = CustomTask(path, never).grade(rows[:1], answers("x"))
    assert unjudged.outcome == "unjudged"


def test_a_grade_of_ones_own(path):
    task = CustomTask(path, mentions, grade=lambda row, text: row["word"] in text)
    rows = list(task.dataset("train", 2))
    assert [grade.correct for grade in task.grade(rows, answers(rows[0]["word"], "no"))] == [True, False]
    task = CustomTask(path, mentions, grade=lambda row, text: Grade(0.5, False, "wrong", "nearly"))
    assert task.grade(rows[:1], answers("x"))[0].reason == "nearly"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "none falls into the split 'train'"),
        ('{"prompt": "a"}', "give the task more prompts"),
        ('{"prompt": "a"', "Line 1 .* is not JSON"),
        ("[1]", "Line 1 .* is not an object"),
        ('{"promt": "a"}', r"Row 1 has no 'prompt' \(did you mean 'promt'\?\)"),
        ('{"prompt": ["a"]}', "a text or a list of messages"),
    ],
)
def test_bad_data_is_one_sentence(tmp_path, content, words):
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(UserError, match=words):
        CustomTask(tmp_path / "rows.jsonl", mentions)
    with pytest.raises(UserError, match="Cannot read"):
        CustomTask(tmp_path / "none.jsonl", mentions)


def test_a_registered_task_has_a_name(path):
    from helpers.tasks import _TASKS

    register_task("mine", lambda: CustomTask(path, mentions, name="mine"))
    try:
        assert "mine" in list_tasks() and get_task("mine").settings() == {"task": "mine"}
        with pytest.raises(UserError, match=r"no task 'mime' \(did you mean 'mine'\?\)"):
            get_task("mime")
    finally:
        del _TASKS["mine"]


def test_training_and_evaluation_to_a_verdict(path, tmp_path):
    """The whole chain on a JSONL file and a reward written for TRL."""
    task = CustomTask(path, mentions)
    trainer = trainer_in(tmp_path / "run", task.dataset("train"), task.reward_funcs, max_steps=2, task=task)
    trainer.train()
    metrics = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert all(row["outcomes/correct"] + row["outcomes/wrong"] == 1 for row in metrics)
    assert all("rewards/mentions/mean" in row for row in metrics)
    monitor, confirm = task.dataset("monitor"), task.dataset("confirm")
    params = SamplingParams(max_completion_length=16, seed=0)
    tuned = evaluate(trainer.engine, task, monitor, confirm, params, "tuned", (0.0, 1.0))
    with trainer.model.disable_adapter():
        base = evaluate(trainer.engine, task, monitor, confirm, params, "base", (0.0, 1.0))
    assert compare(base, tuned).verdict in ("win", "sharper", "null", "inconclusive", "regression")


def test_what_the_readme_says_of_your_own_task(tmp_path, monkeypatch):
    """The lines are run as they stand, in a folder with such a file; only the steps are fewer."""
    text = (ROOT / "README.md").read_text().split("## Your own task")[1].split("\n## ")[0]
    code = re.search(r"```python\n(.*?)```", text, re.S)[1]
    assert len(code.strip().splitlines()) <= 30
    shown = re.search(r"```json\n(.*?)```", text, re.S)[1]
    rows = [json.loads(line) for line in shown.strip().splitlines()]
    assert all({"prompt", "answer"} <= set(row) for row in rows)
    rows += [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(8) for b in range(8)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    line = 'profile = get_profile("auto")'
    assert line in code
    tiny = 'profile = replace(PROFILES["tiny"], max_steps=1, generation_batch_size=16, max_completion_length=32)'
    scope = {"replace": replace, "PROFILES": PROFILES}
    exec(code.replace(line, tiny), scope)
    assert scope["report"].verdict in ("win", "sharper", "null", "inconclusive", "regression")
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").exists()

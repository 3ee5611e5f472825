"""The whole chain on one's own data: training, grades, an evaluation to a verdict; and what the README says of it."""

import json
import re
from dataclasses import replace

import torch

from helpers import CustomTask, SamplingParams, compare, evaluate, read_metrics
from helpers.profiles import PROFILES
from helpers.runtime import ROOT
from tests.grpo.small import adapter, same, toy_reward, trainer_in
from tests.tasks.test_custom import ROWS, mentions

VERDICTS = ("win", "sharper", "null", "inconclusive", "regression")


def test_training_and_evaluation_to_a_verdict(tmp_path):
    """The whole chain on a JSONL file and a reward written for TRL."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    task = CustomTask(path, [mentions, toy_reward])
    trainer = trainer_in(
        tmp_path / "run", task.dataset("train"), task.reward_funcs, max_steps=2, max_completion_length=64, task=task
    )
    before = adapter(trainer)
    trainer.train()
    assert not same(adapter(trainer), before)
    metrics = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert all(row["outcomes/correct"] + row["outcomes/wrong"] == 1 for row in metrics)
    assert all("rewards/mentions/mean" in row and row["grad_norm"] > 0 for row in metrics)
    confirm = task.dataset("confirm")
    params = SamplingParams(max_new_tokens=16, seed=0)
    tuned = evaluate(trainer.engine, task, confirm, params, "tuned", (0.0, 1.0))
    with trainer.model.disable_adapter():
        base = evaluate(trainer.engine, task, confirm, params, "base", (0.0, 1.0))
    assert compare(base, tuned).verdict in VERDICTS


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
    assert scope["report"].verdict in VERDICTS
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").exists()

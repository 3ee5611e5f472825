"""One run of test_learning.py in a process of its own.

`python -m tests.slow.one_run base FOLDER` evaluates the base model and leaves FOLDER/base.json.
`python -m tests.slow.one_run run FOLDER BASE.json PARAMETERS` runs 04_grpo with the parameters (JSON), evaluates its
adapter as 05_evaluate does, compares it with the base, and leaves FOLDER/report.json. The base answers the same
prompts with the same random numbers in every run, so it is asked once.
"""

import json
import sys
from pathlib import Path

from helpers import (
    RolloutEngine,
    SamplingParams,
    compare,
    evaluate,
    get_profile,
    get_task,
    largest_batch,
    load_model,
)
from helpers.evaluation import Evaluation, sweep_plan
from helpers.model.memory import rollout_length
from helpers.run import run_notebook
from helpers.runtime import run_folder

SEED = 7  # 05_evaluate's


def evaluated(name, adapter=None):
    """An `Evaluation` of the embedded model, with an adapter or without, as 05_evaluate makes it."""
    profile = get_profile("tiny")
    plan = sweep_plan("full", profile)
    length = rollout_length(profile.max_completion_length)
    engine = RolloutEngine(
        *load_model(profile=profile, adapter=adapter),
        max_batch_size=largest_batch(profile, length),
        max_length=length,
        chat_template_kwargs={"reasoning_effort": profile.reasoning_effort},
    )
    task = get_task("matmul")
    monitor = task.dataset("monitor", plan.monitor_items, seed=SEED)
    confirm = task.dataset("confirm", plan.confirm_items, seed=SEED)
    params = SamplingParams(max_new_tokens=profile.max_completion_length, seed=SEED)
    return evaluate(engine, task, monitor, confirm, params, name, plan.temperatures)


def save(evaluation, path):
    path.write_text(json.dumps({"name": evaluation.name, "records": evaluation.all_records()}))


def load(path):
    stored = json.loads(path.read_text())
    splits = {"monitor": {}, "confirm": {}}
    for record in stored["records"]:
        splits[record["split"]].setdefault(record["temperature"], []).append(record)
    return Evaluation(stored["name"], **splits)


def main(what, folder, base=None, parameters="{}"):
    if what == "base":
        save(evaluated("base"), Path(folder) / "base.json")
        return
    folder = run_folder(folder)
    run_notebook("04_grpo", folder, {"PROFILE": "tiny", "RUN_DIR": str(folder), **json.loads(parameters)})
    adapter = folder / "adapter"
    report = compare(load(Path(base)), evaluated("tuned", adapter), win_margin=get_profile("tiny").win_margin)
    origin = json.loads((adapter / "trainer_state.json").read_text())
    (folder / "report.json").write_text(json.dumps({**report.to_dict(), "origin": origin}))


if __name__ == "__main__":
    main(*sys.argv[1:])

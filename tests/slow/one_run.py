"""One run of test_learning.py or test_math.py in a process of its own.

`python -m tests.slow.one_run base FOLDER TASK` asks the base model and leaves FOLDER/base.json.
`python -m tests.slow.one_run tune FOLDER PARAMETERS` runs 04_grpo with the parameters and leaves FOLDER/monitor.json:
the share of right answers to monitor prompts, greedy and at temperature 1.
`python -m tests.slow.one_run run FOLDER BASE.json PARAMETERS` runs 04_grpo with the parameters (JSON), asks its adapter
what the base was asked, compares the two, and leaves FOLDER/report.json. The base answers the same prompts with the
same random numbers in every run, so it is asked once.
"""

import json
import random
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch

from helpers import (
    RolloutEngine,
    SamplingParams,
    compare,
    evaluate,
    get_profile,
    get_task,
    largest_batch,
    load_model,
    sample_records,
)
from helpers.evaluation import Evaluation, accuracy, best_temperature, sweep_plan
from helpers.model.memory import rollout_length
from helpers.run.notebooks import run_notebook
from helpers.runtime import run_folder
from helpers.tasks.drawing import make_row
from helpers.tasks.matmul.names import draw_signature, parse_signature
from helpers.tasks.matmul.programs import STYLES, draw_program
from helpers.tasks.matmul.prompts import draw_prompt
from helpers.tasks.matmul.statements import reading

SEED = 7  # 05_evaluate's
BLIND_WORDINGS = Path(__file__).with_name("blind_wordings.json")
#: In the style "map" a right program goes on with " mul" behind these words; a misconception adds instead.
DECISIVE_STYLE = "map"
DECISIVE = ("from operator import", " mul")


@dataclass
class Asked:
    """What a model was asked, beside its name.

    confirm: an `Evaluation`. shares: what was asked -> the share of right answers, at the model's own best temperature.
    decisive: the mean probability of the right token where the repair is made, or None.
    """

    confirm: Evaluation
    shares: dict[str, float]
    decisive: float | None

    def save(self, path):
        records = self.confirm.all_records()
        path.write_text(json.dumps({"records": records, "shares": self.shares, "decisive": self.decisive}))

    @classmethod
    def load(cls, path):
        stored = json.loads(path.read_text())
        records = {}
        for record in stored["records"]:
            records.setdefault(record["temperature"], []).append(record)
        name = stored["records"][0]["model"]
        return cls(Evaluation(name, records), stored["shares"], stored["decisive"])


def make_engine(profile, adapter=None):
    """`(model, tokenizer, engine)` of the embedded model, with an adapter or without, as 05_evaluate asks it."""
    length = rollout_length(profile.max_completion_length)
    model, tokenizer = load_model(profile=profile, adapter=adapter)
    engine = RolloutEngine(
        model,
        tokenizer,
        max_batch_size=largest_batch(profile, length),
        max_length=length,
        chat_template_kwargs={"reasoning_effort": profile.reasoning_effort},
    )
    return model, tokenizer, engine


def train(folder, parameters):
    """Run 04_grpo, where that has not been done, and return the folder of its adapter. Note the seconds it took."""
    folder = run_folder(folder)
    noted = folder / "notebook_seconds.json"
    if not noted.exists():
        started = time.monotonic()
        run_notebook("04_grpo", folder, {"PROFILE": "tiny", "RUN_DIR": str(folder), **parameters})
        noted.write_text(json.dumps(time.monotonic() - started))
    return folder / "adapter"


def monitor_shares(adapter, task_name):
    """The share of right answers to monitor prompts, greedy and at temperature 1."""
    profile = get_profile("tiny")
    *_, engine = make_engine(profile, adapter)
    task = get_task(task_name)
    params = SamplingParams(max_new_tokens=profile.max_completion_length, seed=SEED)
    prompts = task.dataset("monitor", 200, seed=SEED)
    return {
        temperature: accuracy(sample_records(engine, task, prompts, replace(params, temperature=temperature), "tuned"))
        for temperature in (0.0, 1.0)
    }


def ask(name, task_name, adapter=None, beyond_confirm=True):
    """Ask the embedded model, with an adapter or without, as 05_evaluate does.

    beyond_confirm: also the probe, the words of somebody else, and the decisive token.
    """
    profile = get_profile("tiny")
    plan = sweep_plan("full", profile)
    model, tokenizer, engine = make_engine(profile, adapter)
    task = get_task(task_name)
    params = SamplingParams(max_new_tokens=profile.max_completion_length, seed=SEED)
    confirm = evaluate(engine, task, task.dataset("confirm", plan.items, seed=SEED), params, name, plan.temperatures)
    if not beyond_confirm:
        return Asked(confirm, {}, None)
    at_best = replace(params, temperature=best_temperature(confirm.records))

    probe = task.dataset("probe", plan.probe_items, seed=SEED)
    probed = sample_records(engine, task, probe, at_best, name)
    shares = shares_by("probe", probed, probe[task.breakdowns[0]])
    if task_name == "math":
        families = [record["cluster"].rpartition("-")[0] for record in confirm.best]
        return Asked(confirm, shares | shares_by("confirm", confirm.best, families), None)
    blind = blind_rows()
    answered = sample_records(engine, task, blind, at_best, name)
    shares |= shares_by("blind", answered, blind["kind"]) | shares_by("blind", answered, blind["contract"])
    return Asked(confirm, shares, decisive_probability(model, tokenizer, task, profile))


def shares_by(what, records, groups):
    """{"what, group": share of right answers}, sorted. groups: the group of each record."""
    grouped = {}
    for record, group in zip(records, groups, strict=True):
        grouped.setdefault(group, []).append(record)
    return {f"{what}, {group}": accuracy(members) for group, members in sorted(grouped.items())}


def blind_rows():
    """Three prompts in each wording of somebody who saw neither corpus nor prompts, with names that no training has."""
    from datasets import Dataset

    rng = random.Random(SEED)
    rows = []
    for contract, kinds in json.loads(BLIND_WORDINGS.read_text()).items():
        for kind, sentences in kinds.items():
            for number, sentence in enumerate(sentences * 3):
                signature = draw_signature(rng, new=True)
                prompt = draw_prompt(rng, sentence, signature)
                row = make_row("matmul", prompt.text, "", f"{contract}-{kind}-{number % len(sentences)}")
                row |= {"id": f"blind-{len(rows)}", "kind": kind, "contract": contract, "signature": str(signature)}
                rows.append(row)
    return Dataset.from_list(rows)


@torch.no_grad()
def decisive_probability(model, tokenizer, task, profile):
    """Return the mean probability of the right token at the decisive place, on monitor prompts.

    The model is given the prompt, and a right answer up to that place.
    """
    before, token = DECISIVE
    (token_id,) = tokenizer(token, add_special_tokens=False).input_ids
    probabilities = []
    for row in task.dataset("monitor", 60, seed=SEED):
        messages = [*row["prompt"], right_answer(row)]
        text = tokenizer.apply_chat_template(messages, tokenize=False, reasoning_effort=profile.reasoning_effort)
        prefix = text[: text.index(before, text.index("```python")) + len(before)]
        ids = tokenizer(prefix, add_special_tokens=False, return_tensors="pt").input_ids
        probabilities.append(model(ids).logits[0, -1].softmax(-1)[token_id].item())
    return sum(probabilities) / len(probabilities)


def right_answer(row):
    """A right answer in the decisive style, as in the corpus."""
    signature = parse_signature(row["signature"])
    contract = row["contract"]
    _, (sentence, *_) = STYLES[DECISIVE_STYLE]
    program = draw_program(random.Random(row["id"]), contract=contract, style=DECISIVE_STYLE).source
    return {
        "role": "assistant",
        "thinking": signature.rename(f"{reading(contract)} {sentence}"),
        "content": f"```python\n{signature.rename(program)}\n```",
    }


def median_speed(evaluation):
    """The median speed of the correct answers at the own best temperatures, plain loops = 1; None without any."""
    speeds = [record["tags"].get("speedup") for record in evaluation.best if record["correct"]]
    return median(speeds) if speeds and None not in speeds else None


def main(what, folder, *arguments):
    if what == "base":
        (task_name,) = arguments
        ask("base", task_name).save(Path(folder) / "base.json")
        return
    parameters = {"TASK": "matmul", **json.loads(arguments[-1])}
    adapter = train(folder, parameters)
    folder = adapter.parent
    if what == "tune":
        (folder / "monitor.json").write_text(json.dumps(monitor_shares(adapter, parameters["TASK"])))
        return
    base = Asked.load(Path(arguments[0]))
    tuned = ask("tuned", parameters["TASK"], adapter, beyond_confirm="CONTROL" not in parameters)
    report = compare(base.confirm, tuned.confirm, win_margin=get_profile("tiny").win_margin)
    found = {
        **report.to_dict(),
        "origin": json.loads((adapter / "trainer_state.json").read_text()),
        "shares": {name: (base.shares[name], share) for name, share in tuned.shares.items()},
        "decisive": (base.decisive, tuned.decisive),
        "speed": (median_speed(base.confirm), median_speed(tuned.confirm)),
        "folder": str(folder),
        "notebook_seconds": json.loads((folder / "notebook_seconds.json").read_text()),
    }
    (folder / "report.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Per-item records of a model on a task, one JSON object a line."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.rewards.matmul import is_cheat, judge
from helpers.runtime import UserError, did_you_mean, random_seed, write_whole

#: Greedy, and four temperatures to sample at. Both models of a comparison get the same.
TEMPERATURES = (0.0, 0.6, 0.8, 1.0, 1.2)

Record = dict
#: temperature -> the records of one model on one set of prompts
Records = dict[float, list[Record]]


@dataclass(frozen=True)
class SweepPlan:
    """How much of an evaluation to run; fixed here, before any result is known.

    temperatures: the grid that both models are tried at. monitor_items: prompts on which each model's temperature is
    chosen. confirm_items: prompts that decide. pass_prompts, pass_samples: prompts and answers to each for pass@k.
    """

    temperatures: tuple[float, ...]
    monitor_items: int
    confirm_items: int
    pass_prompts: int
    pass_samples: int


SWEEPS = {
    "full": SweepPlan(TEMPERATURES, monitor_items=200, confirm_items=320, pass_prompts=48, pass_samples=16),
    "small": SweepPlan((0.0, 1.0), monitor_items=20, confirm_items=64, pass_prompts=0, pass_samples=0),
}


def sweep_plan(name: str, profile) -> SweepPlan:
    """The plan of that name; "auto" is the profile's: "full" for the embedded model, "small" for larger ones.

    Raises UserError for an unknown name.
    """
    if name == "auto":
        name = profile.sweep
    if name not in SWEEPS:
        raise UserError(f"There is no sweep '{name}'{did_you_mean(name, SWEEPS)}: choose auto, {', '.join(SWEEPS)}.")
    return SWEEPS[name]


@dataclass(frozen=True)
class Evaluation:
    """One model's answers. monitor: to the prompts on which its temperature is chosen, at every temperature of the
    grid. confirm: to the prompts of the verdict, greedily, at temperature 1, and at the chosen temperature."""

    name: str
    monitor: Records
    confirm: Records

    @property
    def best_temperature(self) -> float:
        """The model's own best temperature, by the monitor prompts alone."""
        return best_temperature(self.monitor)

    @property
    def best(self) -> list[Record]:
        """The answers to the confirm prompts at the model's own best temperature."""
        return self.confirm[self.best_temperature]

    def all_records(self) -> list[Record]:
        """Every record, with the set of prompts that it belongs to as `split`."""
        return [
            {**record, "split": split}
            for split, records in (("monitor", self.monitor), ("confirm", self.confirm))
            for part in records.values()
            for record in part
        ]


def evaluate(engine, monitor, confirm, params, name: str, temperatures: Iterable[float] = TEMPERATURES) -> Evaluation:
    """Find a model's own best temperature on one set of prompts, and answer another set at it.

    engine: `RolloutEngine`. monitor, confirm: rows of `load_task("matmul", "monitor" and "confirm", ...)`. params:
    `SamplingParams`, of which the temperature is not used; the same seed gives both models of a comparison the same
    luck. name: of the model. temperatures: the grid; 0 is greedy.
    """
    swept = records_at(temperatures, engine, monitor, params, name, "monitor")
    chosen = {0.0, 1.0, best_temperature(swept)}
    return Evaluation(name, swept, records_at(chosen, engine, confirm, params, name, "confirm"))


def records_at(temperatures: Iterable[float], engine, dataset, params, name: str, split: str) -> Records:
    """Answer every prompt once at each of the temperatures; each split and temperature has its own random numbers."""
    records = {}
    for temperature in sorted(set(temperatures)):
        seed = random_seed("evaluation", split, params.seed, str(temperature))
        at_temperature = replace(params, temperature=temperature, seed=seed)
        records[temperature] = sample_records(engine, dataset, at_temperature, name)
    return records


def sample_records(engine, dataset, params, name: str, samples: int = 1) -> list[Record]:
    """Answer every prompt `samples` times and judge the programs.

    Returns one record an answer, those of a prompt next to each other: id, cluster, contract, model, temperature,
    sample (its number), ran, correct, cheat, reason, sandbox (its level), speedup (0 unless correct), tokens, logprob
    (of all tokens together, at the sampling temperature), finish_reason, thinking, completion.

    Raises UserError if the sandbox could not judge a program: that must not count as the model's failure.
    """
    completions = engine.generate(dataset["prompt"], params, samples)
    rows = [row for row in dataset for _ in range(samples)]
    verdicts = judge(
        [completion.message for completion in completions],
        [completion.finish_reason for completion in completions],
        [row["contract"] for row in rows],
    )
    unjudged = [verdict.reason for verdict in verdicts if not verdict.judged]
    if unjudged:
        raise UserError(f"{len(unjudged)} programs could not be judged ({unjudged[0]}): run the evaluation again.")
    return [
        {
            "id": row["id"],
            "cluster": row["cluster"],
            "contract": row["contract"],
            "model": name,
            "temperature": params.temperature,
            "sample": place % samples,
            "ran": verdict.ran,
            "correct": verdict.correct,
            "cheat": is_cheat(verdict),
            "reason": verdict.reason,
            "sandbox": verdict.level,
            "speedup": verdict.speedup,
            "tokens": len(completion.token_ids),
            "logprob": sum(completion.logprobs),
            "finish_reason": completion.finish_reason,
            "thinking": completion.thinking,
            "completion": completion.text,
        }
        for place, (row, completion, verdict) in enumerate(zip(rows, completions, verdicts, strict=True))
    ]


def accuracy(records: Sequence[Record]) -> float:
    """Share of the records that are correct."""
    return sum(record["correct"] for record in records) / len(records)


def best_temperature(records: Records) -> float:
    """The temperature with the most correct answers; of equally good ones the lowest."""
    return max(sorted(records), key=lambda temperature: accuracy(records[temperature]))


def trained_on(origin):
    """One line on how an adapter came about. origin: what the trainer left beside it, `trainer_state.json`."""
    settings = origin["settings"]
    names = settings["reward_funcs"]
    weights = settings.get("reward_weights") or [1] * len(names)
    paid = ", ".join(name for name, weight in zip(names, weights, strict=True) if weight)
    level = settings.get("sandbox", "os")
    judged = "" if level == "os" else f", judged at sandbox level {level}"
    return f"{origin['step']} steps, learning rate {settings['learning_rate']:g}, on {paid}{judged}"


def save_records(path, records: Iterable[Record]) -> None:
    """Write records as JSON lines, whole or not at all."""
    write_whole(path, "".join(json.dumps(record) + "\n" for record in records))


def load_records(path) -> list[Record]:
    """Read what `save_records` wrote."""
    try:
        return [json.loads(line) for line in Path(path).read_text().splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"Cannot read the records in {path} ({error}): run the evaluation again.") from error

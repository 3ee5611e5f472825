"""Per-item records of a model on a task, one JSON object a line."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from helpers.runtime import UserError, did_you_mean, random_seed, write_whole
from helpers.tasks import UNJUDGED, Task
from helpers.tasks.grading import grade_answers

#: Greedy, and temperatures to sample at. Both models of a comparison get the same, and without all of these no verdict
#: is a win: where the base is right at a temperature that lies in a gap of the grid, a base that was merely cooled wins
#: (`tests/evaluation/test_power.py` simulates it).
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

Record = dict
#: temperature -> the records of one model
Records = dict[float, list[Record]]


@dataclass(frozen=True)
class SweepPlan:
    """The amount of an evaluation to run, fixed here before any result is known.

    temperatures: the grid that both models are tried at. items: prompts, each answered once at each temperature.
    probe_items: prompts of the split "probe". pass_prompts, pass_samples: prompts and answers to each for pass@k.
    """

    temperatures: tuple[float, ...]
    items: int
    probe_items: int
    pass_prompts: int
    pass_samples: int


SWEEPS = {
    "full": SweepPlan(TEMPERATURES, items=320, probe_items=160, pass_prompts=48, pass_samples=16),
    "small": SweepPlan(TEMPERATURES, items=64, probe_items=20, pass_prompts=0, pass_samples=0),
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
    """One model's answers to one set of prompts, at every temperature of a grid.

    The model's own best temperature is cross-fitted: the prompts are dealt into two halves, and each half is answered
    at the temperature that did best on the other. So no answer that chooses a temperature also counts at it, and all
    prompts count. The halves share every cluster, so that none holds the easy ones alone; what a wording does to a
    temperature is known to the choice.
    """

    name: str
    records: Records

    @cached_property
    def best_temperatures(self) -> tuple[float, float]:
        """The temperatures at which the prompts of the first and of the second half count."""
        first, second = [best_temperature(self._half(number)) for number in (0, 1)]
        return second, first

    @cached_property
    def best(self) -> list[Record]:
        """The answers at the model's own best temperatures, in the order of the prompts."""
        halves = self._halves
        by_half = [self.records[temperature] for temperature in self.best_temperatures]
        return [by_half[halves[record["id"]]][place] for place, record in enumerate(by_half[0])]

    def _half(self, number: int) -> Records:
        """The records of one half of the prompts."""
        return {
            temperature: [record for record in records if self._halves[record["id"]] == number]
            for temperature, records in self.records.items()
        }

    @cached_property
    def _halves(self) -> dict[str, int]:
        """id of a prompt -> 0 or 1, in turns among the prompts of a cluster."""
        first_temperature = min(self.records)
        by_cluster = sorted(self.records[first_temperature], key=lambda record: str(record["cluster"]))
        return {record["id"]: place % 2 for place, record in enumerate(by_cluster)}

    def all_records(self) -> list[Record]:
        """Return the records of all temperatures, the lowest first."""
        return [record for records in self.records.values() for record in records]


def evaluate(
    engine, task: Task, prompts, params, name: str, temperatures: Iterable[float] = TEMPERATURES
) -> Evaluation:
    """Answer every prompt at each temperature of a grid, and return the `Evaluation`.

    engine: `RolloutEngine`. prompts: rows of `task.dataset("confirm", ...)`. params: `SamplingParams`, of which the
    temperature is not used; the same seed gives both models of a comparison the same luck. name: of the model.
    temperatures: the grid; 0 is greedy.
    """
    return Evaluation(name, records_at(temperatures, engine, task, prompts, params, name, "confirm"))


def records_at(temperatures: Iterable[float], engine, task: Task, dataset, params, name: str, split: str) -> Records:
    """Answer every prompt once at each of the temperatures; each split and temperature has its own random numbers."""
    records = {}
    for temperature in sorted(set(temperatures)):
        seed = random_seed("evaluation", split, params.seed, str(temperature))
        at_temperature = replace(params, temperature=temperature, seed=seed)
        records[temperature] = sample_records(engine, task, dataset, at_temperature, name)
    return records


def sample_records(engine, task: Task, dataset, params, name: str, samples: int = 1) -> list[Record]:
    """Answer every prompt `samples` times and grade the answers.

    Returns one record an answer, those of a prompt next to each other: id, cluster and the task's other `breakdowns`,
    model, temperature, sample (its number), score, correct, outcome, reason and tags (of its grade), tokens, logprob
    (of all tokens together, at the sampling temperature), finish_reason, thinking, completion.

    Raises UserError if an answer could not be graded: that must not count as the model's failure.
    """
    completions = engine.generate(dataset["prompt"], params, samples)
    rows = [row for row in dataset for _ in range(samples)]
    grades = grade_answers(task, rows, completions)
    unjudged = [grade.reason for grade in grades if grade.outcome == UNJUDGED]
    if unjudged:
        raise UserError(f"{len(unjudged)} answers could not be graded ({unjudged[0]}): run the evaluation again.")
    return [
        {
            "id": row["id"],
            "cluster": row["cluster"],
            **{column: row[column] for column in task.breakdowns},
            "model": name,
            "temperature": params.temperature,
            "sample": place % samples,
            "score": grade.score,
            "correct": grade.correct,
            "outcome": grade.outcome,
            "reason": grade.reason,
            "tags": grade.tags,
            "tokens": len(completion.token_ids),
            "logprob": sum(completion.logprobs),
            "finish_reason": completion.finish_reason,
            "thinking": completion.thinking,
            "completion": completion.text,
        }
        for place, (row, completion, grade) in enumerate(zip(rows, completions, grades, strict=True))
    ]


def accuracy(records: Sequence[Record]) -> float:
    """Share of the records that are correct."""
    return sum(record["correct"] for record in records) / len(records)


def best_temperature(records: Records) -> float:
    """The temperature with the most correct answers; of equally good ones the lowest."""
    return max(sorted(records), key=lambda temperature: accuracy(records[temperature]))


def check_task(origin: dict, task: Task) -> None:
    """Raise UserError if an adapter was trained on another task. origin: as for `trained_on`."""
    trained = origin["settings"].get("task")
    if trained not in (None, task.name):
        raise UserError(
            f"This adapter was trained on the task '{trained}': set TASK = '{trained}', or another RUN_DIR."
        )


def trained_on(origin: dict) -> str:
    """One line on how an adapter came about. origin: what the trainer left beside it, `trainer_state.json`."""
    settings = origin["settings"]
    method = origin.get("method", "GRPO")
    names = settings["reward_funcs"]
    weights = settings.get("reward_weights") or [1] * len(names)
    paid = ", ".join(name for name, weight in zip(names, weights, strict=True) if weight)
    learned_from = paid if method == "GRPO" else f"its own correct answers, by {method}"
    judged = ", judged at sandbox level process" if settings.get("sandbox") == "process" else ""
    warning = selection_warning(origin)
    chosen = f"; {warning}" if warning else ""
    return f"{origin['step']} steps, learning rate {settings['learning_rate']:g}, on {learned_from}{judged}{chosen}"


def selection_warning(origin: dict) -> str:
    """What to know of an adapter that was chosen among checkpoints, or "" where it was not. origin: as `trained_on`."""
    choice = origin.get("chosen_by")
    if not choice or choice["checkpoints"] < 2:
        return ""
    metric = choice["metric"]
    chosen = f"step {choice['step']} was chosen of {choice['checkpoints']} checkpoints by {metric}"
    if metric.startswith("eval_"):
        return f"{chosen}, so the prompts of eval_dataset must not decide"
    return f"{chosen} on training prompts: its value there is partly luck"


def save_records(path: str | Path, records: Iterable[Record]) -> None:
    """Write records as JSON lines, whole or not at all."""
    write_whole(path, "".join(json.dumps(record) + "\n" for record in records))


def load_records(path: str | Path) -> list[Record]:
    """Read what `save_records` wrote."""
    try:
        return [json.loads(line) for line in Path(path).read_text().splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"Cannot read the records in {path} ({error}): run the evaluation again.") from error

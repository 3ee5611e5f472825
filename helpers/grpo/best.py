"""Which checkpoint of a run is the best one, by a metric of its step; and that it was chosen, for whoever reads it."""

import json
from collections.abc import Sequence
from pathlib import Path

from helpers.grpo.config import GRPOConfig
from helpers.runtime import UserError, did_you_mean, finite_or_none

#: The file of a checkpoint that says where the run was.
STATE = "trainer_state.json"


def monitor(args: GRPOConfig, logs: dict, step: int, earlier: Sequence[Path]) -> dict:
    """Return what a checkpoint keeps of `metric_for_best_model`.

    logs: the metrics of its step. earlier: the folders of the checkpoints before it. Keys of the result: metric,
    greater_is_better, value (None where the step has no finite one), step, and checkpoints, the number of those so far
    that have a value.

    Raises UserError for a metric that training does not log. One whose name begins with "eval_" may be logged at some
    steps only.
    """
    metric = args.monitored_metric
    was_evaluated = any(name.startswith("eval_") for name in logs)
    may_be_missing = metric.startswith("eval_") and not was_evaluated
    if logs and metric not in logs and not may_be_missing:
        raise UserError(
            f"metric_for_best_model='{metric}' is not among the metrics of step {step}{did_you_mean(metric, logs)}: "
            "name one that metrics.jsonl holds."
        )
    value = finite_or_none(logs.get(metric))
    kept = [read_monitor(folder) for folder in earlier]
    counts = [other["checkpoints"] for other in kept if other and other["metric"] == metric]
    return {
        "metric": metric,
        "greater_is_better": args.greater_is_better,
        "value": value,
        "step": step,
        "checkpoints": max(counts, default=0) + (value is not None),
    }


def read_monitor(folder: Path) -> dict | None:
    """What `monitor` left in a checkpoint; None where it left nothing or that cannot be read."""
    try:
        kept = json.loads((folder / STATE).read_text())["monitor"]
        return kept if kept.keys() >= {"metric", "greater_is_better", "value", "step", "checkpoints"} else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def best_first(folders: Sequence[Path]) -> list[Path]:
    """Return the checkpoints that have a value of the newest one's metric, the best first, of equal ones the oldest.

    folders: oldest first.
    """
    newest = read_monitor(folders[-1]) if folders else None
    if newest is None:
        return []
    values = {}
    for folder in folders:
        kept = read_monitor(folder)
        if kept and kept["metric"] == newest["metric"] and kept["value"] is not None:
            values[folder] = kept["value"]
    sign = -1 if newest["greater_is_better"] else 1
    return sorted(values, key=lambda folder: sign * values[folder])  # a stable sort


def choice_of(folders: Sequence[Path]) -> dict | None:
    """Return metric, greater_is_better, value and step of the best checkpoint, and among how many it was chosen.

    folders: the checkpoints, oldest first. Those dropped since are counted. None where none has a value.
    """
    best = best_first(folders)
    if not best:
        return None
    return read_monitor(best[0]) | {"checkpoints": read_monitor(folders[-1])["checkpoints"]}

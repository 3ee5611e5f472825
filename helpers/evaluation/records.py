"""Per-item records of a model on a task, one JSON object a line."""

import json
from pathlib import Path

from helpers.rewards.matmul import is_cheat, judge
from helpers.runtime import UserError, write_whole


def evaluate(engine, dataset, params, name):
    """Answer every prompt once and judge the programs.

    engine: `RolloutEngine`. dataset: rows of `load_task("matmul", "heldout", ...)`.
    params: `SamplingParams`; the same seed gives both models of a comparison the same luck.
    name: of the model, kept in every record.

    Returns: list[dict] with id, cluster, model, ran, correct, cheat, reason, sandbox (its level), speedup (0 unless
    correct), tokens, finish_reason, thinking, completion.
    """
    completions = engine.generate(dataset["prompt"], params)
    verdicts = judge([c.message for c in completions], [c.finish_reason for c in completions])
    unjudged = [verdict.reason for verdict in verdicts if not verdict.judged]
    if unjudged:  # a failure of ours, which must not count as the model's
        raise UserError(f"{len(unjudged)} programs could not be judged ({unjudged[0]}): run the evaluation again.")
    return [
        {
            "id": row["id"],
            "cluster": row["cluster"],
            "model": name,
            "ran": verdict.ran,
            "correct": verdict.correct,
            "cheat": is_cheat(verdict),
            "reason": verdict.reason,
            "sandbox": verdict.level,
            "speedup": verdict.speedup,
            "tokens": len(completion.token_ids),
            "finish_reason": completion.finish_reason,
            "thinking": completion.thinking,
            "completion": completion.text,
        }
        for row, completion, verdict in zip(dataset, completions, verdicts, strict=True)
    ]


def trained_on(origin):
    """One line on how an adapter came about. origin: what the trainer left beside it, `trainer_state.json`."""
    settings = origin["settings"]
    names = settings["reward_funcs"]
    weights = settings.get("reward_weights") or [1] * len(names)
    paid = ", ".join(name for name, weight in zip(names, weights, strict=True) if weight)
    level = settings.get("sandbox", "os")
    judged = "" if level == "os" else f", judged at sandbox level {level}"
    return f"{origin['step']} steps, learning rate {settings['learning_rate']:g}, on {paid}{judged}"


def save_records(path, records):
    """Write records as JSON lines, whole or not at all."""
    write_whole(path, "".join(json.dumps(record) + "\n" for record in records))


def load_records(path):
    """Read what `save_records` wrote."""
    try:
        return [json.loads(line) for line in Path(path).read_text().splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"Cannot read the records in {path} ({error}): run the evaluation again.") from error

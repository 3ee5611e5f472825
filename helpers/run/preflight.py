"""What a run will do, in a few lines, before anything is loaded."""

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from helpers.evaluation.power import POWER, chance_of_win
from helpers.evaluation.records import SweepPlan
from helpers.grpo.config import GRPOConfig
from helpers.grpo.optimizer import learning_rates
from helpers.run.opening import SETTINGS_FILE, Run
from helpers.runtime import GIB, ROOT, is_finite_number
from helpers.tasks import CustomTask, Task

#: Characters of the learning-rate curve, lowest first.
BARS = "▁▂▃▄▅▆▇█"
#: Most characters of the curve.
CURVE = 40
#: A warm-up longer than this share of the run is worth a word.
LONG_WARMUP = 0.2
#: A learning rate below this share of `learning_rate` moves next to nothing. Where that is so in more than this share
#: of the steps after the warm-up, it is worth a word, too: a linear fall to 0 spends a tenth of them there, a cosine a
#: fifth.
LITTLE = 0.1
MANY_STEPS = 0.15
KEEPING_A_FLOOR = """LR_SCHEDULER_TYPE=cosine_with_min_lr LR_SCHEDULER_KWARGS='{"min_lr_rate": 0.1}'"""
#: The share that the base is taken to solve, where a planned evaluation is judged.
BASE_RATE = 0.5
#: Settings that decide how long a step takes, and must be equal where an earlier run's step is quoted.
OF_A_STEP = (
    "model", "experts", "dense", "lora_r", "lora_targets", "per_device_train_batch_size", "gradient_accumulation_steps",
    "steps_per_generation", "num_iterations", "num_generations", "max_completion_length", "task", "data",
    "source",
)  # fmt: skip


def preflight(run: Run) -> str:
    """Return what a run will do: its settings, steps, learning rates, memory and time, and what has no effect."""
    config = run.config
    lines = [
        str(run),
        config.describe_run(len(run.train_dataset)),
        describe_learning_rates(config),
        describe_evaluation(run.sweep, run.profile.win_margin, _available(run.task)),
        _describe_memory(run),
        _describe_time(run),
        *run.notes,
    ]
    return "\n".join(lines)


def describe_learning_rates(config: GRPOConfig) -> str:
    """Return the curve of the learning rate over the steps of the run, with its height at the start, top and end."""
    last = config.max_steps - 1
    count = min(CURVE, config.max_steps)
    shown = [round(place * last / max(1, count - 1)) for place in range(count)]
    step_of_top = min(config.warmup_count, last)
    first_rate, top, last_rate, *curve = learning_rates(config, [0, step_of_top, last, *shown])
    sentence = (
        f"learning rate: {draw_curve(curve)}  {first_rate:.3g} in step 1, at most {top:.3g} (step {step_of_top + 1}), "
        f"{last_rate:.3g} in step {last + 1}."
    )
    if top == 0:
        return f"{sentence} Nothing will be learned."
    share = config.warmup_count / config.max_steps
    if share > LONG_WARMUP:
        return f"{sentence} The warm-up takes {share:.0%} of the run: a shorter one, or more steps, would teach more."
    rates = learning_rates(config, range(config.warmup_count, config.max_steps))
    little = sum(rate < LITTLE * config.learning_rate for rate in rates) / len(rates)
    if little > MANY_STEPS:
        return (
            f"{sentence} In {little:.0%} of the steps after the warm-up it is below a tenth of "
            f"{config.learning_rate:g}: {KEEPING_A_FLOOR} keeps a floor under it."
        )
    return sentence


def describe_evaluation(plan: SweepPlan, win_margin: float, available: int | None = None) -> str:
    """Return how large a gain an evaluation of this size can see, by simulation (`chance_of_win`).

    available: the prompts that there are; None: as many as are asked for.
    """
    asked = f"evaluation: {plan.items} prompts"
    if available is not None and available < plan.items:
        asked = f"evaluation: {available} prompts ({plan.items} were asked for)"
        plan = replace(plan, items=available)
    asked += f" at {len(plan.temperatures)} temperatures"
    for points in range(1, 50):
        gain = points / 100
        if gain > win_margin and chance_of_win(plan, win_margin, BASE_RATE, gain) >= POWER:
            return (
                f"{asked}; on a base of {BASE_RATE:.0%}, a true gain of {points} points or more would be called a win "
                f"in {POWER:.0%} of such evaluations. Smaller gains need more (ITEMS)."
            )
    return f"{asked}, which can show no gain at all: ask more (ITEMS)."


def _available(task: Task) -> int | None:
    """Return how many prompts can decide; None for a task that makes as many as it is asked for."""
    return len(task.kept.positions["confirm"]) if isinstance(task, CustomTask) else None


def draw_curve(values: Sequence[float]) -> str:
    """Return a line of bars, as high as the values, from 0 on."""
    top = max(values) or 1.0
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in values)


def _describe_memory(run: Run) -> str:
    plan = run.config.memory_plan(run.profile)
    predicted = f"memory: {plan.total / GIB:.2f} GiB predicted"
    if plan.available is None:
        return f"{predicted}, on the CPU."
    fits = "it fits" if plan.fits else "it does not fit: take a smaller batch or shorter completions"
    return f"{predicted} of {plan.available / GIB:.2f}, so {fits}."


def _describe_time(run: Run) -> str:
    """Return how long the training will take, by the newest run here whose steps were of this size."""
    found = _earlier_run(run)
    if found is None:
        return "time: not known, as no run with steps of this size is under runs/; DRY_RUN=1 times one step."
    name, seconds = found
    minutes = seconds * run.config.max_steps / 60
    return f"time: about {minutes:.1f} minutes of training, by the {seconds:.1f} s a step took in runs/{name}."


def _earlier_run(run: Run) -> tuple[str, float] | None:
    """Return the name of the newest run under runs/ with steps of the same size, and the seconds of its median step."""
    wanted = json.loads(json.dumps(run.all_settings(), default=str))
    folders = [path.parent for path in (ROOT / "runs").glob(f"*/{SETTINGS_FILE}")]
    folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in folders:
        try:
            saved = json.loads((folder / SETTINGS_FILE).read_text())
            if any(saved.get(name) != wanted.get(name) for name in OF_A_STEP):
                continue
            lines = (folder / "grpo" / "metrics.jsonl").read_text().splitlines()
            times = [json.loads(line)["step_time"] for line in lines]
        except (OSError, ValueError, KeyError):
            continue  # a run that has no whole step yet, or a file that is being written
        times = [seconds for seconds in times if is_finite_number(seconds)]
        if times:
            return folder.name, median(times)
    return None

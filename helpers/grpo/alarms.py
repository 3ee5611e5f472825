"""Tells when a run learns nothing or is about to go wrong, from its rows of metrics alone.

Every function here is pure, and what it looks at is in `metrics.jsonl`: a resumed run raises the alarms that the
uninterrupted one would have raised. A value that a row lacks, or that is None there, raises none.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.grpo.monitor import FIRST_STEPS
from helpers.runtime import UserError

#: A warning is given when it begins and, while it lasts, again after so many steps.
STEPS_BETWEEN = 10
#: How many steps in a row must be beyond a bound that single steps may pass by chance.
STEPS_IN_A_ROW = 3

Row = dict
History = Sequence[Row]


@dataclass(frozen=True)
class Alarm:
    """name: a short label. sentence: what is wrong, why, and what to do. stops: whether going on is of no use."""

    name: str
    sentence: str
    stops: bool = False


@dataclass(frozen=True)
class AlarmLimits:
    """When an alarm is raised; None turns one off.

    no_signal_steps: stop after so many steps in a row from which nothing could be learnt.
    entropy_share: warn when the entropy is below this share of its mean in the run's first steps.
    effective_sample_size: warn when a smaller share of the samples than this carries a step.
    difference_growth: warn when the mean difference between the sampler's and the trainer's log-probabilities is so
        many times its mean in the run's first steps.
    difference_floor: differences below this, in nats a token, are no reason to warn, however much they grew.
    largest_ratio: warn when a token became so many times as likely as it was when it was drawn.
    memory_share: warn when tensors took more than this share of the GPU's memory in a step.
    """

    no_signal_steps: int | None = 10
    entropy_share: float | None = 0.25
    effective_sample_size: float | None = 0.5
    difference_growth: float | None = 3.0
    difference_floor: float = 0.01
    largest_ratio: float | None = 10.0
    memory_share: float | None = 0.95

    def __post_init__(self):
        if self.no_signal_steps is not None and self.no_signal_steps < 1:
            raise UserError(
                f"no_signal_steps must be at least 1, or None never to stop a run for this; got {self.no_signal_steps}."
            )


def check_alarms(history: History, limits: AlarmLimits) -> list[Alarm]:
    """Return the alarms of the last step, those that stop the run first.

    history: the run's rows from its first step on, as in metrics.jsonl. An alarm that stops the run is given at each
    step where it holds, so that it also stops a run that was resumed without a change.
    """
    if not history:
        return []
    alarms = []
    for name, check in STOPS.items():
        sentence = check(history, len(history), limits)
        if sentence is not None:
            alarms.append(Alarm(name, sentence, stops=True))
    for name, check in WARNINGS.items():
        if _is_due(check, history, limits):
            alarms.append(Alarm(name, check(history, len(history), limits)))
    return alarms


def _is_due(check: Callable, history: History, limits: AlarmLimits) -> bool:
    """Tell whether a warning begins with the last row, or has lasted a multiple of STEPS_BETWEEN steps since."""
    lasted = 0
    while lasted < len(history) and check(history, len(history) - lasted, limits) is not None:
        lasted += 1
    return lasted % STEPS_BETWEEN == 1


# Each check below takes the history, how many of its rows are known (`count`), and the limits. It returns the sentence
# for the last known row, or None where there is nothing to say.


def _no_signal(history: History, count: int, limits: AlarmLimits) -> str | None:
    steps = limits.no_signal_steps
    if steps is None or count < steps:
        return None
    reasons = [no_signal_reason(row) for row in history[count - steps : count]]
    if None in reasons:
        return None
    reason, times = Counter(reasons).most_common(1)[0]
    during = f"the last {steps} steps" if steps > 1 else "the last step"
    mostly = "" if times == steps else f", in {times} of them"
    return f"Nothing could be learnt in {during}{mostly} because {NO_SIGNAL[reason]}."


#: Why nothing could be learnt, and what to do.
NO_SIGNAL = {
    "masked": (
        "all completions were cut off at max_completion_length and mask_truncated_completions leaves those out: raise "
        "max_completion_length, or lower the reasoning effort"
    ),
    "advantages masked": (
        "all completions that differ from their group were cut off at max_completion_length and "
        "mask_truncated_completions leaves those out: raise max_completion_length, or lower the reasoning effort"
    ),
    "no rewards": (
        "every reward function returned None for every completion: look at what the functions read, the columns of "
        "train_dataset above all"
    ),
    "no weights": (
        "no reward with a weight other than 0 gave a number: look at reward_weights, and at what the weighted "
        "functions read"
    ),
    "cut off": (
        "all completions were cut off at max_completion_length and earned the same as the others of their group: raise "
        "max_completion_length, or lower the reasoning effort"
    ),
    "equal rewards": (
        "the completions of each prompt all earned the same reward: use prompts that the model solves sometimes, a "
        "reward that tells more answers apart, a higher temperature or more num_generations"
    ),
    "discarded": (
        "the correction for the difference between sampler and trainer discarded all completions: look at "
        "sampling/sampling_logp_difference, and loosen the bounds of the correction"
    ),
    "no gradient": (
        "the gradient was exactly 0, though rewards differed: look at clip_ratio, and lower num_iterations or "
        "learning_rate"
    ),
}


def no_signal_reason(row: Row) -> str | None:
    """Return the key in NO_SIGNAL of why nothing could be learnt from a step; None where something could."""
    if _number(row, "completions/masked_ratio") == 1:
        return "masked"
    if _advantages_are_zero(row):
        return _zero_advantages_reason(row)
    if _number(row, "grad_norm") != 0:
        return None
    return "discarded" if _number(row, "sampling/kept_ratio") == 0 else "no gradient"


def _advantages_are_zero(row: Row) -> bool:
    """Tell whether no completion in the loss has an advantage other than 0."""
    nonzero_ratio = _number(row, "advantages/nonzero_ratio")
    if nonzero_ratio is not None:
        return nonzero_ratio == 0
    return _number(row, "frac_reward_zero_std") == 1


def _zero_advantages_reason(row: Row) -> str:
    if "reward" in row and _number(row, "reward") is None:
        means = [name for name in row if name.startswith("rewards/") and name.endswith("/mean")]
        some_are_known = any(_number(row, name) is not None for name in means)
        return "no weights" if some_are_known else "no rewards"
    equal_groups = _number(row, "frac_reward_zero_std")
    if equal_groups is not None and equal_groups < 1:
        return "advantages masked"
    if _number(row, "completions/clipped_ratio") == 1:
        return "cut off"
    return "equal rewards"


def _nonfinite_reward(history: History, count: int, limits: AlarmLimits) -> str | None:
    row = history[count - 1]
    share = _number(row, "completions/nonfinite_reward_ratio") or 0
    totals = (row.get("reward"), row.get("reward_std"))
    total_is_finite = all(math.isfinite(total) for total in totals if isinstance(total, float))
    if share == 0 and total_is_finite:
        return None
    whose = f"{share:.0%} of the completions" if share else "the completions"
    return (
        f"The rewards of {whose}, times reward_weights, add up to no finite number: return smaller rewards or set "
        "smaller reward_weights, and start in a new run folder."
    )


def _entropy_collapse(history: History, count: int, limits: AlarmLimits) -> str | None:
    at_first = _first_mean(history, "entropy")
    latest = _latest(history, count, "entropy")
    if limits.entropy_share is None or at_first is None or latest is None:
        return None
    if max(latest) >= limits.entropy_share * at_first:
        return None
    return (
        f"Entropy collapse: {latest[-1]:.3g} nats a token, {at_first:.3g} in the first steps, so completions become "
        "alike and less and less is tried: lower learning_rate, raise epsilon_high or temperature, or stop here and "
        "evaluate an earlier checkpoint."
    )


def _small_sample(history: History, count: int, limits: AlarmLimits) -> str | None:
    share = _number(history[count - 1], "sampling/effective_sample_size")
    if limits.effective_sample_size is None or share is None or share >= limits.effective_sample_size:
        return None
    return (
        f"The effective sample size is {share:.0%} of the samples, so a few of them decide the step: sampler and "
        "trainer compute differently, so look at sampling/sampling_logp_difference, the dtype and router_replay."
    )


def _growing_difference(history: History, count: int, limits: AlarmLimits) -> str | None:
    name = "sampling/sampling_logp_difference/mean"
    at_first = _first_mean(history, name)
    latest = _latest(history, count, name)
    if limits.difference_growth is None or at_first is None or latest is None:
        return None
    if min(latest) <= max(limits.difference_growth * at_first, limits.difference_floor):
        return None
    return (
        f"Sampler and trainer drift apart: their log-probabilities differ by {latest[-1]:.3g} nats a token, "
        f"{at_first:.3g} in the first steps, and a run can fall apart from that alone: lower learning_rate, go back to "
        "an earlier checkpoint, and if it grows at learning_rate 0 too, the sampler's weights are not the trainer's."
    )


def _ratio_outlier(history: History, count: int, limits: AlarmLimits) -> str | None:
    largest = _number(history[count - 1], "ratio/max")
    if limits.largest_ratio is None or largest is None or largest <= limits.largest_ratio:
        return None
    return (
        f"A token became {largest:.3g} times as likely as when it was drawn, so the step rests on outliers: lower "
        "learning_rate or num_iterations."
    )


def _memory_is_short(history: History, count: int, limits: AlarmLimits) -> str | None:
    share = _number(history[count - 1], "memory/peak_share")
    if limits.memory_share is None or share is None or share <= limits.memory_share:
        return None
    return (
        f"{share:.0%} of the GPU's memory was taken at the peak of the step, and a longer completion may not fit: "
        "lower per_device_train_batch_size, max_completion_length or num_generations."
    )


#: Name of an alarm -> its check.
STOPS = {"no signal": _no_signal, "nonfinite reward": _nonfinite_reward}
WARNINGS = {
    "entropy": _entropy_collapse,
    "effective sample size": _small_sample,
    "sampler and trainer": _growing_difference,
    "ratio": _ratio_outlier,
    "memory": _memory_is_short,
}


def _number(row: Row, name: str) -> float | None:
    """Return a row's value where it is a finite number, else None."""
    value = row.get(name)
    is_number = isinstance(value, (int, float)) and math.isfinite(value)
    return value if is_number else None


def _first_mean(history: History, name: str) -> float | None:
    """Return the mean over the run's first steps; None where it is not known in any of them."""
    values = [_number(row, name) for row in history[:FIRST_STEPS]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _latest(history: History, count: int, name: str) -> list[float] | None:
    """Return the last STEPS_IN_A_ROW values, all of them after the first steps; None where one is not known."""
    start = count - STEPS_IN_A_ROW
    if start < FIRST_STEPS:
        return None
    values = [_number(row, name) for row in history[start:count]]
    return None if None in values else values

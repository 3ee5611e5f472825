"""Tells when a run learns nothing or is about to go wrong, from its rows of metrics alone.

Every function here is pure, and what it looks at is in `metrics.jsonl`: a resumed run raises the alarms that the
uninterrupted one would have raised. A value that a row lacks, or that is None there, raises none.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from helpers.grpo.monitor import FIRST_STEPS
from helpers.runtime import finite_or_none, is_finite_number

#: A warning is given when it begins and, while it lasts, again after so many steps.
STEPS_BETWEEN = 10
#: How many steps in a row must be beyond a bound that single steps may pass by chance.
STEPS_IN_A_ROW = 3

# The limits of the warnings.
#: Entropy, as a share of its mean in the run's first steps.
LEAST_ENTROPY = 0.25
#: Share of the samples that carries a step.
LEAST_SAMPLE_SIZE = 0.5
#: Mean difference between the sampler's and the trainer's log-probabilities, over its mean in the first steps; a
#: difference below the floor, in nats a token, is no reason to warn, however much it grew.
MOST_GROWTH = 3.0
DIFFERENCE_FLOOR = 0.01
#: How many times as likely a token may become as it was when it was drawn.
LARGEST_RATIO = 10.0
#: Share of the GPU's memory that tensors take in a step.
MOST_MEMORY = 0.95

Row = dict
History = Sequence[Row]


@dataclass(frozen=True)
class Alarm:
    """name: a short label. sentence: what is wrong, why, and what to do. stops: whether going on is of no use."""

    name: str
    sentence: str
    stops: bool = False


class Rule(NamedTuple):
    """An alarm of the table below.

    name: a short label. find: of the history, what the sentence says in numbers; None where nothing is wrong with the
    last step. sentence: what is wrong, why, and what to do, with the numbers' names in braces. stops: whether going on
    is of no use.
    """

    name: str
    find: Callable[[History], dict | None]
    sentence: str
    stops: bool = False

    def alarm(self, history: History) -> Alarm | None:
        """Return the alarm of the last step, None where nothing is wrong with it."""
        found = self.find(history)
        return None if found is None else Alarm(self.name, self.sentence.format(**found), self.stops)


def check_alarms(history: History, no_signal_steps: int | None) -> list[Alarm]:
    """Return the alarms of the last step, those that stop the run first.

    history: the run's rows from its first step on, as in metrics.jsonl. no_signal_steps: stop after so many steps in a
    row from which nothing could be learnt; None: never. An alarm that stops the run is given at each step where it
    holds, so that it also stops a run that was resumed without a change.
    """
    if not history:
        return []
    rules = [*RULES]
    if no_signal_steps is not None:
        rules.insert(0, no_signal_rule(no_signal_steps))
    due = [rule for rule in rules if rule.stops or _is_due(rule, history)]
    alarms = [rule.alarm(history) for rule in sorted(due, key=lambda rule: not rule.stops)]
    return [alarm for alarm in alarms if alarm is not None]


def _is_due(rule: Rule, history: History) -> bool:
    """Tell whether a warning begins with the last row, or has lasted a multiple of STEPS_BETWEEN steps since."""
    lasted = 0
    while lasted < len(history) and rule.find(history[: len(history) - lasted]) is not None:
        lasted += 1
    return lasted % STEPS_BETWEEN == 1


def no_signal_rule(steps: int) -> Rule:
    """Return the rule that stops a run whose last `steps` steps taught nothing."""

    def find(history: History) -> dict | None:
        if len(history) < steps:
            return None
        reasons = [no_signal_reason(row) for row in history[-steps:]]
        if None in reasons:
            return None
        reason, times = Counter(reasons).most_common(1)[0]
        return {
            "during": f"the last {steps} steps" if steps > 1 else "the last step",
            "mostly": "" if times == steps else f", in {times} of them",
            "reason": NO_SIGNAL[reason],
        }

    return Rule("no signal", find, "Nothing could be learnt in {during}{mostly} because {reason}.", stops=True)


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


def _nonfinite_reward(history: History) -> dict | None:
    row = history[-1]
    share = _number(row, "completions/nonfinite_reward_ratio") or 0
    totals = (row.get("reward"), row.get("reward_std"))
    total_is_finite = all(is_finite_number(total) for total in totals if isinstance(total, float))
    if share == 0 and total_is_finite:
        return None
    return {"whose": f"{share:.0%} of the completions" if share else "the completions"}


def _entropy_collapse(history: History) -> dict | None:
    at_first = _first_mean(history, "entropy")
    latest = _latest(history, "entropy")
    if at_first is None or latest is None or max(latest) >= LEAST_ENTROPY * at_first:
        return None
    return {"latest": latest[-1], "at_first": at_first}


def _small_sample(history: History) -> dict | None:
    share = _number(history[-1], "sampling/effective_sample_size")
    return None if share is None or share >= LEAST_SAMPLE_SIZE else {"share": share}


def _growing_difference(history: History) -> dict | None:
    name = "sampling/sampling_logp_difference/mean"
    at_first = _first_mean(history, name)
    latest = _latest(history, name)
    if at_first is None or latest is None or min(latest) <= max(MOST_GROWTH * at_first, DIFFERENCE_FLOOR):
        return None
    return {"latest": latest[-1], "at_first": at_first}


def _ratio_outlier(history: History) -> dict | None:
    largest = _number(history[-1], "ratio/max")
    return None if largest is None or largest <= LARGEST_RATIO else {"largest": largest}


def _memory_is_short(history: History) -> dict | None:
    share = _number(history[-1], "memory/peak_share")
    return None if share is None or share <= MOST_MEMORY else {"share": share}


RULES = (
    Rule(
        "nonfinite reward",
        _nonfinite_reward,
        "The rewards of {whose}, times reward_weights, add up to no finite number: return smaller rewards or set "
        "smaller reward_weights, and start in a new run folder.",
        stops=True,
    ),
    Rule(
        "entropy",
        _entropy_collapse,
        "Entropy collapse: {latest:.3g} nats a token, {at_first:.3g} in the first steps, so completions become "
        "alike and less and less is tried: lower learning_rate, raise epsilon_high or temperature, or stop here and "
        "evaluate an earlier checkpoint.",
    ),
    Rule(
        "effective sample size",
        _small_sample,
        "The effective sample size is {share:.0%} of the samples, so a few of them decide the step: sampler and "
        "trainer compute differently, so look at sampling/sampling_logp_difference, the dtype and router_replay.",
    ),
    Rule(
        "sampler and trainer",
        _growing_difference,
        "Sampler and trainer drift apart: their log-probabilities differ by {latest:.3g} nats a token, "
        "{at_first:.3g} in the first steps, and a run can fall apart from that alone: lower learning_rate, go back to "
        "an earlier checkpoint, and if it grows at learning_rate 0 too, the sampler's weights are not the trainer's.",
    ),
    Rule(
        "ratio",
        _ratio_outlier,
        "A token became {largest:.3g} times as likely as when it was drawn, so the step rests on outliers: lower "
        "learning_rate or num_iterations.",
    ),
    Rule(
        "memory",
        _memory_is_short,
        "{share:.0%} of the GPU's memory was taken at the peak of the step, and a longer completion may not fit: "
        "lower per_device_train_batch_size, max_completion_length or num_generations.",
    ),
)


def _number(row: Row, name: str) -> float | None:
    """Return a row's value where it is a finite number, else None."""
    return finite_or_none(row.get(name))


def _first_mean(history: History, name: str) -> float | None:
    """Return the mean over the run's first steps; None where it is not known in any of them."""
    values = [_number(row, name) for row in history[:FIRST_STEPS]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _latest(history: History, name: str) -> list[float] | None:
    """Return the last STEPS_IN_A_ROW values, all of them after the first steps; None where one is not known."""
    if len(history) < FIRST_STEPS + STEPS_IN_A_ROW:
        return None
    values = [_number(row, name) for row in history[-STEPS_IN_A_ROW:]]
    return None if None in values else values

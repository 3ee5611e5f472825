"""Tells when a run learns nothing or goes wrong, from its rows of metrics alone.

Every function here is pure, and what it looks at is in `metrics.jsonl`: a resumed run raises the alarms that the
uninterrupted one would have raised. A value that a row lacks, or that is None there, raises none.

What chance may bring in one generation must last several. The optimizer steps on one generation count as one. Bounds
are absolute where the right value is known, so that they see what is wrong from the first step on.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from helpers.grpo.monitor import FIRST_STEPS
from helpers.grpo.no_signal import NO_SIGNAL, advantages_are_zero, no_signal_reason, number_in
from helpers.runtime import is_finite_number

#: A warning is given once, and again where it has grown by this factor.
GROWTH = 2.0
#: How many generations in a row must be beyond a bound that single ones may pass by chance.
IN_A_ROW = 3

# The limits of the warnings.
#: Entropy, as a share of its mean in the run's first steps.
LEAST_ENTROPY = 0.25
#: Entropy may double and rise by so many nats a token; beyond the second number the policy writes noise.
MOST_ENTROPY_RISE = 0.5
DESTROYED_ENTROPY_RISE = 1.5
#: Weights are in doubt from an entropy of 1.5 times the first plus so many nats on: a checkpoint from before is kept.
DOUBTFUL_ENTROPY_RISE = 0.1
#: Norm of the gradient, over its median in the first steps with something to learn, and the least norm that is too
#: large. From DOUBTFUL_GRADIENT on, weights are in doubt, and beyond the last pair the policy writes noise.
MOST_GRADIENT = 30.0
LEAST_LARGE_GRADIENT = 1.0
DOUBTFUL_GRADIENT = 10.0
DESTROYED_GRADIENT = 1000.0
LEAST_DESTROYED_GRADIENT = 100.0
#: How far the mean reward may stay below its best, in standard deviations of the rewards of single completions, and in
#: those of the mean from generation to generation.
MOST_REWARD_FALL = 0.75
MOST_REWARD_FALL_OVER_NOISE = 4.0
#: Generations that a mean reward is taken over, and that a fall must last.
REWARD_WINDOW = 5
#: Share of the samples that carries a step.
LEAST_SAMPLE_SIZE = 0.5
#: Mean difference between the sampler's and the trainer's log-probabilities, in nats a token: the absolute bound; and
#: its bound over its mean in the first steps, from a floor on.
MOST_DIFFERENCE = 0.05
MOST_DIFFERENCE_GROWTH = 3.0
DIFFERENCE_FLOOR = 0.01
#: By how many nats a token the tokens may be less or more likely than the policy's entropy says, in the mean over the
#: last generations, and how many standard errors of that mean it must be away from 0.
MOST_SURPRISE = 0.05
SURPRISE_ERRORS = 5.0
#: How many times as likely a token may become as it was when it was drawn.
LARGEST_RATIO = 10.0
#: Share of the GPU's memory that tensors take in a step.
MOST_MEMORY = 0.95

Row = dict
History = Sequence[Row]


@dataclass(frozen=True)
class Alarm:
    """name: a short label. sentence: what is wrong, why, and what to do. size: a number that grows with the trouble.

    stops: whether going on is of no use. destroys: whether the weights are in doubt, too.
    """

    name: str
    sentence: str
    size: float = 0.0
    stops: bool = False
    destroys: bool = False


class Rule(NamedTuple):
    """An alarm of the table below.

    name: a short label. find: of the history, what the sentence says in numbers, and "size"; None where nothing is
    wrong with the last step. sentence: what is wrong, why, and what to do, with the numbers' names in braces. stops,
    destroys: as for `Alarm`.
    """

    name: str
    find: Callable[[History], dict | None]
    sentence: str
    stops: bool = False
    destroys: bool = False

    def alarm(self, history: History) -> Alarm | None:
        """Return the alarm of the last step, None where nothing is wrong with it."""
        found = self.find(history)
        if found is None:
            return None
        return Alarm(self.name, self.sentence.format(**found), found.get("size", 0.0), self.stops, self.destroys)


def check_alarms(history: History, no_signal_steps: int | None) -> list[Alarm]:
    """Return the alarms of the last step, those that stop the run first.

    history: the run's rows from its first step on, as in metrics.jsonl, each with "monitor/alarms", {name: size} of the
    alarms that were given at that step. no_signal_steps: stop after so many steps in a row from which nothing could be
    learnt; None: never. An alarm that stops the run is given at each step where it holds, so that it also stops a run
    that was resumed without a change.
    """
    if not history:
        return []
    rules = [*RULES]
    if no_signal_steps is not None:
        rules.insert(0, no_signal_rule(no_signal_steps))
    found = {}
    for rule in rules:
        alarm = rule.alarm(history)
        if alarm is not None:
            found.setdefault(alarm.name, alarm)  # two rules of one name find one thing in two ways
    found |= {alarm.name: alarm for alarm in _monitor_alarms(history)}
    due = [alarm for alarm in found.values() if alarm.stops or _is_due(alarm, history)]
    return sorted(due, key=lambda alarm: not alarm.stops)


def _is_due(alarm: Alarm, history: History) -> bool:
    """Tell whether a warning was not given before, or has grown since."""
    earlier = [row.get("monitor/alarms") or {} for row in history[:-1]]
    given = [sizes[alarm.name] for sizes in earlier if alarm.name in sizes]
    return not given or alarm.size >= GROWTH * max(given)


def _monitor_alarms(history: History) -> list[Alarm]:
    """Return the signs of the monitor that have lasted; one of a task's tags is given at once."""
    row = history[-1]
    alarms = []
    found = row.get("monitor/found") or {}
    sentences = row.get("monitor/signs") or []
    for (name, size), sentence in zip(found.items(), sentences, strict=False):
        lasts = _lasts(history, lambda row, name=name: (row.get("monitor/found") or {}).get(name))
        if lasts or name.startswith("tag "):
            alarms.append(Alarm(name, sentence, size))
    return alarms


def last_good_step(history: History) -> int | None:
    """Return the last step before the weights came into doubt; None where they are not in doubt.

    A row tells of the weights that its step began with. So where row 7 is the first that is in doubt, the weights after
    step 6 are, and those after step 5 are the last good ones.
    """
    first_in_doubt = None
    for rows in reversed(_last_generations(history, len(history))):
        if not any(_is_in_doubt(row, history) for row in rows):
            break
        first_in_doubt = rows[0]["step"]
    if first_in_doubt is None:
        return None
    return max(0, first_in_doubt - 2)


def no_signal_rule(steps: int) -> Rule:
    """Return the rule that stops a run whose last `steps` steps taught nothing."""

    def find(history: History) -> dict | None:
        if len(history) < steps:
            return None
        reasons = [no_signal_reason(row) for row in history[-steps:]]
        if None in reasons:
            return None
        reason, times = Counter(reasons).most_common(1)[0]
        if reason == "cut off" and _came_to_an_end(history[:FIRST_STEPS]):
            reason = "collapsed"
        return {
            "during": f"the last {steps} steps" if steps > 1 else "the last step",
            "mostly": "" if times == steps else f", in {times} of them",
            "reason": NO_SIGNAL[reason],
        }

    return Rule("no signal", find, "Nothing could be learnt in {during}{mostly} because {reason}.", stops=True)


def _came_to_an_end(history: History) -> bool:
    """Tell whether most completions of some steps were not cut off."""
    shares = [number_in(row, "completions/clipped_ratio") for row in history]
    known = [share for share in shares if share is not None]
    return bool(known) and sum(known) / len(known) < 0.5


def _nonfinite_reward(history: History) -> dict | None:
    row = history[-1]
    share = number_in(row, "completions/nonfinite_reward_ratio") or 0
    totals = (row.get("reward"), row.get("reward_std"))
    total_is_finite = all(is_finite_number(total) for total in totals if isinstance(total, float))
    if share == 0 and total_is_finite:
        return None
    return {"whose": f"{share:.0%} of the completions" if share else "the completions"}


def _nan_rewards(history: History) -> dict | None:
    share = number_in(history[-1], "completions/nan_reward_ratio") or 0
    return {"share": share, "size": share} if share else None


def _only_nan_rewards(history: History) -> dict | None:
    row = history[-1]
    share = number_in(row, "completions/nan_reward_ratio")
    return {} if share == 1 and row.get("reward") is None else None


def _entropy_collapse(history: History) -> dict | None:
    at_first = _first_mean(history, "entropy")
    if at_first is None or len(history) < FIRST_STEPS + IN_A_ROW:
        return None
    latest = _lasts(history, lambda row: _below(row, "entropy", LEAST_ENTROPY * at_first))
    return None if latest is None else {"latest": latest, "at_first": at_first, "size": at_first / max(latest, 1e-9)}


def _entropy_rise(history: History) -> dict | None:
    at_first = _first_entropy(history)
    if at_first is None:
        return None
    latest = _lasts(history, lambda row: _above(row, "entropy", 2 * at_first + MOST_ENTROPY_RISE))
    return None if latest is None else {"latest": latest, "at_first": at_first, "size": latest}


def _first_entropy(history: History) -> float | None:
    """Return the first entropy that is known: before the first step, nothing can have been destroyed."""
    known = (number_in(row, "entropy") for row in history)
    return next((entropy for entropy in known if entropy is not None), None)


def _gradient_rise(history: History) -> dict | None:
    usual = _usual_gradient(history[:-IN_A_ROW])
    if usual is None:
        return None
    bound = max(MOST_GRADIENT * usual, LEAST_LARGE_GRADIENT)
    latest = _lasts(history, lambda row: _above(row, "grad_norm", bound))
    return None if latest is None else {"latest": latest, "usual": usual, "size": latest}


def _usual_gradient(history: History) -> float | None:
    """Return the median norm of the gradients of the first steps that had something to learn; None where none had.

    With equal rewards only the gradient of a KL term or of a balancing loss is left, which is no measure.
    """
    norms = []
    for row in history:
        norm = number_in(row, "grad_norm")
        if norm and not advantages_are_zero(row):
            norms.append(norm)
        if len(norms) == FIRST_STEPS:
            break
    return median(norms) if norms else None


def _looks_destroyed(row: Row, history: History) -> bool:
    """Tell whether a row is that of a policy that writes noise.

    Its entropy or its gradient are far up; or its entropy is up, and nothing can be learnt from its rewards, or its
    completions no longer end.
    """
    usual = _usual_gradient(history[:1]) or _usual_gradient(history)  # later steps may be destroyed already
    if usual is not None:
        bound = max(DESTROYED_GRADIENT * usual, LEAST_DESTROYED_GRADIENT)
        if _above(row, "grad_norm", bound) is not None:
            return True
    at_first = _first_entropy(history)
    if at_first is None:
        return False
    if _above(row, "entropy", 2 * at_first + DESTROYED_ENTROPY_RISE) is not None:
        return True
    no_longer_ends = _came_to_an_end(history[:1]) and not _came_to_an_end([row])
    is_useless = no_longer_ends or advantages_are_zero(row)
    return is_useless and _above(row, "entropy", 2 * at_first + MOST_ENTROPY_RISE) is not None


def _is_in_doubt(row: Row, history: History) -> bool:
    """Tell whether a row may be the beginning of what ends in a destroyed policy."""
    at_first = _first_entropy(history)
    has_more_entropy = at_first is not None and _above(row, "entropy", 1.5 * at_first + DOUBTFUL_ENTROPY_RISE)
    return bool(has_more_entropy or _above(row, "grad_norm", DOUBTFUL_GRADIENT))


def _destroyed_policy(history: History) -> dict | None:
    lasts = _lasts(history, lambda row: 1.0 if _looks_destroyed(row, history) else None)
    if lasts is None:
        return None
    row = history[-1]
    values = {"entropy": row.get("entropy"), "at_first": _first_entropy(history), "grad_norm": row.get("grad_norm")}
    return {name: math.nan if value is None else value for name, value in values.items()}


def _reward_collapse(history: History) -> dict | None:
    rewards = []
    stds = []
    for rows in _last_generations(history, len(history)):
        reward = number_in(rows[-1], "reward")
        std = number_in(rows[-1], "reward_std")
        if reward is not None and std is not None:
            rewards.append(reward)
            stds.append(std)
    if len(rewards) < 2 * REWARD_WINDOW:
        return None
    latest = max(rewards[-REWARD_WINDOW:])
    ends = range(REWARD_WINDOW, len(rewards) - REWARD_WINDOW + 1)
    best_end = max(ends, key=lambda end: sum(rewards[end - REWARD_WINDOW : end]))
    best = sum(rewards[best_end - REWARD_WINDOW : best_end]) / REWARD_WINDOW
    # where all earned the same at its best, the standard deviation of now says how far a mean may be from it
    spread_then = sum(stds[best_end - REWARD_WINDOW : best_end]) / REWARD_WINDOW
    spread_now = sum(stds[-REWARD_WINDOW:]) / REWARD_WINDOW
    spread = max(spread_then, spread_now)
    allowed = max(MOST_REWARD_FALL * spread, MOST_REWARD_FALL_OVER_NOISE * _noise(rewards[:best_end]))
    if latest >= best - allowed:
        return None
    return {"latest": latest, "best": best, "size": best - latest}


def _noise(values: Sequence[float]) -> float:
    """Return the standard deviation of a series around its trend, from the changes between neighbours."""
    changes = [later - earlier for earlier, later in zip(values, values[1:], strict=False)]
    return math.sqrt(sum(change**2 for change in changes) / (2 * len(changes)))


def _small_sample(history: History) -> dict | None:
    share = _lasts(history, _small_sample_of)
    return None if share is None else {"share": share, "size": 1 / share}


def _small_sample_of(row: Row) -> float | None:
    """Return the effective sample size of a row where it is too small, of bounded or unbounded weights."""
    names = ("sampling/effective_sample_size", "sampling/raw_effective_sample_size")
    shares = [share for name in names if (share := _below(row, name, LEAST_SAMPLE_SIZE)) is not None]
    return min(shares) if shares else None


DIFFERENCE = "sampling/sampling_logp_difference/mean"


def _large_difference(history: History) -> dict | None:
    latest = _lasts(history, lambda row: _above(row, DIFFERENCE, MOST_DIFFERENCE))
    return None if latest is None else {"latest": latest, "size": latest}


def _growing_difference(history: History) -> dict | None:
    at_first = _first_mean(history, DIFFERENCE)
    if at_first is None or len(history) < FIRST_STEPS + IN_A_ROW:
        return None
    bound = max(MOST_DIFFERENCE_GROWTH * at_first, DIFFERENCE_FLOOR)
    latest = _lasts(history, lambda row: _above(row, DIFFERENCE, bound))
    return None if latest is None else {"latest": latest, "at_first": at_first, "size": latest}


def _odd_draws(history: History) -> dict | None:
    generations = _last_generations(history, IN_A_ROW)
    known = [values for rows in generations for row in rows if (values := _surprise_of(row)) is not None]
    if len(known) < IN_A_ROW:
        return None
    surprise = sum(value for value, _ in known) / len(known)
    errors = sum(z for _, z in known) / math.sqrt(len(known))
    if abs(surprise) <= MOST_SURPRISE or abs(errors) <= SURPRISE_ERRORS:
        return None
    return {"surprise": abs(surprise), "less_or_more": "less" if surprise > 0 else "more", "size": abs(surprise)}


def _surprise_of(row: Row) -> tuple[float, float] | None:
    """Return by how much the tokens of a row surprise the policy, in nats a token and in standard errors."""
    surprise = number_in(row, "sampling/surprise")
    errors = number_in(row, "sampling/surprise_z")
    return None if surprise is None or errors is None else (surprise, errors)


def _ratio_outlier(history: History) -> dict | None:
    largest = _lasts(history, lambda row: _above(row, "ratio/max", LARGEST_RATIO))
    return None if largest is None else {"largest": largest, "size": largest}


def _memory_is_short(history: History) -> dict | None:
    share = _above(history[-1], "memory/peak_share", MOST_MEMORY)
    return None if share is None else {"share": share, "size": share}


RULES = (
    Rule(
        "nonfinite reward",
        _nonfinite_reward,
        "The rewards of {whose}, times reward_weights, add up to no finite number: return smaller rewards or set "
        "smaller reward_weights, and start in a new run folder.",
        stops=True,
    ),
    Rule(
        "only nan rewards",
        _only_nan_rewards,
        "Every completion got NaN as its reward, so nothing can be learnt: look at what the reward functions compute.",
        stops=True,
    ),
    Rule(
        "destroyed policy",
        _destroyed_policy,
        "The policy is destroyed: its entropy is {entropy:.3g} nats a token, {at_first:.3g} in the first step, and the "
        "norm of the gradient is {grad_norm:.3g}. Start in a new run folder with a lower learning_rate.",
        stops=True,
        destroys=True,
    ),
    Rule(
        "nan rewards",
        _nan_rewards,
        "{share:.0%} of the completions got NaN from a reward function, which counts as None: look at what it "
        "computes, and return None where a reward does not apply.",
    ),
    Rule(
        "entropy",
        _entropy_collapse,
        "Entropy collapse: {latest:.3g} nats a token, {at_first:.3g} in the first steps, so completions become "
        "alike and less and less is tried: lower learning_rate, raise epsilon_high or temperature, or stop here and "
        "evaluate an earlier checkpoint.",
    ),
    Rule(
        "entropy rise",
        _entropy_rise,
        "Entropy rises: {latest:.3g} nats a token, {at_first:.3g} in the first step, so the policy forgets what it "
        "could do: lower learning_rate, and evaluate an earlier checkpoint.",
    ),
    Rule(
        "gradient norm",
        _gradient_rise,
        "The norm of the gradient is {latest:.3g}, {usual:.3g} in the first steps: lower learning_rate, set "
        "max_grad_norm, and look at the rewards for outliers.",
    ),
    Rule(
        "reward collapse",
        _reward_collapse,
        "The mean reward has fallen to {latest:.3g} or less in the last generations, from {best:.3g} at its best: "
        "lower learning_rate, and evaluate an earlier checkpoint.",
    ),
    Rule(
        "effective sample size",
        _small_sample,
        "The effective sample size is {share:.0%} of the samples, so a few of them decide the step: sampler and "
        "trainer compute differently, so look at sampling/sampling_logp_difference, the dtype and router_replay.",
    ),
    Rule(
        "sampler and trainer",
        _large_difference,
        "Sampler and trainer disagree: their log-probabilities differ by {latest:.3g} nats a token, and in 16 bits "
        "0.02 are usual: the engine's weights, temperature or mask are not the trainer's.",
    ),
    Rule(
        "sampler and trainer",
        _growing_difference,
        "Sampler and trainer drift apart: their log-probabilities differ by {latest:.3g} nats a token, "
        "{at_first:.3g} in the first steps, and a run can fall apart from that alone: lower learning_rate, go back to "
        "an earlier checkpoint, and if it grows at learning_rate 0 too, the sampler's weights are not the trainer's.",
    ),
    Rule(
        "draws",
        _odd_draws,
        "The tokens are {surprise:.2g} nats {less_or_more} likely than the policy's entropy says, and chance does not "
        "explain it: the engine draws from another distribution than it reports, so look at its temperature and "
        "weights, and for a top_p or top_k.",
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


def _above(row: Row, name: str, bound: float) -> float | None:
    """Return a row's value where it is above a bound, else None."""
    value = number_in(row, name)
    return value if value is not None and value > bound else None


def _below(row: Row, name: str, bound: float) -> float | None:
    """Return a row's value where it is below a bound, else None."""
    value = number_in(row, name)
    return value if value is not None and value < bound else None


def _last_generations(history: History, count: int) -> list[list[Row]]:
    """Return the rows of each of the last `count` generations; those of one share the number of tokens drawn so far."""
    generations = []
    tokens = None
    for place in reversed(range(len(history))):
        row = history[place]
        previous, tokens = tokens, row.get("num_tokens", -place)  # without it each row is of a generation of its own
        if not generations or tokens != previous:
            if len(generations) == count:
                break
            generations.append([])
        generations[-1].append(row)
    return [rows[::-1] for rows in reversed(generations)]


def _lasts(history: History, find: Callable[[Row], float | None]) -> float | None:
    """Return what `find` says of the last generation, where it finds something in each of the last IN_A_ROW.

    find: returns a number, or None where nothing is wrong with a row. Of a generation with several optimizer steps, the
    last row counts in which it finds something.
    """
    latest = _last_generations(history, IN_A_ROW)
    if len(latest) < IN_A_ROW:
        return None
    found = None
    for rows in latest:
        values = [value for row in rows if (value := find(row)) is not None]
        if not values:
            return None
        found = values[-1]
    return found


def _first_mean(history: History, name: str) -> float | None:
    """Return the mean over the run's first steps; None where it is not known in any of them."""
    values = [number_in(row, name) for row in history[:FIRST_STEPS]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

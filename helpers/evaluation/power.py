"""What an evaluation can see, before it is run: the chance of a win, and the prompts that would give a good one.

All of it takes prompts as independent, which is the best case: prompts that are alike tell less.
"""

from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np
from scipy.stats import binom

from helpers.evaluation.records import SweepPlan
from helpers.evaluation.statistics import ALPHA, Z95, Difference, paired_interval
from helpers.runtime import UserError

#: A planned evaluation should have at least this chance of a win.
POWER = 0.8
Z80 = 0.841621
SIMULATED_RUNS = 2000
MOST_ITEMS = 5_000
#: From so many items on the normal approximation of the power is good to a point; below, all outcomes are counted.
MANY_ITEMS = 100


def least_gains(items: int, win_margin: float = 0.0) -> np.ndarray:
    """Return for each number of items on which two models differ, from 0 to `items`, how many of them the tuned model
    must have gained to beat the base: McNemar's exact test rejects, and the interval lies above `win_margin`.

    Where no number is enough, the number of items + 1 stands.
    """
    discordant = np.arange(items + 1)
    # The smallest number at which the test rejects: twice the upper tail of fair coins is at most ALPHA.
    least = binom.isf(ALPHA / 2, discordant, 0.5).astype(int) + 1
    # From there on both conditions stay true as the number grows, so the first for which they hold is bisected.
    low, high = least, np.maximum(least, discordant + 1)
    while (low < high).any():
        middle = (low + high) // 2
        is_enough = paired_interval(middle, discordant - middle, items)[0] > win_margin
        low, high = np.where(is_enough, low, np.minimum(middle + 1, high)), np.where(is_enough, middle, high)
    return np.where(low > discordant, items + 1, low)


def exact_power(items: int, gained_rate: float, lost_rate: float, win_margin: float = 0.0) -> float:
    """Return the probability that one comparison is a gain, counted over all outcomes.

    gained_rate, lost_rate: the probabilities that only the tuned, or only the base, model solves an item.
    """
    rate = gained_rate + lost_rate
    if not rate:
        return 0.0
    discordant = np.arange(items + 1)
    chance_of_gain = binom.sf(least_gains(items, win_margin) - 1, discordant, gained_rate / rate)
    return float(binom.pmf(discordant, items, rate) @ chance_of_gain)


def smallest_visible(found: Difference, win_margin: float = 0.0) -> float | None:
    """Return the difference that an evaluation like `found` would show with a power of 80 %.

    None: no difference at all.
    """
    low, high = found.interval
    if found.items >= MANY_ITEMS:
        return win_margin + (Z95 + Z80) * (high - low) / (2 * Z95)
    rate = max((found.gained + found.lost) / found.items, 1 / found.items)
    for points in range(1, 101):
        difference = points / 100
        discordant = max(rate, difference)
        gained_rate, lost_rate = (discordant + difference) / 2, (discordant - difference) / 2
        if exact_power(found.items, gained_rate, lost_rate, win_margin) >= POWER:
            return difference
    return None


@dataclass(frozen=True)
class Chance:
    """The chance that a plan sees a gain.

    gain: share, at every temperature. chance: of a win. items: prompts that would give a chance of 80 %, None where not
    even `MOST_ITEMS` do.
    """

    gain: float
    chance: float
    items: int | None


def chances_of_win(plan: SweepPlan, win_margin: float, base_rate: float, gains=(0.08, 0.15)) -> list[Chance]:
    """Return what a plan can see of gains of these sizes, by simulation (`chance_of_win`)."""
    return [
        Chance(
            gain,
            chance_of_win(plan, win_margin, base_rate, gain),
            items_for_power(plan, win_margin, base_rate, gain),
        )
        for gain in gains
    ]


def items_for_power(plan: SweepPlan, win_margin: float, base_rate: float, gain: float) -> int | None:
    """Return the number of prompts, to two digits, that gives a chance of 80 % of a win."""
    low, high = 10, MOST_ITEMS
    if gain <= win_margin:
        return None
    while high > low * 1.03:
        middle = round(sqrt(low * high))
        enough = chance_of_win(replace(plan, items=middle), win_margin, base_rate, gain) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    digits = 10 ** max(0, len(str(high)) - 2)
    return ceil(high / digits) * digits if high < MOST_ITEMS else None


def chance_of_win(plan: SweepPlan, win_margin: float, base_rate: float, gain: float) -> float:
    """Return the share of simulated evaluations that end in a win.

    The base answers a prompt correctly with probability `base_rate` at every temperature, the tuned model with `gain`
    more, each answer on its own. So no choice of a temperature helps the base, and all three comparisons have the same
    true difference. Raises UserError where there is no room for the gain.
    """
    if base_rate + gain > 1:
        raise UserError(f"A base that is right in {base_rate:.0%} cannot gain {100 * gain:.0f} points.")
    rng = np.random.default_rng(0)
    runs = min(SIMULATED_RUNS, max(200, 2_000_000 // plan.items))
    base = simulate_answers(rng, runs, plan, base_rate)
    tuned = simulate_answers(rng, runs, plan, base_rate + gain)
    return float(wins(base, tuned, plan.temperatures, win_margin).mean())


def simulate_answers(rng: np.random.Generator, runs: int, plan: SweepPlan, rate: float) -> np.ndarray:
    """Return whether each answer is right, with the same probability for all: [runs, temperatures, items]."""
    return rng.random((runs, len(plan.temperatures), plan.items), dtype=np.float32) < rate


def wins(base: np.ndarray, tuned: np.ndarray, temperatures: tuple[float, ...], win_margin: float) -> np.ndarray:
    """Tell which of several evaluations of independent items are wins: bool [runs].

    The rules are those of `compare`, but for its interval by clusters, which is a little wider here and there.

    base, tuned: whether each answer is right, bool [runs, temperatures, items].
    """
    items = base.shape[2]
    least = least_gains(items, win_margin)
    tuned_best = _at_own_best(tuned)
    bases = base[:, temperatures.index(0.0)], base[:, temperatures.index(1.0)], _at_own_best(base)
    are_wins = np.ones(len(base), dtype=bool)
    for answers in bases:
        gained = (tuned_best & ~answers).sum(1)
        lost = (answers & ~tuned_best).sum(1)
        are_wins &= gained >= least[gained + lost]
    return are_wins


def _at_own_best(answers: np.ndarray) -> np.ndarray:
    """The answers at the cross-fitted best temperatures: [runs, items]."""
    best = np.empty((answers.shape[0], answers.shape[2]), dtype=bool)
    for half in (0, 1):
        # Of equally good temperatures the lowest, which argmax finds first.
        chosen = answers[:, :, 1 - half :: 2].sum(2).argmax(1)
        best[:, half::2] = np.take_along_axis(answers[:, :, half::2], chosen[:, None, None], 1)[:, 0]
    return best

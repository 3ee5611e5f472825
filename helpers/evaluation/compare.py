"""Is the tuned model better? Paired statistics and one verdict in words."""

from dataclasses import asdict, dataclass
from math import sqrt

from scipy.stats import binomtest

from helpers.runtime import UserError

ALPHA = 0.05
#: A difference is called none if its whole interval lies within this, either way.
MARGIN = 0.05
Z95, Z80 = 1.959964, 0.841621


@dataclass(frozen=True)
class Report:
    """Two models on the same items. Rates and differences are shares (0.25 = 25 points).

    intervals: 95 %, (low, high). gained and lost: items that only the tuned, or only the base,
    model solved. smallest_visible: the difference this many items would show with 80 % power.
    verdict: "win", "regression", "null" or "inconclusive".
    """

    items: int
    base_rate: float
    base_interval: tuple
    tuned_rate: float
    tuned_interval: tuple
    difference: float
    difference_interval: tuple
    gained: int
    lost: int
    p_value: float
    smallest_visible: float
    base_cheat_rate: float
    tuned_cheat_rate: float
    verdict: str

    def sentence(self):
        """The verdict in words, with its numbers."""
        low, high = self.difference_interval
        change = (
            f"the tuned model passes {self.tuned_rate:.1%} of {self.items} held-out prompts and the base "
            f"{self.base_rate:.1%}: {100 * self.difference:+.1f} points, "
            f"95 % interval [{100 * low:+.1f}, {100 * high:+.1f}], "
            f"exact McNemar p = {self.p_value:.2g}"
        )
        meaning = {
            "win": "Win: it got better.",
            "regression": "Regression: it got worse.",
            "null": f"Null: no difference beyond {100 * MARGIN:.0f} points either way.",
            "inconclusive": f"Inconclusive: {self.items} items show {100 * self.smallest_visible:.0f} points or more.",
        }
        return f"{meaning[self.verdict]} {change[0].upper()}{change[1:]}."

    to_dict = asdict


def wilson_interval(successes, items):
    """95 % Wilson score interval of a share (Wilson, 1927)."""
    interval = binomtest(successes, items).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def mcnemar_exact(gained, lost):
    """Two-sided exact p-value that gains and losses are equally likely (McNemar, 1947); 1 without any."""
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def paired_difference(gained, lost, items):
    """`(difference, standard error)` of two 0/1 scores on the same items (Miller, 2024, section 4)."""
    difference = (gained - lost) / items
    return difference, sqrt(((gained + lost) / items - difference**2) / (items - 1))


def paired_interval(gained, lost, items):
    """95 % interval of the difference: half an observation more in each of the four cells.

    Without it, a handful of items on which the models agree would seem to prove that they are
    equal (Agresti and Min, Statistics in Medicine, 2005).
    """
    n = items + 2
    centre = (gained - lost) / n
    half = Z95 * sqrt(((gained + lost + 1) / n - centre**2) / n)
    return centre - half, centre + half


def verdict_of(difference, interval, p_value):
    """A "win" or "regression" where the test rejects, "null" where the interval is within MARGIN."""
    if p_value < ALPHA:
        return "win" if difference > 0 else "regression"
    return "null" if -MARGIN < interval[0] and interval[1] < MARGIN else "inconclusive"


def paired(base, tuned):
    """[(base record, tuned record)] of the same item, in the order of `base`."""
    by_id = {record["id"]: record for record in tuned}
    return [(record, by_id[record["id"]]) for record in base]


def compare(base, tuned):
    """`Report` on two lists of records of the same items. Raises UserError if the items differ."""
    if len(base) < 2:
        raise UserError(f"Two models cannot be compared on {len(base)} items: evaluate both on some hundreds.")
    if sorted(r["id"] for r in base) != sorted(r["id"] for r in tuned):
        raise UserError("The two models were not evaluated on the same items: evaluate both on the same data set.")
    pairs = [(before["correct"], after["correct"]) for before, after in paired(base, tuned)]
    n, gained, lost = len(pairs), pairs.count((False, True)), pairs.count((True, False))
    difference, _ = paired_difference(gained, lost, n)
    interval = paired_interval(gained, lost, n)
    p_value = mcnemar_exact(gained, lost)
    passed = [sum(record["correct"] for record in records) for records in (base, tuned)]
    return Report(
        items=n,
        base_rate=passed[0] / n,
        base_interval=wilson_interval(passed[0], n),
        tuned_rate=passed[1] / n,
        tuned_interval=wilson_interval(passed[1], n),
        difference=difference,
        difference_interval=interval,
        gained=gained,
        lost=lost,
        p_value=p_value,
        smallest_visible=(Z95 + Z80) * (interval[1] - interval[0]) / (2 * Z95),
        base_cheat_rate=sum(record["cheat"] for record in base) / n,
        tuned_cheat_rate=sum(record["cheat"] for record in tuned) / n,
        verdict=verdict_of(difference, interval, p_value),
    )

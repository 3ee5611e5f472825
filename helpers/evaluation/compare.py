"""Is the tuned model better? One verdict in words.

A model that has only become surer of itself also scores higher at temperature 1, and so does the base when its
temperature is lowered. So the tuned model at its own best temperature must beat the base greedy, at temperature 1, and
at the base's own best, and the headline is the smallest of these three differences. All three tests must reject, so no
correction for their number is due.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from helpers.evaluation.power import smallest_visible
from helpers.evaluation.records import TEMPERATURES, Evaluation, Record
from helpers.evaluation.statistics import Difference, difference
from helpers.runtime import UserError

#: A difference is called none if its whole interval lies within this, either way. A gain at temperature 1 is called
#: sharper if the interval at the own best temperatures ends below it.
NULL_MARGIN = 0.05


@dataclass(frozen=True)
class Report:
    """Two models on the same prompts. Rates and differences are shares (0.25 = 25 points).

    temperatures: the grid. base_temperatures, tuned_temperatures: each model's own best, of the two halves of the
    prompts (`Evaluation`). best: the tuned model against the base, each at its own best. against_greedy,
    against_sampled: the tuned model at its best against the base greedy and at temperature 1. greedy, sampled: both
    greedy, and both at temperature 1. win_margin: what the lower end of all three intervals must exceed for a win.
    base_outcomes, tuned_outcomes: the share of each outcome at temperature 1. verdict: "win", "sharper", "null",
    "inconclusive" or "regression".
    """

    temperatures: list[float]
    base_temperatures: list[float]
    tuned_temperatures: list[float]
    best: Difference
    against_greedy: Difference
    against_sampled: Difference
    greedy: Difference
    sampled: Difference
    win_margin: float
    base_outcomes: dict[str, float]
    tuned_outcomes: dict[str, float]

    @property
    def headline(self) -> Difference:
        """The smallest of the three differences that a win needs."""
        return self._against()[self.headline_base]

    @property
    def headline_base(self) -> str:
        """The base's side of the headline: "at its own best temperature", "greedy" or "at temperature 1"."""
        against = self._against()
        return min(against, key=lambda name: against[name].difference)

    def _against(self) -> dict[str, Difference]:
        """Return the three differences of the tuned model at its best, each by what the base did."""
        return {
            "at its own best temperature": self.best,
            "greedy": self.against_greedy,
            "at temperature 1": self.against_sampled,
        }

    @property
    def missing_temperatures(self) -> list[float]:
        """The temperatures that a win needs and this grid lacks."""
        return sorted(set(TEMPERATURES) - set(self.temperatures))

    @property
    def verdict(self) -> str:
        if self._is_gain() and not self.missing_temperatures:
            return "win"
        if self.best.is_loss:
            return "regression"
        low, high = self.best.interval
        if self.best.is_gain or high >= NULL_MARGIN:
            return "inconclusive"
        if self.sampled.is_gain:
            return "sharper"
        return "null" if low > -NULL_MARGIN else "inconclusive"

    def _is_gain(self) -> bool:
        """Tell whether all three tests reject, with their intervals above the margin."""
        return all(found.is_gain and found.interval[0] > self.win_margin for found in self._against().values())

    def sentence(self) -> str:
        """Return the verdict with its numbers."""
        found = self.headline
        numbers = (
            f"the tuned model at its own best temperature ({show_temperatures(self.tuned_temperatures)}) solves "
            f"{found.tuned_rate:.1%} of {found.items} held-out prompts in {found.clusters} clusters and the base "
            f"{self.headline_base} {found.base_rate:.1%}, which is the smallest of three differences: "
            f"{show_difference(found)}, {show_p(found)}"
        )
        others = ", ".join(
            f"{show_difference(other)} against the base {name}"
            for name, other in self._against().items()
            if name != self.headline_base
        )
        if self.verdict == "inconclusive":
            return f"{self._inconclusive()}; {numbers}; {others}."
        meaning = {
            "win": "Win: it got better",
            "regression": "Regression: it got worse",
            "sharper": (
                f"Sharper, not better: at temperature 1 it gained {show_difference(self.sampled)}, but at the own best "
                f"temperatures a gain of {100 * NULL_MARGIN:.0f} points is excluded"
            ),
            "null": f"Null: no difference beyond {100 * NULL_MARGIN:.0f} points either way",
        }
        return f"{meaning[self.verdict]}; {numbers}; {others}."

    def _inconclusive(self) -> str:
        if self._is_gain():
            missing = ", ".join(f"{temperature:g}" for temperature in self.missing_temperatures)
            return (
                f"Inconclusive: a gain, but the temperatures {missing} were not tried, and a base that is right there "
                "would seem to gain by being cooled"
            )
        unbeaten = [name for name, found in self._against().items() if not found.is_gain]
        if self.best.is_gain and unbeaten:
            return (
                "Inconclusive: better than the base at its own best temperature, but not than the base "
                f"{' and '.join(unbeaten)}"
            )
        if not unbeaten:
            return (
                f"Inconclusive: a gain, but its interval does not lie above the {100 * self.win_margin:+.0f} points "
                "that a win needs here"
            )
        visible = smallest_visible(self.headline, self.win_margin)
        if visible is None:
            return "Inconclusive: so few prompts cannot show any difference"
        return f"Inconclusive: so many prompts show a difference of {100 * visible:.0f} points or more"

    def to_dict(self) -> dict:
        """Return plain values, for JSON."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def from_dict(cls, saved: dict) -> "Report":
        """Rebuild what `to_dict` wrote; other keys are left out."""
        values = {field.name: saved[field.name] for field in fields(cls)}
        comparisons = {field.name for field in fields(cls) if field.type is Difference}
        return cls(**{name: Difference(**value) if name in comparisons else value for name, value in values.items()})


def compare(base: Evaluation, tuned: Evaluation, win_margin: float = 0.0) -> Report:
    """Compare two models, each at its own best temperature.

    win_margin: what the lower end of all three intervals must exceed for a win, fixed before the run.

    Raises UserError if the two were not evaluated alike, with other temperatures or other prompts, or without greedy
    and temperature 1.
    """
    _check_alike(base, tuned)
    base_greedy, tuned_greedy = base.records[0.0], tuned.records[0.0]
    base_sampled, tuned_sampled = base.records[1.0], tuned.records[1.0]
    return Report(
        temperatures=sorted(base.records),
        base_temperatures=list(base.best_temperatures),
        tuned_temperatures=list(tuned.best_temperatures),
        best=compare_records(base.best, tuned.best),
        against_greedy=compare_records(base_greedy, tuned.best),
        against_sampled=compare_records(base_sampled, tuned.best),
        greedy=compare_records(base_greedy, tuned_greedy),
        sampled=compare_records(base_sampled, tuned_sampled),
        win_margin=win_margin,
        base_outcomes=outcome_rates(base_sampled),
        tuned_outcomes=outcome_rates(tuned_sampled),
    )


def compare_records(base: Sequence[Record], tuned: Sequence[Record]) -> Difference:
    """Compare two lists of records of the same items, clustered by `cluster`. Raises UserError if the items differ."""
    if len(base) < 2:
        raise UserError(f"Two models cannot be compared on {len(base)} items: evaluate both on some hundreds.")
    pairs = paired(base, tuned)
    return difference(
        base=[before["correct"] for before, _ in pairs],
        tuned=[after["correct"] for _, after in pairs],
        clusters=[before["cluster"] for before, _ in pairs],
    )


def paired(base: Sequence[Record], tuned: Sequence[Record]) -> list[tuple[Record, Record]]:
    """[(base record, tuned record)] of the same item, in the order of `base`. Raises UserError if the items differ."""
    if sorted(_items(base)) != sorted(_items(tuned)):
        raise UserError("The two models were not evaluated on the same items: evaluate both on the same data set.")
    by_item = dict(zip(_items(tuned), tuned))
    return [(record, by_item[item]) for item, record in zip(_items(base), base)]


def _items(records: Sequence[Record]) -> list[tuple]:
    return [(record["id"], record.get("sample", 0)) for record in records]


def outcome_rates(records: Sequence[Record]) -> dict[str, float]:
    """Return the share of each outcome that occurs, the most frequent first."""
    counts = Counter(record["outcome"] for record in records)
    return {outcome: count / len(records) for outcome, count in counts.most_common()}


def _check_alike(base: Evaluation, tuned: Evaluation) -> None:
    grid = sorted(base.records)
    if grid != sorted(tuned.records):
        raise UserError(
            f"The base was tried at the temperatures {grid} and the tuned model at {sorted(tuned.records)}: "
            "evaluate both with the same grid."
        )
    if not {0.0, 1.0} <= set(grid):
        raise UserError(
            f"The temperatures {grid} leave out greedy (0) or 1: without both, a model that is only surer of itself "
            "would look better."
        )
    answers = [*base.records.values(), *tuned.records.values()]
    asked = sorted(_items(answers[0]))
    if any(sorted(_items(records)) != asked for records in answers):
        raise UserError("The models did not answer the same prompts at every temperature: evaluate both again.")


def show_temperature(temperature: float) -> str:
    """ "greedy" or "T = 0.8"."""
    return f"T = {temperature:g}" if temperature else "greedy"


def show_temperatures(temperatures: Sequence[float]) -> str:
    """The temperatures of the two halves, such as "T = 0.8", or "greedy and T = 0.6" where they differ."""
    return " and ".join(map(show_temperature, sorted(set(temperatures))))


def show_p(found: Difference) -> str:
    """The p-value, with the smallest that so many clusters could give."""
    return f"p = {found.p_value:.2g} (the smallest possible is {found.p_floor:.2g})"


def show_difference(found: Difference) -> str:
    """Points with their interval."""
    low, high = found.interval
    return f"{100 * found.difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"

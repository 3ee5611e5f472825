"""Is the tuned model better? One verdict in words.

A model that has only become surer of itself also scores higher at temperature 1, and so does the base when its
temperature is lowered. So each model answers at its own best temperature, chosen on other prompts than those that
decide, and the tuned model must beat the base at its best, greedy, and at temperature 1. All three tests must reject,
so no correction for their number is due.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from helpers.evaluation.records import Evaluation, Record
from helpers.evaluation.statistics import Difference, difference
from helpers.runtime import UserError

#: A difference is called none if its whole interval lies within this, either way.
NULL_MARGIN = 0.05


@dataclass(frozen=True)
class Report:
    """Two models on the same prompts. Rates and differences are shares (0.25 = 25 points).

    base_temperature, tuned_temperature: each model's own best. best: the tuned model against the base, each at its
    own best; the primary comparison. against_greedy, against_sampled: the tuned model at its best against the base
    greedy and at temperature 1. greedy, sampled: both greedy, and both at temperature 1. win_margin: what the lower
    end of the primary interval must exceed for a win. base_outcomes, tuned_outcomes: the share of each outcome at
    temperature 1. verdict: "win", "sharper", "null", "inconclusive" or "regression".
    """

    base_temperature: float
    tuned_temperature: float
    best: Difference
    against_greedy: Difference
    against_sampled: Difference
    greedy: Difference
    sampled: Difference
    win_margin: float
    base_outcomes: dict[str, float]
    tuned_outcomes: dict[str, float]

    @property
    def verdict(self) -> str:
        tests = (self.best, self.against_greedy, self.against_sampled)
        if all(test.is_gain for test in tests) and self.best.interval[0] > self.win_margin:
            return "win"
        if self.best.is_loss:
            return "regression"
        if self.sampled.is_gain and not self.best.is_gain:
            return "sharper"
        if self.best.is_gain:
            return "inconclusive"
        low, high = self.best.interval
        return "null" if -NULL_MARGIN < low and high < NULL_MARGIN else "inconclusive"

    def sentence(self) -> str:
        """What happened, with its numbers."""
        best = self.best
        primary = (
            f"the tuned model at its own best temperature ({show_temperature(self.tuned_temperature)}) solves "
            f"{best.tuned_rate:.1%} of {best.items} held-out prompts in {best.clusters} clusters and the base at its "
            f"own best ({show_temperature(self.base_temperature)}) {best.base_rate:.1%}: {show_difference(best)}, "
            f"p = {best.p_value:.2g}"
        )
        others = (
            f"against the base greedy {show_difference(self.against_greedy)}, "
            f"against the base at temperature 1 {show_difference(self.against_sampled)}"
        )
        meaning = {
            "win": "Win: it got better",
            "regression": "Regression: it got worse",
            "sharper": (
                f"Sharper, not better: at temperature 1 it gained {show_difference(self.sampled)}, but the base gets "
                "there, or near, by its temperature alone"
            ),
            "null": f"Null: no difference beyond {100 * NULL_MARGIN:.0f} points either way",
            "inconclusive": self._inconclusive(),
        }
        return f"{meaning[self.verdict]}; {primary}; {others}."

    def _inconclusive(self) -> str:
        beaten = {"greedy": self.against_greedy.is_gain, "at temperature 1": self.against_sampled.is_gain}
        if self.best.is_gain and not all(beaten.values()):
            unbeaten = " and ".join(where for where, is_gain in beaten.items() if not is_gain)
            return f"Inconclusive: better than the base at its own best, but not than the base {unbeaten}"
        if self.best.is_gain:
            return (
                f"Inconclusive: a gain, but its interval does not lie above the {100 * self.win_margin:+.0f} points "
                "that a win needs here"
            )
        visible = 100 * self.best.smallest_visible
        return f"Inconclusive: so many prompts show a difference of {visible:.0f} points or more"

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

    win_margin: what the lower end of the primary interval must exceed for a win, fixed before the run.

    Raises UserError if the two were not evaluated alike: other temperatures, other prompts, a temperature chosen on
    prompts that also decide, or without greedy and temperature 1.
    """
    _check_alike(base, tuned)
    base_greedy, tuned_greedy = base.confirm[0.0], tuned.confirm[0.0]
    base_sampled, tuned_sampled = base.confirm[1.0], tuned.confirm[1.0]
    return Report(
        base_temperature=base.best_temperature,
        tuned_temperature=tuned.best_temperature,
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
    grid = sorted(base.monitor)
    if grid != sorted(tuned.monitor):
        raise UserError(
            f"The base was tried at the temperatures {grid} and the tuned model at {sorted(tuned.monitor)}: "
            "evaluate both with the same grid."
        )
    if not {0.0, 1.0} <= set(grid):
        raise UserError(
            f"The temperatures {grid} leave out greedy (0) or 1: without both, a model that is only surer of itself "
            "would look better."
        )
    answers = [*base.monitor.values(), *tuned.monitor.values()]
    monitored = set(_items(answers[0]))
    if any(set(_items(records)) != monitored for records in answers):
        raise UserError("The temperatures were not chosen on the same prompts: evaluate both models on the same ones.")
    decisive = {item for evaluation in (base, tuned) for part in evaluation.confirm.values() for item in _items(part)}
    if monitored & decisive:
        raise UserError(
            f"{len(monitored & decisive)} prompts both chose a temperature and decide: a choice made on the confirm "
            "prompts would flatter itself, so choose it on others."
        )
    for evaluation in (base, tuned):
        missing = {0.0, 1.0, evaluation.best_temperature} - set(evaluation.confirm)
        if missing:
            raise UserError(
                f"The confirm prompts were not answered at temperature {min(missing):g} by {evaluation.name}: "
                "evaluate it there too."
            )


def show_temperature(temperature: float) -> str:
    """ "greedy" or "T = 0.8"."""
    return f"T = {temperature:g}" if temperature else "greedy"


def show_difference(found: Difference) -> str:
    """Points with their interval."""
    low, high = found.interval
    return f"{100 * found.difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"

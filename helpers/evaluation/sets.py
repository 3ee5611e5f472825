"""Several named sets of prompts beside each other: how right each model is, and what a set of this size can show."""

from collections.abc import Mapping
from math import sqrt

from helpers.evaluation.compare import show_difference
from helpers.evaluation.power import smallest_visible
from helpers.evaluation.statistics import Difference

#: Headings of the columns of `describe_sets`.
SETS_HEADER = ("set", "prompts", "base", "tuned", "difference and 95 % interval", "shows from")


def standard_error(rate: float, items: int) -> float:
    """Return the standard error of a share of independent items: sqrt(p (1 - p) / n)."""
    return sqrt(rate * (1 - rate) / items)


def describe_sets(found: Mapping[str, Difference]) -> list[tuple[str, ...]]:
    """Return a row of texts for each set, for a table under `SETS_HEADER`.

    Behind each share stands its standard error. "shows from" is the smallest difference that a set of this size, on
    which the models differ as often as here, would show in four of five evaluations; smaller ones may be there unseen.
    """
    rows = []
    for name, one in found.items():
        visible = smallest_visible(one)
        shows_from = "nothing" if visible is None else f"{100 * visible:.0f} points"
        rows.append(
            (
                name,
                str(one.items),
                _show_rate(one.base_rate, one.items),
                _show_rate(one.tuned_rate, one.items),
                show_difference(one),
                shows_from,
            )
        )
    return rows


def _show_rate(rate: float, items: int) -> str:
    return f"{100 * rate:.1f} ± {100 * standard_error(rate, items):.1f} %"

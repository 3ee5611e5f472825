"""Several sets of prompts beside each other: what stands behind each share, and what a set of this size can show."""

import numpy as np
import pytest

from helpers.evaluation import SETS_HEADER, describe_sets, difference, standard_error
from helpers.evaluation.statistics import mcnemar_exact


def answers(items, both, gained, lost):
    """Two models' answers: right in both, only in the tuned, only in the base, and the rest in none."""
    neither = items - both - gained - lost
    base = [True] * (both + lost) + [False] * (gained + neither)
    tuned = [True] * both + [False] * lost + [True] * gained + [False] * neither
    return difference(base, tuned, range(items))


@pytest.mark.parametrize(("items", "points"), [(1000, 1.5), (200, 3.4), (18, 11.2)])
def test_the_standard_errors_of_the_pipelines_sets(items, points):
    """Its OOD, ID and AIME sets at the 65 % that it reports."""
    assert round(100 * standard_error(0.65, items), 1) == points
    drawn = np.random.default_rng(0).random((20_000, items)) < 0.65
    assert 100 * drawn.mean(1).std() == pytest.approx(points, rel=0.03)


def test_a_table_of_sets():
    """A share without its error, and a null without what it could have shown, say more than was measured."""
    found = {"OOD": answers(1000, both=677, gained=57, lost=61), "ID": answers(200, both=120, gained=10, lost=10),
             "AIME": answers(18, both=6, gained=1, lost=1)}  # fmt: skip
    rows = [dict(zip(SETS_HEADER, row, strict=True)) for row in describe_sets(found)]
    assert [row["set"] for row in rows] == ["OOD", "ID", "AIME"]
    assert [row["prompts"] for row in rows] == ["1000", "200", "18"]
    ood, in_distribution, aime = rows
    assert (ood["base"], ood["tuned"]) == ("73.8 ± 1.4 %", "73.4 ± 1.4 %")
    assert "-0.4" in ood["difference and 95 % interval"]
    assert (in_distribution["base"], aime["base"]) == ("65.0 ± 3.4 %", "38.9 ± 11.5 %")
    assert ood["shows from"] == "3 points"
    from_points = [int(row["shows from"].split()[0]) for row in rows]
    assert from_points == sorted(from_points) and from_points[1] >= 6 and from_points[2] > 30


def test_a_set_of_three_shows_nothing():
    """Not even all three gained reject: p is .25."""
    assert mcnemar_exact(3, 0) == 0.25
    ((*_, shows_from),) = describe_sets({"few": answers(3, both=1, gained=1, lost=0)})
    assert shows_from == "nothing"


@pytest.mark.parametrize(("items", "gained", "lost"), [(1000, 57, 61), (200, 10, 10), (18, 1, 1)])
def test_what_a_set_shows_it_shows_in_four_of_five_evaluations(items, gained, lost):
    """Models that differ by as much as "shows from" says, drawn anew, and McNemar's test."""
    ((*_, shows_from),) = describe_sets({"set": answers(items, both=items // 3, gained=gained, lost=lost)})
    gain = int(shows_from.split()[0]) / 100
    rate = max((gained + lost) / items, gain)
    rng = np.random.default_rng(3)
    chances = [(rate + gain) / 2, (rate - gain) / 2, 1 - rate]
    drawn = rng.multinomial(items, chances, 500)
    shown = np.mean([mcnemar_exact(up, down) < 0.05 and up > down for up, down, _ in drawn])
    assert 0.7 < shown < 0.9

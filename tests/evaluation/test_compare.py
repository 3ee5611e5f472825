import math
import random
from itertools import product

import pytest

from helpers import UserError, compare, load_records, save_records
from helpers.evaluation import mcnemar_exact, paired_difference, wilson_interval
from helpers.evaluation.compare import paired_interval


def records(correct, cheat=0):
    return [{"id": f"q{n}", "correct": bool(c), "cheat": n < cheat} for n, c in enumerate(correct)]


@pytest.mark.parametrize(("gained", "lost"), [(5, 1), (0, 0), (3, 3), (12, 2), (0, 9)])
def test_mcnemar_by_enumeration(gained, lost):
    """All ways that a fair coin can fall, counted."""
    n = gained + lost
    outcomes = [sum(tosses) for tosses in product((0, 1), repeat=n)]
    extreme = sum(abs(heads - n / 2) >= abs(gained - n / 2) for heads in outcomes)
    assert mcnemar_exact(gained, lost) == pytest.approx(extreme / 2**n)


def test_wilson_by_its_formula():
    for successes, items in ((7, 10), (0, 20), (20, 20), (150, 300)):
        p, z = successes / items, 1.959963984540054
        centre = (p + z * z / (2 * items)) / (1 + z * z / items)
        half = z / (1 + z * z / items) * math.sqrt(p * (1 - p) / items + z * z / (4 * items**2))
        assert wilson_interval(successes, items) == pytest.approx((centre - half, centre + half), abs=1e-9)


def test_paired_error_is_the_standard_error_of_the_differences():
    differences = [1] * 5 + [-1] * 2 + [0] * 13
    mean = sum(differences) / 20
    error = math.sqrt(sum((d - mean) ** 2 for d in differences) / 19 / 20)
    assert paired_difference(5, 2, 20) == pytest.approx((mean, error))


@pytest.mark.parametrize(
    ("base", "tuned", "verdict"),
    [
        ([0] * 60 + [1] * 40, [1] * 60 + [1] * 40, "win"),
        ([1] * 60 + [0] * 40, [0] * 100, "regression"),
        ([0, 1] * 100, [0, 1] * 100, "null"),
        ([0, 1] * 5, [1, 0] * 2 + [0, 1] * 3, "inconclusive"),
    ],
)
def test_verdicts(base, tuned, verdict):
    report = compare(records(base, cheat=4), records(tuned, cheat=1))
    assert report.verdict == verdict and report.sentence().lower().startswith(verdict)
    assert (report.base_cheat_rate, report.tuned_cheat_rate) == (4 / len(base), 1 / len(base))
    assert report.difference == pytest.approx(report.tuned_rate - report.base_rate)


def test_order_of_the_items_does_not_matter():
    base, tuned = records([0, 1, 0, 1, 1]), records([1, 1, 0, 1, 0])
    assert compare(base, tuned[::-1]) == compare(base, tuned)


def test_different_items_are_refused():
    with pytest.raises(UserError, match="same items"):
        compare(records([1, 0]), records([1, 0, 1]))


@pytest.mark.parametrize("items", [0, 1])
def test_too_few_items_are_refused(items):
    with pytest.raises(UserError, match="cannot be compared"):
        compare(records([1] * items), records([1] * items))


def test_agreement_on_a_handful_is_no_null():
    """Five items that neither solved say nothing, and the interval must show it."""
    report = compare(records([0] * 5), records([0] * 5))
    assert report.verdict == "inconclusive" and report.difference_interval[1] > 0.2
    assert report.smallest_visible > 0.2  # "five items show 0 points or more" would be absurd


def test_interval_covers_the_truth():
    """Of 1,000 simulated comparisons about 950 must hold the true difference."""
    rng, covered = random.Random(0), 0
    for _ in range(1000):
        outcomes = rng.choices(("gained", "lost", "same"), (0.2, 0.1, 0.7), k=80)
        low, high = paired_interval(outcomes.count("gained"), outcomes.count("lost"), 80)
        covered += low <= 0.1 <= high
    assert 930 <= covered <= 980


def test_records_survive_the_disk(tmp_path):
    rows = [{"id": "a", "text": "line\nline", "correct": True}]
    save_records(tmp_path / "r.jsonl", rows)
    assert load_records(tmp_path / "r.jsonl") == rows
    with pytest.raises(UserError, match="run the evaluation again"):
        load_records(tmp_path / "none.jsonl")

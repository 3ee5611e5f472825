import math
from collections import Counter
from dataclasses import astuple

import pytest

from helpers.evaluation import (
    compare_records,
    diversity,
    entropy_per_token,
    fault_changes,
    gains_by,
    measure_change,
    pass_at_k,
    pass_at_k_curve,
    transition_matrix,
)
from helpers.evaluation.breakdown import MeasureChange
from helpers.tasks import Measure

SPEED = Measure("speedup", "speed", resolution=0.03)


def record(item, outcome, speedup=1.0, cluster="a", reason=None, text=None):
    reasons = {
        "correct": "",
        "wrong": "wrong product for 5x6 times 6x8",
        "error": "IndexError: list index out of range",
        "refused": "numpy is not pure Python",
    }
    return {
        "id": item, "cluster": cluster, "correct": outcome == "correct", "outcome": outcome,
        "reason": reasons[outcome] if reason is None else reason, "completion": text or f"{item} {outcome}",
        "tags": {"speedup": speedup if outcome == "correct" else 0.0},
    }  # fmt: skip


BEFORE = ["wrong", "wrong", "error", "refused", "correct", "correct"]
AFTER = ["correct", "error", "correct", "wrong", "correct", "wrong"]
BASE = [record(n, outcome, cluster="ab"[n % 2]) for n, outcome in enumerate(BEFORE)]
TUNED = [record(n, outcome, cluster="ab"[n % 2]) for n, outcome in enumerate(AFTER)][::-1]  # another order


def test_transitions_count_every_item_once():
    matrix = transition_matrix(BASE, TUNED, ("correct", "wrong", "error", "refused"))
    assert len(matrix) == 16 and sum(matrix.values()) == 6
    assert {move: n for move, n in matrix.items() if n} == Counter(zip(BEFORE, AFTER))


def test_gains_within_a_group_are_those_of_its_own_items():
    gains = gains_by(BASE, TUNED)
    assert list(gains) == ["a", "b"]
    for name, report in gains.items():
        own = [row for row in BASE if row["cluster"] == name]
        assert report == compare_records(own, [row for row in TUNED if row["cluster"] == name])
    assert gains_by(BASE, TUNED, key="id") == {}  # one item is no group


def test_faults_are_followed_from_the_base_to_the_tuned_model():
    changes = fault_changes(BASE, TUNED)
    assert [astuple(change) for change in changes] == [
        ("wrong product", 2, 1, 0, 1, 2),
        ("IndexError", 1, 1, 0, 0, 1),
        ("numpy is not pure Python", 1, 0, 0, 1, 0),
    ]
    for change in changes:
        assert change.base == change.solved + change.same + change.other
    assert sum(change.base for change in changes) == sum(not row["correct"] for row in BASE)
    assert sum(change.tuned for change in changes) == sum(not row["correct"] for row in TUNED)
    last = fault_changes(TUNED, BASE)[-1]
    assert (last.fault, last.base) == ("numpy is not pure Python", 0), "a fault of the second model alone stands last"


def test_speed_is_compared_on_items_that_both_solved():
    """The tuned model solves harder items, more slowly: its median says it became slower, item by item it did not."""
    base = [record(0, "correct", 1.0), record(1, "correct", 0.8), record(2, "wrong"), record(3, "wrong")]
    tuned = [record(n, "correct", speedup, text=f"t{n}") for n, speedup in enumerate((1.2, 0.81, 0.5, 0.4))]
    change = measure_change(base, tuned, SPEED)
    assert (change.base, change.tuned) == (pytest.approx(0.9), pytest.approx(0.655))
    assert (change.pairs, change.higher, change.lower) == (2, 1, 0)
    assert change.ratio == pytest.approx((1.2 * 0.81 / 0.8) ** 0.5)


def test_the_same_program_twice_is_no_change_of_speed():
    """It differs by the clock alone; and one pair of programs on many items was measured once."""
    base = [record(n, "correct", 1.0, text="a") for n in range(6)]
    tuned = [record(n, "correct", 1.3, text="a" if n < 3 else "b") for n in range(6)]
    change = measure_change(base, tuned, SPEED)
    assert (change.pairs, change.higher) == (1, 1)


def test_speed_without_any_item_in_common():
    base = [record(0, "correct"), record(1, "wrong")]
    change = measure_change(base, [record(0, "wrong"), record(1, "wrong")], SPEED)
    assert change == MeasureChange(base=1.0, tuned=None, pairs=0, ratio=None, higher=0, lower=0)


def test_pass_at_k_curve_averages_over_prompts():
    """Each prompt counts once, whatever its samples; the interval rests on the wordings."""
    solved = {"p": 0, "q": 2, "r": 4, "s": 1}
    rows = [
        {"id": item, "cluster": "pq" if item in "pq" else "rs", "correct": n < count}
        for item, count in solved.items()
        for n in range(4)
    ]
    curve = pass_at_k_curve(rows, (1, 2, 4))
    for k, (share, (low, high)) in curve.items():
        assert share == pytest.approx(sum(pass_at_k(4, count, k) for count in solved.values()) / 4)
        assert 0 <= low <= share <= high <= 1
    assert curve[4][0] == 0.75


@pytest.mark.parametrize("solved", [True, False])
def test_pass_at_k_is_never_certain(solved):
    """All prompts alike have no spread, and are still only so many prompts."""
    rows = [{"id": n, "cluster": n % 4, "correct": solved} for n in range(16) for _ in range(2)]
    share, (low, high) = pass_at_k_curve(rows, (2,))[2]
    assert share == solved and high - low > 0.1
    one_wording = [{**row, "cluster": "a"} for row in rows]
    assert pass_at_k_curve(one_wording, (2,))[2][1] == pytest.approx((low, high))


def test_entropy_is_of_the_policy_itself():
    rows = [{"temperature": 1.0, "logprob": -3.0, "tokens": 10}, {"temperature": 1.0, "logprob": -1.0, "tokens": 30}]
    assert entropy_per_token(rows) == pytest.approx(0.1)
    with pytest.raises(AssertionError, match="temperature 1"):
        entropy_per_token([{**rows[0], "temperature": 0.6}])


def test_diversity_is_compared_at_equal_numbers():
    """Both draw from three equally frequent programs; the one with more answers only looks less varied."""
    few = [record(n, "correct", text="abc"[n % 3]) for n in range(6)]
    many = [record(n, "correct", text="abc"[n % 3]) for n in range(60)] + [record(99, "wrong")]
    found = diversity(few, many)
    assert found["base"][:2] == (3, 6) and found["tuned"][:2] == (3, 60)
    assert found["base"][2] == pytest.approx(0.5) and found["tuned"][2] == pytest.approx(0.456, abs=0.01)
    assert math.isnan(diversity([record(0, "wrong")], many)["tuned"][2])

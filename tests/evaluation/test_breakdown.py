from collections import Counter

import pytest

from helpers.evaluation import compare, fault_changes, gains_by, speed_change, transition_matrix


def record(item, outcome, speedup=1.0, cluster="a", reason=None, text=None):
    reasons = {
        "correct": "",
        "wrong": "wrong product for 5x6 times 6x8",
        "fails": "IndexError: list index out of range",
        "cheat": "numpy is not pure Python",
    }
    return {
        "id": item, "cluster": cluster, "correct": outcome == "correct", "cheat": outcome == "cheat",
        "ran": outcome in ("correct", "wrong"), "reason": reasons[outcome] if reason is None else reason,
        "speedup": speedup if outcome == "correct" else 0.0, "completion": text or f"{item} {outcome}",
    }  # fmt: skip


BEFORE = ["wrong", "wrong", "fails", "cheat", "correct", "correct"]
AFTER = ["correct", "fails", "correct", "wrong", "correct", "wrong"]
BASE = [record(n, outcome, cluster="ab"[n % 2]) for n, outcome in enumerate(BEFORE)]
TUNED = [record(n, outcome, cluster="ab"[n % 2]) for n, outcome in enumerate(AFTER)][::-1]  # another order


def test_transitions_count_every_item_once():
    matrix = transition_matrix(BASE, TUNED)
    assert len(matrix) == 16 and sum(matrix.values()) == 6
    assert {move: n for move, n in matrix.items() if n} == Counter(zip(BEFORE, AFTER))


def test_gains_within_a_group_are_those_of_its_own_items():
    gains = gains_by(BASE, TUNED)
    assert list(gains) == ["a", "b"]
    for name, report in gains.items():
        own = [row for row in BASE if row["cluster"] == name]
        assert report == compare(own, [row for row in TUNED if row["cluster"] == name])
    assert gains_by(BASE, TUNED, key="id") == {}  # one item is no group


def test_faults_are_followed_from_the_base_to_the_tuned_model():
    rows = fault_changes(BASE, TUNED)
    assert rows == [
        ("wrong product", 2, 1, 0, 1, 2),
        ("IndexError", 1, 1, 0, 0, 1),
        ("numpy is not pure Python", 1, 0, 0, 1, 0),
    ]
    for _, before, solved, same, other, _ in rows:
        assert before == solved + same + other
    assert sum(row[1] for row in rows) == sum(not row["correct"] for row in BASE)
    assert sum(row[5] for row in rows) == sum(not row["correct"] for row in TUNED)
    back = fault_changes(TUNED, BASE)
    assert back[-1][:2] == ("numpy is not pure Python", 0), "a fault of the second model alone stands last"


def test_speed_is_compared_on_items_that_both_solved():
    """The tuned model solves harder items, more slowly: its median says it became slower, item by item it did not."""
    base = [record(0, "correct", 1.0), record(1, "correct", 0.8), record(2, "wrong"), record(3, "wrong")]
    tuned = [record(n, "correct", speedup, text=f"t{n}") for n, speedup in enumerate((1.2, 0.81, 0.5, 0.4))]
    change = speed_change(base, tuned)
    assert (change["base"], change["tuned"]) == (pytest.approx(0.9), pytest.approx(0.655))
    assert (change["pairs"], change["faster"], change["slower"]) == (2, 1, 0)
    assert change["ratio"] == pytest.approx((1.2 * 0.81 / 0.8) ** 0.5)


def test_the_same_program_twice_is_no_change_of_speed():
    """It differs by the clock alone; and one pair of programs on many items was measured once."""
    base = [record(n, "correct", 1.0, text="a") for n in range(6)]
    tuned = [record(n, "correct", 1.3, text="a" if n < 3 else "b") for n in range(6)]
    change = speed_change(base, tuned)
    assert (change["pairs"], change["faster"]) == (1, 1)


def test_speed_without_any_item_in_common():
    change = speed_change([record(0, "correct"), record(1, "wrong")], [record(0, "wrong"), record(1, "wrong")])
    assert change == {"base": 1.0, "tuned": None, "pairs": 0, "ratio": None, "faster": 0, "slower": 0}

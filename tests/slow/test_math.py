"""Does the math task teach, and only by its own rewards? Notebook 04 with TASK = "math", asked as in 05_evaluate.

The rules are those of `test_learning`: problems of two steps, which no lesson was paid for, in numbers and wordings
that no training has. `python -m pytest -m slow tests/slow/test_math.py` writes the table of tests/README.md again.
"""

import pytest

from tests.slow.lessons import edges, headline, run_all, shown, shown_shares

pytestmark = pytest.mark.slow

LESSONS = {f"math, seed {seed}": {"SEED": seed} for seed in (42, 1, 2)}
IMITATIONS = {"math, rejection sampling, seed 42": {"SEED": 42, "BASELINE": "rft"}}
SHUFFLES = {"math, shuffle, seed 42": {"SEED": 42, "CONTROL": "shuffle"}}
TASKLESS = {f"math, {control}, seed 42": {"SEED": 42, "CONTROL": control} for control in ("certainty", "majority")}


@pytest.fixture(scope="module")
def reports(runs_folder):
    runs = LESSONS | IMITATIONS | SHUFFLES | TASKLESS
    return run_all(runs_folder, "math", runs)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_gains_where_it_was_never_paid(reports, row, name):
    """Whether it wins is reported; that it does not get worse is required."""
    report = reports[name]
    row(name, shown(report))
    row(f"{name}: families that were never paid", shown_shares(report, "confirm, "))
    assert report["verdict"] != "regression"
    assert headline(report).clusters >= 12


@pytest.mark.parametrize("name", IMITATIONS)
def test_rejection_sampling(reports, row, name):
    row(name, shown(reports[name]))
    row(f"{name}: families that were never paid", shown_shares(reports[name], "confirm, "))


@pytest.mark.parametrize("name", SHUFFLES | TASKLESS)
def test_a_control_does_not_win(reports, row, name):
    report = reports[name]
    row(f"control, {name}", shown(report))
    if name in TASKLESS:
        paid = name.split(", ")[1]
        first, last = edges(report, f"rewards/{paid}/mean")
        assert last > first
    assert report["verdict"] != "win"

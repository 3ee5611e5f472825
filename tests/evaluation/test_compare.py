"""The verdict, and what it refuses to rest on."""

from dataclasses import replace

import pytest

from helpers import UserError, compare
from helpers.evaluation import Evaluation, Report, best_temperature, compare_records

ITEMS = 200


def records(solved, split, items=ITEMS, refused=0):
    outcomes = ["correct"] * solved + ["wrong"] * (items - solved - refused) + ["refused"] * refused
    return [
        {"id": f"{split} {n}", "cluster": f"wording {n % 16}", "correct": outcome == "correct", "outcome": outcome}
        for n, outcome in enumerate(outcomes[:items])
    ]


def evaluation(monitor, confirm=None, name="model", refused=0):
    """monitor, confirm: temperature -> prompts solved, of 200 each."""
    return Evaluation(
        name,
        {temperature: records(solved, "monitor") for temperature, solved in monitor.items()},
        {
            temperature: records(solved, "confirm", refused=refused)
            for temperature, solved in (confirm or monitor).items()
        },
    )


GRID = {0.0: 20, 0.6: 30, 1.0: 40}


@pytest.mark.parametrize(
    ("base", "tuned", "verdict"),
    [
        ({0.0: 20, 1.0: 40}, {0.0: 190, 1.0: 170}, "win"),
        # what this project once reported as a gain of 53 points
        ({0.0: 200, 1.0: 62}, {0.0: 200, 1.0: 170}, "sharper"),
        ({0.0: 190, 1.0: 62}, {0.0: 190, 1.0: 170}, "sharper"),
        # no margin is needed to be called so: the margin is a rule for wins
        ({0.0: 200, 1.0: 62}, {0.0: 200, 1.0: 82}, "sharper"),
        # more than sharpening, but less than what was fixed for a win
        ({0.0: 100, 1.0: 60}, {0.0: 128, 1.0: 120}, "inconclusive"),
        ({0.0: 100, 1.0: 90}, {0.0: 60, 1.0: 50}, "regression"),
        # surer at temperature 1, and worse at its best: worse
        ({0.0: 190, 1.0: 60}, {0.0: 150, 1.0: 150}, "regression"),
        ({0.0: 40, 1.0: 36}, {0.0: 40, 1.0: 36}, "null"),
        ({0.0: 100, 1.0: 90}, {0.0: 110, 1.0: 94}, "inconclusive"),
    ],
)
def test_verdicts(base, tuned, verdict):
    report = compare(evaluation(base), evaluation(tuned), win_margin=0.1)
    assert report.verdict == verdict and report.sentence().lower().startswith(verdict)
    assert report.to_dict()["verdict"] == verdict
    assert Report.from_dict(report.to_dict()) == report


def test_outcomes_at_temperature_1():
    report = compare(evaluation({0.0: 20, 1.0: 40}, refused=4), evaluation({0.0: 190, 1.0: 170}))
    assert report.base_outcomes == {"wrong": 156 / ITEMS, "correct": 40 / ITEMS, "refused": 4 / ITEMS}
    assert report.tuned_outcomes == {"correct": 170 / ITEMS, "wrong": 30 / ITEMS}


def test_a_small_gain_wins_only_where_no_margin_was_fixed():
    base, tuned = evaluation({0.0: 100, 1.0: 90}), evaluation({0.0: 112, 1.0: 102})
    assert compare(base, tuned).verdict == "win"
    report = compare(base, tuned, win_margin=0.1)
    assert report.verdict == "inconclusive" and "does not lie above the +10 points" in report.sentence()


@pytest.mark.parametrize("strong", [0.0, 1.0])
def test_the_base_must_lose_greedy_and_at_temperature_1_too(strong):
    """The choice on the monitor prompts may have missed the base's best; then the others must catch it."""
    confirm = {0.0: 20, 0.6: 30, 1.0: 40, strong: 180}
    report = compare(evaluation({**GRID, 0.6: 50}, confirm), evaluation({0.0: 160, 0.6: 150, 1.0: 150}))
    assert report.best.is_gain and report.best.difference > 0.5
    where = "at temperature 1" if strong else "greedy"
    assert report.verdict == "inconclusive" and f"but not than the base {where};" in report.sentence()


def test_each_model_gets_its_own_best_temperature():
    report = compare(evaluation({0.0: 20, 0.6: 60, 1.0: 40}), evaluation({0.0: 190, 0.6: 180, 1.0: 170}))
    assert (report.base_temperature, report.tuned_temperature) == (0.6, 0.0)
    assert (report.best.base_rate, report.best.tuned_rate) == (0.3, 0.95)
    assert report.against_greedy.base_rate == 0.1 and report.against_sampled.base_rate == 0.2
    assert report.sampled.base_rate == 0.2 and report.sampled.tuned_rate == 0.85
    assert "T = 0.6" in report.sentence() and "greedy" in report.sentence()


def test_of_equally_good_temperatures_the_lowest_is_taken():
    assert best_temperature({1.0: records(5, "m"), 0.6: records(9, "m"), 0.8: records(9, "m")}) == 0.6


def test_the_temperature_is_not_chosen_on_the_confirm_prompts():
    """The confirm prompts prefer another temperature, and must not be asked."""
    tuned = evaluation({0.0: 100, 0.6: 120, 1.0: 90}, {0.0: 190, 0.6: 110, 1.0: 100})
    report = compare(evaluation(GRID), tuned)
    assert report.tuned_temperature == 0.6 and report.best.tuned_rate == 0.55


def test_prompts_that_choose_may_not_decide():
    base, tuned = evaluation(GRID), evaluation(GRID)
    with pytest.raises(UserError, match="200 prompts both chose a temperature and decide"):
        compare(replace(base, confirm=base.monitor), replace(tuned, confirm=tuned.monitor))


def test_other_grids_are_refused():
    """A finer grid for one model is a better chance to be lucky."""
    with pytest.raises(UserError, match=r"at the temperatures \[0.0, 0.6, 1.0\] and the tuned model at \[0.0, 1.0\]"):
        compare(evaluation(GRID), evaluation({0.0: 190, 1.0: 170}))


@pytest.mark.parametrize("grid", [{1.0: 40}, {0.6: 30, 1.0: 40}, {0.0: 20, 0.6: 30}])
def test_without_a_sweep_there_is_no_verdict(grid):
    with pytest.raises(UserError, match=r"leave out greedy \(0\) or 1"):
        compare(evaluation(grid), evaluation(grid))


def test_other_monitor_prompts_are_refused():
    """Each model on prompts of its own, or one temperature on easier ones."""
    base, tuned = evaluation(GRID), evaluation(GRID)
    other = {temperature: records(20, "other") for temperature in GRID}
    with pytest.raises(UserError, match="not chosen on the same prompts"):
        compare(base, replace(tuned, monitor=other))
    with pytest.raises(UserError, match="not chosen on the same prompts"):
        compare(base, replace(tuned, monitor={**tuned.monitor, 0.6: other[0.6]}))


def test_a_missing_answer_is_named():
    base, tuned = evaluation({0.0: 20, 0.6: 90, 1.0: 40}, {0.0: 20, 1.0: 40}, name="base"), evaluation(GRID)
    with pytest.raises(UserError, match="not answered at temperature 0.6 by base"):
        compare(base, tuned)


def test_order_of_the_items_does_not_matter():
    base, tuned = records(60, "confirm"), records(100, "confirm")
    assert compare_records(base, tuned[::-1]) == compare_records(base, tuned)


def test_different_items_are_refused():
    with pytest.raises(UserError, match="same items"):
        compare_records(records(60, "confirm"), records(60, "monitor"))


@pytest.mark.parametrize("items", [0, 1])
def test_too_few_items_are_refused(items):
    with pytest.raises(UserError, match="cannot be compared"):
        compare_records(records(1, "confirm", items), records(1, "confirm", items))

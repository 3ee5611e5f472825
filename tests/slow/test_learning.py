"""Does the chain learn, and only where there is something to learn? Whole runs of 04_grpo, each evaluated as in
05_evaluate.

The rules were fixed before the runs, and no run is repeated. A lesson must win, by at least 25 points at each model's
own best temperature, in wordings that it was not trained on. No control may win. Across runs the smallest lesson must
exceed the largest of four shuffled runs, which has a probability of 1 in 35 if lessons teach as little as shuffled
rewards do, and both controls that need no task. A control that did not train proves nothing: its adapter must have
moved at least half as far as a lesson's, and what it was paid for must have become more frequent. The second does not
apply to shuffled rewards, whose mean the answers cannot change.
"""

import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.evaluation import Report, show_difference
from helpers.grpo import read_metrics
from helpers.runtime import ROOT

pytestmark = pytest.mark.slow

#: name -> parameters of 04_grpo. Seeds change the adapter's start, the prompts and every draw.
LESSONS = {f"seed {seed}": {"SEED": seed} for seed in (42, 1, 2)}
SHUFFLES = {f"shuffle, seed {seed}": {"SEED": seed, "CONTROL": "shuffle"} for seed in (42, 1, 2, 3)}
#: control -> the reward that it pays, which must rise
TASKLESS = {"certainty": "rewards/certainty/mean", "majority": "rewards/majority/mean"}
OTHERS = {control: {"SEED": 42, "CONTROL": control} for control in (*TASKLESS, "flip", "freeze")}
RUNS = LESSONS | SHUFFLES | OTHERS
EDGE = 10  # steps at the beginning and at the end of a run whose rewards are compared


def process(*arguments):
    """Run `one_run` with the arguments; returns "" or what went wrong."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.slow.one_run", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    return run.stderr[-2000:] if run.returncode else ""


def run_both(folder, base, parameters):
    """Train and evaluate; returns the report with the metrics, or what went wrong as text."""
    wrong = process("run", str(folder), str(base), json.dumps(parameters))
    if wrong:
        return wrong
    report = json.loads((folder / "report.json").read_text())
    return {**report, "metrics": read_metrics(folder / "grpo" / "metrics.jsonl")}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """All runs, as many at a time as there are cores."""
    folder = tmp_path_factory.mktemp("base")
    assert not process("base", str(folder))
    folders = [tmp_path_factory.mktemp("run") for _ in RUNS]
    with ThreadPoolExecutor(min(4, os.cpu_count())) as pool:
        found = pool.map(
            lambda one, parameters: run_both(one, folder / "base.json", parameters), folders, RUNS.values()
        )
        return dict(zip(RUNS, found))


def moved(report):
    """How far the adapter moved the model's matrices."""
    assert isinstance(report, dict), report
    return report["origin"]["adapter_norm"]


def edges(report, name):
    """Means of a metric over the first and the last steps."""
    values = [row[name] for row in report["metrics"]]
    return statistics.mean(values[:EDGE]), statistics.mean(values[-EDGE:])


def shown(report):
    assert isinstance(report, dict), report
    found = Report.from_dict(report)
    best, greedy = found.best, found.greedy
    return (
        f"{found.verdict}: own best {best.base_rate:.1%} -> {best.tuned_rate:.1%}, {show_difference(best)}, "
        f"p = {best.p_value:.2g}; greedy {greedy.base_rate:.1%} -> {greedy.tuned_rate:.1%}; at T = 1 "
        f"{show_difference(found.sampled)}; adapter moved {moved(report):.1f}"
    )


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_wins(reports, row, name):
    report = reports[name]
    row(f"lesson, {name}", shown(report))
    assert report["verdict"] == "win"
    assert report["best"]["difference"] >= 0.25 and report["best"]["p_value"] < 1e-3
    assert report["greedy"]["tuned_rate"] >= 0.7
    assert report["best"]["clusters"] >= 12
    assert report["tuned_outcomes"].get("refused", 0.0) < report["base_outcomes"]["refused"]


def test_the_control_was_a_run_like_the_lessons(reports):
    """An adapter that hardly moved could not have won, whatever it was paid for."""
    least = min(moved(reports[name]) for name in LESSONS)
    for name in RUNS:
        if name not in LESSONS and name != "freeze":
            assert moved(reports[name]) >= least / 2, (name, moved(reports[name]), least)
    assert moved(reports["freeze"]) == 0


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffled_rewards_do_not_win(reports, row, name):
    """They say nothing about the answers, so what they move is a random walk."""
    report = reports[name]
    row(f"control, {name}", shown(report))
    assert "correctness_check_shuffled" in report["origin"]["settings"]["reward_funcs"]
    assert report["verdict"] != "win"


@pytest.mark.parametrize("name", TASKLESS)
def test_being_surer_does_not_win(reports, row, name):
    """Paid for its own probability, or for agreement within the group, the model gets what it is paid for, and that
    is not the task. On the embedded model that this project shipped before, certainty alone "won" by 33 points."""
    report = reports[name]
    first, last = edges(report, TASKLESS[name])
    row(f"control, {name}", f"{shown(report)}; its own reward {first:.2f} -> {last:.2f}")
    weights = dict(
        zip(report["origin"]["settings"]["reward_funcs"], report["origin"]["settings"]["reward_weights"], strict=True)
    )
    assert [reward for reward, weight in weights.items() if weight] == [name]
    assert last > first, "it was not paid more for it, so nothing was learnt at all"
    assert report["verdict"] != "win"


def test_flipped_rewards_do_not_win(reports, row):
    """What pays is what happens, so the gradient has a sign."""
    report = reports["flip"]
    first, last = edges(report, "reward")
    row("control, flip", f"{shown(report)}; its own reward {first:.2f} -> {last:.2f}")
    assert last > first
    assert report["verdict"] != "win" and report["sampled"]["difference"] < 0


def test_learning_rate_0_changes_nothing(reports, row):
    report = reports["freeze"]
    row("control, freeze", shown(report))
    assert report["verdict"] == "null" and report["best"]["gained"] == report["best"]["lost"] == 0


def test_the_smallest_lesson_exceeds_the_controls(reports, row):
    """Seven runs in order: that the three lessons come first by chance has a probability of 1 / C(7, 3) = 1 / 35."""
    assert all(isinstance(report, dict) for report in reports.values()), "a run failed, so there is no order"
    gains = {name: report["best"]["difference"] for name, report in reports.items()}
    smallest = min(gains[name] for name in LESSONS)
    shuffled = max(gains[name] for name in SHUFFLES)
    taskless = max(gains[name] for name in TASKLESS)
    row(
        "across runs",
        f"smallest lesson {100 * smallest:+.1f}, largest of four shuffles {100 * shuffled:+.1f}, larger of certainty "
        f"and majority {100 * taskless:+.1f} points at the own best; exact permutation p = 1/35",
    )
    assert smallest > shuffled and smallest > taskless

"""Does the chain learn, and only where there is something to learn? Whole runs of 04_grpo and 05_evaluate."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.runtime import ROOT

pytestmark = pytest.mark.slow

#: name -> parameters of 04_grpo. Seeds change the adapter's start, the prompts and every draw.
RUNS = {
    "seed 42": {"SEED": 42},
    "seed 1": {"SEED": 1},
    "seed 2": {"SEED": 2},
    "rewards shuffled": {"SEED": 42, "CONTROL": "shuffle"},
    "rewards flipped": {"SEED": 42, "CONTROL": "flip"},
    "learning rate 0": {"SEED": 42, "CONTROL": "freeze"},
}
SCRIPT = """
import json, sys
from helpers.run import run_notebook
from helpers.runtime import run_folder
folder = run_folder(sys.argv[1])
given = {"PROFILE": "tiny", "RUN_DIR": sys.argv[1]}
run_notebook("04_grpo", folder, {**given, **json.loads(sys.argv[2])})
run_notebook("05_evaluate", folder, given)
"""


def run_both(folder, parameters):
    """Train and evaluate in processes of their own; returns the report, or what went wrong as text."""
    command = [sys.executable, "-c", SCRIPT, str(folder), json.dumps(parameters)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return json.loads((folder / "report.json").read_text()) if run.returncode == 0 else run.stderr[-2000:]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """All runs, as many at a time as there are cores."""
    folders = {name: tmp_path_factory.mktemp("run") for name in RUNS}
    with ThreadPoolExecutor(min(4, os.cpu_count())) as pool:
        return dict(zip(RUNS, pool.map(run_both, folders.values(), RUNS.values())))


def shown(report):
    assert isinstance(report, dict), report
    low, high = (100 * bound for bound in report["difference_interval"])
    return (
        f"{report['verdict']}: {report['base_rate']:.1%} -> {report['tuned_rate']:.1%} of {report['items']}, "
        f"{100 * report['difference']:+.1f} points [{low:+.1f}, {high:+.1f}], p = {report['p_value']:.2g}, "
        f"cheating {report['base_cheat_rate']:.1%} -> {report['tuned_cheat_rate']:.1%}"
    )


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if "CONTROL" not in run])
def test_win(reports, row, name):
    report = reports[name]
    row(f"win, {name}", shown(report))
    assert report["verdict"] == "win" and report["difference"] >= 0.25 and report["p_value"] < 1e-3
    assert report["tuned_cheat_rate"] < report["base_cheat_rate"]


def test_shuffled_rewards_gain_little(reports, row):
    """They say nothing about the answers, so what they move is a random walk. One such run can end better than it
    began, and the verdict, which compares two models, then says so; the gain of a lesson must lie far beyond it."""
    report = reports["rewards shuffled"]
    row("control, rewards shuffled within the batch", shown(report))
    assert "correctness_check_shuffled" in report["origin"]["settings"]["reward_funcs"]
    lessons = [reports[name]["difference"] for name, run in RUNS.items() if "CONTROL" not in run]
    assert abs(report["difference"]) < min(lessons) / 4


def test_flipped_rewards_make_it_worse(reports, row):
    """What pays is what happens, so the gradient has a sign; this is also what cheating would look like."""
    report = reports["rewards flipped"]
    row("control, sign of the rewards flipped", shown(report))
    assert report["verdict"] == "regression" and report["tuned_cheat_rate"] > report["base_cheat_rate"]


def test_learning_rate_0_changes_nothing(reports, row):
    report = reports["learning rate 0"]
    row("control, learning rate 0", shown(report))
    assert report["verdict"] == "null" and report["gained"] == report["lost"] == 0

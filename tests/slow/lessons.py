"""What test_learning.py and test_math.py share: whole runs, as many at a time as there are cores, and their rows."""

import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from helpers.evaluation import Report, show_difference
from helpers.grpo import read_metrics
from helpers.runtime import ROOT

EDGE = 10  # steps at the beginning and at the end of a run whose rewards are compared


def process(*arguments):
    """Run `one_run` with the arguments; returns "" or what went wrong."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.slow.one_run", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return run.stderr[-2000:] if run.returncode else ""


def side_by_side(work, names):
    """{name: work(name)}, as many at a time as there are cores, four at most."""
    with ThreadPoolExecutor(min(4, os.cpu_count())) as pool:
        return dict(zip(names, pool.map(work, names)))


def folders_in(folder, runs):
    """{name of a run: its folder}. What was trained there before is not trained again."""
    return {name: folder / f"run{number}" for number, name in enumerate(runs)}


def tune_all(folder, runs):
    """Train in each run; returns {name: {temperature: share of right answers to monitor prompts}}."""
    folders = folders_in(folder, runs)

    def tune_one(name):
        folder = folders[name]
        wrong = process("tune", str(folder), json.dumps(runs[name]))
        assert not wrong, wrong
        return json.loads((folder / "monitor.json").read_text())

    return side_by_side(tune_one, list(runs))


def run_all(folder, task, runs):
    """Ask the base, then train and ask in each run; returns {name: report, or what went wrong as text}.

    folder: gets a folder for each run (`folders_in`). runs: name -> parameters of 04_grpo.
    """
    base = folder / "base"
    base.mkdir(parents=True, exist_ok=True)
    folders = folders_in(folder, runs)
    wrong = process("base", str(base), task)
    assert not wrong, wrong

    def run_one(name):
        folder = folders[name]
        parameters = json.dumps({"TASK": task, **runs[name]})
        wrong = process("run", str(folder), str(base / "base.json"), parameters)
        if wrong:
            return wrong
        metrics = folder / "grpo" / "metrics.jsonl"
        report = json.loads((folder / "report.json").read_text())
        return {**report, "metrics": read_metrics(metrics) if metrics.exists() else []}

    return side_by_side(run_one, list(runs))


def moved(report):
    """How far the adapter moved the model's matrices."""
    assert isinstance(report, dict), report
    return report["origin"]["adapter_norm"]


def edges(report, name):
    """Means of a metric over the first and the last steps."""
    values = [row[name] for row in report["metrics"]]
    return statistics.mean(values[:EDGE]), statistics.mean(values[-EDGE:])


def headline(report):
    """The smallest of the three differences."""
    return Report.from_dict(report).headline


def shown(report):
    """A run in a line of the table."""
    assert isinstance(report, dict), report
    found = Report.from_dict(report)
    smallest, greedy, sampled = found.headline, found.greedy, found.sampled
    return (
        f"{found.verdict}: {smallest.base_rate:.1%} ({found.headline_base}) -> {smallest.tuned_rate:.1%}, "
        f"{show_difference(smallest)}, p = {smallest.p_value:.2g}, floor {smallest.p_floor:.1g}; greedy "
        f"{greedy.base_rate:.1%} -> {greedy.tuned_rate:.1%}; T = 1 {sampled.base_rate:.1%} -> "
        f"{sampled.tuned_rate:.1%}; adapter moved {moved(report):.1f}; 04_grpo took "
        f"{report['notebook_seconds']:.0f} s beside another run"
    )


def shown_shares(report, prefix):
    """What else was asked, each "base -> tuned" at the model's own best temperature."""
    return "; ".join(
        f"{name.removeprefix(prefix)} {before:.0%} -> {after:.0%}"
        for name, (before, after) in report["shares"].items()
        if name.startswith(prefix)
    )

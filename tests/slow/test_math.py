"""Does the math task teach, and only by its own rewards? Notebooks 04 and 05 as `make run TASK=math` runs them.

The rules are those of `test_learning`: a lesson wins on wordings that it was not trained on, and nothing else does.
`pytest -m slow -s tests/slow/test_math.py` prints the rows of README's table, about three minutes each on two cores.
"""

import json

import pytest

from helpers.evaluation import Report, show_difference
from helpers.run import run_notebook
from helpers.runtime import run_folder

pytestmark = pytest.mark.slow

LESSONS = {f"seed {seed}": {"SEED": seed} for seed in (42, 1)}
CONTROLS = {f"{control}, seed 42": {"SEED": 42, "CONTROL": control} for control in ("shuffle", "certainty", "majority")}


def train_and_evaluate(folder, parameters):
    """Return the report of 05_evaluate."""
    folder = run_folder(folder)
    common = {"PROFILE": "tiny", "RUN_DIR": str(folder), "TASK": "math"}
    run_notebook("04_grpo", folder, {**common, **parameters})
    run_notebook("05_evaluate", folder, common)
    return Report.from_dict(json.loads((folder / "report.json").read_text()))


def show(name, report):
    best = report.best
    print(f"\n{name}: own best {best.base_rate:.1%} -> {best.tuned_rate:.1%}, {show_difference(best)}; greedy base "
          f"{report.against_greedy.base_rate:.1%}; T = 1 {report.sampled.base_rate:.1%} -> "
          f"{report.sampled.tuned_rate:.1%}; {report.verdict}")  # fmt: skip


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_wins(tmp_path, name):
    report = train_and_evaluate(tmp_path / "run", LESSONS[name])
    show(name, report)
    assert report.verdict == "win"
    assert report.best.clusters >= 12


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_does_not_win(tmp_path, name):
    report = train_and_evaluate(tmp_path / "run", CONTROLS[name])
    show(name, report)
    assert report.verdict != "win"

"""Every notebook is executed: all in order as `make run` does, and each alone as a reader might."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import nbformat
import pytest

from helpers.evaluation import TEMPERATURES
from helpers.rewards.registry import list_rewards
from helpers.run.__main__ import main
from helpers.run.notebooks import DEEPER, NOTEBOOKS, run_notebook, source_of
from helpers.runtime import ROOT, UserError, run_folder
from helpers.tasks import get_task
from tests.notebooks.checking import SMALL, prepare, run_nbval, solutions_of


@pytest.fixture(scope="module")
def run_name():
    """A folder under runs/, which git ignores: from there a notebook finds `helpers` above it."""
    name = f"test-{os.getpid()}"
    yield name
    shutil.rmtree(ROOT / "runs" / name, ignore_errors=True)


def git_status():
    return subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout


def assert_whole_run(folder, printed, notebooks=NOTEBOOKS):
    """The files and the closing table of `make run` with MAX_STEPS=8, ITEMS=24 and SWEEP=small."""
    for name in notebooks:
        assert f"{name:<13}cell 1/" in printed
        assert (folder / f"{name}.html").stat().st_size > 100_000
        cells = nbformat.read(folder / f"{name}.ipynb", 4).cells
        assert all(cell.execution_count for cell in cells if cell.cell_type == "code")
    assert "step 8/8" in printed
    report = json.loads((folder / "report.json").read_text())
    assert report["best"]["items"] == 24
    assert report["verdict"] in ("win", "sharper", "null", "inconclusive", "regression")
    for words in (
        "smallest of three differences",
        "base at its best",
        "tuned at its best",
        "against the base greedy",
        "both at T = 1",
        "wrong at T = 1",
    ):
        assert words in printed
    assert re.search(rf"^verdict +{report['verdict']}$", printed, re.M)
    assert (folder / "adapter" / "adapter_model.safetensors").exists()
    assert [json.loads(line)["step"] for line in (folder / "grpo" / "metrics.jsonl").open()] == list(range(1, 9))
    records = [json.loads(line) for line in (folder / "records.jsonl").open()]
    count = Counter((record["model"], record["temperature"]) for record in records)
    assert count == {(model, temperature): 24 for model in ("base", "tuned") for temperature in TEMPERATURES}


def assert_the_belief_turned_round(folder):
    """The decisive token's probability before, during and after the run; with shuffled rewards it wanders.

    The margins: in runs with two seeds it rose from 0.45 to 0.87 and 0.92 in eight steps, and with shuffled rewards it
    moved by 0.14 and 0.05.
    """
    saved = json.loads((folder / "grpo" / "belief.json").read_text())["values"]
    learned = {int(step): value for step, value in saved.items()}
    shuffled = json.loads((folder / "belief_shuffled.json").read_text())["values"]
    assert set(learned) == set(range(9)) and set(map(int, shuffled)) == set(range(9))
    assert learned[0] < 0.5 and learned[0] == shuffled["0"]
    assert learned[0] + 0.1 < learned[5] < learned[8]
    assert learned[8] > 0.75
    assert abs(shuffled["8"] - shuffled["0"]) < 0.3
    assert learned[8] - shuffled["8"] > 0.3


RUN_ALL = ["--profile", "tiny", "MAX_STEPS=8", "ITEMS=24", "SWEEP=small"]
#: Notebooks of which the second reads what the first leaves.
LAST_TWO = NOTEBOOKS[3:]


def begin_of(name, folder):
    """A copy of a notebook that ends after the cell that finds `helpers`."""
    notebook = nbformat.read(source_of(name), 4)
    code = [number for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    notebook.cells = notebook.cells[: code[1] + 1]
    copy = folder / f"{name}.ipynb"
    nbformat.write(notebook, copy)
    return copy


def test_in_order(run_name, monkeypatch, capsys):
    """`make run` with eight steps: its files, the belief that turned round, a closing table; nothing else is touched.

    The training and the evaluation are executed. The first three notebooks, which leave nothing for a later one, are
    executed by `test_alone_and_as_stored`, and in their order by `make test-slow`.
    """
    before = git_status()
    monkeypatch.setattr("helpers.run.__main__.NOTEBOOKS", LAST_TWO)
    status = main(["--name", run_name, *RUN_ALL])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert_whole_run(ROOT / "runs" / run_name, shown.out, LAST_TWO)
    assert_the_belief_turned_round(ROOT / "runs" / run_name)
    assert git_status() == before


@pytest.mark.slow
def test_in_order_with_every_cell(run_name):
    """`make run` as a user calls it: a notebook may leave no kernel, file or setting that stops the next one."""
    before = git_status()
    name = f"{run_name}/whole"
    command = [sys.executable, "-m", "helpers.run", "--name", name, *RUN_ALL]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    assert_whole_run(ROOT / "runs" / name, run.stdout)
    assert git_status() == before


@pytest.mark.slow
def test_another_task_runs_to_a_verdict(run_name):
    """The same notebooks, with TASK="math": nothing in them may rest on matmul."""
    folder = run_folder(ROOT / "runs" / run_name / "math")
    parameters = {"PROFILE": "tiny", "RUN_DIR": str(folder), "TASK": "math"}
    run_notebook("04_grpo", folder, {**parameters, "MAX_STEPS": 2})
    run_notebook("05_evaluate", folder, {**parameters, "SWEEP": "small", "ITEMS": 24})
    report = json.loads((folder / "report.json").read_text())
    assert report["verdict"] in ("win", "sharper", "null", "inconclusive", "regression")
    assert report["origin"]["settings"]["task"] == "math" and report["origin"]["adapter_norm"] > 0
    metrics = [json.loads(line) for line in (folder / "grpo" / "metrics.jsonl").open()]
    assert all(row["reward_std"] > 0 and row["grad_norm"] > 0 for row in metrics)
    assert set(report["base_outcomes"]) <= {"correct", "wrong", "unanswered"}


DRY_RUNS = [
    pytest.param(name, marks=[] if name == "math" else [pytest.mark.slow])
    for name in ("matmul", "math", "code", "general", "reasoning")
]


@pytest.mark.parametrize("task", DRY_RUNS)
def test_a_dry_run_tries_everything_and_leaves_no_result(run_name, capsys, task):
    """An adapter or a report of a dry run would be taken for a real one."""
    name = f"{run_name}/dry-{task}"
    status = main(["--profile", "tiny", "--name", name, f"TASK={task}", "DRY_RUN=1"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert f"The dry run of task '{task}' came to its end" in shown.out
    for words in ("No prompt is in two splits", "The rows have the digests that were frozen", ": nothing to report;"):
        assert words in shown.out
    folder = ROOT / "runs" / name
    assert {path.name for path in folder.iterdir()} == {"04_grpo.ipynb", "04_grpo.html"}
    cells = nbformat.read(folder / "04_grpo.ipynb", 4).cells
    executed = [cell for cell in cells if cell.cell_type == "code" and cell.execution_count]
    assert executed[-1].id == "04-07"
    assert "An Exception was encountered" not in (folder / "04_grpo.html").read_text()
    printed = "".join(output.get("text", "") for cell in executed for output in cell.outputs)
    for split in get_task(task).splits:
        assert f"{split}: 8 prompts, answers" in printed


def test_the_lists_of_tasks_and_rewards():
    """`make tasks` and `make rewards`."""
    command = [sys.executable, "-m", "helpers.run", "--list"]
    tasks = subprocess.run([*command, "tasks"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rewards = subprocess.run([*command, "rewards"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in ("matmul", "math", "code", "general", "reasoning"):
        assert re.search(rf"^{name} .*[0-9a-f]{{12}} ", tasks, re.M)
        assert re.search(rf"^{name} +\w+=", rewards, re.M), "its preset"
    own = [spec for spec in list_rewards() if spec.origin[0].startswith("helpers.")]  # not what other tests registered
    assert len(own) > 10
    for spec in own:
        assert re.search(rf"^{spec.name} .* {re.escape(spec.summary)}$", rewards, re.M)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("TASK=maths", "There is no task 'maths' .did you mean 'math'"),
        ("REWARDS=code_correctness", "Reward 'code_correctness' reads the column 'tests', and the data of task 'math'"),
        ("DRY_RUN=yes", "dry_run must be True or False; got 'yes'"),
        ("TASK_OPTIONS=depth=1", "depth must be a whole number"),
    ],
)
def test_a_wrong_choice_is_one_sentence_before_anything_runs(capsys, parameter, message):
    """A mistake that a notebook would notice costs the user the minutes until then."""
    others = [] if parameter.startswith("TASK=") else ["TASK=math"]
    status = main(["--profile", "tiny", *others, parameter])
    shown = capsys.readouterr()
    assert status == 1 and re.search(message, shown.err)
    assert shown.err.count("\n") == 1 and "cell 1/" not in shown.out


def copy_alone(run_name, name, place):
    """A copy of the notebook with small parameters and the solutions of its exercises, in a folder of its own."""
    folder = ROOT / "runs" / run_name / place / name
    folder.mkdir(parents=True)
    copy = folder / f"{name}.ipynb"
    prepare(source_of(name), copy, {**SMALL, "RUN_DIR": str(folder / "run")}, with_solutions=True)
    return copy


@pytest.mark.parametrize("name", (*NOTEBOOKS, *DEEPER))
def test_alone_and_as_stored(run_name, run_warm, name):
    """Opened on its own: the checked cells print what the committed notebook shows, and the solutions run."""
    status, _, output = run_warm(copy_alone(run_name, name, "alone"))
    assert status == 0, output


def test_a_wrong_solution_is_noticed(run_warm, tmp_path):
    """Solutions that nobody runs go out of date; a cell that is added behind all others must count."""
    cells = [nbformat.v4.new_code_cell("x = 1", metadata={"tags": ["parameters"]})]
    hidden = "<details><summary>Solution</summary>\n\n```python\nassert x == 2\n```\n\n</details>"
    cells.append(nbformat.v4.new_markdown_cell(hidden))
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.cells += [nbformat.v4.new_code_cell(solution) for solution in solutions_of(notebook)]
    nbformat.write(notebook, tmp_path / "exercise.ipynb")
    status, failed, output = run_warm(tmp_path / "exercise.ipynb")
    assert (status, failed) == (1, 1), output


@pytest.mark.slow
@pytest.mark.parametrize("name", (*NOTEBOOKS, *DEEPER))
def test_alone_and_as_stored_in_a_kernel(run_name, name):
    """The same as a reader runs it: a notebook that is sound in a warm process is sound in a kernel."""
    status, _, output = run_nbval(copy_alone(run_name, name, "kernel"))
    assert status == 0, output


def test_a_failing_cell_is_one_sentence_and_keeps_what_ran(run_name, tmp_path, monkeypatch):
    """An error inside a notebook: its sentence, where to look, and the cells before it as HTML.

    The cell after the beginning of 04_grpo has a mistake in it.
    """
    beginning = begin_of("04_grpo", tmp_path)
    notebook = nbformat.read(beginning, 4)
    notebook.cells.append(nbformat.v4.new_code_cell('helpers.get_profile("t5")'))
    nbformat.write(notebook, beginning)
    monkeypatch.setattr("helpers.run.notebooks.source_of", lambda name: beginning)
    folder = run_folder(ROOT / "runs" / run_name / "bad")
    with pytest.raises(UserError, match=r"04_grpo stopped: There is no profile 't5'") as caught:
        run_notebook("04_grpo", folder, {"PROFILE": "tiny", "RUN_DIR": str(folder)})
    assert "\n" not in str(caught.value) and str(folder / "04_grpo.ipynb") in str(caught.value)
    assert "nothing, all is there" in (folder / "04_grpo.html").read_text().lower()


@pytest.mark.parametrize("when", ["in a cell", "at its start"])
def test_a_kernel_that_dies_is_one_sentence(tmp_path, monkeypatch, when):
    """Out of memory, most often; the reader needs to know that running again goes on, and no traceback."""
    die = "import os; os.kill(os.getpid(), 9)"
    spec = tmp_path / "kernels" / "dying" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": [sys.executable, "-c", die], "display_name": "dying", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    kernel = "python3" if when == "in a cell" else "dying"
    metadata = {"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}}
    cells = [nbformat.v4.new_code_cell(source) for source in ("print(1 + 1)", die)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), tmp_path / "dies.ipynb")
    monkeypatch.setattr("helpers.run.notebooks.source_of", lambda name: tmp_path / f"{name}.ipynb")
    with pytest.raises(UserError, match="dies stopped: its kernel died.*goes on from its last checkpoint") as caught:
        run_notebook("dies", run_folder(tmp_path / "run"), {})
    assert "\n" not in str(caught.value)

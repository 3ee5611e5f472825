"""Every notebook is executed: all in order as `make run` does, and each alone as a reader might."""

import json
import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from helpers.run import NOTEBOOKS, known_parameters, run_notebook, source_of
from helpers.runtime import ROOT, UserError, run_folder

SMALL = {"PROFILE": "tiny", "MAX_STEPS": 2, "ITEMS": 24, "FALLBACK_STEPS": 1}


@pytest.fixture(scope="module")
def run_name():
    """A folder under runs/, which git ignores: from there a notebook finds `helpers` above it."""
    name = f"test-{os.getpid()}"
    yield name
    shutil.rmtree(ROOT / "runs" / name, ignore_errors=True)


def git_status():
    return subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout


def test_in_order(run_name):
    """`make run` with two steps: the whole chain, its files, and a closing table; nothing else is touched."""
    before = git_status()
    pairs = [f"{name}={value}" for name, value in SMALL.items() if name != "PROFILE"]
    command = [sys.executable, "-m", "helpers.run", "--profile", "tiny", "--name", run_name, *pairs]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    folder = ROOT / "runs" / run_name
    for name in NOTEBOOKS:
        assert f"{name:<13}cell 1/" in run.stdout
        assert (folder / f"{name}.html").stat().st_size > 100_000
        cells = nbformat.read(folder / f"{name}.ipynb", 4).cells
        assert all(cell.execution_count for cell in cells if cell.cell_type == "code")
    assert "step 2/2" in run.stdout
    report = json.loads((folder / "report.json").read_text())
    assert report["items"] == 24 and report["verdict"] in ("win", "null", "inconclusive", "regression")
    for words in (
        "base pass rate",
        "tuned pass rate",
        "McNemar",
        f"verdict                 {report['verdict']}",
        "cheating",
    ):
        assert words in run.stdout
    assert (folder / "adapter" / "adapter_model.safetensors").exists()
    assert [json.loads(line)["step"] for line in (folder / "grpo" / "metrics.jsonl").open()] == [1, 2]
    assert len((folder / "records.jsonl").read_text().splitlines()) == 48
    assert git_status() == before


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_alone_and_as_stored(run_name, name):
    """Opened on its own, with small parameters: the checked cells print what the committed notebook shows."""
    from papermill import execute_notebook

    folder = ROOT / "runs" / run_name / "alone" / name
    folder.mkdir(parents=True)
    given = {**SMALL, "MAX_STEPS": 1, "ITEMS": 16, "RUN_DIR": str(folder / "run")}
    parameters = {key: value for key, value in given.items() if key in known_parameters()[name]}
    copy = folder / f"{name}.ipynb"
    execute_notebook(str(source_of(name)), str(copy), parameters, prepare_only=True, progress_bar=False)
    restore_outputs(copy, source_of(name))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval-lax",
        "--nbval-current-env",
        "-p",
        "no:cacheprovider",
        "-q",
        str(copy),
    ]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]


def restore_outputs(copy, source):
    """Papermill empties the notebook it prepares; nbval needs the stored outputs to compare with."""
    stored = {cell.id: cell for cell in nbformat.read(source, 4).cells}
    notebook = nbformat.read(copy, 4)
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        if cell.id in stored:
            cell.outputs = stored[cell.id].outputs
        cell.execution_count = count
    nbformat.write(notebook, copy)


def test_a_failing_cell_is_one_sentence_and_keeps_what_ran(run_name, capsys):
    """An error inside a notebook: its sentence, where to look, and the cells before it as HTML."""
    folder = run_folder(ROOT / "runs" / run_name / "bad")
    with pytest.raises(UserError, match=r"04_grpo stopped: .* 7 does not: take 2, 4") as caught:
        run_notebook("04_grpo", folder, {"PROFILE": "tiny", "RUN_DIR": str(folder), "GROUP_SIZE": 7})
    assert "\n" not in str(caught.value) and str(folder / "04_grpo.ipynb") in str(caught.value)
    assert "the loss" in (folder / "04_grpo.html").read_text().lower()

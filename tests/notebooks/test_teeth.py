"""The checks in the notebooks must bite: each notebook fails when a helper is wrong."""

import shutil

import nbformat
import pytest

from helpers.run import NOTEBOOKS, source_of
from helpers.runtime import ROOT
from tests.notebooks.checking import SMALL, prepare, run_nbval, tags, toothless
from tests.notebooks.faults import FAULTS, notebook_of, table


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_checks_can_bite(name):
    assert toothless(nbformat.read(source_of(name), 4)) == []


@pytest.mark.parametrize("spoil", ["outputs", "counts", "tags"])
def test_a_notebook_whose_checks_compare_nothing_is_noticed(spoil):
    """What stripping tools leave: nbval runs it, compares nothing, and passes."""
    notebook = nbformat.read(source_of("03_rewards"), 4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and spoil == "outputs":
            cell.outputs = []
        elif cell.cell_type == "code" and spoil == "counts":
            cell.execution_count = None
        elif spoil == "tags":
            cell.metadata.pop("tags", None)
    assert toothless(notebook)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_five_cells_of_each_notebook_notice_something(name):
    """A cell that prints a constant has an output to compare, too."""
    assert len({fault[0] for fault in FAULTS if notebook_of(fault[0]) == name}) >= 5


def test_the_table_of_faults_is_in_the_readme():
    assert table() in (ROOT / "tests" / "README.md").read_text(), "python -m tests.notebooks.faults has the new table"


#: Cells that come after half a minute of computation: their faults are part of `make test-slow`.
LATE_CELLS = {"02-32", "02-34", "03-35", "04-21", "05-22"}


def fault_parameters():
    """The first fault of each cell for `make test`, which shows that the cell compares; the others are slow."""
    parameters = []
    tried = set()
    for fault in FAULTS:
        cell = fault[0]
        is_slow = cell in LATE_CELLS or cell in tried
        tried.add(cell)
        marks = [pytest.mark.slow] if is_slow else []
        parameters.append(pytest.param(*fault, id=f"{cell}: {fault[4]}", marks=marks))
    return parameters


@pytest.mark.parametrize(("cell", "file", "right", "wrong", "what"), fault_parameters())
def test_a_broken_helper_fails_the_notebook(tmp_path, cell, file, right, wrong, what):
    """In a copy of the project, with the one wrong line; the cell that fails first is a checked one."""
    name = notebook_of(cell)
    shutil.copytree(ROOT / "helpers", tmp_path / "helpers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    text = (tmp_path / "helpers" / file).read_text()
    assert text.count(right) == 1, "the helper has changed: bring this fault up to date"
    (tmp_path / "helpers" / file).write_text(text.replace(right, wrong))
    copy = tmp_path / "notebooks" / f"{name}.ipynb"
    copy.parent.mkdir()
    prepare(source_of(name), copy, {**SMALL, "RUN_DIR": str(tmp_path / "run")})
    status, failed, output = run_nbval(copy)
    code = [cell for cell in nbformat.read(copy, 4).cells if cell.cell_type == "code"]
    assert status == 1 and failed is not None, f"{name} did not notice: {what}\n{output}"
    assert "nbval-check-output" in tags(code[failed]) and code[failed].id == cell, output

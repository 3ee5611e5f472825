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


#: Cells that come after ten seconds of computation: their faults are part of `make test-slow`.
LATE_CELLS = {"02-32", "02-34", "03-35", "04-21", "05-22"}
#: Cells that come after five seconds: `make test` tries one fault of each, which shows that the cell compares.
MIDDLE_CELLS = {"03-23", "03-25", "03-31", "03-38"}


def fault_parameters():
    """All faults; those that take long are marked as slow."""
    parameters = []
    tried = set()
    for fault in FAULTS:
        cell = fault[0]
        is_slow = cell in LATE_CELLS or (cell in MIDDLE_CELLS and cell in tried)
        tried.add(cell)
        marks = [pytest.mark.slow] if is_slow else []
        parameters.append(pytest.param(*fault, id=f"{cell}: {fault[4]}", marks=marks))
    return parameters


def copy_with_fault(folder, cell, file, right, wrong):
    """Copy `helpers` and the cell's notebook, with `wrong` for the text `right` in one file; return the notebook."""
    shutil.copytree(ROOT / "helpers", folder / "helpers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.txt", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    text = (folder / "helpers" / file).read_text()
    assert text.count(right) == 1, "the helper has changed: bring this fault up to date"
    (folder / "helpers" / file).write_text(text.replace(right, wrong))
    name = notebook_of(cell)
    copy = folder / "notebooks" / f"{name}.ipynb"
    copy.parent.mkdir()
    prepare(source_of(name), copy, {**SMALL, "RUN_DIR": str(folder / "run")})
    return copy


def assert_caught(notebook, cell, result):
    """`result` of a run is that this cell failed first, and that it is one whose output is compared."""
    status, failed, output = result
    assert status == 1 and failed is not None, output
    code = [cell for cell in nbformat.read(notebook, 4).cells if cell.cell_type == "code"]
    assert code[failed].id == cell, output
    assert "nbval-check-output" in tags(code[failed]), output


@pytest.mark.parametrize(("cell", "file", "right", "wrong", "what"), fault_parameters())
def test_a_broken_helper_fails_the_notebook(tmp_path, run_warm, cell, file, right, wrong, what):
    """In a copy of the project, with the one wrong line; the cell that fails first is a checked one."""
    notebook = copy_with_fault(tmp_path, cell, file, right, wrong)
    assert_caught(notebook, cell, run_warm(notebook))


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "file", "right", "wrong", "what"), FAULTS, ids=[f"{f[0]}: {f[4]}" for f in FAULTS])
def test_a_broken_helper_fails_the_notebook_in_a_kernel(tmp_path, cell, file, right, wrong, what):
    """The same with a kernel of its own for each fault, as a reader's notebook has one."""
    notebook = copy_with_fault(tmp_path, cell, file, right, wrong)
    assert_caught(notebook, cell, run_nbval(notebook))


#: A fault whose cell compares numbers, one whose cell raises nothing and prints another text, and none.
BOTH_WAYS = [next(fault for fault in FAULTS if fault[0] == cell) for cell in ("01-06", "05-07")]


@pytest.mark.parametrize("fault", BOTH_WAYS, ids=[fault[4] for fault in BOTH_WAYS])
def test_a_fault_is_caught_in_a_kernel_and_in_a_warm_process(tmp_path, run_warm, fault):
    """The two ways to run a notebook would drift apart, and the faster one might see faults that no reader meets."""
    cell, file, right, wrong, _ = fault
    notebook = copy_with_fault(tmp_path, cell, file, right, wrong)
    assert_caught(notebook, cell, run_nbval(notebook))
    assert_caught(notebook, cell, run_warm(notebook))


def test_a_warm_process_compares_only_the_cells_with_the_tag(tmp_path, run_warm):
    """Each line that a process prints differs: where the tag is missing, nbval --nbval-lax must not mind."""
    cells = [nbformat.v4.new_code_cell("print(2)", execution_count=1) for _ in range(2)]
    for cell in cells:
        cell.outputs = [nbformat.v4.new_output("stream", text="1\n")]
    cells[1].metadata["tags"] = ["nbval-check-output"]
    notebook = tmp_path / "two_cells.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), notebook)
    status, failed, output = run_warm(notebook)
    assert (status, failed) == (1, 1), output


def test_a_warm_process_imports_helpers_for_each_notebook(tmp_path, run_warm):
    """A notebook that took the `helpers` of the one before would miss the fault that is planted in its own copy."""
    for place in ("first", "second"):
        folder = tmp_path / place
        (folder / "helpers").mkdir(parents=True)
        (folder / "helpers" / "__init__.py").write_text(f"PLACE = {place!r}\n")
        cell = nbformat.v4.new_code_cell("import helpers\nprint(helpers.PLACE)", execution_count=1)
        cell.outputs = [nbformat.v4.new_output("stream", text=f"{place}\n")]
        cell.metadata["tags"] = ["nbval-check-output"]
        notebook = folder / "place.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), notebook)
        status, _, output = run_warm(notebook)
        assert status == 0, output

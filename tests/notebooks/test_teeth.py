"""The checks in the notebooks must bite: each notebook fails when a helper is wrong."""

import shutil

import nbformat
import pytest

from helpers.run.notebooks import DEEPER, NOTEBOOKS, source_of
from helpers.runtime import ROOT
from tests.notebooks.checking import SMALL, prepare, run_nbval, tags, toothless
from tests.notebooks.faults import FAULTS, notebook_of, table


@pytest.mark.parametrize("name", (*NOTEBOOKS, *DEEPER))
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


@pytest.mark.parametrize("number", ["01", "02", "03", "04", "05"])
def test_cells_of_each_notebook_notice_something(number):
    """A cell that prints a constant has an output to compare, too. A notebook and its proofs count together."""
    cells = {fault[0] for fault in FAULTS if notebook_of(fault[0]).startswith(number)}
    assert len(cells) >= 5
    taught = {
        fault[0] for fault in FAULTS if notebook_of(fault[0]) in NOTEBOOKS and notebook_of(fault[0])[:2] == number
    }
    assert len(taught) >= 2


def test_the_table_of_faults_is_in_the_readme():
    assert table() in (ROOT / "tests" / "README.md").read_text(), "python -m tests.notebooks.faults has the new table"


#: Cells that come after five seconds of computation: their faults are part of `make test-slow`.
LATE_CELLS = {
    "01-18", "01-31",
    "p02-32", "p02-34",
    "03-27", "03-29", "03-31", "p03-23", "p03-25", "p03-29", "p03-33", "p03-40",
    "04-20", "04-30", "p04-10", "p04-13", "p04-15",
    "05-21", "05-25", "d5-40",
}  # fmt: skip


def fault_parameters():
    """All faults; those that take long are marked as slow."""
    parameters = []
    for fault in FAULTS:
        cell, *_, what = fault
        marks = [pytest.mark.slow] if cell in LATE_CELLS else []
        parameters.append(pytest.param(*fault, id=f"{cell}: {what}", marks=marks))
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


def test_a_fault_is_caught_in_a_kernel_and_in_a_warm_process(tmp_path, run_warm):
    """If the two ways to run a notebook drifted apart, the faster one would prove nothing about a reader's kernel.

    This is one fault; `make test-slow` plants each of them in both ways.
    """
    cell, file, right, wrong, _ = next(fault for fault in FAULTS if notebook_of(fault[0]) == "05_statistics")
    notebook = copy_with_fault(tmp_path, cell, file, right, wrong)
    assert_caught(notebook, cell, run_nbval(notebook))
    assert_caught(notebook, cell, run_warm(notebook))


#: Cells whose output is a stream, a result, a shown object and the result of a magic, with what a kernel makes of each.
SHOWN = [
    ("print(1 + 1)", nbformat.v4.new_output("stream", name="stdout", text="2\n")),
    ("6 * 7", nbformat.v4.new_output("execute_result", data={"text/plain": "42"}, execution_count=2)),
    ("display({'a': 1})", nbformat.v4.new_output("display_data", data={"text/plain": "{'a': 1}"})),
    ("%precision 2\n2 / 3", nbformat.v4.new_output("execute_result", data={"text/plain": "0.67"}, execution_count=4)),
]


def write_shown(folder, sources):
    """Write a notebook of these cells, all of them compared with the outputs of `SHOWN`; return its path."""
    cells = []
    for number, (source, (_, output)) in enumerate(zip(sources, SHOWN), start=1):
        cell = nbformat.v4.new_code_cell(source, execution_count=number, outputs=[output])
        cell.metadata["tags"] = ["nbval-check-output"]
        cells.append(cell)
    notebook = folder / "shown.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), notebook)
    return notebook


def test_a_warm_process_shows_what_a_kernel_shows(tmp_path, run_warm):
    """A kind of output that it lost, or wrote otherwise, would make faults out of sound cells."""
    notebook = write_shown(tmp_path, [source for source, _ in SHOWN])
    for run in (run_nbval, run_warm):
        status, failed, output = run(notebook)
        assert (status, failed) == (0, None), output


@pytest.mark.parametrize("number", range(len(SHOWN)))
@pytest.mark.parametrize("instead", ["print(3)", "43", "1 / 0"])
def test_a_warm_process_fails_at_the_first_cell_that_differs(tmp_path, run_warm, number, instead):
    """Another output, or an exception, must be found in each kind of cell."""
    sources = [source for source, _ in SHOWN]
    sources[number] = instead
    status, failed, output = run_warm(write_shown(tmp_path, sources))
    assert (status, failed) == (1, number), output


def test_a_warm_process_compares_only_the_cells_with_the_tag(tmp_path, run_warm):
    """What cells without the tag print may differ from run to run, so that every notebook would fail."""
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

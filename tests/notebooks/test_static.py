"""What can be said of the notebooks without running them."""

import ast
import re

import nbformat
import pytest

import helpers
from helpers.run import NOTEBOOKS, source_of
from helpers.runtime import ROOT

NAMES = pytest.mark.parametrize("name", NOTEBOOKS)


def read(name):
    return nbformat.read(source_of(name), 4)


def code_cells(name):
    return [cell for cell in read(name).cells if cell.cell_type == "code"]


def tagged(name, tag):
    return [cell for cell in code_cells(name) if tag in cell.metadata.get("tags", [])]


def test_the_five_and_no_other():
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")) == list(NOTEBOOKS)


@NAMES
def test_valid_and_made_for_colab(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.accelerator == "GPU" and notebook.metadata.colab.gpuType == "T4"
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata  # GitHub refuses to show a notebook with stale widget state
    assert source_of(name).stat().st_size < 1_000_000


@NAMES
def test_first_cell_says_what_and_offers_colab(name):
    first = read(name).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith(f"# {int(name[:2])} · ")
    assert f"/notebooks/{name}.ipynb)" in first.source


@NAMES
def test_one_parameters_cell_of_literals(name):
    """Papermill sets them, and a reader sees at once what may be changed."""
    (cell,) = tagged(name, "parameters")
    assert cell.id == code_cells(name)[0].id
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.Assign) and statement.targets[0].id.isupper()
        ast.literal_eval(statement.value)
    assert 'PROFILE = "auto"' in cell.source


def test_setup_cell_is_the_same_everywhere():
    """It is copied by hand; a mended copy in one notebook would leave four broken."""
    assert len({code_cells(name)[1].source for name in NOTEBOOKS}) == 1
    assert "helpers.install()" in code_cells(NOTEBOOKS[0])[1].source


@NAMES
def test_no_shell_lines(name):
    """A failed `!pip` does not stop a notebook, and papermill calls it a success."""
    for cell in code_cells(name):
        assert not re.search(r"^\s*[!%]", cell.source, re.M), cell.source


@NAMES
def test_every_name_from_helpers_exists(name):
    for cell in code_cells(name):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ImportFrom) and node.module == "helpers":
                assert {alias.name for alias in node.names} <= set(helpers.__all__)


@NAMES
def test_stored_outputs_are_those_of_one_clean_run(name):
    counts = [cell.execution_count for cell in code_cells(name)]
    assert counts == list(range(1, len(counts) + 1))
    for cell in code_cells(name):
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr", (cell.source, output)
            assert "application/vnd.jupyter.widget-view+json" not in output.get("data", {})


@NAMES
def test_links_between_notebooks_lead_somewhere(name):
    for cell in read(name).cells:
        for target in re.findall(r"\]\((\w+\.ipynb)\)", cell.source):
            assert (ROOT / "notebooks" / target).exists(), target

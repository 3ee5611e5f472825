"""What can be said of the notebooks without running them."""

import ast
import json
import re

import nbformat
import pytest

import helpers
from helpers.run.notebooks import DEEPER, NOTEBOOKS, source_of
from helpers.runtime import ROOT
from tests.notebooks.checking import solutions_of
from tests.notebooks.store import RECORD, code_digest, minutes_of, readme_with_minutes, with_minutes

FIVE = pytest.mark.parametrize("name", NOTEBOOKS)
ALL = pytest.mark.parametrize("name", (*NOTEBOOKS, *DEEPER))
#: No cell is longer, so that it holds one idea and fits a screen beside its output.
LONGEST_CELL = 15
#: Words of prose to words of code, at least.
PROSE = 1.5


def read(name):
    return nbformat.read(source_of(name), 4)


def cells_of(name, kind):
    return [cell for cell in read(name).cells if cell.cell_type == kind]


def tagged(name, tag):
    return [cell for cell in cells_of(name, "code") if tag in cell.metadata.get("tags", [])]


def test_the_notebooks_and_no_other():
    folder = ROOT / "notebooks"
    assert sorted(path.stem for path in folder.glob("*.ipynb")) == list(NOTEBOOKS)
    assert sorted(path.stem for path in (folder / "deeper").glob("*.ipynb")) == sorted(DEEPER)


@ALL
def test_valid_and_made_for_colab(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.accelerator == "GPU" and notebook.metadata.colab.gpuType == "T4"
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata  # GitHub refuses to show a notebook with stale widget state
    assert source_of(name).stat().st_size < 1_000_000


def test_every_cell_has_an_id_of_its_own():
    """A planted fault names the cell that must notice it by its id alone."""
    ids = [cell.id for name in (*NOTEBOOKS, *DEEPER) for cell in read(name).cells]
    assert len(ids) == len(set(ids))


@ALL
def test_first_cell_says_what_and_offers_colab(name):
    first = read(name).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith(f"# {int(name[:2])} · ")
    path = source_of(name).relative_to(ROOT)
    assert f"/{path})" in first.source


@ALL
def test_one_parameters_cell_of_literals(name):
    """Papermill sets them, and a reader sees at once what may be changed."""
    (cell,) = tagged(name, "parameters")
    assert cell.id == cells_of(name, "code")[0].id
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.Assign) and statement.targets[0].id.isupper()
        ast.literal_eval(statement.value)


def test_training_begins_with_the_embedded_model_and_loading_with_the_largest():
    """On a T4 a reader sees gpt-oss-20b in a minute's reading, and starts no training of hours by accident."""
    for name, profile in (("01_load", "auto"), ("02_attention", "auto"), ("04_grpo", "tiny"), ("05_evaluate", "tiny")):
        (cell,) = tagged(name, "parameters")
        assert f'PROFILE = "{profile}"' in cell.source


def test_setup_cell_is_the_same_everywhere_and_folded():
    """It is copied by hand; a mended copy in one notebook would leave ten broken."""
    cells = [cells_of(name, "code")[1] for name in (*NOTEBOOKS, *DEEPER)]
    assert len({cell.source for cell in cells}) == 1
    assert "helpers.install()" in cells[0].source and cells[0].source.startswith("# @title")
    assert all(cell.metadata.cellView == "form" and cell.metadata.jupyter.source_hidden for cell in cells)


@ALL
def test_no_cell_is_long(name):
    for cell in cells_of(name, "code"):
        assert len(cell.source.splitlines()) <= LONGEST_CELL, cell.id


@FIVE
def test_more_is_explained_than_coded(name):
    prose = sum(len(cell.source.split()) for cell in cells_of(name, "markdown"))
    code = sum(len(cell.source.split()) for cell in cells_of(name, "code"))
    assert prose >= PROSE * code, f"{prose / code:.2f}"


@FIVE
def test_a_lesson_has_its_parts(name):
    """A picture at the start, three exercises with solutions, what to remember, where to go next."""
    cells = read(name).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert any("sketch(" in cell.source or "slider(" in cell.source for cell in cells[:9])
    assert len(solutions_of(read(name))) == 3 and all(map(str.strip, solutions_of(read(name))))
    last = cells[-1].source
    assert last.startswith("## What to remember") and len(re.findall(r"^- ", last, re.M)) == 3
    assert "**Next:**" in last
    assert "https://arxiv.org/abs/" in text


@ALL
def test_no_shell_lines(name):
    """A failed `!pip` does not stop a notebook, and papermill calls it a success."""
    for cell in cells_of(name, "code"):
        assert not re.search(r"^\s*[!%]", cell.source, re.M), cell.source


@ALL
def test_every_name_from_helpers_exists(name):
    for cell in cells_of(name, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ImportFrom) and node.module == "helpers":
                assert {alias.name for alias in node.names} <= set(helpers.__all__)


@ALL
def test_stored_outputs_are_those_of_one_clean_run(name):
    counts = [cell.execution_count for cell in cells_of(name, "code")]
    assert counts == list(range(1, len(counts) + 1))
    for cell in cells_of(name, "code"):
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr", (cell.source, output)
            assert "application/vnd.jupyter.widget-view+json" not in output.get("data", {})


@ALL
def test_every_picture_has_a_text(name):
    """For readers who cannot see it; matplotlib's own text is the size of the figure."""
    for cell in cells_of(name, "code"):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                assert len(output.metadata["image/png"]["alt"]) > 30, cell.id


@ALL
def test_outputs_are_of_the_code_that_is_shown(name):
    """A cell that was changed after the stored run would show the outputs of another program."""
    stored = json.loads(RECORD.read_text())["notebooks"][name]
    assert stored["code_sha256"] == code_digest(read(name)), "run the notebooks again and store that run"
    assert stored["date"] and stored["commit"] and stored["machine"]


@ALL
def test_minutes_are_those_of_the_stored_run(name):
    """README and the notebooks gave different ones."""
    seconds = json.loads(RECORD.read_text())["notebooks"][name]["seconds"]
    first = read(name).cells[0].source
    assert f"**Takes** {minutes_of(seconds)} on two CPU cores." in first
    assert with_minutes(first, seconds) == first != with_minutes(first, 3600)
    readme = (ROOT / "README.md").read_text()
    assert readme_with_minutes(readme, name, seconds) == readme
    assert name in DEEPER or readme_with_minutes(readme, name, 3600) != readme


@ALL
def test_links_between_notebooks_lead_somewhere(name):
    for cell in cells_of(name, "markdown"):
        for target in re.findall(r"\]\(((?!https?:)[^)#]+)\)", cell.source):
            assert (source_of(name).parent / target).exists(), target

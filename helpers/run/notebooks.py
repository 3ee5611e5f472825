"""The notebooks of the project, executed headlessly, each with what it takes of a run's settings."""

import ast
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from helpers.run.settings import is_setting
from helpers.runtime import ROOT, UserError, first_line, write_whole

AGAIN = "Run it again with the same NAME: 04_grpo goes on from its last checkpoint."
#: What a person reads in an evening.
NOTEBOOKS = ("01_load", "02_attention", "03_rewards", "04_grpo", "05_evaluate")
#: What only proves, in notebooks/deeper.
DEEPER = (
    "01_checks",
    "02_attention_proofs",
    "03_sandbox",
    "03_lint",
    "04_losses_and_controls",
    "05_statistics",
)


def source_of(name: str) -> Path:
    """Return the path of a notebook of the project."""
    folder = ROOT / "notebooks" / "deeper" if name in DEEPER else ROOT / "notebooks"
    return folder / f"{name}.ipynb"


def parameters_of(name: str) -> dict[str, object]:
    """Return the parameters of a notebook with their defaults: {name: default} of its cell tagged `parameters`."""
    cells = json.loads(source_of(name).read_text(encoding="utf-8"))["cells"]
    tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    assignments = ast.parse("".join(line for cell in tagged for line in cell["source"])).body
    return {assignment.targets[0].id: ast.literal_eval(assignment.value) for assignment in assignments}


def parameters_of_all() -> dict[str, object]:
    """Return the parameters of all notebooks; where two have one, the default of the five counts."""
    parameters = {}
    for notebook in (*DEEPER, *NOTEBOOKS):
        parameters |= parameters_of(notebook)
    return parameters


def for_notebook(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the given settings a notebook takes: its parameters, and the others in its CONFIG.

    given: by name, in capitals or not.
    """
    own = parameters_of(name)
    taken = {}
    config = {}
    for key, value in given.items():
        if key.upper() in own:
            taken[key.upper()] = value
        elif is_setting(key):
            config[key.lower()] = value
    if "data" in config and "task" in given:  # in the parameter TASK its default would say nothing beside data
        config["task"] = given["task"]
    if "CONFIG" in own:
        taken["CONFIG"] = config
    return taken


class Progress:
    """Says which cell runs, and passes on what a training step prints."""

    def __init__(self, name, cells):
        self.name, self.part, heading = name, "", ""
        self.code = [n for n, cell in enumerate(cells) if cell.cell_type == "code"]
        self.headings = []
        for cell in cells:
            lines = cell.source.splitlines() if cell.cell_type == "markdown" else []
            heading = next((line.strip("# ") for line in reversed(lines) if line.startswith("#")), heading)
            self.headings.append(heading)

    def cell_started(self, cell, cell_index):
        if cell.cell_type == "code":
            place = f"cell {self.code.index(cell_index) + 1}/{len(self.code)}"
            print(f"{self.name:<13}{place:<12}{self.headings[cell_index]}", flush=True)

    def write(self, text):
        """Take a cell's output as a file would; only whole lines that begin with "step" are shown."""
        *lines, self.part = (self.part + text).split("\n")
        for line in lines:
            if line.startswith("step "):
                print(f"{'':<13}{line}", flush=True)

    def flush(self):
        """Nothing is held back that should be shown."""


def run_notebook(name: str, folder: Path, given: Mapping[str, Any]) -> None:
    """Execute one notebook into `folder`, as .ipynb and as HTML, the HTML also when a cell fails.

    given: parameters of notebooks and settings of CONFIG, in capitals; those that this notebook lacks are left out.
    """
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    parameters = for_notebook(name, given)
    output = folder / f"{name}.ipynb"
    notebook = load_notebook_node(str(source_of(name)))
    if parameters:  # papermill adds a cell for them, and none where there are none
        notebook = parameterize_notebook(notebook, parameters)
    progress = Progress(name, notebook.cells)
    try:
        execute_notebook(
            str(source_of(name)),
            str(output),
            parameters=parameters,
            cwd=str(ROOT),
            progress_bar=False,
            stdout_file=progress,
            on_cell_start=progress.cell_started,
            extra_arguments=["--log-level=50"],  # the kernel would tell of TCP and of being stopped at the end
        )
    except PapermillExecutionError as error:
        if error.ename == "EndOfNotebook":
            _remove_error_cells(output)
            return
        reason = error.evalue if error.ename == "UserError" else f"{error.ename}: {error.evalue}"
        raise UserError(f"{name} stopped: {reason} (everything up to there is in {output})") from error
    except RuntimeError as error:
        if "Kernel died" not in str(error):  # nbclient's words while a cell runs, jupyter_client's before the first
            raise
        raise UserError(
            f"{name} stopped: its kernel died, for want of memory perhaps (up to there everything is in {output}). "
            + AGAIN
        ) from error
    except OSError as error:
        raise UserError(f"{name} stopped: cannot write {output} ({first_line(error)}). {AGAIN}") from error
    finally:
        if output.exists():
            with suppress(OSError):  # a full disk has been told of by what filled it
                write_html(output)


def _remove_error_cells(path):
    """Remove the cells in which papermill says that the notebook failed: it ended where it should."""
    import nbformat
    from papermill.execute import ERROR_MARKER_TAG

    notebook = nbformat.read(path, 4)
    notebook.cells = [cell for cell in notebook.cells if ERROR_MARKER_TAG not in cell.metadata.get("tags", [])]
    write_whole(path, nbformat.writes(notebook))


def printed_by_last_cell(path: Path) -> str:
    """Return what the last cell that was executed printed."""
    import nbformat

    cells = nbformat.read(path, 4).cells
    executed = [cell for cell in cells if cell.cell_type == "code" and cell.execution_count]
    return "".join(output.get("text", "") for output in executed[-1].outputs).strip()


def write_html(path):
    """The executed notebook as one HTML file beside it, without the source of its folded cells."""
    import nbformat
    from nbconvert import HTMLExporter

    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        if cell.metadata.get("cellView") == "form":
            cell.metadata["transient"] = {"remove_source": True}
    page, _ = HTMLExporter().from_notebook_node(notebook)
    write_whole(path.with_suffix(".html"), page)

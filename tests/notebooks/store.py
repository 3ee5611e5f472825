"""Store the outputs of a run in the notebooks: `python -m tests.notebooks.store runs/NAME`.

What a reader sees on GitHub, and what nbval compares with, is then what one run of the committed code printed.
"""

import ast
import shutil
import sys
from pathlib import Path

import nbformat

from helpers.run import NOTEBOOKS, source_of
from helpers.runtime import ROOT, UserError, write_whole

#: What every run sets, and a reader need not set to get the same.
SET_BY_EVERY_RUN = {"PROFILE", "RUN_DIR"}


def with_outputs(notebook, executed):
    """`notebook` with the outputs that the cells of the same ids have in `executed`; counts run from 1.

    Papermill's own cell, which set the parameters, is left out, and so are its notes on each cell. Raises UserError
    where the run was of other code, or had parameters that the notebook does not have.
    """
    ran = {cell.id: cell for cell in executed.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        if cell.cell_type == "code" and (cell.id not in ran or ran[cell.id].source != cell.source):
            raise UserError(f"Cell {cell.id} has changed since the run: run the notebooks again and store that run.")
    for cell in executed.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            given = {statement.targets[0].id for statement in ast.parse(cell.source).body}
            if given - SET_BY_EVERY_RUN:
                names = ", ".join(sorted(given - SET_BY_EVERY_RUN))
                raise UserError(f"The run set {names}: store one that leaves the notebooks' own parameters alone.")
    outputs = {cell_id: cell.outputs for cell_id, cell in ran.items()}
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = outputs[cell.id]
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = count
    return notebook


def main(folder):
    for name in NOTEBOOKS:
        executed = nbformat.read(Path(folder) / f"{name}.ipynb", 4)
        notebook = with_outputs(nbformat.read(source_of(name), 4), executed)
        write_whole(source_of(name), nbformat.writes(notebook) + "\n")
    shutil.copy(Path(folder) / "result.png", ROOT / "notebooks" / "images" / "result.png")


if __name__ == "__main__":
    main(sys.argv[1])

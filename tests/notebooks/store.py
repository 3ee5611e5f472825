"""Store the outputs of a run in the notebooks: `python -m tests.notebooks.store runs/NAME`.

What a reader sees on GitHub, and what nbval compares with, is then what one run of the committed code printed.
"""

import shutil
import sys
from pathlib import Path

import nbformat

from helpers.run import NOTEBOOKS, source_of
from helpers.runtime import ROOT, write_whole


def with_outputs(notebook, executed):
    """`notebook` with the outputs that the cells of the same ids have in `executed`; counts run from 1.

    Papermill's own cell, which set the parameters, is left out, and so are its notes on each cell.
    """
    outputs = {cell.id: cell.outputs for cell in executed.cells if cell.cell_type == "code"}
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

"""Store the outputs of a run in the notebooks: `python -m tests.notebooks.store runs/NAME`.

What a reader sees on GitHub, and what nbval compares with, is then what one run of the committed code printed. The run
may be of the five notebooks or of those in notebooks/deeper. `notebooks/run.json` says when, where and of which sources
it was, and is the one source of the minutes that the notebooks and README give.
"""

import ast
import hashlib
import json
import math
import platform
import re
import shutil
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

import nbformat

from helpers.environment import hardware
from helpers.run.notebooks import DEEPER, NOTEBOOKS, source_of
from helpers.runtime import ROOT, UserError, write_whole

#: What every run sets, and a reader need not set to get the same.
SET_BY_EVERY_RUN = {"PROFILE", "RUN_DIR"}
RECORD = ROOT / "notebooks" / "run.json"
#: Packages whose versions are recorded.
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes")


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
            assignments = ast.parse(cell.source).body
            given = {statement.targets[0].id: ast.literal_eval(statement.value) for statement in assignments}
            changed = {name for name, value in given.items() if name not in SET_BY_EVERY_RUN and value != {}}
            if changed:
                names = ", ".join(sorted(changed))
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


def code_digest(notebook) -> str:
    """Return the SHA-256 of a notebook's code cells: what its outputs are outputs of."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def minutes_of(seconds: float) -> str:
    """Return a duration as the notebooks give it, in whole minutes, rounded up."""
    minutes = math.ceil(seconds / 60)
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"


def with_minutes(text: str, seconds: float) -> str:
    """Return the text of a notebook's first cell with the minutes of a run."""
    return re.sub(r"(\*\*Takes\*\*) .*? on two CPU cores\.", rf"\1 {minutes_of(seconds)} on two CPU cores.", text)


def readme_with_minutes(text: str, name: str, seconds: float) -> str:
    """Return README with the minutes of a run in the row of a notebook: its third column."""
    row = rf"(\| \[{name}\]\([^)]*\) \| [^|]* \| )[^|]*( \|)"
    return re.sub(row, rf"\g<1>{math.ceil(seconds / 60)}\2", text)


def main(folder: str) -> None:
    ran = [name for name in (*NOTEBOOKS, *DEEPER) if (Path(folder) / f"{name}.ipynb").exists()]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"notebooks": {}}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout
    readme = ROOT / "README.md"
    for name in ran:
        executed = nbformat.read(Path(folder) / f"{name}.ipynb", 4)
        notebook = with_outputs(nbformat.read(source_of(name), 4), executed)
        seconds = executed.metadata.papermill.duration
        record["notebooks"][name] = {
            "seconds": round(seconds),
            "code_sha256": code_digest(notebook),
            "date": str(date.today()),
            "commit": commit.strip(),
            "machine": f"{hardware()}, Python {platform.python_version()}",
            "versions": {package: version(package) for package in PACKAGES},
        }
        notebook.cells[0].source = with_minutes(notebook.cells[0].source, seconds)
        write_whole(source_of(name), nbformat.writes(notebook) + "\n")
        write_whole(readme, readme_with_minutes(readme.read_text(), name, seconds))
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")
    if "05_evaluate" in ran:
        shutil.copy(Path(folder) / "result.png", ROOT / "notebooks" / "images" / "result.png")


if __name__ == "__main__":
    main(sys.argv[1])

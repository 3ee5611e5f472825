"""Runs a notebook under nbval: its checked cells must print what the stored notebook shows."""

import os
import re
import subprocess
import sys

import nbformat

#: Parameters that make a notebook short; no checked cell may depend on them.
SMALL = {"PROFILE": "tiny", "MAX_STEPS": 1, "ITEMS": 16, "SWEEP": "small", "FALLBACK_STEPS": 1}


def tags(cell):
    return cell.metadata.get("tags", [])


def prepare(source, target, parameters):
    """Copy a notebook with some of its parameters set and its stored outputs kept."""
    notebook = nbformat.read(source, 4)
    (cell,) = (cell for cell in notebook.cells if "parameters" in tags(cell))
    for name, value in parameters.items():
        if re.search(rf"^{name} = ", cell.source, re.M):
            cell.source += f"\n{name} = {value!r}"
    nbformat.write(notebook, target)


def run_nbval(notebook):
    """`(exit status, number of the first cell that failed or None, output)`; it stops there."""
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-x", "-q", "-rf"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(notebook.parent), "-c", os.devnull, str(notebook)]
    run = subprocess.run(command, cwd=notebook.parent, capture_output=True, text=True)
    found = re.search(r"^FAILED .*::Cell (\d+)", run.stdout, re.M)
    return run.returncode, int(found[1]) if found else None, run.stdout[-5000:] + run.stderr[-1000:]


def toothless(notebook):
    """What is wrong with the checks of a notebook: sentences, none if they can bite.

    nbval passes a cell that has no stored output or no count, so a notebook whose outputs were
    stripped passes whatever the code does.
    """
    wrong = []
    checked = [cell for cell in notebook.cells if "nbval-check-output" in tags(cell)]
    if len(checked) < 5:
        wrong.append(f"{len(checked)} checked cells")
    for cell in checked:
        text = "".join(output.get("text", "") for output in cell.get("outputs", []) if output.output_type == "stream")
        if not cell.get("execution_count"):
            wrong.append(f"{cell.id} has no count, so nbval compares nothing")
        if not re.search(r"\d", text):
            wrong.append(f"{cell.id} shows no number")
    return wrong

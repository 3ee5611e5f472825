"""Run a notebook under nbval: its checked cells must print what the stored notebook shows."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import nbformat

from helpers.run.notebooks import for_notebook

#: Parameters that make a notebook short; no checked cell may depend on them.
SMALL = {"PROFILE": "tiny", "MAX_STEPS": 1, "ITEMS": 16, "SWEEP": "small", "FALLBACK_STEPS": 1}


def tags(cell):
    return cell.metadata.get("tags", [])


def prepare(source: Path, target: Path, given: dict, with_solutions: bool = False) -> None:
    """Copy a notebook of the project with its stored outputs.

    given: parameters and settings, as `run_notebook` takes them. with_solutions: add the solutions of its exercises as
    cells behind all others.
    """
    notebook = nbformat.read(source, 4)
    (cell,) = (cell for cell in notebook.cells if "parameters" in tags(cell))
    for name, value in for_notebook(source.stem, given).items():
        cell.source += f"\n{name} = {value!r}"
    if with_solutions:
        notebook.cells += [nbformat.v4.new_code_cell(solution) for solution in solutions_of(notebook)]
    nbformat.write(notebook, target)


def solutions_of(notebook) -> list[str]:
    """Return the code of the hidden solutions of a notebook, one text an exercise."""
    solutions = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for hidden in re.findall(r"<details>.*?</details>", cell.source, re.S):
                solutions.append("\n".join(re.findall(r"```python\n(.*?)```", hidden, re.S)))
    return solutions


def run_nbval(notebook):
    """`(exit status, number of the first cell that failed or None, output)`; it stops there."""
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-x", "-q", "-rf"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(notebook.parent), "-c", os.devnull, str(notebook)]
    run = subprocess.run(command, cwd=notebook.parent, capture_output=True, text=True)
    return run.returncode, first_failed(run.stdout), run.stdout[-5000:] + run.stderr[-1000:]


def first_failed(output):
    """The number that nbval gave to the cell that failed, counted from 0 among the cells with code, or None."""
    found = re.search(r"^FAILED .*::Cell (\d+)", output, re.M)
    return int(found[1]) if found else None


@contextmanager
def warm_runner():
    """A function of a notebook that returns what `run_nbval` does, after a fraction of the time: see `zygote.py`."""
    environment = os.environ | {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # a kernel sets it when it starts
        "JE_ARROW_MALLOC_CONF": "background_thread:false",  # the only thread that an import would start
        "PIP_NO_INDEX": "1",  # 03_rewards installs a package where it can, for a cell whose output is not compared
    }
    command = [sys.executable, "-P", "-Xfrozen_modules=off", str(Path(__file__).with_name("zygote.py"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as zygote:

        def run_warm(notebook):
            log = notebook.with_suffix(".log")
            zygote.stdin.write(json.dumps({"notebook": str(notebook), "log": str(log)}) + "\n")
            zygote.stdin.flush()
            answer = zygote.stdout.readline()
            assert answer, "the zygote has ended: it says why on the standard error"
            output = log.read_text()
            return int(answer), first_failed(output), output[-6000:]

        yield run_warm


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

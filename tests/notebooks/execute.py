"""Run one notebook as Jupyter and Colab do, cell by cell in a kernel, and write what it printed to a file.

    python -m tests.notebooks.execute 01_load --out file.json [NAME=value ...]

It needs nbclient, which Colab has, and no papermill. NAME=value sets a parameter of the notebook or a key of its
CONFIG, as for `make run`.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import nbformat

from helpers.run.arguments import read_pairs
from helpers.run.notebooks import for_notebook, parameters_of_all, source_of
from helpers.runtime import write_whole
from tests.notebooks.checking import prepare

#: Seconds that one cell may take.
CELL_S = 1800


def execute(name: str, parameters: dict, out: Path | None = None) -> dict:
    """Run a notebook; return its status "ok" or "failed", why, seconds, and by cell what it printed.

    The file is written after every cell, so that a notebook that is ended leaves what it had printed.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    started = time.monotonic()
    result = {"notebook": name, "status": "running", "why": "", "seconds": 0.0, "printed": {}, "stderr": {}}

    def note(cell, **_) -> None:
        for kind, stream in (("printed", "stdout"), ("stderr", "stderr")):
            texts = [output.text for output in cell.get("outputs", []) if output.get("name") == stream]
            if texts:
                result[kind][cell.id] = "".join(texts)
        result["seconds"] = time.monotonic() - started
        if out:
            write_whole(out, json.dumps(result, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.ipynb"
        prepare(source_of(name), path, parameters)
        notebook = nbformat.read(path, 4)
        client = NotebookClient(
            notebook,
            timeout=CELL_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(source_of(name).parent)}},
            on_cell_executed=note,
            on_cell_error=note,
        )
        try:
            client.execute()
            result["status"] = "ok"
        except CellExecutionError as error:
            ended_as_asked = error.ename == "EndOfNotebook"
            result["status"] = "ok" if ended_as_asked else "failed"
            result["why"] = f"{error.ename}: {error.evalue}"
        except DeadKernelError as error:
            result["status"] = "failed"
            result["why"] = f"its kernel died ({error})"
    result["seconds"] = time.monotonic() - started
    if out:
        write_whole(out, json.dumps(result, indent=1) + "\n")
    return result


def main() -> int:
    """Returns the exit status: 0 if the notebook ran to its end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name")
    parser.add_argument("parameters", nargs="*", metavar="NAME=value")
    parser.add_argument("--out", type=Path)
    options = parser.parse_intermixed_args()
    parameters = for_notebook(options.name, read_pairs(options.parameters, parameters_of_all()))
    result = execute(options.name, parameters, options.out)
    for text in result["printed"].values():
        print(text)
    for cell, text in result["stderr"].items():
        print(f"stderr of {cell}: {text}", file=sys.stderr)
    print(f"{options.name}: {result['status']} after {result['seconds']:.0f} s. {result['why']}")
    return 0 if result["status"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())

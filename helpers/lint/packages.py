"""Try the graders of another package: install it for a while, and ask each grader in a process of its own.

A grader that runs what it grades could do anything here. So process and folder are thrown away afterwards.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from helpers.runtime import UserError

INSTALL_SECONDS = 180
ASK_SECONDS = 120


@contextmanager
def temporary_packages(requirements: Sequence[str], module: str) -> Iterator[str]:
    """Yield a folder with these packages for `ask_in_process`, and remove it afterwards.

    requirements: as for pip, with everything that they need in turn and this environment lacks: no dependency is
    added, so that nothing takes the place of what is here. module: one of theirs; where it can be imported already,
    nothing is installed and the folder is empty.

    Raises UserError if pip fails or takes longer than `INSTALL_SECONDS`.
    """
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        if find_spec(module) is None:
            _install(requirements, folder)
        yield folder


def _install(requirements: Sequence[str], folder: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    command = [*pip, "--no-deps", "--target", folder, *requirements]
    advice = "check the connection to the package index and run this again"
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise UserError(f"pip did not install {requirements[0]} in {INSTALL_SECONDS} s: {advice}.") from None
    if result.returncode:
        reason = _last_line(result.stderr)
        raise UserError(f"pip could not install {requirements[0]} ({reason}): {advice}.")


def ask_in_process(program: str, argument: str, packages: str) -> dict:
    """Run a program in a process of its own and return the JSON object that it prints.

    program: Python text; it starts in an empty folder. argument: its `sys.argv[1]`. packages: a folder from which it
    can import (`temporary_packages`).

    Raises UserError if the program fails or takes longer than `ASK_SECONDS`.
    """
    environment = os.environ | {"PYTHONPATH": packages, "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", program, argument]
    with tempfile.TemporaryDirectory(prefix="asked-") as folder:
        try:
            result = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=ASK_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise UserError(
                f"'{argument}' gave no answer in {ASK_SECONDS} s: leave it out and run this again."
            ) from None
    if result.returncode:
        reason = _last_line(result.stderr)
        raise UserError(f"'{argument}' failed ({reason}): leave it out, or install what it lacks.")
    return json.loads(result.stdout)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"

"""The tests of the widgets once more, with the kernel and the ipywidgets of Colab's image."""

import os
import subprocess
import sys
import venv

import pytest

pytest.importorskip("playwright", reason="playwright is not installed here: make test-browser sets it up.")

from helpers.runtime import ROOT
from tests.colab.run import read_pins

ENVIRONMENT = ROOT / ".venv-colab-kernel"
PACKAGES = ("ipython", "ipykernel", "ipywidgets")


@pytest.fixture(scope="module")
def python():
    """The Python of an environment with these packages as Colab has them, and nothing else."""
    pins = read_pins()
    wanted = [f"{name}=={pins[name]}" for name in PACKAGES]
    made_for = ENVIRONMENT / "made-for"
    if not made_for.exists() or made_for.read_text() != str(wanted):
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*command, *wanted], check=True)
        made_for.write_text(str(wanted))
    return ENVIRONMENT / "bin" / "python"


def test_widgets_work_in_colabs_kernel(python):
    """It has one thread for cells and for clicks, and other classes than today's kernel."""
    command = [sys.executable, "-m", "pytest", "tests/display/test_widgets.py"]
    environment = {**os.environ, "OTHER_KERNEL": str(python)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout

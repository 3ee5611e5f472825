"""04_grpo killed at random instants, and run again: the same adapter, byte for byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.grpo.folders import checkpoint_folders, step_of
from helpers.runtime import ROOT
from tests.process import children, is_running

pytestmark = pytest.mark.slow

KILLS, STEPS = 10, 4
SCRIPT = f"""
import sys
from helpers.run.notebooks import run_notebook
from helpers.runtime import UserError, run_folder
folder = run_folder(sys.argv[1])
try:
    run_notebook("04_grpo", folder, {{
        "PROFILE": "tiny", "RUN_DIR": sys.argv[1], "MAX_STEPS": {STEPS}, "TASK_OPTIONS": "speed=False",
        "NUM_GENERATIONS": 4,
    }})
except UserError as error:
    print(error)
    sys.exit(1)
"""


def start(folder):
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def kernel_of(process):
    """Process id of the notebook's kernel, once there is one."""
    while process.poll() is None:
        for child in children(process.pid):
            if b"ipykernel" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        time.sleep(0.05)
    raise AssertionError("it ended before its kernel began: " + process.stdout.read().decode()[-2000:])


def adapter_bytes(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "adapter").iterdir())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run: the files of its adapter, and the seconds its kernel lived."""
    folder = tmp_path_factory.mktemp("whole")
    process = start(folder)
    kernel_of(process)
    started = time.monotonic()
    output = process.communicate()[0]
    assert process.returncode == 0, output.decode()[-2000:]
    return adapter_bytes(folder), time.monotonic() - started


def test_uninterrupted_runs_are_the_same(tmp_path, whole, row):
    """Without it the next test would compare with luck."""
    process = start(tmp_path)
    output = process.communicate()[0]
    assert process.returncode == 0, output.decode()[-2000:]
    assert adapter_bytes(tmp_path) == whole[0]
    row(f'04_grpo twice, {STEPS} steps, TASK_OPTIONS = "speed=False"', "the same adapter, byte for byte")


@pytest.mark.parametrize("seed", range(KILLS))
def test_sigkill(tmp_path, whole, row, seed):
    process = start(tmp_path)
    kernel, instant = kernel_of(process), random.Random(seed).uniform(0.15, 1.0) * whole[1]
    time.sleep(instant)
    reached = max(map(step_of, checkpoint_folders(tmp_path / "grpo")), default=None)
    workers = []
    try:
        workers = children(kernel)  # of the sandbox
        os.kill(kernel, signal.SIGKILL)
    except OSError:
        pass  # it had just ended
    output = process.communicate()[0].decode()
    assert process.returncode == 0 or "its kernel died" in output and "goes on from its last checkpoint" in output
    deadline = time.monotonic() + 10
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_running, workers)), "the killed kernel left its sandbox behind"
    again = start(tmp_path)
    output = again.communicate()[0]
    assert again.returncode == 0, output.decode()[-2000:]
    assert adapter_bytes(tmp_path) == whole[0]
    where = "before the first checkpoint" if reached is None else f"with checkpoint {reached} of {STEPS} there"
    ended = "" if process.returncode else " (it had just ended)"
    row(f"SIGKILL after {instant:.1f} s of {whole[1]:.1f}, {where}{ended}", "the same adapter, byte for byte")

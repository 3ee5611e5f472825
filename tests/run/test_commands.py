"""The commands: a run without a notebook, one that goes on without its terminal, and what make passes on."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.grpo.__main__ import main as train_main
from helpers.processes import is_running
from helpers.run.__main__ import main
from helpers.run.prepare import main as prepare_main
from helpers.runtime import ROOT

SHORT = ["MAX_STEPS=2", "ITEMS=4", "SWEEP=small", "MAX_TOKENS=24"]


def test_a_run_without_a_notebook(tmp_path, capsys):
    """`python -m helpers.grpo run.toml`: preflight, training, evaluation and the closing table."""
    (tmp_path / "run.toml").write_text('task = "matmul"\ntask_options = "speed=False"\nbatch = 16\n')
    folder = tmp_path / "run"
    status = train_main([str(tmp_path / "run.toml"), f"--run-dir={folder}", *SHORT])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    for words in ("learning rate: ", "memory: ", "step 2/2", "verdict ", "smallest of three differences"):
        assert words in shown.out
    assert (folder / "adapter" / "adapter_model.safetensors").exists()
    report = json.loads((folder / "report.json").read_text())
    assert report["best"]["items"] == 4 and report["origin"]["settings"]["step_batch_size"] == 16


@pytest.fixture
def run_name():
    name = f"test-detached-{os.getpid()}"
    yield name
    shutil.rmtree(ROOT / "runs" / name, ignore_errors=True)


def detach(run_name, *arguments):
    """Start a detached run and return the process that carries it out."""
    command = [sys.executable, "-m", "helpers.run", f"NAME={run_name}", "DETACH=1", *arguments]
    started = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, start_new_session=True)
    assert started.returncode == 0, started.stderr
    assert f"make watch RUN={run_name}" in started.stdout
    return int(re.search(r"process (\d+)", started.stdout)[1])


def watch():
    """What `make watch` prints, to the end of the newest run."""
    command = [sys.executable, "-m", "helpers.display.watch"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True).stdout


FAILS_LATER = """
from pathlib import Path
from helpers import get_task

mark = Path(__file__).with_suffix(".imported")
if mark.exists():
    raise RuntimeError("the second import")
mark.touch()
task = get_task("math")
"""


def test_a_run_goes_on_when_its_terminal_closes(run_name, tmp_path):
    """The command returns; its process has a session of its own, which no terminal ends; `make watch` shows its end.

    The run ends soon: its task can be imported by the command, and not by the process behind it.
    """
    (tmp_path / "later.py").write_text(FAILS_LATER)
    pid = detach(run_name, f"TASK={tmp_path / 'later.py'}:task", "--max-steps=3")
    assert not Path(f"/proc/{pid}").exists() or os.getsid(pid) == pid
    shown = watch()
    assert run_name in shown and "Error: " in shown and "the second import" in shown
    assert not is_running(ROOT / "runs" / run_name)


@pytest.mark.slow
def test_a_detached_run_comes_to_its_end(run_name):
    detach(run_name, "DRY_RUN=1", "TASK=math", "BATCH=16")
    shown = watch()
    assert "The dry run of task 'math' came to its end" in shown and "teach nothing" in shown


def test_make_passes_its_variables_on(tmp_path):
    """`make run LEARNING_RAT=1`: the variable arrives, is no setting, and the sentence says which one is meant."""
    for place in ("Makefile", "helpers", "notebooks", "requirements.txt", "constraints.txt"):
        (tmp_path / place).symlink_to(ROOT / place)
    ready = tmp_path / ".venv" / "bin"
    ready.mkdir(parents=True)
    (ready.parent / ".ready").touch()
    python = ready / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    command = ["make", "-s", "run", "LEARNING_RAT=1"]
    environment = {**os.environ, "MAKEFLAGS": "", "MAKELEVEL": ""}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert "There is no setting 'LEARNING_RAT' (did you mean 'LEARNING_RATE'?)" in run.stderr


def test_a_mistake_ends_a_command_with_one_sentence(tmp_path, capsys):
    assert train_main(["run.toml"]) == 1
    assert "Cannot read CONFIG" in capsys.readouterr().err
    assert prepare_main(["TASK=math"]) == 1
    assert "OUT names the folder to write" in capsys.readouterr().err
    assert prepare_main(["TASK=math", "N=many", f"OUT={tmp_path / 'out'}"]) == 1
    assert "N is the number of rows" in capsys.readouterr().err
    assert main(["NAME=/tmp/elsewhere"]) == 1
    assert "RUN_DIR names one elsewhere" in capsys.readouterr().err
    assert main(["NAME=a", "NAME=b"]) == 1
    assert "NAME is given 2 times" in capsys.readouterr().err

"""The plumbing with which notebooks try graders of another package."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.lint import packages
from helpers.lint.packages import ask_in_process, temporary_packages
from helpers.runtime import UserError

PRINT_FOLDER = "import json, os, sys; print(json.dumps({'files': os.listdir(), 'asked': sys.argv[1]}))"


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run; none is carried out, and each fails with two lines on its standard error."""
    given = []

    def run(command, **_):
        given.append(command)
        return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: no such version\n")

    monkeypatch.setattr(packages.subprocess, "run", run)
    return given


def test_a_program_is_asked_in_an_empty_folder():
    """A grader that leaves a file would otherwise leave it in the project, and the next one would find it."""
    assert ask_in_process(PRINT_FOLDER, "countdown", packages="") == {"files": [], "asked": "countdown"}


def test_a_program_finds_the_packages(tmp_path):
    (tmp_path / "made_up_package.py").write_text("SCORE = 0.5\n")
    program = "import json, made_up_package; print(json.dumps({'score': made_up_package.SCORE}))"
    assert ask_in_process(program, "any", str(tmp_path)) == {"score": 0.5}


def test_a_program_that_fails_is_named_with_its_last_line():
    with pytest.raises(UserError, match=r"'countdown' failed \(ZeroDivisionError: .*\): leave it out"):
        ask_in_process("1 / 0", "countdown", packages="")


def test_a_program_that_hangs_is_ended(monkeypatch):
    """Without a limit, the notebook would hang with it."""
    monkeypatch.setattr(packages, "ASK_SECONDS", 1)
    with pytest.raises(UserError, match="'countdown' gave no answer in 1 s"):
        ask_in_process("import time; time.sleep(60)", "countdown", packages="")


def test_nothing_is_installed_where_the_module_is(commands):
    """Where the package is installed, a reader without a network can run the demonstration all the same."""
    with temporary_packages(["json==9"], "json") as folder:
        assert list(Path(folder).iterdir()) == []
    assert commands == []
    assert not Path(folder).exists()


def test_pip_installs_no_dependency_and_says_why_it_failed(commands):
    """A dependency could replace torch or numpy under the running kernel, even in a folder of its own."""
    with pytest.raises(UserError, match=r"could not install made-up==1 \(ERROR: no such version\): check"):
        with temporary_packages(["made-up==1", "other==2"], "made_up"):
            pass
    (command,) = commands
    assert command[0] == sys.executable
    assert "--no-deps" in command and command[-2:] == ["made-up==1", "other==2"]

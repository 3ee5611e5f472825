"""Reports of the fake GPU, each made once for all processes of a test run."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from helpers.runtime import ROOT

#: Seconds for a report, for which the tests that ask for it may have to wait: no test may depend on a quiet machine.
REPORT_S = 3000


@pytest.fixture(scope="session")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict]:
    """A function of a module's name in this folder, and its arguments: the report that it prints, as a dict.

    The modules replace parts of torch, so each runs in a process of its own, which takes a minute. The first test that
    asks for a report waits for it; the workers of pytest-xdist find it in the folder that they share.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def report(module: str, *arguments: str) -> dict:
        kept = folder / f"fake_gpu_{'_'.join((module, *arguments))}.json"
        with open(kept.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                command = [sys.executable, "-m", f"tests.fake_gpu.{module}", *arguments]
                run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=REPORT_S)
                assert run.returncode == 0, run.stderr[-3000:]
                kept.write_text(run.stdout.splitlines()[-1])
        return json.loads(kept.read_text())

    return report

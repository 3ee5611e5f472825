"""Shared fixtures: the embedded model, loaded once, and one judge of matmul programs.

`helpers` fetches each name when it is first used, so this needs no torch (`make test-py`).
"""

import gc
import os
import signal

os.environ["HELPERS_HEADLESS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # several workers share the cores
if not any(map(os.path.exists, ("/proc/driver/nvidia", "/dev/dxg"))):
    os.environ["TRITON_INTERPRET"] = "1"  # without a GPU the kernels run in Triton's interpreter

import pytest

import helpers
from helpers.profiles import PROFILES

CHECKPOINT = PROFILES["tiny"].model

# A shell starts background jobs with Ctrl-C ignored, and Python then installs no handler; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Leave what is there now out of garbage collections, each of which took half a second with all tests collected.

    The modules of torch and of the tests are never garbage. What a test makes is collected as ever.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """Let Python's last collection see all, so that no library reports a leak."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def loaded():
    """The embedded model in fp32, exact, with its tokenizer; frozen, so tests may share it."""
    return helpers.load_model(profile="tiny", dense="fp32")


@pytest.fixture
def model(loaded):
    return loaded[0]


@pytest.fixture
def tokenizer(loaded):
    return loaded[1]


@pytest.fixture(scope="session")
def task():
    """The matmul task with its sandbox."""
    task = helpers.get_task("matmul")
    yield task
    task.close()


@pytest.fixture(scope="session")
def matmul_judge():
    with helpers.MatmulJudge() as judge:
        yield judge

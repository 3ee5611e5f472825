"""One warm process for all notebooks that a worker of pytest runs."""

import pytest

from tests.notebooks.checking import warm_runner


@pytest.fixture(scope="session")
def run_warm():
    """A function of a notebook: runs it as `run_nbval` does, in a process that has torch imported already."""
    with warm_runner() as run:
        yield run

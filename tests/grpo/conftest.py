import pytest

from helpers import load_task


@pytest.fixture(scope="session")
def prompts():
    return load_task("matmul", "train", 12)

import pytest

from helpers import get_task


@pytest.fixture(scope="session")
def prompts():
    return get_task("matmul").dataset("train", 12)

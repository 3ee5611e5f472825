"""Shared fixtures: the embedded model, loaded once, and one sandbox."""

import os

os.environ["HELPERS_HEADLESS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # as `make run` has it on the CPU

import pytest

from helpers import Sandbox, load_model
from helpers.runtime import PROFILES

CHECKPOINT = PROFILES["tiny"].model


@pytest.fixture(scope="session")
def loaded():
    """The embedded model in fp32, exact, with its tokenizer; frozen, so tests may share it."""
    return load_model(profile="tiny", dense="fp32")


@pytest.fixture
def model(loaded):
    return loaded[0]


@pytest.fixture
def tokenizer(loaded):
    return loaded[1]


@pytest.fixture(scope="session")
def sandbox():
    with Sandbox() as sandbox:
        yield sandbox

"""Prompts of every length, and engines over the embedded model."""

import pytest
import torch

from helpers import RolloutEngine, get_task


@pytest.fixture
def prompts():
    return get_task("matmul").dataset("monitor", 4, seed=1)["prompt"]


@pytest.fixture
def make_engine(model, tokenizer):
    """An engine over the shared model; the arguments are those of `RolloutEngine`."""

    def make(model=model, **settings):
        return RolloutEngine(model, tokenizer, **{"max_batch_size": 8, "max_length": 1024, **settings})

    return make


@pytest.fixture
def engine(make_engine):
    return make_engine()


@pytest.fixture
def random_ids():
    """Token ids of a length, other ones for each seed."""

    def ids(length, seed=0):
        return torch.randint(0, 600, (length,), generator=torch.Generator().manual_seed(seed)).tolist()

    return ids

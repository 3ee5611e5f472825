from dataclasses import replace

import pytest

from helpers import UserError, memory_plan
from helpers.runtime import GIB, PROFILES


def test_weights_of_the_plan_are_the_model_s(model):
    """Counted, not estimated: everything but activations and cache."""
    plan = memory_plan(replace(PROFILES["tiny"], dense="fp32"))
    parts = ("experts, unpacked from MXFP4", "attention", "embedding and head", "biases, norms, router, sinks")
    held = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    assert abs(sum(plan.parts[part] for part in parts) / held - 1) < 0.01


def test_adapter_of_the_plan_is_the_adapter(model):
    """Parameter, gradient and two moments of Adam, four bytes each."""
    profile = PROFILES["tiny"]
    count = 192_512  # what `add_lora` makes of it, by tests/model/test_lora.py's arithmetic at r = 8
    assert memory_plan(profile).parts["LoRA, gradients and Adam"] == count * 16


def test_expert_bytes_of_the_released_model():
    """19.1 billion expert numbers, two bytes each."""
    assert memory_plan("t4").parts["experts, unpacked from MXFP4"] == 24 * 32 * 3 * 2880 * 2880 * 2


def test_longer_and_more_takes_more():
    base = memory_plan("t4").total
    assert memory_plan("t4", batch=64).total > base and memory_plan("t4", length=8192).total > base


def test_a_plan_that_does_not_fit_is_one_sentence():
    plan = replace(memory_plan("t4"), available=14 * GIB)
    with pytest.raises(UserError, match=r"needs 42\.\d GiB of GPU memory and 14\.0 are there: choose"):
        plan.check()

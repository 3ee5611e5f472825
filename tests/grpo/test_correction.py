"""Importance weights against plain Python. `test_losses` shows that they make the gradient right."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.grpo import correction
from tests.grpo import reference
from tests.grpo.test_losses import NAN, pad

LIMITS = [(3.0, None), (1.2, None), (1.5, 0.7), (1.01, 0.99)]


def check_weights(seed, lengths, mode, clip_max, clip_min, padding=NAN):
    """The weights are those of the reference, the ratios those before the bounds, and padding has the weight 1."""
    numbers = random.Random(seed)
    old = [[numbers.gauss(-1.5, 0.7) for _ in range(length)] for length in lengths]
    sampler = [[value + numbers.gauss(0, 0.3) for value in row] for row in old]
    width = 1 + max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    policy = pad(old, padding, width).requires_grad_()
    found = correction.importance_weights(policy, pad(sampler, padding, width), mask, mode, clip_max, clip_min)
    assert not found.weights.requires_grad and not found.ratio.requires_grad
    wanted = reference.importance_weights(old, sampler, mode, clip_max, clip_min)
    unbounded = reference.importance_weights(old, sampler, mode.replace("mask", "truncate"), math.inf, None)
    for actual, rows in ((found.weights, wanted), (found.ratio, unbounded)):
        expanded = actual.expand(len(lengths), width)
        for i, row in enumerate(rows):
            assert expanded[i, : len(row)].tolist() == pytest.approx(row, rel=1e-12)
    if mode.startswith("token") and clip_min is None:
        assert (found.weights[~mask] == 1).all()


def check_modes():
    for mode in correction.CORRECTION_MODES:
        for clip_max, clip_min in LIMITS:
            check_weights(0, [3, 1, 5], mode, clip_max, clip_min)


def test_modes():
    """A bound on the wrong side, a mask where a bound belongs, or a mean in place of a product."""
    check_modes()


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.sampled_from(correction.CORRECTION_MODES),
    st.sampled_from(LIMITS),
    st.sampled_from([NAN, 0.0, -50.0, math.inf]),
)
def test_any_completions(seed, lengths, mode, limits, padding):
    """Padding of any kind, and completions of one token."""
    check_weights(seed, lengths, mode, *limits, padding)


def test_the_same_kernels_need_no_correction():
    """Where sampler and trainer agree, every weight is exactly 1."""
    logprobs = torch.randn(3, 4)
    mask = torch.ones(3, 4, dtype=torch.bool)
    for mode in correction.CORRECTION_MODES:
        found = correction.importance_weights(logprobs, logprobs.clone(), mode=mode, is_counted=mask, clip_max=3.0)
        assert (found.weights == 1).all()

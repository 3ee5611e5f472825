import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.grpo.advantages import combine_rewards, equal_groups, group_advantages

NAN = float("nan")


def test_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 3.0, 2.0, 2.0])
    ours = group_advantages(rewards, 3)
    for group in (slice(0, 3), slice(3, 6)):
        part = rewards[group]
        torch.testing.assert_close(ours[group], (part - part.mean()) / (part.std() + 1e-4))


def test_scales():
    rewards = torch.tensor([1.0, 0.0, 3.0, 1.0])
    torch.testing.assert_close(group_advantages(rewards, 2, "none"), torch.tensor([0.5, -0.5, 1.0, -1.0]))
    batch = group_advantages(rewards, 2, "batch")
    torch.testing.assert_close(batch, torch.tensor([0.5, -0.5, 1.0, -1.0]) / (rewards.std() + 1e-4))


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e3, 1e3), st.integers(2, 16))
def test_equal_rewards_give_exactly_zero(value, group):
    """0.1 + 0.1 + 0.1 is not 0.3: a mean off by one bit, over a tiny std, would be a full-sized advantage."""
    assert group_advantages(torch.full((group,), value, dtype=torch.float64), group).tolist() == [0.0] * group


def test_unjudged_completions_stay_out():
    rewards = torch.tensor([1.0, NAN, 0.0, NAN])
    torch.testing.assert_close(group_advantages(rewards, 4)[[0, 2]], group_advantages(torch.tensor([1.0, 0.0]), 2))
    assert group_advantages(rewards, 4)[[1, 3]].tolist() == [0.0, 0.0]
    assert group_advantages(torch.tensor([NAN, NAN]), 2).tolist() == [0.0, 0.0]
    assert group_advantages(torch.tensor([2.0, NAN]), 2).tolist() == [0.0, 0.0]


def test_weight_0_is_logged_and_nothing_else():
    """A held-out check with a value must not make a completion that nothing judged worth 0."""
    nan = float("nan")
    total = combine_rewards(torch.tensor([[nan, 1.0], [2.0, nan], [3.0, 1.0]]), [1.0, 0.0])
    assert total[0].isnan() and total[1:].tolist() == [2.0, 3.0]


def test_combine():
    rewards = torch.tensor([[1.0, NAN], [1.0, 2.0], [NAN, NAN]], dtype=torch.float64)
    total = combine_rewards(rewards, [1.0, 0.5])
    assert total[:2].tolist() == [1.0, 2.0] and total[2].isnan()
    with pytest.raises(AssertionError, match="reward_weights"):
        combine_rewards(rewards, [1.0])


def test_equal_groups():
    assert equal_groups(torch.tensor([1.0, 1.0, 0.0, 1.0, NAN, NAN, 2.0, NAN]), 2).tolist() == [True, False, True, True]

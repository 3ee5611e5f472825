"""Rewards put together and compared with their group, against plain Python and by hand.

As in `test_losses`, the checks are functions that `test_mutations` runs on faulty copies of the module.
"""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.grpo import advantages
from tests.grpo import reference

NAN = float("nan")
SCALES = ["group", "batch", "none"]


def tensor(values):
    """float64, NaN for None."""
    return torch.tensor([NAN if value is None else value for value in values], dtype=torch.float64)


def flat_advantages(rewards, num_generations, scale="group"):
    """The advantages of a list of completions, those of a group together."""
    return advantages.group_advantages(rewards.view(-1, num_generations), scale).flatten()


def equal_groups(rewards, num_generations):
    return advantages.equal_groups(rewards.view(-1, num_generations))


def check_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 3.0, 2.0, 2.0], dtype=torch.float64)
    ours = flat_advantages(rewards, 3)
    for group in (slice(0, 3), slice(3, 6)):
        part = rewards[group]
        torch.testing.assert_close(ours[group], ((part - part.mean()) / (part.std() + 1e-4)).float())


def test_by_hand():
    """The formula of the paper, with torch's own mean and deviation."""
    check_by_hand()


def check_scales():
    rewards = torch.tensor([1.0, 0.0, 3.0, 1.0])
    centred = torch.tensor([0.5, -0.5, 1.0, -1.0])
    torch.testing.assert_close(flat_advantages(rewards, 2, "none"), centred)
    batch = flat_advantages(rewards, 2, "batch")
    torch.testing.assert_close(batch, centred / (rewards.std() + 1e-4))


def test_scales():
    """With groups of two, "group" makes every difference the same; the other two must not."""
    check_scales()


def check_reference(rewards, num_generations, scale):
    wanted = reference.advantages(rewards, num_generations, scale)
    found = flat_advantages(tensor(rewards), num_generations, scale)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 6).flatmap(
        lambda size: st.tuples(
            st.just(size),
            st.lists(
                st.lists(st.one_of(st.none(), st.integers(-40, 40).map(lambda n: n / 8)), min_size=size, max_size=size),
                min_size=1,
                max_size=4,
            ),
        )
    ),
    st.sampled_from(SCALES),
)
def test_any_batch_is_the_reference(groups, scale):
    """Unjudged completions in any place, and groups in which all or none are judged or all are equal."""
    size, rows = groups
    check_reference([reward for row in rows for reward in row], size, scale)


def random_batches():
    """A few batches, some rewards None."""
    numbers = random.Random(0)
    for size in (2, 3, 4):
        rewards = [numbers.gauss(1, 2) for _ in range(3 * size)]
        yield rewards, size
        yield [None if numbers.random() < 0.25 else reward for reward in rewards], size


def check_batches():
    for rewards, size in random_batches():
        for scale in SCALES:
            check_reference(rewards, size, scale)


def test_batches():
    """Those that the faulty copies are run on."""
    check_batches()


def check_equal_rewards(value, group, scale):
    rewards = torch.full((group,), value, dtype=torch.float64)
    other = torch.arange(group, dtype=torch.float64)  # a second group, so that the batch has a deviation
    found = flat_advantages(torch.cat([rewards, other]), group, scale)
    assert found[:group].tolist() == [0.0] * group
    assert found[group:].abs().sum() > 0
    assert equal_groups(torch.cat([rewards, other]), group).tolist() == [True, False]


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e3, 1e3), st.integers(2, 16), st.sampled_from(SCALES))
def test_equal_rewards_give_exactly_zero(value, group, scale):
    """0.1 + 0.1 + 0.1 is not 0.3: a mean off by one bit, over a tiny deviation, would be a full-sized advantage."""
    check_equal_rewards(value, group, scale)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("value", [0.3, 1e3, 1e8, -1e8, 1e12])
def test_noise_in_the_last_bit_is_no_difference(value, scale):
    """AdamW makes a full step of the smallest gradient, and at 1e12 the advantages themselves would be 0.6."""
    check_noise(value, scale)


def check_noise(value=1e8, scale="group"):
    noisy = value + math.ulp(value)
    rewards = torch.tensor([value, noisy, value, noisy, 1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    assert equal_groups(rewards, 4).tolist() == [True, False]
    assert flat_advantages(rewards, 4, scale)[:4].tolist() == [0.0] * 4


def test_sums_of_the_same_rewards_are_equal():
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1: the group taught nothing, and was counted as one that did."""
    rewards = torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], dtype=torch.float64)
    total = advantages.combine_rewards(rewards)
    assert total[0] != total[1]
    assert equal_groups(total, 2).tolist() == [True]
    assert flat_advantages(total, 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [0.0, 1e-6, 1e8])
def test_a_small_difference_counts(value):
    """A tolerance that is too wide would take the signal of a reward whose steps are small beside its level."""
    step = max(1e-9, abs(value) * 1e-10)
    rewards = torch.tensor([value, value + step], dtype=torch.float64)
    assert equal_groups(rewards, 2).tolist() == [False]
    assert flat_advantages(rewards, 2, "none").tolist() == pytest.approx([-step / 2, step / 2], rel=1e-4)


def check_unjudged():
    rewards = torch.tensor([1.0, NAN, 0.0, NAN])
    torch.testing.assert_close(flat_advantages(rewards, 4)[[0, 2]], flat_advantages(torch.tensor([1.0, 0.0]), 2))
    assert flat_advantages(rewards, 4)[[1, 3]].tolist() == [0.0, 0.0]
    assert flat_advantages(torch.tensor([NAN, NAN]), 2).tolist() == [0.0, 0.0]
    assert flat_advantages(torch.tensor([2.0, NAN]), 2).tolist() == [0.0, 0.0]


def test_unjudged_completions_stay_out():
    """A completion that nothing judged must not move the mean of those that were."""
    check_unjudged()


def check_weighted_sums():
    numbers = random.Random(1)
    weights = [1.0, 0.5, 0.0, -2.0]
    rows = [[None if numbers.random() < 0.4 else numbers.gauss(0, 1) for _ in weights] for _ in range(40)]
    total = advantages.combine_rewards(torch.stack([tensor(row) for row in rows]), weights)
    for found, row in zip(total.tolist(), rows):
        wanted = reference.weighted_sum(row, weights)
        if wanted is None:
            assert math.isnan(found)
        else:
            assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def test_weighted_sums_are_the_reference():
    """Weights that are 0 or negative, and rewards that do not apply, in all combinations."""
    check_weighted_sums()


def check_weight_0():
    total = advantages.combine_rewards(torch.tensor([[NAN, 1.0], [2.0, NAN], [3.0, 1.0]]), [1.0, 0.0])
    assert total[0].isnan() and total[1:].tolist() == [2.0, 3.0]


def test_weight_0_is_logged_and_nothing_else():
    """A held-out check with a value must not make a completion that nothing judged worth 0."""
    check_weight_0()


def check_combine():
    rewards = torch.tensor([[1.0, NAN], [1.0, 2.0], [NAN, NAN]], dtype=torch.float64)
    total = advantages.combine_rewards(rewards, [1.0, 0.5])
    assert total[:2].tolist() == [1.0, 2.0] and total[2].isnan()
    with pytest.raises(AssertionError, match="reward_weights"):
        advantages.combine_rewards(rewards, [1.0])


def test_combine():
    """Weights for another number of rewards must not be taken for these."""
    check_combine()


def check_equal_groups():
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, NAN, NAN, 2.0, NAN])
    assert equal_groups(rewards, 2).tolist() == [True, False, True, True]


def test_equal_groups():
    """What stops a run without a signal must see groups that are judged in part."""
    check_equal_groups()

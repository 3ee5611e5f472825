from itertools import product

import pytest
import torch

from helpers.grpo.advantages import group_advantages
from helpers.grpo.losses import loss_normalizer, policy_loss


@pytest.mark.parametrize("group", [2, 3, 4])
def test_expected_gradient_is_that_of_the_expected_reward(group):
    """Every group that three answers can form, weighted by its probability, none sampled: the mean
    gradient must be that of the expected reward, times (G - 1) / G, as the group's mean holds the
    completion itself. A wrong sign, baseline or normaliser cannot pass."""
    logits = torch.tensor([0.3, -0.5, 0.9], dtype=torch.float64, requires_grad=True)
    payoff = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)
    probabilities = logits.softmax(0)
    wanted = torch.autograd.grad((probabilities * payoff).sum(), logits)[0] * (group - 1) / group
    total = torch.zeros(3, dtype=torch.float64)
    for answers in product(range(3), repeat=group):
        chosen = torch.tensor(answers)
        new = logits.log_softmax(0)[chosen][:, None]
        advantages = group_advantages(payoff[chosen], group, "none")
        loss, _ = policy_loss(new, new.detach(), advantages, torch.ones(group, 1), normalizer=group)
        total -= probabilities[chosen].prod().detach() * torch.autograd.grad(loss, logits)[0]
    torch.testing.assert_close(total, wanted, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient", "clipped"),
    [
        (1.0, 1.0, True, (0, 0)),
        (1.5, 1.0, False, (0, 1)),
        (1.5, -1.0, True, (0, 0)),
        (0.5, -1.0, False, (1, 0)),
        (0.5, 1.0, True, (0, 0)),
    ],
)
def test_clip(ratio, advantage, gradient, clipped):
    """The clip takes the gradient only where the policy has gone far enough already, never the way back."""
    new = torch.tensor([[ratio]]).log().requires_grad_()
    loss, counted = policy_loss(new, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1), normalizer=1)
    loss.backward()
    assert bool(new.grad != 0) == gradient and counted == clipped


def test_upper_clip_may_be_wider():
    new = torch.tensor([[1.25]]).log().requires_grad_()
    options = {"normalizer": 1, "epsilon": 0.2}
    narrow, _ = policy_loss(new, torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1), **options)
    wide, _ = policy_loss(new, torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1), epsilon_high=0.28, **options)
    assert narrow.item() == pytest.approx(-1.2) and wide.item() == pytest.approx(-1.25)


def test_masked_tokens_count_nothing():
    new, old = torch.randn(2, 3), torch.randn(2, 3)
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    advantages = torch.tensor([1.0, -2.0])
    loss, _ = policy_loss(new, old, advantages, mask, normalizer=3)
    other = torch.where(mask > 0, new, torch.full_like(new, -50.0))
    assert torch.equal(loss, policy_loss(other, old, advantages, mask, normalizer=3)[0])


def test_normalizers():
    assert loss_normalizer("dapo", 120, 8, 200) == 120
    assert loss_normalizer("dr_grpo", 120, 8, 200) == 1600
    assert loss_normalizer("dapo", 0, 8, 200) == 1

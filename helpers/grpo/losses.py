"""The policy-gradient loss of GRPO and its relatives, on one path:

    loss = scale * (objective_BT * weights_BT).sum()

The objective says what a token costs (`OBJECTIVES`), the weights say how much it counts in the mean (`WEIGHTINGS`), and
the scale keeps 16-bit gradients away from zero. `LOSS_TYPES` names the pairs as TRL does.

Letters of shapes: B completions, T tokens of the longest. At level "sequence" a completion has one ratio, [B, 1].
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Ratios(NamedTuple):
    """What an objective is made of.

    ratio: policy over old policy, [B, T] or [B, 1], with a gradient. logprobs: of the policy, [B, T], with a gradient.
    advantages: [B, 1].
    """

    ratio: Tensor
    logprobs: Tensor
    advantages: Tensor


class Clipping(NamedTuple):
    """Numbers that limit how far a ratio counts; the fields of `GRPOConfig` with these names."""

    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    sapo_temperature_neg: float = 1.05
    sapo_temperature_pos: float = 1.0

    @property
    def lowest(self) -> float:
        return 1 - self.epsilon

    @property
    def highest(self) -> float:
        return 1 + (self.epsilon if self.epsilon_high is None else self.epsilon_high)


DEFAULT_CLIPPING = Clipping()


class Objective(NamedTuple):
    """What each token costs, [B, T] or [B, 1], and where a limit bites: bool, of the same shape as the ratio."""

    loss: Tensor
    is_low: Tensor
    is_high: Tensor


def _clip(ratios: Ratios, clipping: Clipping) -> Objective:
    """-min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A).

    PPO (2017), equation 7; the asymmetric clip is DAPO's (2025, section 3.1). With `delta` the first r is at most
    delta (INTELLECT-2, 2025, section 3.4), which bounds what a token with A < 0 can cost.
    """
    ratio, _, advantages = ratios
    bounded = ratio if clipping.delta is None else ratio.clamp(max=clipping.delta)
    clipped = ratio.clamp(clipping.lowest, clipping.highest)
    loss = -torch.min(bounded * advantages, clipped * advantages)
    is_low = (ratio < clipping.lowest) & (advantages < 0)
    is_high = (ratio > clipping.highest) & (advantages > 0)
    return Objective(loss, is_low, is_high)


def _cispo(ratios: Ratios, clipping: Clipping) -> Objective:
    """-stop_gradient(min(r, epsilon_high)) A log pi: a clipped token keeps its gradient, with a bounded weight.

    MiniMax-M1 (2025), section 3.1. epsilon_high is the cap itself, as in TRL and ScaleRL (2025), not a distance from 1.
    """
    ratio, logprobs, advantages = ratios
    cap = clipping.epsilon_high
    weight = ratio.clamp(max=cap).detach()
    is_high = (ratio > cap) & (advantages > 0)
    return Objective(-weight * advantages * logprobs, torch.zeros_like(is_high), is_high)


def _sapo(ratios: Ratios, clipping: Clipping) -> Objective:
    """-(4 / tau) sigmoid(tau (r - 1)) A: a soft gate in place of the clip, whose slope at r = 1 is that of r.

    SAPO (2025); tau is sapo_temperature_pos where A > 0, else sapo_temperature_neg.
    """
    ratio, _, advantages = ratios
    positive = torch.full_like(advantages, clipping.sapo_temperature_pos)
    negative = torch.full_like(advantages, clipping.sapo_temperature_neg)
    tau = torch.where(advantages > 0, positive, negative)
    gate = 4 / tau * torch.sigmoid(tau * (ratio - 1))
    nowhere = torch.zeros_like(ratio, dtype=torch.bool)
    return Objective(-gate * advantages, nowhere, nowhere)


#: Name -> what a token costs.
OBJECTIVES: dict[str, Callable[[Ratios, Clipping], Objective]] = {"clip": _clip, "cispo": _cispo, "sapo": _sapo}


def _grpo_weights(tokens_B: Tensor, max_completion_length: int, local_batch: int) -> Tensor:
    """The mean over completions of each one's mean (DeepSeekMath, 2024, equation 3)."""
    return 1 / (tokens_B.clamp(min=1) * len(tokens_B))


def _bnpo_weights(tokens_B: Tensor, max_completion_length: int, local_batch: int) -> Tensor:
    """The mean over local batches of the mean over each one's tokens (TRL). A local batch is `local_batch` completions
    in their order, however the step is cut to fit the memory."""
    batches = tokens_B.split(local_batch)
    weights = [torch.full_like(batch, 1 / max(1.0, float(batch.sum()))) for batch in batches]
    return torch.cat(weights) / len(batches)


def _dapo_weights(tokens_B: Tensor, max_completion_length: int, local_batch: int) -> Tensor:
    """The mean over the tokens of the whole step (DAPO, 2025, equation 8)."""
    return torch.full_like(tokens_B, 1 / max(1.0, float(tokens_B.sum())))


def _dr_grpo_weights(tokens_B: Tensor, max_completion_length: int, local_batch: int) -> Tensor:
    """A constant, so that length earns nothing (Dr. GRPO, 2025, section 3.2)."""
    return torch.full_like(tokens_B, 1 / (len(tokens_B) * max_completion_length))


#: Name -> how much each token of a completion counts.
WEIGHTINGS = {"grpo": _grpo_weights, "bnpo": _bnpo_weights, "dapo": _dapo_weights, "dr_grpo": _dr_grpo_weights}


class LossType(NamedTuple):
    """The two halves of a loss."""

    objective: str
    weighting: str


#: `GRPOConfig.loss_type` -> its halves, as in TRL.
LOSS_TYPES = {
    "grpo": LossType("clip", "grpo"),
    "bnpo": LossType("clip", "bnpo"),
    "dapo": LossType("clip", "dapo"),
    "dr_grpo": LossType("clip", "dr_grpo"),
    "cispo": LossType("cispo", "dapo"),
    "sapo": LossType("sapo", "grpo"),
}


def token_weights(weighting: str, tokens: Sequence[int], max_completion_length: int, local_batch: int) -> Tensor:
    """Return how much each token of each completion of one optimizer step counts: float64 [B].

    They are computed once for the whole step, so cutting it into micro-batches changes nothing.

    weighting: a name in `WEIGHTINGS`. tokens: of each completion that count; 0 where it is left out of the loss.
    local_batch: completions, of "bnpo" only.
    """
    tokens_B = torch.tensor(tokens, dtype=torch.float64)
    return WEIGHTINGS[weighting](tokens_B, max_completion_length, local_batch)


def loss_scale(weights_B: Tensor, tokens: Sequence[int]) -> float:
    """Return the power of two by which the loss of a step is multiplied, so that a token's weight is about 1.

    With its true weight, thousands of times smaller, a gradient would vanish in fp16. Dividing the gradients by a power
    of two afterwards rounds nothing. weights_B, tokens: of `token_weights`.
    """
    tokens_B = torch.tensor(tokens, dtype=torch.float64)
    total_weight = float((weights_B * tokens_B).sum())
    if total_weight == 0:
        return 1.0
    mean_weight = total_weight / float(tokens_B.sum())
    return 2.0 ** round(-math.log2(mean_weight))


class PolicyLoss(NamedTuple):
    """What `policy_loss` returns.

    loss: a scalar to call backward on. ratio: of the policy to the old policy, [B, T] or [B, 1]. is_low, is_high:
    bool, of the ratio's shape: where a limit takes the gradient (at "cispo": caps its weight), padding included.
    kl: [B, T], or None without a reference. All but the loss are without a gradient.
    """

    loss: Tensor
    ratio: Tensor
    is_low: Tensor
    is_high: Tensor
    kl: Tensor | None


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    objective: str = "clip",
    level: str = "token",
    clipping: Clipping = DEFAULT_CLIPPING,
    importance_weights: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    beta: float = 0.0,
    use_bias_correction_kl: bool = True,
    scale: float = 1.0,
) -> PolicyLoss:
    """Compute scale * (objective_BT * weights_BT).sum().

    Args:
        logprobs, old_logprobs: float [B, T], of the tokens drawn, under the policy and under the policy at the time of
            the generation. Their difference is the log of the ratio.
        advantages: [B].
        weights: [B, T], of `token_weights`; 0 where a token does not count.
        objective: a name in `OBJECTIVES`.
        level: "token", or "sequence" for one ratio a completion, the geometric mean over its tokens (GSPO, 2025,
            equation 7).
        importance_weights: [B, T] or [B, 1], by which the objective is multiplied: they correct for a sampler that is
            not quite the old policy. No gradient goes through them.
        ref_logprobs: [B, T], of the reference policy, where beta is not 0.
        beta: factor of the KL divergence from the reference. The estimator is k3, exp(d) - d - 1 with
            d = ref_logprobs - logprobs (Schulman, 2020).
        use_bias_correction_kl: multiply k3 by the ratio, whose expected gradient is that of KL(policy || reference)
            (DeepSeek-V3.2, 2025, section 3.1); without it the gradient is that of KL(reference || policy).
        scale: of `loss_scale`; divide the gradients by it.
    """
    # what lies in the padding may be anything, and must have no gradient
    is_counted_BT = weights > 0
    logprobs_BT = logprobs.masked_fill(~is_counted_BT, 0.0)
    old_BT = old_logprobs.masked_fill(~is_counted_BT, 0.0)

    log_ratio = logprobs_BT - old_BT  # [B, T]
    if level == "sequence":
        tokens_B1 = is_counted_BT.sum(1, keepdim=True).clamp(min=1)
        log_ratio = log_ratio.sum(1, keepdim=True) / tokens_B1  # [B, 1]
    ratio = torch.exp(log_ratio)

    ratios = Ratios(ratio, logprobs_BT, advantages.unsqueeze(1))
    found = OBJECTIVES[objective](ratios, clipping)
    objective_BT = found.loss.expand_as(logprobs_BT)
    if importance_weights is not None:
        objective_BT = objective_BT * importance_weights.detach()

    kl_BT = None
    if ref_logprobs is not None:
        difference_BT = ref_logprobs.masked_fill(~is_counted_BT, 0.0) - logprobs_BT
        kl_BT = torch.expm1(difference_BT) - difference_BT  # expm1 keeps the digits of a small divergence
        if use_bias_correction_kl:
            kl_BT = kl_BT * ratio
        objective_BT = objective_BT + beta * kl_BT

    loss = scale * (objective_BT * weights).sum()
    return PolicyLoss(loss, ratio.detach(), found.is_low, found.is_high, None if kl_BT is None else kl_BT.detach())

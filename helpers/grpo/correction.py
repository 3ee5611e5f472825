"""Truncated importance weights: what corrects for a sampler that is not quite the policy that is trained.

The sampler runs other kernels than the trainer, so its log-probabilities differ a little, and a mixture of experts may
take another expert where two are close. The gradient is that of the trainer's policy only if each token is weighted by
the ratio of the two. A ratio is bounded, as few large ones would make the gradient noise (TIS: Yao et al., 2025).
"""

from typing import NamedTuple

import torch
from torch import Tensor

#: As in TRL, whose names begin with "vllm_".
CORRECTION_MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


class Correction(NamedTuple):
    """Importance weights, and the ratios before they were bounded; both [B, T], or [B, 1] of whole completions."""

    weights: Tensor
    ratio: Tensor


def importance_weights(
    old_logprobs: Tensor,
    sampler_logprobs: Tensor,
    is_counted: Tensor,
    mode: str,
    clip_max: float,
    clip_min: float | None = None,
) -> Correction:
    """Return the bounded ratio of the old policy, as the trainer computes it, to the sampler.

    old_logprobs, sampler_logprobs: [B, T]. is_counted: bool [B, T]; elsewhere the weights of tokens are 1.
    mode: "token_..." takes the ratio of each token, "sequence_..." the product over a completion. "..._truncate" bounds
        it to clip_min and clip_max, "..._mask" makes it 0 outside.
    """
    log_ratio_BT = (old_logprobs - sampler_logprobs).detach().masked_fill(~is_counted, 0.0)
    level, _, action = mode.partition("_")
    log_ratio = log_ratio_BT.sum(1, keepdim=True) if level == "sequence" else log_ratio_BT
    ratio = torch.exp(log_ratio)
    lowest = 0.0 if clip_min is None else clip_min
    if action == "truncate":
        return Correction(ratio.clamp(lowest, clip_max), ratio)
    is_outside = (ratio < lowest) | (ratio > clip_max)
    return Correction(ratio.masked_fill(is_outside, 0.0), ratio)

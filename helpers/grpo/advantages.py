"""From rewards to advantages: how much better than its group a completion is.

Letters of shapes: B completions, R reward functions, G groups, N completions of each group.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

#: Rewards that differ by no more than this share of the larger, or of the terms that they are sums of, are equal: eight
#: units in the last place of a float64.
ROUNDING = 2.0**-49


def combine_rewards(rewards_BR: Tensor, weights: Sequence[float] | None = None) -> Tensor:
    """Return the weighted sum over the reward functions, float64 [B]. NaN stands for "not applicable".

    weights: R numbers, default 1; 0 for what is only to be logged. A NaN adds nothing to the sum. The sum is NaN where
    all rewards are that have a weight other than 0.
    """
    weights_R = _one_weight_each(rewards_BR, weights)
    weighted_BR = rewards_BR.double() * weights_R
    totals_B = weighted_BR.nansum(1)
    is_unknown_B = rewards_BR[:, weights_R != 0].isnan().all(1)
    return totals_B.masked_fill(is_unknown_B, float("nan"))


def reward_magnitudes(rewards_BR: Tensor, weights: Sequence[float] | None = None) -> Tensor:
    """Return the sum of the absolute weighted rewards, float64 [B]: the size of what may cancel in the total."""
    weights_R = _one_weight_each(rewards_BR, weights)
    return (rewards_BR.double().abs() * weights_R.abs()).nansum(1)


def _one_weight_each(rewards_BR: Tensor, weights: Sequence[float] | None) -> Tensor:
    """Return the weights of the reward functions, float64 [R]; None: all 1."""
    count = rewards_BR.shape[1]
    weights_R = torch.tensor(weights or [1.0] * count, dtype=torch.float64)
    assert len(weights_R) == count, f"{len(weights_R)} reward_weights for {count} rewards"
    return weights_R


def group_advantages(rewards_GN: Tensor, scale: str = "group", magnitudes_GN: Tensor | None = None) -> Tensor:
    """Return A = (R - mean of its group) / (std + 1e-4), float32 [G, N] (DeepSeekMath, 2024, section 4.1).

    Args:
        rewards_GN: the rewards of each group in a row. NaN: not judged, gets advantage 0 and does not count in its
            group.
        scale: "group" divides by the group's standard deviation, "batch" by that of all groups together (both with
            n - 1, as TRL does), "none" not at all (Dr. GRPO, 2025).
        magnitudes_GN: as for `equal_groups`.

    The advantages of a group whose rewards are all equal are exactly 0.
    """
    rewards_GN = rewards_GN.double()
    centred_GN = rewards_GN - rewards_GN.nanmean(1, keepdim=True)
    if scale == "group":
        centred_GN = centred_GN / (_std(rewards_GN) + 1e-4)
    elif scale == "batch":
        centred_GN = centred_GN / (_std(rewards_GN.view(1, -1)) + 1e-4)
    centred_GN = centred_GN.masked_fill(equal_groups(rewards_GN, magnitudes_GN)[:, None], 0.0)
    return centred_GN.nan_to_num(0.0).float()


def equal_groups(rewards_GN: Tensor, magnitudes_GN: Tensor | None = None) -> Tensor:
    """Tell of each group whether all its judged rewards are equal, so that nothing can be learnt: bool [G].

    Differences in the last bits are rounding, such as that of sums in another order: AdamW would make a full step of
    the smallest gradient.

    magnitudes_GN: of `reward_magnitudes`, where rewards are sums. Terms that cancel, such as 0.1 + 0.2 - 0.3, leave a
    rounding of their own size, and not of the size of what remains; None: the rewards are no sums.
    """
    rewards_GN = rewards_GN.double()
    lowest_G = rewards_GN.nan_to_num(float("inf")).amin(1)
    highest_G = rewards_GN.nan_to_num(float("-inf")).amax(1)
    largest_G = torch.maximum(lowest_G.abs(), highest_G.abs())
    if magnitudes_GN is not None:
        largest_G = torch.maximum(largest_G, magnitudes_GN.double().amax(1))
    return highest_G - lowest_G <= ROUNDING * largest_G


def _std(rows: Tensor) -> Tensor:
    """Return the standard deviation with n - 1 of each row: [rows, 1]. NaN is left out; 0 for fewer than two values."""
    count = rows.isnan().logical_not().sum(1, keepdim=True)
    squares = (rows - rows.nanmean(1, keepdim=True)).square().nansum(1, keepdim=True)
    return (squares / (count - 1).clamp(min=1)).sqrt()

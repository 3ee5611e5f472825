"""From rewards to advantages: how much better than its group a completion is."""

import torch

#: Rewards that differ by no more than this share of the larger are equal: eight units in the last place of a float64.
ROUNDING = 2.0**-49


def combine_rewards(rewards, weights=None):
    """Weighted sum over reward functions; NaN stands for "not applicable" and counts nothing.

    rewards: float [B, R]. weights: R numbers, default 1; 0 for what is only to be logged. Returns float64 [B];
    a row that is NaN wherever the weight is not 0 stays NaN.
    """
    weights = torch.tensor(weights or [1.0] * rewards.shape[1], dtype=torch.float64)
    assert len(weights) == rewards.shape[1], f"{len(weights)} reward_weights for {rewards.shape[1]} rewards"
    total = (rewards.double() * weights).nansum(1)
    return total.masked_fill(rewards[:, weights != 0].isnan().all(1), float("nan"))


def group_advantages(rewards, num_generations, scale="group"):
    """A = (R - mean of its group) / (std + 1e-4), group after group (DeepSeekMath, 2024, section 4.1).

    Args:
        rewards: [B], B a multiple of `num_generations`; completions of a prompt stand together.
            NaN: not judged, gets advantage 0 and does not count in its group.
        scale: "group" divides by the group's standard deviation, "batch" by the batch's (both
            with n - 1, as TRL does), "none" not at all (Dr. GRPO, 2025).

    Returns: float32 [B], exactly 0 throughout a group whose rewards are all equal.
    """
    groups_GN = rewards.double().view(-1, num_generations)
    centred_GN = groups_GN - groups_GN.nanmean(1, keepdim=True)
    if scale == "group":
        centred_GN = centred_GN / (_std(groups_GN) + 1e-4)
    elif scale == "batch":
        centred_GN = centred_GN / (_std(groups_GN.view(1, -1)) + 1e-4)
    centred_GN = centred_GN.masked_fill(equal_groups(rewards, num_generations)[:, None], 0.0)
    return centred_GN.nan_to_num(0.0).flatten().float()


def equal_groups(rewards, num_generations):
    """bool [groups]: whether all judged rewards of a group are equal, so that nothing can be learnt.

    Differences in the last bits are rounding, such as that of sums in another order: AdamW would make a full step of
    the smallest gradient.
    """
    groups_GN = rewards.double().view(-1, num_generations)
    lowest_G = groups_GN.nan_to_num(float("inf")).amin(1)
    highest_G = groups_GN.nan_to_num(float("-inf")).amax(1)
    largest_G = torch.maximum(lowest_G.abs(), highest_G.abs())
    return highest_G - lowest_G <= ROUNDING * largest_G


def _std(rows):
    """Standard deviation with n - 1 of each row, NaN left out, 0 for fewer than two values. [G, 1]"""
    count = rows.isnan().logical_not().sum(1, keepdim=True)
    squares = (rows - rows.nanmean(1, keepdim=True)).square().nansum(1, keepdim=True)
    return (squares / (count - 1).clamp(min=1)).sqrt()

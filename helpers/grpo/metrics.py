"""What is logged of a generation, and the plain records of its completions."""

import math
from collections.abc import Sequence

import torch

from helpers.grpo.advantages import combine_rewards, equal_groups, reward_magnitudes
from helpers.grpo.batch import Generation, completions_in_loss
from helpers.rollout.completion import Completion
from helpers.runtime import finite_or_none
from helpers.tasks import UNJUDGED, Grade

#: Edges of the histogram of advantages. They are the same in every step, so that steps can be compared, and the bin in
#: the middle holds the zeros. Advantages beyond the ends count in the outermost bins.
HISTOGRAM_EDGES = tuple(-4.25 + 0.5 * number for number in range(18))


def rollout_metrics(
    generation: Generation,
    names: Sequence[str],
    weights: Sequence[float] | None,
    mask_truncated: bool = False,
    tokens_before: int = 0,
) -> dict:
    """Return TRL's log names for a generation, over all of its completions; lengths in tokens.

    A value that does not exist is None: a mean of no rewards, a standard deviation of fewer than two.
    `frac_reward_zero_std` counts every group in which nothing can be learnt. TRL does not count one with fewer than two
    judged completions.

    names, weights: of the reward functions. mask_truncated: whether completions that were cut off are left out of the
    loss. tokens_before: prompt and completion tokens of the run's earlier generations, which `num_tokens` counts as TRL
    does.
    """
    completions = generation.completions
    rewards_BR = generation.rewards
    totals_B = combine_rewards(rewards_BR, weights)
    in_loss = completions_in_loss(completions, mask_truncated)
    prompt_tokens = sum(len(completion.prompt_ids) for completion in completions)
    completion_tokens = sum(len(completion.token_ids) for completion in completions)
    magnitudes_B = reward_magnitudes(rewards_BR, weights)
    has_zero_std_G = equal_groups(generation.by_group(totals_B), generation.by_group(magnitudes_B))
    metrics = {
        "num_tokens": tokens_before + prompt_tokens + completion_tokens,
        **_length_metrics(completions),
        "completions/masked_ratio": in_loss.count(False) / len(completions),
        **_reward_metrics(rewards_BR, names),
        "reward": _mean(totals_B),
        "reward_std": _std(totals_B),
        "frac_reward_zero_std": has_zero_std_G.double().mean().item(),
        "completions/nonfinite_reward_ratio": _nonfinite_ratio(rewards_BR, weights),
    }
    if generation.advantages is not None:
        metrics |= _advantage_metrics(generation.advantages, in_loss)
    return metrics


def _length_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    lengths = [len(completion.token_ids) for completion in completions]
    terminated = [len(completion.token_ids) for completion in completions if completion.finish_reason != "length"]
    cut_off = len(lengths) - len(terminated)
    terminated = terminated or [0]
    return {
        "completions/mean_length": sum(lengths) / len(lengths),
        "completions/min_length": min(lengths),
        "completions/max_length": max(lengths),
        "completions/clipped_ratio": cut_off / len(lengths),
        "completions/mean_terminated_length": sum(terminated) / len(terminated),
        "completions/min_terminated_length": min(terminated),
        "completions/max_terminated_length": max(terminated),
    }


def _reward_metrics(rewards: torch.Tensor, names: Sequence[str]) -> dict[str, float | None]:
    metrics = {}
    for name, column_B in zip(names, rewards.T, strict=True):
        metrics[f"rewards/{name}/mean"] = _mean(column_B)
        metrics[f"rewards/{name}/std"] = _std(column_B)
    return metrics


def _nonfinite_ratio(rewards: torch.Tensor, weights: Sequence[float] | None) -> float:
    """Return the share of completions whose rewards, times their weights, add up to no finite number."""
    weights_R = torch.tensor(weights or [1.0] * rewards.shape[1], dtype=torch.float64)
    weighted_BR = (rewards * weights_R).masked_fill(rewards.isnan(), 0.0)
    return weighted_BR.sum(1).isfinite().logical_not().double().mean().item()


def _advantage_metrics(advantages: torch.Tensor, in_loss: Sequence[bool]) -> dict:
    """Return the histogram over all completions, and the share of completions that move the policy.

    Those are the ones that count in the loss and have an advantage other than 0.
    """
    moving_B = (advantages != 0) & torch.tensor(in_loss, device=advantages.device)
    edges = torch.tensor(HISTOGRAM_EDGES, device=advantages.device)
    bins_B = torch.bucketize(advantages.double(), edges.double(), right=True) - 1
    bins_B = bins_B.clamp(0, len(HISTOGRAM_EDGES) - 2)
    counts = torch.bincount(bins_B, minlength=len(HISTOGRAM_EDGES) - 1)
    return {
        "advantages/nonzero_ratio": moving_B.double().mean().item(),
        "advantages/histogram": {"edges": list(HISTOGRAM_EDGES), "counts": counts.tolist()},
    }


def _mean(values: torch.Tensor) -> float | None:
    """Return the mean of the values that are not NaN; None where there are none or it is not finite."""
    return finite_or_none(values.nanmean().item())


def _std(values: torch.Tensor) -> float | None:
    """Return the standard deviation, with n - 1, of the values that are not NaN; None for fewer than two."""
    known = values[~values.isnan()]
    if len(known) < 2:
        return None
    return finite_or_none(known.std().item())


def mean_of_rows(rows: Sequence[dict]) -> dict:
    """Return one row of metrics for several steps: means of fractions, lists joined, and else the last known value.

    A mean is over the steps that have the value. Whole numbers, such as counts and the step, are the last step's, and
    so is the learning rate.
    """
    means = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if name in row]
        value = values[-1]
        known = [value for value in values if isinstance(value, float) and math.isfinite(value)]
        is_fraction = value is None or isinstance(value, float)
        if is_fraction and known and name != "learning_rate":
            means[name] = sum(known) / len(known)
        elif isinstance(value, list):  # a sign is given at one step
            means[name] = [item for part in values for item in part or ()]
        else:
            means[name] = value
    return means


def json_row(row: dict) -> dict:
    """Return a row of metrics that strict JSON can hold: None for each number that is not finite."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value):
    if isinstance(value, float):
        return finite_or_none(value)
    if isinstance(value, dict):
        return json_row(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def outcome_metrics(grades: Sequence[Grade], outcomes: Sequence[str]) -> dict[str, float]:
    """Return {"outcomes/<label>": share of the completions} for each of the task's outcomes.

    Answers that could not be graded are one more outcome where there are any.
    """
    found = [grade.outcome for grade in grades]
    labels = (*outcomes, UNJUDGED) if UNJUDGED in found else outcomes
    return {f"outcomes/{label}": found.count(label) / len(found) for label in labels}


def completion_records(generation: Generation, names: Sequence[str], weights: Sequence[float] | None) -> list[dict]:
    """Return one plain dict a completion of a generation that was learnt from, for display and for files.

    Its `reward` is the weighted sum that the advantage was computed from, None where nothing was judged.
    """
    totals = combine_rewards(generation.rewards, weights).tolist()
    advantages = generation.advantages.tolist()
    prompts = [group.prompt for group in generation.groups for _ in group.completions]
    records = []
    for place, completion in enumerate(generation.completions):
        record = {
            "prompt": prompts[place],
            "thinking": completion.thinking,
            "completion": completion.text,
            "finish_reason": completion.finish_reason,
            "rewards": dict(zip(names, generation.rewards[place].tolist(), strict=True)),
            "reward": None if math.isnan(totals[place]) else totals[place],
            "advantage": advantages[place],
        }
        if generation.grades:
            record["outcome"] = generation.grades[place].outcome
            record["reason"] = generation.grades[place].reason
        extras = {name: values[place] for name, values in generation.extras.items()}
        records.append(record | extras)
    return records

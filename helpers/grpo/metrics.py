"""What is logged of a generation, and the plain records of its completions."""

import math
from collections.abc import Sequence

import torch

from helpers.grpo.advantages import combine_rewards, equal_groups
from helpers.grpo.batch import Generation
from helpers.rollout.completion import Completion
from helpers.tasks import UNJUDGED, Grade


def rollout_metrics(
    completions: Sequence[Completion],
    rewards: torch.Tensor,
    names: Sequence[str],
    weights: Sequence[float] | None,
    num_generations: int,
) -> dict[str, float]:
    """Return TRL's log names for a generation; lengths in tokens. rewards: float64 [B, R]."""
    total = combine_rewards(rewards, weights)
    lengths = torch.tensor([len(completion.token_ids) for completion in completions], dtype=torch.float64)
    judged = total[~total.isnan()]
    cut_off = sum(completion.finish_reason == "length" for completion in completions)
    return {
        "reward": judged.mean().item(),
        "reward_std": judged.std().item(),
        "frac_reward_zero_std": equal_groups(total, num_generations).double().mean().item(),
        **{f"rewards/{name}/mean": column.nanmean().item() for name, column in zip(names, rewards.T)},
        "completions/mean_length": lengths.mean().item(),
        "completions/max_length": lengths.max().item(),
        "completions/clipped_ratio": cut_off / len(completions),
        "num_tokens": lengths.sum().item(),
    }


def outcome_metrics(grades: Sequence[Grade], outcomes: Sequence[str]) -> dict[str, float]:
    """Return {"outcomes/<label>": share of the completions} for each of the task's outcomes.

    Answers that could not be graded are one more outcome where there are any.
    """
    found = [grade.outcome for grade in grades]
    labels = (*outcomes, UNJUDGED) if UNJUDGED in found else outcomes
    return {f"outcomes/{label}": found.count(label) / len(found) for label in labels}


def completion_records(
    generation: Generation, names: Sequence[str], weights: Sequence[float] | None, advantages: torch.Tensor
) -> list[dict]:
    """Return one plain dict a completion, for display and for files.

    Its `reward` is the weighted sum that the advantage was computed from, None where nothing was judged. advantages:
    float32 [B].
    """
    group_size = len(generation.completions) // len(generation.prompts)
    totals = combine_rewards(generation.rewards, weights).tolist()
    records = []
    for place, completion in enumerate(generation.completions):
        record = {
            "prompt": generation.prompts[place // group_size],
            "thinking": completion.thinking,
            "completion": completion.text,
            "finish_reason": completion.finish_reason,
            "rewards": dict(zip(names, generation.rewards[place].tolist(), strict=True)),
            "reward": None if math.isnan(totals[place]) else totals[place],
            "advantage": advantages[place].item(),
        }
        if generation.grades:
            record["outcome"] = generation.grades[place].outcome
            record["reason"] = generation.grades[place].reason
        extras = {name: values[place] for name, values in generation.extras.items()}
        records.append(record | extras)
    return records

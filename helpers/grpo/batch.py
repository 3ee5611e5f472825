"""The prompts, completions, rewards and grades that one or more optimizer steps use."""

import random
from dataclasses import asdict, dataclass, field

import torch

from helpers.rollout.completion import Completion
from helpers.tasks import Grade


@dataclass
class Generation:
    """One batch of completions and what was made of them.

    prompts: one a group. completions: B of them, those of a prompt together. rewards: float64 [B, R], NaN where a
    function gave None. metrics: what to log. extras: {name: one value a completion} that the reward functions gave to
    `log_extra`. grades: B of them, or none where the run has no task. ref_logprobs: of the reference policy, one list a
    completion, or none where the loss has no KL term. old_logprobs: those of the policy before the first optimizer step
    on this generation, where later ones need them; None for a completion whose turn comes first.
    """

    prompts: list
    completions: list[Completion]
    rewards: torch.Tensor
    metrics: dict
    extras: dict = field(default_factory=dict)
    grades: list[Grade] = field(default_factory=list)
    ref_logprobs: list[list[float]] = field(default_factory=list)
    old_logprobs: list[list[float] | None] = field(default_factory=list)

    def to_dict(self) -> dict:
        """Return plain values, for JSON."""
        return {
            **vars(self),
            "completions": [completion.to_dict() for completion in self.completions],
            "rewards": self.rewards.tolist(),
            "grades": [asdict(grade) for grade in self.grades],
        }

    @classmethod
    def from_dict(cls, saved: dict) -> "Generation":
        """Rebuild what `to_dict` wrote."""
        return cls(
            prompts=saved["prompts"],
            completions=[Completion.from_dict(values) for values in saved["completions"]],
            rewards=torch.tensor(saved["rewards"], dtype=torch.float64),
            metrics=saved["metrics"],
            extras=saved["extras"],
            grades=[Grade(**values) for values in saved["grades"]],
            ref_logprobs=saved["ref_logprobs"],
            old_logprobs=saved["old_logprobs"],
        )


def prompt_indices(generation: int, count: int, size: int, seed: int) -> list[int]:
    """Return the rows of a data set of `size` that one generation uses: epoch after epoch, each in its own order.

    generation: its number. count: prompts in each generation.
    """
    indices = []
    orders = {}
    for position in range(generation * count, (generation + 1) * count):
        epoch, place = divmod(position, size)
        if epoch not in orders:
            orders[epoch] = list(range(size))
            random.Random(f"{seed} {epoch}").shuffle(orders[epoch])
        indices.append(orders[epoch][place])
    return indices

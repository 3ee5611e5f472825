"""Groups of completions, and what rewards and grades make of them: what one or more optimizer steps use."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from helpers.rollout.completion import Completion
from helpers.tasks import Grade


@dataclass
class Group:
    """A prompt, and the completions that were drawn for it. They are compared with each other."""

    prompt: str | list[dict]
    completions: list[Completion]

    def to_dict(self) -> dict:
        """Return plain values, for JSON."""
        completions = [completion.to_dict() for completion in self.completions]
        return {"prompt": self.prompt, "completions": completions}

    @classmethod
    def from_dict(cls, saved: dict) -> "Group":
        """Rebuild what `to_dict` wrote."""
        completions = [Completion.from_dict(values) for values in saved["completions"]]
        return cls(saved["prompt"], completions)


def into_groups(prompts: Sequence, completions: Sequence[Completion]) -> list[Group]:
    """Return one group a prompt. completions: as many for each prompt, those of a prompt together."""
    size = len(completions) // len(prompts)
    assert size * len(prompts) == len(completions)
    return [Group(prompt, completions[place * size : (place + 1) * size]) for place, prompt in enumerate(prompts)]


@dataclass
class Generation:
    """Groups that were drawn together, B completions in all, and what was made of them.

    rewards: float64 [B, R], NaN where a function gave None. advantages: float32 [B], or None where nothing is learnt,
    as in an evaluation. metrics: what to log. extras: {name: one value a completion} that the reward functions gave to
    `log_extra`. grades: B of them, or none where the run has no task. ref_logprobs: of the reference policy, one list a
    completion, or none where the loss has no KL term. old_logprobs: those of the policy before the first optimizer step
    on this generation, where later ones need them; None for a completion whose turn comes first.
    """

    groups: list[Group]
    rewards: Tensor
    advantages: Tensor | None = None
    metrics: dict = field(default_factory=dict)
    extras: dict = field(default_factory=dict)
    grades: list[Grade] = field(default_factory=list)
    ref_logprobs: list[list[float]] = field(default_factory=list)
    old_logprobs: list[list[float] | None] = field(default_factory=list)

    @property
    def completions(self) -> list[Completion]:
        """The completions of all groups, one group after the other."""
        return [completion for group in self.groups for completion in group.completions]

    def by_group(self, values_B: Tensor) -> Tensor:
        """Return one value a completion, [B], as a row for each group: [groups, completions of each]."""
        return values_B.view(len(self.groups), -1)

    def to_dict(self) -> dict:
        """Return plain values, for JSON."""
        return {
            **vars(self),
            "groups": [group.to_dict() for group in self.groups],
            "rewards": self.rewards.tolist(),
            "advantages": None if self.advantages is None else self.advantages.tolist(),
            "grades": [asdict(grade) for grade in self.grades],
        }

    @classmethod
    def from_dict(cls, saved: dict) -> "Generation":
        """Rebuild what `to_dict` wrote."""
        advantages = saved["advantages"]
        return cls(
            groups=[Group.from_dict(group) for group in saved["groups"]],
            rewards=torch.tensor(saved["rewards"], dtype=torch.float64),
            advantages=None if advantages is None else torch.tensor(advantages, dtype=torch.float32),
            metrics=saved["metrics"],
            extras=saved["extras"],
            grades=[Grade(**values) for values in saved["grades"]],
            ref_logprobs=saved["ref_logprobs"],
            old_logprobs=saved["old_logprobs"],
        )


def completions_in_loss(completions: Sequence[Completion], mask_truncated: bool) -> list[bool]:
    """Tell for each completion whether its tokens count in the loss and in the means over tokens.

    mask_truncated: whether completions that were cut off are left out.
    """
    return [not (mask_truncated and completion.finish_reason == "length") for completion in completions]


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

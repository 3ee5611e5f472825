"""A trainer callback that follows the probability of one token."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from helpers.runtime import write_whole


@torch.no_grad()
def next_token_probabilities(model: nn.Module, token_ids: Sequence[int]) -> torch.Tensor:
    """Return the probability of every token after these: float32 [V], on the CPU."""
    ids = torch.tensor([list(token_ids)], device=model.device)
    logits = model(ids, logits_to_keep=1).logits[0, -1]
    return logits.float().softmax(-1).cpu()


class TokenWatch:
    """Measure the probability of a token after a fixed text, before the training and after every step.

    The values are kept in a file, so that a resumed run has those of its earlier sessions.

    Args:
        model: the model that is trained.
        prefix: token ids of the fixed text.
        token: the id of the token to follow.
        path: a JSON file of {step: probability}.
    """

    def __init__(self, model: nn.Module, prefix: Sequence[int], token: int, path: str | Path):
        self.model = model
        self.prefix = list(prefix)
        self.token = token
        self.path = Path(path)
        self.values: dict[int, float] = {}
        if self.path.exists():
            self.values = {int(step): value for step, value in json.loads(self.path.read_text()).items()}
        else:
            self.measure(0)

    def measure(self, step: int) -> float:
        """Measure the probability now, and note it for a step."""
        was_training = self.model.training
        self.model.eval()
        probability = next_token_probabilities(self.model, self.prefix)[self.token].item()
        self.model.train(was_training)
        self.values[step] = probability
        write_whole(self.path, json.dumps(self.values))
        return probability

    def on_log(self, args, state, control, logs: dict, completions: list[dict]) -> None:
        self.measure(state.global_step)

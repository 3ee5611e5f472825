"""A trainer callback that follows the probability of one token."""

import hashlib
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

    The values are kept in a file, so that a resumed run has those of its earlier sessions. A file of another text or
    token is started anew.

    Args:
        model: the model that is trained.
        prefix: token ids of the fixed text.
        token: the id of the token to follow.
        path: a JSON file: what is followed, and {step: probability}.

    Attributes:
        values: step -> probability.
    """

    def __init__(self, model: nn.Module, prefix: Sequence[int], token: int, path: str | Path):
        self.model = model
        self.prefix = list(prefix)
        self.token = token
        self.path = Path(path)
        self.followed = hashlib.sha256(repr((self.prefix, token)).encode()).hexdigest()[:16]
        self.values: dict[int, float] = {}
        if self.path.exists():
            saved = json.loads(self.path.read_text())
            if saved["followed"] == self.followed:
                self.values = {int(step): value for step, value in saved["values"].items()}
        if not self.values:
            self.measure(0)

    def measure(self, step: int) -> float:
        """Measure the probability now, and note it for a step."""
        was_training = self.model.training
        self.model.eval()
        probability = next_token_probabilities(self.model, self.prefix)[self.token].item()
        self.model.train(was_training)
        self.values[step] = probability
        write_whole(self.path, json.dumps({"followed": self.followed, "values": self.values}))
        return probability

    def on_train_begin(self, args, state, control) -> None:
        """Forget steps that a run which was killed is to do again."""
        self.values = {step: value for step, value in self.values.items() if step <= state.global_step}
        self._measure_if_missing(state.global_step)

    def on_train_end(self, args, state, control) -> None:
        """Measure the last step, where an interrupt came between the step and its measurement."""
        self._measure_if_missing(state.global_step)

    def _measure_if_missing(self, step: int) -> None:
        if step not in self.values:
            self.measure(step)

    def on_step_end(self, args, state, control) -> None:
        self.measure(state.global_step)

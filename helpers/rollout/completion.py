"""What a model answered."""

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Completion:
    """One answer of the model.

    token_ids: end with the stop token if there was one. logprobs: one value a token, at the sampling temperature.
    text: the final channel. thinking: the analysis channel. finish_reason: "stop", or "length" if it was cut off.
    experts: uint8 [P + T - 1, layers, K], the experts that the sampler chose for each of the P tokens of the prompt and
        the T drawn, but the last, which the model never read; None where they were not recorded. Two completions are
        compared without it.
    """

    prompt_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    text: str
    thinking: str
    finish_reason: str
    experts: "Tensor | None" = field(default=None, compare=False)

    @property
    def message(self) -> list[dict[str, str]]:
        """The completion as a reward function gets it, in TRL's conversational form."""
        return [{"role": "assistant", "content": self.text, "thinking": self.thinking}]

    @classmethod
    def of_text(cls, text: str) -> "Completion":
        """Return a completion that says `text` and that no model drew. Its tokens are the text's bytes, and an end."""
        token_ids = [*text.encode("utf-8", "surrogatepass"), 0]  # a completion that was drawn has a token, too
        return cls([], token_ids, [-1.0] * len(token_ids), text, "", "stop")

    def to_dict(self) -> dict:
        """Return plain values, for JSON. The experts are left out where there are none."""
        values = dict(vars(self))
        experts = values.pop("experts")
        if experts is not None:
            values["experts"] = _bytes_to_text(experts)
        return values

    @classmethod
    def from_dict(cls, saved: dict) -> "Completion":
        """Rebuild what `to_dict` wrote."""
        values = dict(saved)
        experts = values.pop("experts", None)
        if experts is not None:
            experts = _bytes_from_text(experts)
        return cls(**values, experts=experts)


def _bytes_to_text(tensor: "Tensor") -> dict:
    """A uint8 tensor on the CPU as plain values, for JSON."""
    text = base64.b64encode(tensor.numpy().tobytes()).decode("ascii")
    return {"shape": list(tensor.shape), "base64": text}


def _bytes_from_text(saved: dict) -> "Tensor":
    """Rebuild what `_bytes_to_text` wrote."""
    import torch  # not above: the tasks import this module where there is no torch

    values = bytearray(base64.b64decode(saved["base64"]))
    return torch.frombuffer(values, dtype=torch.uint8).view(saved["shape"])

"""What a model answered."""

from dataclasses import dataclass


@dataclass
class Completion:
    """One answer of the model.

    token_ids: end with the stop token if there was one. logprobs: one value a token, at the sampling temperature.
    text: the final channel. thinking: the analysis channel. finish_reason: "stop", or "length" if it was cut off.
    """

    prompt_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    text: str
    thinking: str
    finish_reason: str

    @property
    def message(self) -> list[dict[str, str]]:
        """The completion as a reward function gets it, in TRL's conversational form."""
        return [{"role": "assistant", "content": self.text, "thinking": self.thinking}]

"""How tokens are drawn."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingParams:
    """The settings of a draw.

    temperature: 0 is greedy. max_completion_length: in tokens. There is no top_p or top_k: for a policy gradient the
    sampler must be the policy itself, untrimmed.
    """

    temperature: float = 1.0
    max_completion_length: int = 256
    seed: int = 0

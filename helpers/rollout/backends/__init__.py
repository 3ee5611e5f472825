"""What draws the tokens of a rollout. A new way to generate is a class with the methods of `Backend`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from helpers.rollout.sampling import SamplingParams


class Drawn(NamedTuple):
    """The tokens drawn for one prompt, and the log-probability of each at the sampling temperature.

    What follows the first stop token is padding, and may have any log-probability.
    """

    token_ids: list[int]
    logprobs: list[float]


class Backend(Protocol):
    """Generates for a batch of prompts that fits in memory at once."""

    def generate(self, prompt_ids: Sequence[list[int]], params: SamplingParams, seed: int) -> list[Drawn]:
        """Draw one completion for each prompt. The same arguments and weights give the same tokens.

        prompt_ids: a prompt stands there once for each of its completions. Log-probabilities are those of
        `params.temperature`; of greedy ones (temperature 0) those of temperature 1.
        """

    def sync(self) -> None:
        """Take over the weights of the model that the backend was made with, before each rollout.

        There is nothing to do where the trainer's own tensors are read.
        """

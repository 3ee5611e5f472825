"""What draws the tokens of a rollout. A new way to generate is a class with the methods of `Backend`."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from helpers.rollout.sampling import SamplingParams


class Request(NamedTuple):
    """One completion to draw. key: of its stream of random numbers, see `helpers.rollout.random_streams`."""

    prompt_ids: list[int]
    key: int


class Drawn(NamedTuple):
    """The tokens drawn for one request, and the log-probability of each at the sampling temperature.

    What follows the first stop token is padding, and may have any log-probability.

    experts: uint8 [prompt + drawn - 1, layers, K] on the CPU, those that each layer chose for each token of the prompt
    and of what was drawn, but the last, which the model never read; None where the backend does not record them.
    """

    token_ids: list[int]
    logprobs: list[float]
    experts: Tensor | None = None


class Backend(Protocol):
    """Draws completions, as many at once as fit in memory.

    A backend may also have a method `use_less_memory() -> str | None`: take less memory from here on, after an error
    for want of it, and say how in half a sentence, or return None if there is no way left. The engine then calls
    `generate` again for what was not finished. Where the method is missing, a rollout ends with that error.
    """

    def generate(
        self, requests: Sequence[Request], params: SamplingParams, stop_ids: Sequence[int]
    ) -> Iterator[tuple[int, Drawn]]:
        """Draw one completion for each request; yield `(number of the request, what was drawn)` as they finish.

        A backend that reads the weights in `sync` draws with those until the next `sync`.

        requests: each fits: `len(prompt_ids) + params.max_new_tokens` is at most the engine's max_length. The same
        arguments and weights give the same tokens. Log-probabilities are those of the whole distribution at
        `params.temperature`; of greedy tokens (temperature 0) at temperature 1.
        stop_ids: tokens that end a completion, those of `params` among them.
        """

    def sync(self) -> None:
        """Take over the weights of the model that the backend was made with, before each rollout.

        There is nothing to do where the trainer's own tensors are read.
        """

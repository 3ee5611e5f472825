"""How tokens are drawn: the settings, and the draw itself."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from helpers.rollout.random_streams import uniforms
from helpers.runtime import UserError, check_whole

#: Within these a quotient of logits by the temperature stays in fp32's range.
LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 1e-30, 1e30


@dataclass(frozen=True)
class SamplingParams:
    """The settings of a draw. Raises UserError for a value that cannot be drawn with.

    Attributes:
        max_new_tokens: the most tokens of a completion.
        temperature: divides the logits; 0 is greedy.
        top_p: draw from the smallest set of likeliest tokens whose probabilities reach this sum; 1: from all.
        top_k: draw from this many likeliest tokens; 0: from all.
        min_p: draw from the tokens with at least this share of the likeliest one's probability; 0: from all.
        seed: of the random numbers.
        stop_token_ids: tokens that end a completion, besides those of the chat format.

    The three that trim the distribution apply in the order top_k, top_p, min_p, each to what the one before left, as
    in transformers. `GRPOTrainer` never trims: for a policy gradient the sampler must be the policy itself.
    """

    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self):
        check_whole("max_new_tokens", self.max_new_tokens, 1)
        check_whole("top_k", self.top_k, 0)
        check_whole("seed", self.seed, None)
        if not (_is_number(self.temperature) and 0 <= self.temperature < math.inf):
            raise UserError(f"temperature must be a number from 0 (greedy) on; got {self.temperature!r}.")
        if self.temperature and not LOWEST_TEMPERATURE <= self.temperature <= HIGHEST_TEMPERATURE:
            raise UserError(
                f"temperature {self.temperature!r} is out of range: take 0 for greedy, or {LOWEST_TEMPERATURE:g} to "
                f"{HIGHEST_TEMPERATURE:g}."
            )
        if not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise UserError(f"top_p must be above 0 and at most 1; got {self.top_p!r}.")
        if not (_is_number(self.min_p) and 0 <= self.min_p <= 1):
            raise UserError(f"min_p must be from 0 to 1; got {self.min_p!r}.")
        if not isinstance(self.stop_token_ids, Iterable) or isinstance(self.stop_token_ids, str):
            raise UserError(f"stop_token_ids must be a list of token ids; got {self.stop_token_ids!r}.")
        for token in self.stop_token_ids:
            check_whole("Each of stop_token_ids", token, 0)

    @property
    def trims(self) -> bool:
        """True if tokens are drawn from a part of the distribution; a greedy draw is from all of it."""
        is_whole = self.top_p == 1 and self.top_k == 0 and self.min_p == 0
        return self.temperature > 0 and not is_whole


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class DeviceParams(NamedTuple):
    """The settings of a draw as tensors [1], which a captured step reads where they lie."""

    is_greedy: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    min_p: Tensor
    max_new_tokens: Tensor

    @classmethod
    def on(cls, device: torch.device) -> "DeviceParams":
        """Allocate them on a device."""

        def number(dtype: torch.dtype) -> Tensor:
            return torch.ones(1, dtype=dtype, device=device)

        return cls(
            is_greedy=number(torch.bool),
            temperature=number(torch.float32),
            top_p=number(torch.float64),
            top_k=number(torch.int64),
            min_p=number(torch.float64),
            max_new_tokens=number(torch.int64),
        )

    def fill(self, params: SamplingParams, vocabulary: int) -> None:
        """Take over the values of `params`."""
        self.is_greedy.fill_(params.temperature == 0)
        self.temperature.fill_(params.temperature or 1.0)
        self.top_p.fill_(params.top_p)
        self.top_k.fill_(min(params.top_k, vocabulary) or vocabulary)
        self.min_p.fill_(params.min_p)
        self.max_new_tokens.fill_(params.max_new_tokens)


def draw(logits: Tensor, keys: Tensor, positions: Tensor, params: DeviceParams, trims: bool) -> tuple[Tensor, Tensor]:
    """Draw a token for each row.

    Args:
        logits: fp32 [B, V]; they are overwritten.
        keys: int64 [B], each row's stream of random numbers.
        positions: int64 [B], the place in that stream.
        params: the settings, on the device.
        trims: `SamplingParams.trims`.

    Returns: `(tokens int64 [B], logprobs fp32 [B])`, the log-probabilities under the whole distribution at the
    temperature; of greedy tokens at temperature 1.

    A token is drawn by inverting the distribution function in float64, with one number of the stream: row by row, so
    that other rows change nothing. It runs on the device without waiting for it. The likeliest token is found besides,
    so that one captured step serves greedy and other draws.
    """
    logits.sub_(logits.amax(-1, keepdim=True))  # the largest is 0 now
    logits.div_(params.temperature)
    weights = logits.exp_().double()  # [B, V], proportional to the probabilities
    total = weights.sum(-1, keepdim=True)
    kept = trim(weights, params.top_k, params.top_p, params.min_p) if trims else weights
    sums = kept.cumsum(-1)
    point = uniforms(keys, positions)[:, None] * sums[:, -1:]
    # the first token whose sum lies above the point; one of probability 0 never is that
    sampled = torch.searchsorted(sums, point, right=True)  # [B, 1]
    sampled = sampled.clamp(max=logits.shape[-1] - 1)
    likeliest = weights.argmax(-1, keepdim=True)
    tokens = torch.where(params.is_greedy, likeliest, sampled)
    logprobs = (weights.gather(-1, tokens) / total).log().float()
    return tokens[:, 0], logprobs[:, 0]


def trim(weights: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Set the probabilities to zero that top_k, top_p or min_p leave out.

    weights: float64 [B, V], proportional to the probabilities. top_k: int64 [1]. top_p, min_p: float64 [1]. Ties with
    the last token that top_k keeps are kept, too. The likeliest token always stays. Returns [B, V].
    """
    ordered, order = weights.sort(dim=-1, descending=True, stable=True)
    least = ordered.gather(-1, (top_k - 1).expand(len(weights), 1))  # the k-th largest, [B, 1]
    ordered = ordered * (ordered >= least)
    total = ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1) - ordered  # what the likelier tokens sum up to
    is_kept = before < top_p * total
    is_kept &= ordered >= min_p * ordered[:, :1]
    is_kept[:, 0] = True
    return weights.scatter(-1, order, ordered * is_kept)

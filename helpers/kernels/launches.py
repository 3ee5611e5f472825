"""Every Triton launch of a model, so that a test can compile them ahead of time for each card."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from helpers.kernels import mxfp4_triton
from helpers.kernels.decode_triton import low_rank_launch, rotate_launch, slots_launch
from helpers.kernels.experts import DECODE_TOKENS
from helpers.kernels.launch import Launch
from helpers.kernels.swiglu_triton import activate_backward_launch, activate_launch

if TYPE_CHECKING:
    from transformers import GptOssConfig


def launches(
    config: "GptOssConfig", rank: int, dtype: torch.dtype, capability: tuple[int, int], lengths: tuple[int, ...]
) -> Iterator[Launch]:
    """Yield every `Launch` of a model of these sizes, adapted with this rank or not, on a GPU of this capability.

    lengths: the longest rollouts, in tokens.
    """
    hidden = config.hidden_size
    inner = config.intermediate_size
    top_k = config.num_experts_per_tok
    tilings = {}  # number of tokens -> form of the products
    tokens = 1
    while tokens <= DECODE_TOKENS:
        tilings[tokens] = mxfp4_triton.Tiling.choose(tokens, capability)
        tokens *= 2
    for tiling in dict.fromkeys(tilings.values()):
        for r in {0, rank}:
            yield mxfp4_triton.gate_up_launch(tiling, r, dtype, hidden, inner, top_k)
            yield mxfp4_triton.down_launch(tiling, r, dtype, hidden, inner)
    yield mxfp4_triton.unpack_launch(dtype)
    yield mxfp4_triton.gather_launch(dtype, hidden)

    yield activate_launch(dtype, inner)
    yield activate_backward_launch(dtype, inner)

    for tokens, tiling in tilings.items():
        yield slots_launch(tokens * top_k, config.num_local_experts, tiling.tokens)
    yield low_rank_launch(torch.float32, hidden, top_k, rank, split=False)
    yield low_rank_launch(dtype, inner, 1, rank, split=True)
    for length in (config.sliding_window, *lengths):
        heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        yield rotate_launch(dtype, *heads, length)

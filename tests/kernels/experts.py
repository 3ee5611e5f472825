"""Random experts in every form, and the definition that all of them must equal."""

import torch

from helpers.kernels.experts import ExpertLora, ExpertWeights, Packed
from helpers.kernels.mxfp4 import dequantize, quantize
from helpers.kernels.swiglu import swiglu


def random_experts(seed=0, dtype=torch.float32, count=8, hidden=96, inner=64, rank=5):
    """`(packed ExpertWeights, dense ExpertWeights of the same values, ExpertLora)`."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape, std=0.3):
        return torch.randn(*shape, generator=generator) * std

    gate_up, down = quantize(draw(count, hidden, 2 * inner)), quantize(draw(count, inner, hidden))
    biases = draw(count, 2 * inner), draw(count, hidden)
    packed = ExpertWeights(Packed(*gate_up), biases[0], Packed(*down), biases[1], dtype)
    dense = ExpertWeights(dequantize(*gate_up, dtype), biases[0], dequantize(*down, dtype), biases[1], dtype)
    shapes = (rank, hidden), (2 * inner, rank), (rank, inner), (hidden, rank)
    return packed, dense, ExpertLora(*(draw(count, *shape, std=0.1) for shape in shapes), 2.0)


def random_tokens(tokens, count=8, hidden=96, top_k=3, seed=0, routing="uniform"):
    """`(hidden [T, H], indices [T, K], weights [T, K])`.

    routing "skewed" favours the first experts; "one" takes expert 0 always and the last never."""
    generator = torch.Generator().manual_seed(seed + 1)
    scores = torch.randn(tokens, count, generator=generator)
    if routing == "skewed":
        scores *= 3.0 / torch.arange(1, count + 1)
    if routing == "one":
        scores[:, 0], scores[:, -1] = 9.0, -9.0
    top = scores.topk(top_k)
    return torch.randn(tokens, hidden, generator=generator), top.indices, top.values.softmax(-1)


def error(ours, exact):
    """||ours - exact|| / ||exact||."""
    return float((ours.double() - exact.double()).norm() / exact.double().norm())


def by_definition(hidden, indices, weights, dense, lora=None):
    """Every expert on every token in float64, then the chosen ones: slow, and nothing to get wrong."""
    gate_up, down = dense.gate_up.double(), dense.down.double()
    if lora is not None:
        gate_up = gate_up + lora.scaling * torch.einsum(
            "eor,eri->eio", lora.gate_up_B.double(), lora.gate_up_A.double()
        )
        down = down + lora.scaling * torch.einsum("eor,eri->eio", lora.down_B.double(), lora.down_A.double())
    inside = torch.einsum("th,ehn->ten", hidden.double(), gate_up) + dense.gate_up_bias.double()
    out = torch.einsum("ten,enh->teh", swiglu(inside, dense.alpha, dense.limit), down) + dense.down_bias.double()
    chosen = out.gather(1, indices[..., None].expand(-1, -1, hidden.shape[1]))
    return (chosen * weights.double()[..., None]).sum(1)

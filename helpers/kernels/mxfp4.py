"""MXFP4, the format of gpt-oss's expert weights, and the mixture of experts over it.

A matrix [E, out, in] is stored as `blocks` uint8 [E, out, in/32, 16], two 4-bit E2M1 values a
byte, the even one in the low four bits, and `scales` uint8 [E, out, in/32], a power of two with
bias 127 for every 32 values (OCP Microscaling Formats v1.0, 2023, section 5.3). In memory
transformers keeps the transpose, [E, in, out]; the functions here speak that orientation.
"""

from typing import NamedTuple

import torch

from helpers.kernels.linear import WIDE, frozen_linear

GROUP = 32
#: What the sixteen codes stand for: bit 3 is the sign.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_BIAS = 127
_MAX_EXPONENT = 2  # 6.0 = 1.5 * 2**2
_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between neighbouring magnitudes
#: Up to so many tokens the packed bytes are multiplied as they are; above, an expert is unpacked first.
DECODE_TOKENS = 64


class Packed(NamedTuple):
    """One matrix of every expert: blocks uint8 [E, out, in/32, 16], scales uint8 [E, out, in/32]."""

    blocks: torch.Tensor
    scales: torch.Tensor

    def expert(self, index, dtype):
        """Dense `dtype` [in, out] of one expert, a view whose columns are contiguous."""
        blocks, scales = self.blocks[index], self.scales[index]
        if blocks.is_cuda:
            from helpers.kernels.mxfp4_triton import unpack

            return unpack(blocks, scales, dtype).T
        return _unpack(blocks, scales, dtype).T

    def dense(self, dtype):
        """Dense `dtype` [E, in, out] of all experts, unpacked one at a time."""
        count, out, groups = self.scales.shape
        dense = torch.empty(count, groups * GROUP, out, dtype=dtype, device=self.scales.device)
        for index in range(count):
            dense[index] = self.expert(index, dtype)
        return dense


class ExpertWeights(NamedTuple):
    """The frozen weights of one layer's experts.

    gate_up: `Packed`, or dense [E, H, 2I], gate in the even columns and up in the odd; gate_up_bias:
    fp32 [E, 2I]. down: `Packed`, or dense [E, I, H]; down_bias: fp32 [E, H]. dtype: of the operands.
    """

    gate_up: Packed | torch.Tensor
    gate_up_bias: torch.Tensor
    down: Packed | torch.Tensor
    down_bias: torch.Tensor
    dtype: torch.dtype
    alpha: float = 1.702
    limit: float = 7.0

    def matrices(self, index):
        """`(gate_up [H, 2I], down [I, H])` of one expert; the only dense copy there is of packed ones."""
        pair = (self.gate_up, self.down)
        return [m.expert(index, self.dtype) if isinstance(m, Packed) else m[index] for m in pair]


class ExpertLora(NamedTuple):
    """fp32 adapters: gate_up_A [E, r, H], gate_up_B [E, 2I, r], down_A [E, r, I], down_B [E, H, r]."""

    gate_up_A: torch.Tensor
    gate_up_B: torch.Tensor
    down_A: torch.Tensor
    down_B: torch.Tensor
    scaling: float


def check_packed(blocks, scales):
    """Raise ValueError unless the two are a packed matrix without NaN (the scale byte 255)."""
    if blocks.dtype != torch.uint8 or scales.dtype != torch.uint8:
        raise ValueError(f"packed weights are uint8, got blocks {blocks.dtype} and scales {scales.dtype}")
    if blocks.shape[:-1] != scales.shape or blocks.shape[-1] * 2 != GROUP:
        raise ValueError(
            f"blocks must be [E, out, in/32, 16] and scales [E, out, in/32], "
            f"got {list(blocks.shape)} and {list(scales.shape)}"
        )
    if bool((scales == 255).any()):
        raise ValueError("a scale byte is 255, which stands for NaN: the weights are damaged")


def dequantize(blocks, scales, dtype=torch.float32):
    """Unpack to a dense weight.

    Args:
        blocks: uint8 [E, out, in/32, 16].
        scales: uint8 [E, out, in/32].
        dtype: of the result. Every value is exact in bfloat16 and float32.

    Returns: `dtype` [E, in, out]. Raises ValueError as `check_packed`.
    """
    check_packed(blocks, scales)
    return _unpack(blocks, scales, dtype).transpose(1, 2).contiguous()


def _unpack(blocks, scales, dtype):
    """[..., out, in/32, 16] -> dense [..., out, in]."""
    values = torch.tensor(E2M1, dtype=torch.float32, device=blocks.device)
    pairs = torch.stack([values[(blocks & 15).int()], values[(blocks >> 4).int()]], -1)
    return torch.ldexp(pairs.flatten(-2), (scales.int() - _BIAS)[..., None]).flatten(-2).to(dtype)


def quantize(weight):
    """Pack a dense weight: the largest magnitude of each group of 32 sets the scale.

    Args:
        weight: float [E, in, out], finite, `in` a multiple of 32.

    Returns: `(blocks, scales)` as described at the top. `dequantize` of the result is the
    nearest representable weight for that scale; packing it again changes nothing.
    Raises ValueError for another shape or a weight that is not finite.
    """
    if weight.ndim != 3 or weight.shape[1] % GROUP:
        raise ValueError(f"weight must be [E, in, out] with in a multiple of {GROUP}, got {list(weight.shape)}")
    if not bool(weight.isfinite().all()):
        raise ValueError("a weight that is not finite cannot be packed")
    groups = weight.float().transpose(1, 2).unflatten(-1, (-1, GROUP))  # [E, out, in/32, 32]
    # frexp gives |w| = mantissa * 2**exponent with mantissa in [0.5, 1): floor(log2) is exponent - 1.
    exponents = torch.frexp(groups.abs().amax(-1)).exponent - 1 - _MAX_EXPONENT
    exponents = exponents.clamp(-_BIAS, 254 - _BIAS)
    scaled = torch.ldexp(groups, -exponents[..., None])
    codes = torch.bucketize(scaled.abs().contiguous(), torch.tensor(_MIDPOINTS, device=weight.device))
    codes = (codes + 8 * torch.signbit(scaled)).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + _BIAS).to(torch.uint8)


def swiglu(gate_up, alpha, limit):
    """gpt-oss's gate on interleaved columns [..., 2I] -> [..., I] (model card, 2025, section 2.2)."""
    gate, up = gate_up[..., ::2].clamp(max=limit), gate_up[..., 1::2].clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def expert_forward(hidden, indices, weights, experts, lora=None):
    """The routed experts of one layer: sum over a token's experts of weight * expert(token).

    Args:
        hidden: float [T, H]. indices: int64 [T, K], the experts of each token, all different.
        weights: float [T, K], the router's. experts: `ExpertWeights`. lora: `ExpertLora` or None.

    Returns: fp32 [T, H] (fp64 for fp64 experts), with gradients in hidden, weights and lora. Only
    experts that were hit are read. On a GPU, up to `DECODE_TOKENS` tokens without gradients are
    computed from the packed bytes, without a host synchronisation; else one expert at a time is
    unpacked, again in the backward pass. Raises ValueError for shapes that do not fit.
    """
    _check_shapes(hidden, indices, weights, experts, lora)
    if isinstance(experts.gate_up, Packed) and hidden.is_cuda and len(hidden) <= DECODE_TOKENS:
        if not (torch.is_grad_enabled() and any(t.requires_grad for t in (hidden, weights, *(lora or ())[:4]))):
            from helpers.kernels.mxfp4_triton import decode

            return decode(hidden, indices, weights, experts, lora)
    adapters, scaling = (lora[:4], lora.scaling) if lora else ((), 0.0)
    return _Experts.apply(hidden, weights, indices, experts, scaling, *adapters)


def _check_shapes(hidden, indices, weights, experts, lora):
    (count, width), inner = experts.gate_up_bias.shape, experts.down_bias.shape[1]
    if hidden.ndim != 2 or hidden.shape[1] != inner or indices.shape != weights.shape or len(indices) != len(hidden):
        raise ValueError(
            f"hidden must be [T, {inner}], indices and weights [T, K], "
            f"got {list(hidden.shape)}, {list(indices.shape)} and {list(weights.shape)}"
        )
    found, wanted = {}, {}
    for name, wide, out in (("gate_up", inner, width), ("down", width // 2, inner)):
        matrix = getattr(experts, name)
        if isinstance(matrix, Packed):
            found |= {f"{name} blocks": matrix.blocks, f"{name} scales": matrix.scales}
            wanted |= {
                f"{name} blocks": (count, out, wide // GROUP, GROUP // 2),
                f"{name} scales": (count, out, wide // GROUP),
            }
        else:
            found[name], wanted[name] = matrix, (count, wide, out)
        if lora:
            rank = lora.gate_up_A.shape[1]
            found |= {f"{name}_{half}": getattr(lora, f"{name}_{half}") for half in "AB"}
            wanted |= {f"{name}_A": (count, rank, wide), f"{name}_B": (count, out, rank)}
    for name, shape in wanted.items():
        if tuple(found[name].shape) != shape:
            raise ValueError(f"{name} must be {list(shape)}, got {list(found[name].shape)}")


class _Experts(torch.autograd.Function):
    """Expert by expert; the backward pass unpacks and computes each expert once more, so that
    nothing of its inside is kept between the passes."""

    @staticmethod
    def forward(ctx, hidden, weights, indices, experts, scaling, *adapters):
        ctx.save_for_backward(hidden, weights, indices, *adapters)
        ctx.experts, ctx.scaling = experts, scaling
        out = torch.zeros(hidden.shape, dtype=experts.down_bias.dtype, device=hidden.device)
        for expert, rows, pairs in _segments(indices, len(experts.down_bias)):
            lora = [adapter[expert] for adapter in adapters]
            part = _one_expert(hidden[rows], weights.flatten()[pairs], expert, experts, scaling, *lora)
            out.index_add_(0, rows, part)
        return out

    @staticmethod
    def backward(ctx, grad):
        hidden, weights, indices, *adapters = ctx.saved_tensors
        sums = [torch.zeros_like(leaf, dtype=grad.dtype) for leaf in (hidden, weights.flatten(), *adapters)]
        for expert, rows, pairs in _segments(indices, len(ctx.experts.down_bias)):
            leaves = [hidden[rows], weights.flatten()[pairs], *(adapter[expert] for adapter in adapters)]
            leaves = [leaf.detach().requires_grad_() for leaf in leaves]
            with torch.enable_grad():
                part = _one_expert(*leaves[:2], expert, ctx.experts, ctx.scaling, *leaves[2:])
            parts = torch.autograd.grad(part, leaves, grad[rows])
            del part  # it holds this expert's dense matrices
            sums[0].index_add_(0, rows, parts[0].to(grad.dtype))
            sums[1][pairs] = parts[1].to(grad.dtype)
            for total, gradient in zip(sums[2:], parts[2:]):
                total[expert] = gradient
        sums[1] = sums[1].view_as(weights)
        sums = [total.to(leaf.dtype) for total, leaf in zip(sums, (hidden, weights, *adapters))]
        return *sums[:2], None, None, None, *sums[2:]


def _segments(indices, count):
    """Yield `(expert, rows, pairs)` for every expert that was hit: its tokens, and where they stand in indices."""
    flat = indices.flatten()
    order = flat.argsort(stable=True)
    sizes = torch.bincount(flat, minlength=count).tolist()
    for expert, pairs in enumerate(order.split(sizes)):
        if len(pairs):
            yield expert, pairs // indices.shape[1], pairs


def _one_expert(x, weight, expert, experts, scaling, *lora):
    """weight * expert(x) for the tokens [n, H] of one expert, fp32 [n, H]."""
    gate_up, down = experts.matrices(expert)
    inside = _adapted(x, gate_up, experts.gate_up_bias[expert], scaling, lora[:2])
    inside = swiglu(inside, experts.alpha, experts.limit)
    if experts.dtype not in WIDE:  # rounded as decoding rounds it, for A too; the gradient stays fp32
        inside = inside + (inside.to(experts.dtype).to(inside.dtype) - inside).detach()
    return _adapted(inside, down, experts.down_bias[expert], scaling, lora[2:]) * weight[:, None]


def _adapted(x, matrix, bias, scaling, lora):
    """x matrix + bias + scaling B A x; the low-rank part in the adapter's fp32."""
    out = frozen_linear(x, matrix, bias)
    if not lora:
        return out
    a, b = lora
    return torch.addmm(out, x.to(a.dtype) @ a.T, b.T, alpha=scaling)

"""Multiplication by a frozen 16-bit matrix: 16-bit operands, fp32 sums, fp32 or 16-bit out.

gpt-oss leaves the range of fp16 (65,504) in its residual stream and in what the experts' second
matrix gives; a product that stays in fp32 until it is added there does not. The gradient has
the opposite trouble: it is small, so each of its rows is scaled by a power of two before it is
rounded, and scaled back after.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

WIDE = (torch.float32, torch.float64)


def frozen_linear(
    x: Tensor,
    weight: Tensor | Callable[[], Tensor],
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """x @ weight + bias, with a gradient in x only.

    Args:
        x: float [..., in], any dtype; it is rounded to the weight's.
        weight: [in, out] (a transposed view serves); or a function without arguments that makes it,
            called once in each pass, so that a packed weight is never kept unpacked.
        bias: fp32 [out] or None.
        out_dtype: default fp32, or fp64 for a weight in fp64.

    Returns: [..., out] in `out_dtype`.
    """
    if isinstance(weight, Tensor):
        if weight.dtype in WIDE:
            out = F.linear(x.to(weight.dtype), weight.T, bias)
            return out.to(out_dtype or out.dtype)
    rows = x.flatten(0, -2)  # [N, in]
    out = _FrozenLinear.apply(rows, weight)  # [N, out]
    if bias is not None:
        out = out + bias
    return out.to(out_dtype or out.dtype).unflatten(0, x.shape[:-1])


class _FrozenLinear(torch.autograd.Function):
    """x [N, in] @ weight [in, out]; a weight that is a function is made anew in the backward pass."""

    @staticmethod
    def forward(ctx, x, source):
        ctx.source = source
        ctx.dtype = x.dtype
        weight = source() if callable(source) else source
        assert not weight.requires_grad and x.shape[-1] == weight.shape[0], (x.shape, weight.shape)
        return wide_mm(x.to(weight.dtype), weight)

    @staticmethod
    def backward(ctx, grad):
        weight = ctx.source() if callable(ctx.source) else ctx.source
        if weight.dtype != torch.float16:
            to_x = wide_mm(grad.to(weight.dtype), weight.T)
            return to_x.to(ctx.dtype), None
        scale = row_scale(grad)
        scaled = (grad / scale).to(weight.dtype)
        to_x = wide_mm(scaled, weight.T) * scale
        return to_x.to(ctx.dtype), None


def row_scale(x: Tensor) -> Tensor:
    """The power of two [N, 1] at or below the largest magnitude of each row of x [N, D]; 1 for a row of zeros."""
    largest = x.abs().amax(-1, keepdim=True).float()
    exponent = torch.frexp(largest).exponent - 1
    power = torch.ldexp(torch.ones_like(largest), exponent)
    return torch.where(largest > 0, power, 1.0)


def wide_mm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a [N, K] @ b [K, M] summed and returned in fp32 (fp64 for fp64 operands); into `out` if it is given."""
    if a.dtype in WIDE:
        return torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32, out=out)
    return torch.mm(a.float(), b.float(), out=out)

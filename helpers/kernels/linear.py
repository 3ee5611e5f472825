"""Multiplication by a frozen 16-bit matrix: 16-bit operands, fp32 sums, fp32 or 16-bit out.

gpt-oss leaves the range of fp16 (65,504) in its residual stream and in what the experts' second
matrix gives; a product that stays in fp32 until it is added there does not. The gradient has
the opposite trouble: it is small, so each of its rows is scaled by a power of two before it is
rounded, and scaled back after.
"""

import torch

WIDE = (torch.float32, torch.float64)


def frozen_linear(x, weight, bias=None, out_dtype=None):
    """x @ weight + bias, with a gradient in x only.

    Args:
        x: float [..., in], any dtype; it is rounded to the weight's.
        weight: [in, out] (a transposed view serves); or a function without arguments that makes it,
            called once in each pass, so that a packed weight is never kept unpacked.
        bias: fp32 [out] or None. out_dtype: default fp32, or fp64 for a weight in fp64.

    Returns: [..., out] in `out_dtype`.
    """
    if not callable(weight) and weight.dtype in WIDE:
        return torch.nn.functional.linear(x.to(weight.dtype), weight.T, bias).to(out_dtype or weight.dtype)
    flat = _FrozenLinear.apply(x.flatten(0, -2), weight if callable(weight) else lambda: weight)
    flat = flat if bias is None else flat + bias
    return flat.to(out_dtype or flat.dtype).unflatten(0, x.shape[:-1])


class _FrozenLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, make_weight):
        ctx.make_weight, ctx.dtype = make_weight, x.dtype
        weight = make_weight()
        assert not weight.requires_grad and x.shape[-1] == weight.shape[0], (x.shape, weight.shape)
        return wide_mm(x.to(weight.dtype), weight)

    @staticmethod
    def backward(ctx, grad):
        weight = ctx.make_weight()
        scale = row_scale(grad) if weight.dtype == torch.float16 else None
        grad = wide_mm((grad if scale is None else grad / scale).to(weight.dtype), weight.T)
        return (grad if scale is None else grad * scale).to(ctx.dtype), None


def row_scale(x):
    """The power of two [N, 1] at or below the largest magnitude of each row of x [N, D]; 1 for a row of zeros."""
    largest = x.abs().amax(-1, keepdim=True).float()
    return torch.where(largest > 0, torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1), 1.0)


def wide_mm(a, b):
    """a [N, K] @ b [K, M] summed and returned in fp32 (fp64 for fp64 operands)."""
    if a.dtype in WIDE:
        return a @ b
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()

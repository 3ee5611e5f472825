"""gpt-oss's gated activation between the two matrices of an expert, and its gradient.

On a GPU each is one Triton kernel: as single operations they were half of the launches of an update.
"""

import torch
from torch import Tensor

from helpers.kernels.linear import WIDE, row_scale


def swiglu(gate_up: Tensor, alpha: float, limit: float) -> Tensor:
    """gpt-oss's gate on interleaved columns [..., 2I] -> [..., I] (model card, 2025, section 2.2)."""
    gate = gate_up[..., ::2].clamp(max=limit)
    up = gate_up[..., 1::2].clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def activate(inner: Tensor, bias: Tensor, dtype: torch.dtype, alpha: float, limit: float) -> Tensor:
    """swiglu(inner + bias), rounded to `dtype` [n, I]. inner: fp32 or fp64 [n, 2I]. bias: [2I]."""
    if inner.is_cuda and inner.dtype == torch.float32:
        from helpers.kernels import swiglu_triton

        return swiglu_triton.activate(inner, bias, dtype, alpha, limit)
    return swiglu(inner + bias, alpha, limit).to(dtype)


def activate_backward(
    inner: Tensor,
    bias: Tensor,
    to_inside: Tensor,
    factors: Tensor,
    dtype: torch.dtype,
    alpha: float,
    limit: float,
    products: Tensor,
    scales: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `activate` again, h, and the gradient of its input.

    Args:
        inner: fp32 or fp64 [n, 2I]; it may be overwritten.
        bias: [2I].
        to_inside: [n, I], a gradient of h, to be multiplied by the row's factor.
        factors: [n].
        dtype: h is rounded to it; the gradient goes through the rounding as it is.
        alpha, limit: as in `swiglu`.
        products: [n], receives <h, to_inside> of each row.
        scales: [n], receives what each row of the third result has been divided by.

    Returns: `(h * factors [n, I], gradient of inner [n, 2I], the same gradient / scales in `dtype` [n, 2I])`.
    """
    if inner.is_cuda and inner.dtype == torch.float32:
        from helpers.kernels import swiglu_triton

        return swiglu_triton.activate_backward(inner, bias, to_inside, factors, dtype, alpha, limit, products, scales)
    raw = inner + bias
    raw_gate = raw[:, ::2]
    raw_up = raw[:, 1::2]
    gate = raw_gate.clamp(max=limit)
    up = raw_up.clamp(-limit, limit)
    share = torch.sigmoid(alpha * gate)
    inside = ((up + 1) * gate * share).to(dtype).to(inner.dtype)
    torch.sum(inside * to_inside, 1, out=products)

    to_inside = to_inside * factors[:, None]
    to_gate = to_inside * (up + 1) * share * (1 + alpha * gate * (1 - share))
    to_up = to_inside * gate * share
    to_gate = to_gate.masked_fill(raw_gate > limit, 0)
    to_up = to_up.masked_fill(raw_up.abs() > limit, 0)
    to_inner = torch.stack([to_gate, to_up], -1).flatten(1)  # [n, 2I]
    if dtype == torch.float16:
        row_scales = row_scale(to_inner)
        scales.copy_(row_scales[:, 0])
        operands = (to_inner / row_scales).to(dtype)
    else:
        scales.fill_(1)
        operands = to_inner if dtype in WIDE else to_inner.to(dtype)
    return inside * factors[:, None], to_inner, operands

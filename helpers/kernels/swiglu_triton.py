"""Triton kernels of gpt-oss's activation, for training on a GPU. `helpers.kernels.swiglu` says what they compute."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from helpers.kernels.launch import POINTERS, Launch

#: Values of h that a program computes at a time.
_COLUMNS = 1024


@triton.jit
def swiglu(gate, up, alpha, limit):
    """`helpers.kernels.swiglu.swiglu` of gate and up."""
    gate = tl.minimum(gate, limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    return (up + 1) * gate / (1 + tl.exp(-alpha * gate))


@triton.jit
def _gate_and_up(inner, bias, row, column, good, INNER: tl.constexpr):
    """Gate and up of some columns of a row, with the bias; they lie next to each other."""
    of_column = 2 * column[:, None] + tl.arange(0, 2)[None, :]
    sums = tl.load(inner + row * (2 * INNER) + of_column, mask=good[:, None], other=0.0)
    sums += tl.load(bias + of_column, mask=good[:, None], other=0.0)
    return tl.split(sums)


@triton.jit
def activate_kernel(inner, bias, inside, alpha, limit, INNER: tl.constexpr, BLOCK: tl.constexpr):
    """h of one row and some columns. Grid: rows, blocks of columns."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    good = column < INNER
    gate, up = _gate_and_up(inner, bias, row, column, good, INNER)
    h = swiglu(gate, up, alpha, limit)
    tl.store(inside + row * INNER + column, h.to(inside.dtype.element_ty), mask=good)


@triton.jit
def activate_backward_kernel(
    inner, bias, to_inside, factors, inside, operands, products, scales, alpha, limit,
    INNER: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """One row. The gradient of `inner` takes its place; with SCALE its operands are divided by a power of two."""
    row = tl.program_id(0).to(tl.int64)
    factor = tl.load(factors + row)
    product = tl.zeros([BLOCK], tl.float32)
    largest = tl.zeros([BLOCK], tl.float32)
    for start in range(0, INNER, BLOCK):
        column = start + tl.arange(0, BLOCK)
        good = column < INNER
        raw_gate, raw_up = _gate_and_up(inner, bias, row, column, good, INNER)
        gate = tl.minimum(raw_gate, limit)
        up = tl.minimum(tl.maximum(raw_up, -limit), limit)
        share = 1 / (1 + tl.exp(-alpha * gate))
        h = ((up + 1) * gate * share).to(operands.dtype.element_ty).to(tl.float32)
        to_h = tl.load(to_inside + row * INNER + column, mask=good, other=0.0)
        product += h * to_h
        tl.store(inside + row * INNER + column, h * factor, mask=good)

        to_h *= factor
        to_gate = to_h * (up + 1) * share * (1 + alpha * gate * (1 - share))
        to_up = to_h * gate * share
        to_gate = tl.where(raw_gate > limit, 0.0, to_gate)
        to_up = tl.where(tl.abs(raw_up) > limit, 0.0, to_up)
        of_column = 2 * column[:, None] + tl.arange(0, 2)[None, :]
        tl.store(inner + row * (2 * INNER) + of_column, tl.join(to_gate, to_up), mask=good[:, None])
        largest = tl.maximum(largest, tl.maximum(tl.abs(to_gate), tl.abs(to_up)))
    tl.store(products + row, tl.sum(product, 0))

    scale = 1.0
    if SCALE:
        # the exponent alone: the power of two at or below the largest magnitude
        power = (tl.max(largest, 0).to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
        scale = tl.where(power > 0, power, 1.0)
    tl.store(scales + row, scale)
    tl.debug_barrier()  # the threads read what others have written
    for start in range(0, 2 * INNER, BLOCK):
        column = start + tl.arange(0, BLOCK)
        good = column < 2 * INNER
        gradient = tl.load(inner + row * (2 * INNER) + column, mask=good, other=0.0) / scale
        tl.store(operands + row * (2 * INNER) + column, gradient.to(operands.dtype.element_ty), mask=good)


def activate_launch(dtype: torch.dtype, inner: int) -> Launch:
    """`activate_kernel` for h of `dtype` with `inner` columns."""
    types = {"inner": "*fp32", "bias": "*fp32", "inside": POINTERS[dtype], "alpha": "fp32", "limit": "fp32"}
    return Launch(activate_kernel, types, {"INNER": inner, "BLOCK": _COLUMNS})


def activate_backward_launch(dtype: torch.dtype, inner: int) -> Launch:
    """`activate_backward_kernel` for h of `dtype` with `inner` columns."""
    names = ("inner", "bias", "to_inside", "factors", "inside", "products", "scales")
    types = dict.fromkeys(names, "*fp32") | {"operands": POINTERS[dtype], "alpha": "fp32", "limit": "fp32"}
    constants = {"INNER": inner, "BLOCK": _COLUMNS, "SCALE": dtype == torch.float16}
    return Launch(activate_backward_kernel, types, constants)


def activate(inner: Tensor, bias: Tensor, dtype: torch.dtype, alpha: float, limit: float) -> Tensor:
    """`helpers.kernels.swiglu.activate`."""
    rows, width = inner.shape
    inside = torch.empty(rows, width // 2, dtype=dtype, device=inner.device)
    launch = activate_launch(dtype, width // 2)
    launch((rows, triton.cdiv(width // 2, _COLUMNS)), inner, bias, inside, alpha, limit)
    return inside


def activate_backward(
    inner: Tensor, bias: Tensor, to_inside: Tensor, factors: Tensor, dtype: torch.dtype, alpha: float, limit: float,
    products: Tensor, scales: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`helpers.kernels.swiglu.activate_backward`; `inner` becomes its own gradient."""
    inside = torch.empty_like(to_inside)
    operands = torch.empty_like(inner, dtype=dtype)
    launch = activate_backward_launch(dtype, inner.shape[1] // 2)
    launch((len(inner),), inner, bias, to_inside, factors, inside, operands, products, scales, alpha, limit)
    return inside, inner, operands

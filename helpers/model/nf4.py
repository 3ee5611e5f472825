"""Attention projections in bitsandbytes NF4, double quantisation included. Needs bitsandbytes."""

import bitsandbytes as bnb
import torch
from torch import Tensor, nn

from helpers.kernels.linear import frozen_linear


class NF4Linear(bnb.nn.Linear4bit):
    """For 16-bit arithmetic: unpacked for each product, whose sums are fp32. out_dtype: of the result."""

    out_dtype = None

    def forward(self, x: Tensor) -> Tensor:
        return frozen_linear(x, self.unpacked, self.bias, self.out_dtype)

    def unpacked(self) -> Tensor:
        """[in, out] in the operands' dtype."""
        dense = bnb.functional.dequantize_4bit(self.weight.data, self.weight.quant_state)
        return dense.to(self.compute_dtype).T


def nf4_linear(
    linear: nn.Linear, weight: Tensor, bias: Tensor, dtype: torch.dtype, out_dtype: torch.dtype | None
) -> nn.Module:
    """A layer in the place of `linear`, its weight [out, in] quantised on the device where it lies.

    In fp32 it is bitsandbytes' own layer, in 16 bits an `NF4Linear`.
    """
    kind = bnb.nn.Linear4bit if dtype == torch.float32 else NF4Linear
    packed = kind(linear.in_features, linear.out_features, True, dtype, quant_type="nf4", device="meta")
    packed.weight = bnb.nn.Params4bit(weight.to(dtype), requires_grad=False, quant_type="nf4", module=packed)
    packed.bias = nn.Parameter(bias, requires_grad=False)
    packed.out_dtype = out_dtype
    # With it, one forward without gradients repacks the weight and cuts the gradient for good.
    packed.support_avx512bf16_for_cpu = False
    return packed.to(weight.device)


def unpack_nf4(linear: nn.Module) -> Tensor:
    """The fp32 weight [out, in] that an NF4 layer stands for."""
    return bnb.functional.dequantize_4bit(linear.weight.data, linear.weight.quant_state).float()

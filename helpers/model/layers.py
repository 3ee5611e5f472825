"""Layers in the place of transformers' where the arithmetic is 16-bit: fp32 residual stream, 16-bit operands.

Norms, the router and the sinks are fp32 parameters, so they compute in fp32 as transformers writes
them; the modules here are the rest.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRotaryEmbedding

from helpers.kernels.linear import frozen_linear


class FrozenLinear(nn.Linear):
    """A frozen linear layer with a 16-bit weight and fp32 sums. out_dtype: of the result; None: fp32."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, out_dtype: torch.dtype | None = None):
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, "meta", dtype)
        self.out_dtype = out_dtype

    def forward(self, x: Tensor) -> Tensor:
        return frozen_linear(x, self.weight.T, self.bias, self.out_dtype)


class Embedding(nn.Embedding):
    """Rows in 16 bits, out in fp32: where the residual stream begins."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids).float()


class Int8Embedding(nn.Module):
    """An embedding [V, H] on the GPU in eight bits, each row with its own fp32 scale.

    For GPUs that cannot read host memory.
    """

    def __init__(self, weight: Tensor, device: torch.device | str):
        super().__init__()
        largest = weight.abs().amax(1, keepdim=True).float()
        scale = largest.clamp(min=1e-12) / 127  # [V, 1]
        self.register_buffer("weight", torch.empty(weight.shape, dtype=torch.int8, device=device))
        for rows, dense, step in zip(self.weight.split(4096), weight.split(4096), scale.split(4096)):
            rows.copy_((dense.float() / step).round())
        self.register_buffer("scale", scale.to(device))

    def unpacked(self) -> Tensor:
        """fp32 [V, H], what the rows stand for."""
        return self.weight.float() * self.scale

    def forward(self, ids: Tensor) -> Tensor:
        codes = F.embedding(ids, self.weight).float()
        return codes * F.embedding(ids, self.scale)


class RotaryEmbedding(GptOssRotaryEmbedding):
    """Angles computed in fp32 and given out in the operands' dtype, so that rotated keys are cached in 16 bits."""

    def __init__(self, config, dtype: torch.dtype):
        super().__init__(config)
        self.dtype = dtype

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super().forward(x, position_ids)
        return cos.to(self.dtype), sin.to(self.dtype)

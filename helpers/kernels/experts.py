"""The mixture of experts of one layer, over packed or dense weights, with LoRA on both matrices.

A token's output is the sum over its experts of weight * expert(token), where

    expert(x) = down(swiglu(gate_up(x)))

and each of the two products is x W + bias + scaling * B A x with an adapter, x W + bias without.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.kernels.linear import WIDE, frozen_linear
from helpers.kernels.mxfp4 import GROUP, quantize, unpack

if TYPE_CHECKING:
    from helpers.kernels.mxfp4_triton import Workspace

#: Up to so many tokens the packed bytes are multiplied as they are; above, an expert is unpacked first.
DECODE_TOKENS = 64
#: On the CPU, up to so many pairs of a token and an expert the adapters of all experts are multiplied together.
FEW_PAIRS = 128


class Packed(NamedTuple):
    """One MXFP4 matrix of every expert: blocks uint8 [E, out, in/32, 16], scales uint8 [E, out, in/32]."""

    blocks: Tensor
    scales: Tensor

    @classmethod
    def from_dense(cls, weight: Tensor) -> "Packed":
        """Pack a dense weight [E, in, out], which rounds it; one expert at a time. Errors as in `quantize`."""
        blocks = []
        scales = []
        for index in range(len(weight)):
            packed = quantize(weight[index : index + 1])
            blocks.append(packed[0])
            scales.append(packed[1])
        return cls(torch.cat(blocks), torch.cat(scales))

    def expert(self, index: int, dtype: torch.dtype) -> Tensor:
        """Dense `dtype` [in, out] of one expert, a view whose columns are contiguous."""
        blocks = self.blocks[index]
        scales = self.scales[index]
        if blocks.is_cuda:
            from helpers.kernels import mxfp4_triton

            return mxfp4_triton.unpack(blocks, scales, dtype).T
        return unpack(blocks, scales, dtype).T

    def dense(self, dtype: torch.dtype) -> Tensor:
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

    gate_up: Packed | Tensor
    gate_up_bias: Tensor
    down: Packed | Tensor
    down_bias: Tensor
    dtype: torch.dtype
    alpha: float = 1.702
    limit: float = 7.0

    def matrices(self, index: int) -> tuple[Tensor, Tensor]:
        """`(gate_up [H, 2I], down [I, H])` of one expert; the only dense copy there is of packed ones."""
        return self._matrix(self.gate_up, index), self._matrix(self.down, index)

    def _matrix(self, stack: Packed | Tensor, index: int) -> Tensor:
        return stack.expert(index, self.dtype) if isinstance(stack, Packed) else stack[index]


class ExpertLora(NamedTuple):
    """fp32 adapters: gate_up_A [E, r, H], gate_up_B [E, 2I, r], down_A [E, r, I], down_B [E, H, r]."""

    gate_up_A: Tensor
    gate_up_B: Tensor
    down_A: Tensor
    down_B: Tensor
    scaling: float

    @property
    def matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four trainable tensors, in the order of the fields."""
        return self[:4]


def swiglu(gate_up: Tensor, alpha: float, limit: float) -> Tensor:
    """gpt-oss's gate on interleaved columns [..., 2I] -> [..., I] (model card, 2025, section 2.2)."""
    gate = gate_up[..., ::2].clamp(max=limit)
    up = gate_up[..., 1::2].clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def expert_forward(
    hidden: Tensor, indices: Tensor, weights: Tensor, experts: ExpertWeights, lora: ExpertLora | None = None
) -> Tensor:
    """Compute the routed experts of one layer: the sum over a token's experts of weight * expert(token).

    Args:
        hidden: float [T, H].
        indices: int64 [T, K], the experts of each token, all different.
        weights: float [T, K], the router's.
        experts: the frozen weights.
        lora: the adapter, or None.

    Returns: fp32 [T, H] (fp64 for fp64 experts), with gradients in hidden, weights and lora. Only
    experts that were hit are read. On a GPU, up to `DECODE_TOKENS` tokens without gradients are
    computed from the packed bytes, without a host synchronisation; else one expert at a time is
    unpacked, again in the backward pass. Raises ValueError for shapes that do not fit.
    """
    _check_shapes(hidden, indices, weights, experts, lora)
    adapters = lora.matrices if lora else ()
    is_packed_on_gpu = isinstance(experts.gate_up, Packed) and hidden.is_cuda
    if is_packed_on_gpu and len(hidden) <= DECODE_TOKENS and not _needs_gradient(hidden, weights, *adapters):
        from helpers.kernels import mxfp4_triton

        workspace = workspace_for(experts, len(hidden), indices.shape[1])
        return mxfp4_triton.decode(hidden, indices, weights, experts, lora, workspace)
    scaling = lora.scaling if lora else 0.0
    return _Experts.apply(hidden, weights, indices, experts, scaling, *adapters)


def routed_forward(
    hidden: Tensor,
    indices: Tensor,
    weights: Tensor,
    experts: ExpertWeights,
    lora: ExpertLora | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """`expert_forward` without gradients, for a rollout: the same arguments and result.

    workspace: for packed experts on a GPU, the buffers of `workspace_for`. With it nothing is allocated and the host
    never waits for the GPU, so the call can be captured in a CUDA graph. Dense fp32 experts are multiplied in one
    grouped product a matrix; other experts as `expert_forward` does it.
    """
    if workspace is not None:
        from helpers.kernels import mxfp4_triton

        return mxfp4_triton.decode(hidden, indices, weights, experts, lora, workspace)
    if runs_grouped(experts):
        return _grouped_forward(hidden, indices, weights, experts, lora)
    return expert_forward(hidden, indices, weights, experts, lora)


def runs_grouped(experts: ExpertWeights) -> bool:
    """True for dense fp32 experts on the CPU, whose products are grouped: the host reads no size from a tensor."""
    gate_up = experts.gate_up
    return isinstance(gate_up, Tensor) and gate_up.dtype == torch.float32 and not gate_up.is_cuda


def workspace_for(experts: ExpertWeights, tokens: int, top_k: int) -> "Workspace | None":
    """Allocate the buffers that `routed_forward` takes for so many tokens; None where it takes none."""
    is_packed_on_gpu = isinstance(experts.gate_up, Packed) and experts.gate_up.blocks.is_cuda
    if not is_packed_on_gpu or tokens > DECODE_TOKENS:
        return None
    from helpers.kernels import mxfp4_triton

    return mxfp4_triton.Workspace.allocate(tokens, top_k, experts)


def _grouped_forward(hidden, indices, weights, experts, lora):
    """The routed experts with the tokens of each next to each other: one grouped product a matrix."""
    count = len(experts.down_bias)
    expert_of_pair, pairs = indices.flatten().sort(stable=True)  # [P], P = T * K
    tokens = pairs // indices.shape[1]
    numbers = torch.arange(count)
    ends = torch.searchsorted(expert_of_pair, numbers, right=True).int()  # of each expert's pairs, [E]
    is_own = (expert_of_pair[:, None] == numbers).float()  # [P, E]

    x = hidden[tokens]  # [P, H]
    wide = F.grouped_mm(x, experts.gate_up, offs=ends)  # [P, 2I]
    wide.addmm_(is_own, experts.gate_up_bias)
    if lora:
        _add_low_rank(wide, x, lora.gate_up_A, lora.gate_up_B, is_own, ends, lora.scaling)
    inside = swiglu(wide, experts.alpha, experts.limit)  # [P, I]
    out = F.grouped_mm(inside, experts.down, offs=ends)  # [P, H]
    out.addmm_(is_own, experts.down_bias)
    if lora:
        _add_low_rank(out, inside, lora.down_A, lora.down_B, is_own, ends, lora.scaling)
    out *= weights.flatten()[pairs, None]
    return torch.zeros_like(hidden).index_add_(0, tokens, out)


def _add_low_rank(out, x, a, b, is_own, ends, scaling):
    """Add scaling * B A x to out, with the A [E, r, in] and B [E, out, r] of each row's own expert, in place.

    x: [P, in], sorted by expert. out: [P, out]. is_own: fp32 [P, E], 1 or 0. ends: int32 [E], of each expert's rows.
    For few rows one product with the A of all experts and one with all B, where the other experts' part is zero, take
    less time than a product an expert.
    """
    rank = a.shape[1]
    if len(x) > FEW_PAIRS and rank % 4 == 0:  # a grouped product wants rows of whole 16 bytes
        low = F.grouped_mm(x, a.mT, offs=ends)  # [P, r]
        out.add_(F.grouped_mm(low, b.mT, offs=ends), alpha=scaling)
        return
    low = x @ a.flatten(0, 1).T  # [P, E * r]
    low = low.unflatten(1, (-1, rank)) * is_own[:, :, None]  # [P, E, r]
    all_b = b.transpose(1, 2).flatten(0, 1)  # [E * r, out]
    out.addmm_(low.flatten(1), all_b, alpha=scaling)


def _needs_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _check_shapes(hidden, indices, weights, experts, lora):
    """Raise ValueError unless tokens, routing, weights and adapter fit each other."""
    width = experts.down_bias.shape[1]
    if hidden.ndim != 2 or hidden.shape[1] != width or indices.shape != weights.shape or len(indices) != len(hidden):
        raise ValueError(
            f"hidden must be [T, {width}], indices and weights [T, K], "
            f"got {list(hidden.shape)}, {list(indices.shape)} and {list(weights.shape)}"
        )
    for name, tensor, shape in _expected_shapes(experts, lora):
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must be {list(shape)}, got {list(tensor.shape)}")


def _expected_shapes(experts: ExpertWeights, lora: ExpertLora | None) -> Iterator[tuple[str, Tensor, tuple]]:
    """Yield `(name, tensor, the shape it must have)` for every matrix of the experts and of the adapter."""
    count, gate_up_width = experts.gate_up_bias.shape
    width = experts.down_bias.shape[1]
    sizes = {"gate_up": (width, gate_up_width), "down": (gate_up_width // 2, width)}
    for name, (wide, out) in sizes.items():
        matrix = getattr(experts, name)
        if isinstance(matrix, Packed):
            groups = (count, out, wide // GROUP)
            yield f"{name} blocks", matrix.blocks, (*groups, GROUP // 2)
            yield f"{name} scales", matrix.scales, groups
        else:
            yield name, matrix, (count, wide, out)
        if lora:
            rank = lora.gate_up_A.shape[1]
            yield f"{name}_A", getattr(lora, f"{name}_A"), (count, rank, wide)
            yield f"{name}_B", getattr(lora, f"{name}_B"), (count, out, rank)


class _Experts(torch.autograd.Function):
    """Expert by expert; the backward pass unpacks and computes each expert once more, so that
    nothing of its inside is kept between the passes."""

    @staticmethod
    def forward(ctx, hidden, weights, indices, experts, scaling, *adapters):
        ctx.save_for_backward(hidden, weights, indices, *adapters)
        ctx.experts = experts
        ctx.scaling = scaling
        pair_weights = weights.flatten()  # [T * K]
        out = torch.zeros(hidden.shape, dtype=experts.down_bias.dtype, device=hidden.device)
        for expert, tokens, pairs in _segments(indices, len(experts.down_bias)):
            lora = [adapter[expert] for adapter in adapters]
            part = _one_expert(hidden[tokens], pair_weights[pairs], expert, experts, scaling, *lora)
            out.index_add_(0, tokens, part)
        return out

    @staticmethod
    def backward(ctx, grad):
        hidden, weights, indices, *adapters = ctx.saved_tensors
        pair_weights = weights.flatten()  # [T * K]
        grad_hidden = torch.zeros_like(hidden, dtype=grad.dtype)
        grad_weights = torch.zeros_like(pair_weights, dtype=grad.dtype)
        grad_adapters = [torch.zeros_like(adapter, dtype=grad.dtype) for adapter in adapters]
        for expert, tokens, pairs in _segments(indices, len(ctx.experts.down_bias)):
            inputs = [hidden[tokens], pair_weights[pairs], *(adapter[expert] for adapter in adapters)]
            leaves = [tensor.detach().requires_grad_() for tensor in inputs]
            x, weight, *lora = leaves
            with torch.enable_grad():
                part = _one_expert(x, weight, expert, ctx.experts, ctx.scaling, *lora)
            to_x, to_weight, *to_lora = torch.autograd.grad(part, leaves, grad[tokens])
            del part  # it holds this expert's dense matrices
            grad_hidden.index_add_(0, tokens, to_x.to(grad.dtype))
            grad_weights[pairs] = to_weight.to(grad.dtype)
            for total, gradient in zip(grad_adapters, to_lora):
                total[expert] = gradient
        adapter_gradients = [total.to(adapter.dtype) for total, adapter in zip(grad_adapters, adapters)]
        grad_weights = grad_weights.view_as(weights).to(weights.dtype)
        return grad_hidden.to(hidden.dtype), grad_weights, None, None, None, *adapter_gradients


def _segments(indices: Tensor, count: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield `(expert, tokens, pairs)` for every expert that was hit: its tokens, and where they stand in `indices`.

    indices: int64 [T, K]. Pair number n is place n of the flattened indices.
    """
    flat = indices.flatten()
    order = flat.argsort(stable=True)
    sizes = torch.bincount(flat, minlength=count).tolist()
    for expert, pairs in enumerate(order.split(sizes)):
        if len(pairs):
            yield expert, pairs // indices.shape[1], pairs


def _one_expert(x, weight, expert, experts, scaling, *lora):
    """weight * expert(x) for the tokens [n, H] of one expert, fp32 [n, H]. weight: [n]."""
    gate_up, down = experts.matrices(expert)
    wide = _adapted(x, gate_up, experts.gate_up_bias[expert], scaling, lora[:2])  # [n, 2I]
    inside = swiglu(wide, experts.alpha, experts.limit)  # [n, I]
    if experts.dtype not in WIDE:  # rounded as decoding rounds it, for A too; the gradient stays fp32
        rounded = inside.to(experts.dtype).to(inside.dtype)
        inside = inside + (rounded - inside).detach()
    out = _adapted(inside, down, experts.down_bias[expert], scaling, lora[2:])  # [n, H]
    return out * weight[:, None]


def _adapted(x, matrix, bias, scaling, lora):
    """x matrix + bias + scaling B A x; the low-rank part in the adapter's fp32."""
    out = frozen_linear(x, matrix, bias)
    if not lora:
        return out
    a, b = lora
    return torch.addmm(out, x.to(a.dtype) @ a.T, b.T, alpha=scaling)

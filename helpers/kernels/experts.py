"""The mixture of experts of one layer, over packed or dense weights, with LoRA on both matrices.

A token's output is the sum over its experts of weight * expert(token), where

    expert(x) = down(swiglu(gate_up(x)))

and each of the two products is x W + bias + scaling * B A x with an adapter, x W + bias without.
"""

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.kernels.linear import row_scale, wide_mm
from helpers.kernels.mxfp4 import GROUP, quantize, unpack
from helpers.kernels.swiglu import activate, activate_backward, swiglu

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

    workspace: for packed experts on a GPU, the buffers of `workspace_for`. With it the host never waits for the GPU and
    every size depends on the shapes alone, so the call can be captured in a CUDA graph. Dense fp32 experts are
    multiplied in one grouped product a matrix; other experts as `expert_forward` does it.
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


_is_recomputing = ContextVar("_is_recomputing", default=False)


class Recomputing:
    """Context: tells `expert_forward` that a checkpointed layer runs again, only for its saved tensors.

    The experts add their output to the residual stream at the end of the layer, and no gradient needs that sum. So they
    are not computed again: their output is NaN here, which a gradient that did need it would show. A second backward
    pass through the same graph enters the same context again.
    """

    def __enter__(self) -> None:
        self._token = _is_recomputing.set(True)

    def __exit__(self, *_: object) -> None:
        _is_recomputing.reset(self._token)


class _Pairs(NamedTuple):
    """The pairs (token, expert) of a layer in the order of their experts; P = T * K.

    order: int64 [P], the place of each pair in the flattened indices. tokens, experts: int64 [P], of each pair. sizes:
    pairs of each expert. top_k: experts of a token, K.
    """

    order: Tensor
    tokens: Tensor
    experts: Tensor
    sizes: list[int]
    top_k: int

    def segments(self) -> Iterator[tuple[int, slice]]:
        """Yield `(expert, its pairs)` for every expert that was hit."""
        end = 0
        for expert, size in enumerate(self.sizes):
            start = end
            end += size
            if size:
                yield expert, slice(start, end)

    def sums(self, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """The sum [T, D] over each token's experts of values [P, D], times weights [T, K] if given.

        In a fixed order, so that a GPU gives the same bits each time.
        """
        inverse = torch.empty_like(self.order)
        inverse[self.order] = torch.arange(len(inverse), device=inverse.device)
        total = 0
        for number, places in enumerate(inverse.view(-1, self.top_k).T):
            of_token = values[places]  # [T, D], of one expert of each token
            total = total + (of_token if weights is None else of_token * weights[:, number, None])
        return total


def sort_pairs(indices: Tensor, count: int) -> _Pairs:
    """Sort the pairs of indices [T, K] by their expert, of which there are `count`. The host waits once."""
    experts, order = indices.flatten().sort(stable=True)
    top_k = indices.shape[1]
    return _Pairs(order, order // top_k, experts, read_sizes(experts, count), top_k)


def read_sizes(expert_of_pair: Tensor, count: int) -> list[int]:
    """How many pairs each expert has, from a sorted int64 [P]."""
    numbers = torch.arange(count, device=expert_of_pair.device)
    ends = torch.searchsorted(expert_of_pair, numbers, right=True).tolist()
    return [end - start for start, end in zip([0, *ends], ends)]


class _Experts(torch.autograd.Function):
    """Expert by expert, over the pairs sorted by expert. The backward pass unpacks each expert and computes its inside
    once more, so that nothing of it is kept between the passes."""

    @staticmethod
    def forward(ctx, hidden, weights, indices, experts, scaling, *adapters):
        ctx.save_for_backward(hidden, weights, indices, *adapters)
        ctx.experts = experts
        ctx.scaling = scaling
        wide = experts.down_bias.dtype
        if _is_recomputing.get():
            return torch.full_like(hidden, torch.nan, dtype=wide)
        ctx.pairs = sort_pairs(indices, len(experts.down_bias))
        with torch.autocast(hidden.device.type, enabled=False):  # it would round what is fp32 here
            return _forward(hidden, weights, indices, ctx.pairs, experts, _lora(adapters, scaling))

    @staticmethod
    def backward(ctx, grad):
        hidden, weights, indices, *adapters = ctx.saved_tensors
        lora = _lora(adapters, ctx.scaling)
        with torch.autocast(hidden.device.type, enabled=False):
            gradients = _backward(grad, hidden, weights, indices, ctx.pairs, ctx.experts, lora)
        to_hidden, to_weights, *to_adapters = gradients
        to_adapters = [gradient.to(adapter.dtype) for gradient, adapter in zip(to_adapters, adapters)]
        return to_hidden.to(hidden.dtype), to_weights.to(weights.dtype), None, None, None, *to_adapters


def _lora(adapters: Sequence[Tensor], scaling: float) -> ExpertLora | None:
    return ExpertLora(*adapters, scaling) if adapters else None


def _forward(
    hidden: Tensor, weights: Tensor, indices: Tensor, pairs: _Pairs, experts: ExpertWeights, lora: ExpertLora | None
) -> Tensor:
    """`expert_forward` without autograd; [T, H] in the dtype of the biases."""
    wide = experts.down_bias.dtype
    operands = hidden.to(experts.dtype)
    z = _low_rank_of_tokens(hidden, pairs, lora)
    outside = torch.empty(len(pairs.tokens), hidden.shape[1], dtype=wide, device=hidden.device)
    for expert, rows in pairs.segments():
        gate_up, down = experts.matrices(expert)
        inner = wide_mm(operands[pairs.tokens[rows]], gate_up)  # [n, 2I]
        if lora:
            inner.addmm_(z[rows], lora.gate_up_B[expert].T)
        inside = activate(inner, experts.gate_up_bias[expert], experts.dtype, experts.alpha, experts.limit)  # [n, I]
        y = wide_mm(inside, down, out=outside[rows])
        if lora:
            low = inside.to(lora.down_A.dtype) @ lora.down_A[expert].T  # [n, r]
            y.addmm_(low, lora.down_B[expert].T, alpha=lora.scaling)
        del gate_up, down  # before the next expert is unpacked
    weights = weights.to(wide)
    biases = _over_experts(weights, indices, len(experts.down_bias)) @ experts.down_bias
    return biases + pairs.sums(outside, weights)


def _backward(
    grad: Tensor,
    hidden: Tensor,
    weights: Tensor,
    indices: Tensor,
    pairs: _Pairs,
    experts: ExpertWeights,
    lora: ExpertLora | None,
) -> tuple[Tensor, ...]:
    """Gradients in hidden, weights and the adapter's four matrices, for a gradient [T, H] of the output.

    With h = swiglu(gate_up(x)) and g the gradient of a token, a pair of weight w gives

        d h = w * down' g        d w = <down(h), g> = <h, down' g> + <bias, g>

    so the second product of the forward pass is not needed again. 16-bit operands are scaled row by row to be within
    the range of fp16; what is computed from a token's scaled gradient is marked "scaled".
    """
    wide = grad.dtype
    factors = weights.to(wide).flatten()[pairs.order]  # [P]
    scaled_grad = grad
    scale_of_pair = 1.0
    if experts.dtype == torch.float16:
        scales = row_scale(grad)  # [T, 1]
        scaled_grad = grad / scales
        scale_of_pair = scales[pairs.tokens, 0]  # [P]
        factors = factors * scale_of_pair

    operands = hidden.to(experts.dtype)
    z = _low_rank_of_tokens(hidden, pairs, lora)
    to_x = torch.empty(len(pairs.tokens), hidden.shape[1], dtype=wide, device=hidden.device)
    to_x_scales = torch.empty_like(factors)
    scaled_products = torch.empty_like(factors)  # <h, down' g>
    # of the three matrices whose gradients come expert by expert
    to_lora = ExpertLora(None, *(torch.zeros_like(matrix) for matrix in lora.matrices[1:]), 0.0) if lora else None
    to_z = torch.empty_like(z) if lora else None
    for expert, rows in pairs.segments():
        gate_up, down = experts.matrices(expert)
        tokens = pairs.tokens[rows]
        inner = wide_mm(operands[tokens], gate_up)  # [n, 2I]
        if lora:
            inner.addmm_(z[rows], lora.gate_up_B[expert].T)
        scaled = scaled_grad[tokens]  # [n, H]
        scaled_to_inside = wide_mm(scaled.to(experts.dtype), down.T)  # [n, I]
        if lora:
            low = scaled @ lora.down_B[expert]  # [n, r]
            scaled_to_inside.addmm_(low, lora.down_A[expert], alpha=lora.scaling)
        inside, to_inner, to_inner_operands = activate_backward(
            inner, experts.gate_up_bias[expert], scaled_to_inside, factors[rows], experts.dtype, experts.alpha,
            experts.limit, scaled_products[rows], to_x_scales[rows],
        )  # fmt: skip
        if lora:  # `inside` is h times factors here
            torch.mm(scaled.T, inside @ lora.down_A[expert].T, out=to_lora.down_B[expert])
            torch.mm(low.T, inside, out=to_lora.down_A[expert])
            torch.mm(to_inner.T, z[rows], out=to_lora.gate_up_B[expert])
            torch.mm(to_inner, lora.gate_up_B[expert], out=to_z[rows])
        wide_mm(to_inner_operands, gate_up.T, out=to_x[rows])
        del gate_up, down, scaled, inner, inside, to_inner, to_inner_operands  # before the next expert is unpacked
    del operands, scaled_grad

    biases = (grad @ experts.down_bias.T).gather(1, indices)  # <bias, g>, [T, K]
    to_weights = torch.empty_like(biases).flatten()
    to_weights[pairs.order] = scaled_products * scale_of_pair
    to_weights = to_weights.view_as(biases) + biases
    to_hidden = pairs.sums(to_x.mul_(to_x_scales[:, None]))
    if lora is None:
        return to_hidden, to_weights
    to_lora.down_A.mul_(lora.scaling)
    to_lora.down_B.mul_(lora.scaling)
    to_low = _low_rank_gradient(to_z, pairs, lora, len(hidden))
    to_hidden.addmm_(to_low, lora.gate_up_A.flatten(0, 1))
    to_gate_up_a = (to_low.T @ hidden.to(wide)).view_as(lora.gate_up_A)
    return to_hidden, to_weights, to_gate_up_a, *to_lora.matrices[1:]


def _low_rank_of_tokens(hidden: Tensor, pairs: _Pairs, lora: ExpertLora | None) -> Tensor | None:
    """scaling * A x of each pair's token and expert, [P, r], for the first matrix; None without an adapter.

    All experts' A are multiplied in one product: they are thin.
    """
    if lora is None:
        return None
    a = lora.gate_up_A
    low = hidden.to(a.dtype) @ a.flatten(0, 1).T  # [T, E * r]
    return low.unflatten(1, a.shape[:2])[pairs.tokens, pairs.experts] * lora.scaling


def _low_rank_gradient(to_z: Tensor, pairs: _Pairs, lora: ExpertLora, tokens: int) -> Tensor:
    """The gradient [T, E * r] of A x of every token and expert, from that of `_low_rank_of_tokens` [P, r]."""
    count, rank, _ = lora.gate_up_A.shape
    to_low = torch.zeros(tokens, count, rank, dtype=to_z.dtype, device=to_z.device)
    to_low[pairs.tokens, pairs.experts] = to_z * lora.scaling
    return to_low.flatten(1)


def _over_experts(weights: Tensor, indices: Tensor, count: int) -> Tensor:
    """The weights [T, K] of each token's experts in their columns of [T, E]."""
    over_experts = torch.zeros(len(weights), count, dtype=weights.dtype, device=weights.device)
    return over_experts.scatter_(1, indices, weights)

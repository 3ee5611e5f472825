"""The Triton kernels over packed experts: multiply a few tokens, unpack one expert, fetch rows of a host table.

None of them uses `tl.dot`: below sm_80 Triton 3.4 to 3.9 compile it without tensor cores and with
spills. Decoding is bound by the bytes read, so plain multiply-adds suffice, and to multiply many
tokens an expert is unpacked and handed to cuBLAS. Every launch is described by `launches`, which
the ahead-of-time test compiles for each profile's GPUs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from helpers.kernels.mxfp4 import GROUP


@triton.jit
def _fp4(code):
    """E2M1 codes 0..15 -> fp32, times 2**-14: sign, exponent and mantissa moved to where fp16 has them."""
    bits = ((code & 8).to(tl.uint16) << 12) | ((code & 7).to(tl.uint16) << 9)
    return bits.to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _e8m0(byte):
    """Scale bytes 0..254 -> fp32 powers of two, exact; 0 is the subnormal 2**-127."""
    bits = tl.where(byte == 0, 0x00400000, byte.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _row_products(
    x, blocks, scales, rows, live, tokens, IN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BG: tl.constexpr
):
    """fp32 [BM, BN]: packed rows [BN] times tokens [BM], whose x is [N, 2, IN/2], even columns first."""
    GROUPS: tl.constexpr = IN // 32
    total = tl.zeros([BM, BN, BG], tl.float32)
    inside = tl.arange(0, 16)
    for start in range(0, GROUPS, BG):
        group = start + tl.arange(0, BG)
        good = group < GROUPS
        at = rows[:, None] * GROUPS + group[None, :]
        byte = tl.load(blocks + at[:, :, None] * 16 + inside[None, None, :], mask=good[None, :, None], other=0)
        scale = tl.load(scales + at, mask=good[None, :], other=0)
        column = group[:, None] * 16 + inside[None, :]
        seen = live[:, None, None] & good[None, :, None]
        even = tl.load(x + tokens[:, None, None] * IN + column[None], mask=seen, other=0.0).to(tl.float32)
        odd = tl.load(x + tokens[:, None, None] * IN + IN // 2 + column[None], mask=seen, other=0.0).to(tl.float32)
        product = _fp4(byte & 15)[None] * even[:, None] + _fp4(byte >> 4)[None] * odd[:, None]
        total += tl.sum(product, 3) * 16384.0 * _e8m0(scale)[None]
    return tl.sum(total, 2)


@triton.jit
def _low_rank(z, b, pairs, live, rows, R: tl.constexpr, RP: tl.constexpr):
    """fp32 [BM, BN]: z [P, R] of the pairs times rows of B [E * out, R]."""
    rank = tl.arange(0, RP)
    left = tl.load(z + pairs[:, None] * R + rank[None, :], mask=live[:, None] & (rank < R)[None, :], other=0.0)
    right = tl.load(b + rows[:, None] * R + rank[None, :], mask=(rank < R)[None, :], other=0.0)
    return tl.sum(left[:, None, :] * right[None, :, :], 2)


@triton.jit
def _adapted_rows(
    x, blocks, scales, bias, z, b, rows, tokens, pairs, live,
    IN: tl.constexpr, R: tl.constexpr, RP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """fp32 [BM, BN]: x W + bias + z B for packed rows [BN] of an expert."""
    y = _row_products(x, blocks, scales, rows, live, tokens, IN, BM, BN, BG) + tl.load(bias + rows)[None, :]
    if R > 0:
        y += _low_rank(z, b, pairs, live, rows, R, RP)
    return y


@triton.jit
def _slot(slot_pairs, BM: tl.constexpr, BN: tl.constexpr):
    """Of this program: the pairs [BM] of its slot, which places hold one, and its columns [BN]."""
    pairs = tl.load(slot_pairs + tl.program_id(1) * BM + tl.arange(0, BM))
    return pairs, pairs >= 0, tl.program_id(0) * BN + tl.arange(0, BN)


@triton.jit
def gate_up_kernel(
    x, blocks, scales, bias, slot_expert, slot_pairs, z, b, out, alpha, limit,
    IN: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """h[pair] = swiglu(x[token] W + bias + z B) for columns of one slot; out [P, 2, INNER/2], even columns first."""
    expert = tl.load(slot_expert + tl.program_id(1))
    if expert < 0:
        return
    pairs, live, column = _slot(slot_pairs, BM, BN)
    rows = expert * (2 * INNER) + 2 * tl.minimum(column, INNER - 1)
    tokens = pairs // K
    gate = _adapted_rows(x, blocks, scales, bias, z, b, rows, tokens, pairs, live, IN, R, RP, BM, BN, BG)
    up = _adapted_rows(x, blocks, scales, bias, z, b, rows + 1, tokens, pairs, live, IN, R, RP, BM, BN, BG)
    gate = tl.minimum(gate, limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    h = (up + 1) * gate / (1 + tl.exp(-alpha * gate))
    at = pairs[:, None] * INNER + (column % 2 * (INNER // 2) + column // 2)[None, :]
    tl.store(out + at, h.to(out.dtype.element_ty), mask=live[:, None] & (column < INNER)[None, :])


@triton.jit
def down_kernel(
    h, blocks, scales, bias, slot_expert, slot_pairs, z, b, out,
    IN: tl.constexpr, OUT: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """out[pair] = h[pair] W + bias + z B, fp32 [P, OUT], for columns of one slot."""
    expert = tl.load(slot_expert + tl.program_id(1))
    if expert < 0:
        return
    pairs, live, column = _slot(slot_pairs, BM, BN)
    rows = expert * OUT + tl.minimum(column, OUT - 1)
    y = _adapted_rows(h, blocks, scales, bias, z, b, rows, pairs, pairs, live, IN, R, RP, BM, BN, BG)
    tl.store(out + pairs[:, None] * OUT + column[None, :], y, mask=live[:, None] & (column < OUT)[None, :])


@triton.jit
def unpack_kernel(blocks, scales, out, groups, BG: tl.constexpr):
    """Dense values of packed groups: out [groups * 32]."""
    group = tl.program_id(0) * BG + tl.arange(0, BG)
    good = group < groups
    inside = tl.arange(0, 16)
    byte = tl.load(blocks + group[:, None] * 16 + inside[None, :], mask=good[:, None], other=0)
    scale = (_e8m0(tl.load(scales + group, mask=good, other=0)))[:, None]
    values = tl.join(_fp4(byte & 15) * 16384.0 * scale, _fp4(byte >> 4) * 16384.0 * scale)  # [BG, 16, 2]
    at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + at, tl.reshape(values, [BG, 32]).to(out.dtype.element_ty), mask=good[:, None])


@triton.jit
def gather_kernel(ids, table, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """out[n] = table[ids[n]], fp32; the table may be pinned host memory."""
    row = tl.program_id(0)
    source = tl.load(ids + row).to(tl.int64) * WIDTH
    for start in range(0, WIDTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(table + source + column, mask=column < WIDTH, other=0.0)
        tl.store(out + row * WIDTH + column, value.to(tl.float32), mask=column < WIDTH)


class Launch(NamedTuple):
    """One compiled form of a kernel: types of its run-time arguments, its constants, warps and stages."""

    kernel: object
    types: dict
    constants: dict
    warps: int = 4
    stages: int = 1  # there is no asynchronous copy on a T4

    def __call__(self, grid: tuple, *arguments) -> None:
        self.kernel[grid](*arguments, **self.constants, num_warps=self.warps, num_stages=self.stages)


#: Tokens of one expert that are multiplied together -> (columns, groups of 32) of a tile.
TILES = {1: (8, 16), 2: (8, 16), 4: (4, 16), 8: (4, 16)}
#: The largest number of tokens for which so many are multiplied together; above the last, 8.
_FEW_TOKENS = {1: 2, 2: 8, 4: 16}
#: Triton's names of the pointer types.
_NAMES = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}


def tokens_together(tokens: int) -> int:
    """How many tokens of one expert a slot holds: about what uniform routing over 32 experts sends to each."""
    for together, most in _FEW_TOKENS.items():
        if tokens <= most:
            return together
    return 8


def _products(kernel, bm: int, rank: int, dtype: torch.dtype, **sizes: int) -> Launch:
    """The launch of a kernel that multiplies packed rows, `bm` tokens of one expert at a time."""
    columns, groups = TILES[bm]
    types = {
        "blocks": "*u8", "scales": "*u8", "slot_expert": "*i32", "slot_pairs": "*i32",
        "bias": "*fp32", "z": "*fp32", "b": "*fp32",
    }  # fmt: skip
    tokens_name = kernel.arg_names[0]
    types[tokens_name] = _NAMES[dtype]
    rank_padded = triton.next_power_of_2(max(rank, 1))
    constants = {**sizes, "R": rank, "RP": rank_padded, "BM": bm, "BN": columns, "BG": groups}
    return Launch(kernel, types, constants)


def gate_up_launch(bm: int, rank: int, dtype: torch.dtype, hidden: int, inner: int, top_k: int) -> Launch:
    """`gate_up_kernel` for `bm` tokens a slot; rank 0: no adapter."""
    launch = _products(gate_up_kernel, bm, rank, dtype, IN=hidden, INNER=inner, K=top_k)
    return launch._replace(types=launch.types | {"out": _NAMES[dtype], "alpha": "fp32", "limit": "fp32"})


def down_launch(bm: int, rank: int, dtype: torch.dtype, hidden: int, inner: int) -> Launch:
    """`down_kernel` for `bm` tokens a slot; rank 0: no adapter."""
    launch = _products(down_kernel, bm, rank, dtype, IN=inner, OUT=hidden)
    return launch._replace(types=launch.types | {"out": "*fp32"})


def unpack_launch(dtype: torch.dtype) -> Launch:
    """`unpack_kernel` to dense values of `dtype`."""
    return Launch(unpack_kernel, {"blocks": "*u8", "scales": "*u8", "out": _NAMES[dtype], "groups": "i32"}, {"BG": 64})


def gather_launch(dtype: torch.dtype, width: int) -> Launch:
    """`gather_kernel` for a table of `dtype` with rows of `width` values."""
    types = {"ids": "*i64", "table": _NAMES[dtype], "out": "*fp32"}
    return Launch(gather_kernel, types, {"WIDTH": width, "BLOCK": 1024})


def launches(hidden: int, inner: int, top_k: int, rank: int, dtype: torch.dtype) -> Iterator[Launch]:
    """Every `Launch` that a model of these sizes uses, adapted with this rank or not."""
    for bm in TILES:
        for r in {0, rank}:
            yield gate_up_launch(bm, r, dtype, hidden, inner, top_k)
            yield down_launch(bm, r, dtype, hidden, inner)
    yield unpack_launch(dtype)
    yield gather_launch(dtype, hidden)


class Workspace(NamedTuple):
    """Buffers of `decode` for one number of tokens T; P = T * K pairs (token, expert), S slots of up to `bm` pairs.

    inside: between the two products, [P, 2, I / 2], even columns first. outside: fp32 [T, K, H], of each pair.
    The rest are numbers from 0: of pairs int32 [P, 1], of experts int64 [E], of slots int64 [S], and of the places in a
    slot int64 [bm].
    """

    inside: Tensor
    outside: Tensor
    pair_numbers: Tensor
    expert_numbers: Tensor
    slot_numbers: Tensor
    place_numbers: Tensor

    @classmethod
    def allocate(cls, tokens: int, top_k: int, experts: tuple) -> "Workspace":
        """experts: `helpers.kernels.experts.ExpertWeights`."""
        device = experts.down_bias.device
        count, width = experts.down_bias.shape
        inner = experts.gate_up_bias.shape[1] // 2
        pairs = tokens * top_k
        bm = tokens_together(tokens)
        most_slots = min(pairs, count + pairs // bm)
        return cls(
            inside=torch.empty(pairs, 2, inner // 2, dtype=experts.dtype, device=device),
            outside=torch.empty(tokens, top_k, width, device=device),
            pair_numbers=torch.arange(pairs, dtype=torch.int32, device=device)[:, None],
            expert_numbers=torch.arange(count, device=device),
            slot_numbers=torch.arange(most_slots, device=device),
            place_numbers=torch.arange(bm, device=device),
        )


def slots(indices: Tensor, workspace: Workspace) -> tuple[Tensor, Tensor]:
    """Sort pairs (token, expert) into slots of up to `bm` pairs of one expert, without a host synchronisation.

    indices: int64 [T, K]. Returns `(slot_expert int32 [S], slot_pairs int32 [S, bm])`, -1 where a
    slot or a place in it is empty; S depends on the shapes only.
    """
    flat = indices.flatten()  # [P], P = T * K
    bm = len(workspace.place_numbers)
    count = len(workspace.expert_numbers)
    if bm == 1:
        return flat.int(), workspace.pair_numbers

    # pairs and slots of each expert, [E]
    sizes = (flat[:, None] == workspace.expert_numbers).sum(0)
    needed = (sizes + bm - 1) // bm
    slot_ends = needed.cumsum(0)
    slot_starts = slot_ends - needed
    pair_starts = sizes.cumsum(0) - sizes

    # the expert of each slot, [S]; `count` stands for none
    slot = workspace.slot_numbers
    expert = torch.searchsorted(slot_ends, slot, right=True)
    is_used = expert < count
    owner = expert.clamp(max=count - 1)

    # which of its expert's pairs stands at each place, [S, bm]
    first = (slot - slot_starts[owner])[:, None] * bm
    within = first + workspace.place_numbers
    is_live = (within < sizes[owner][:, None]) & is_used[:, None]
    place = pair_starts[owner][:, None] + within
    by_expert = flat.argsort(stable=True)
    pairs = by_expert[place.clamp(max=len(flat) - 1)]

    slot_expert = expert.masked_fill(~is_used, -1).int()
    slot_pairs = pairs.masked_fill(~is_live, -1).int()
    return slot_expert, slot_pairs


def decode(
    hidden: Tensor, indices: Tensor, weights: Tensor, experts: tuple, lora: tuple | None, workspace: Workspace
) -> Tensor:
    """`helpers.kernels.experts.expert_forward` for a few tokens, without gradients.

    Arguments and result as there; experts: `ExpertWeights`, lora: `ExpertLora` or None. workspace: for as many tokens.
    """
    tokens, width = hidden.shape
    top_k = indices.shape[1]
    inner = experts.gate_up_bias.shape[1] // 2
    bm = len(workspace.place_numbers)
    rank = lora.gate_up_A.shape[1] if lora else 0
    slot_expert, slot_pairs = slots(indices, workspace)
    # z [T, K, r] is the low-rank part between A and B; without an adapter the kernels read neither
    z = b = experts.down_bias

    if lora:
        z = _low_rank_of(hidden[:, None], lora.gate_up_A, indices, lora.scaling)
        b = lora.gate_up_B
    x = hidden.to(experts.dtype).unflatten(-1, (-1, 2)).transpose(1, 2).contiguous()  # even columns first
    h = workspace.inside
    launch = gate_up_launch(bm, rank, experts.dtype, width, inner, top_k)
    grid = (triton.cdiv(inner, launch.constants["BN"]), len(slot_expert))
    launch(
        grid, x, *experts.gate_up, experts.gate_up_bias, slot_expert, slot_pairs, z, b, h, experts.alpha, experts.limit
    )

    if lora:
        in_order = h.transpose(1, 2).reshape(tokens, top_k, inner).float()
        z = _low_rank_of(in_order, lora.down_A, indices, lora.scaling)
        b = lora.down_B
    y = workspace.outside
    launch = down_launch(bm, rank, experts.dtype, width, inner)
    grid = (triton.cdiv(width, launch.constants["BN"]), len(slot_expert))
    launch(grid, h, *experts.down, experts.down_bias, slot_expert, slot_pairs, z, b, y)
    return (y * weights.float()[..., None]).sum(1)


def _low_rank_of(x: Tensor, a: Tensor, indices: Tensor, scaling: float) -> Tensor:
    """scaling * A x of each pair, fp32 [T, K, r]: x [T, K or 1, in] against the A [E, r, in] of its expert.

    All experts' A are multiplied, in one product: for gpt-oss-20b at rank 4 they are 1.5 MB, a packed expert 13.
    """
    count, rank, _ = a.shape
    tokens, top_k = indices.shape
    products = x.float() @ a.flatten(0, 1).T  # [T, K or 1, E * r]
    by_expert = products.view(tokens, -1, count, rank).expand(-1, top_k, -1, -1)
    chosen = indices[..., None, None].expand(-1, -1, 1, rank)
    return by_expert.gather(2, chosen).squeeze(2).mul(scaling).contiguous()


def unpack(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Dense `dtype` [out, in] of one packed matrix, blocks [out, in/32, 16] and scales [out, in/32]."""
    assert blocks.is_contiguous() and scales.is_contiguous()
    groups = scales.numel()
    out = torch.empty(len(blocks), blocks.shape[1] * GROUP, dtype=dtype, device=blocks.device)
    launch = unpack_launch(dtype)
    grid = (triton.cdiv(groups, launch.constants["BG"]),)
    launch(grid, blocks, scales, out, groups)
    return out


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """fp32 [..., W]: rows of a table [V, W] that may lie in pinned host memory; nothing waits for the host."""
    width = table.shape[1]
    out = torch.empty(*ids.shape, width, dtype=torch.float32, device=ids.device)
    gather_launch(table.dtype, width)((ids.numel(),), ids.contiguous(), table, out)
    return out

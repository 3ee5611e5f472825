"""Small Triton kernels of a decoding step, each in the place of many small operations.

A captured step pays some microseconds for every kernel, however little it does. Every launch is described by a
function that ends in `_launch`; `helpers.kernels.launches` lists them for the ahead-of-time test.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from helpers.kernels.launch import POINTERS, Launch, power_of_two

#: Pairs that `slots_kernel` counts at a time.
_PAIRS_AT_ONCE = 32
#: Rows of A, and values of each, that a program of `low_rank_kernel` multiplies at a time.
_RANKS, _COLUMNS = 4, 512


@triton.jit(do_not_specialize=["pairs"])
def slots_kernel(
    indices, slot_expert, slot_pairs, pairs,
    PP: tl.constexpr, CHUNK: tl.constexpr, E: tl.constexpr, EP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """One slot: its expert, and which of the expert's pairs it holds, in their order. Grid: slots.

    indices: int64 [pairs], the expert of each pair; PP: their number, padded. An expert with n pairs has ceil(n / BM)
    slots in a row. -1 stands for an empty slot or place.
    """
    slot = tl.program_id(0)
    expert = tl.arange(0, EP)
    sizes = tl.zeros([EP], tl.int32)
    for start in range(0, PP, CHUNK):
        some = start + tl.arange(0, CHUNK)
        expert_of_some = tl.load(indices + some, mask=some < pairs, other=EP).to(tl.int32)
        sizes += tl.sum((expert_of_some[:, None] == expert[None, :]).to(tl.int32), 0)
    slot_counts = (sizes + BM - 1) // BM
    slot_ends = tl.cumsum(slot_counts, 0)

    own = tl.sum((slot_ends <= slot).to(tl.int32), 0)  # the expert of this slot; EP if it is empty
    is_own = expert == own
    first_slot = tl.sum(tl.where(is_own, slot_ends - slot_counts, 0), 0)
    size = tl.sum(tl.where(is_own, sizes, 0), 0)
    skipped = (slot - first_slot) * BM  # pairs of this expert in the slots before

    pair = tl.arange(0, PP)
    expert_of_pair = tl.load(indices + pair, mask=pair < pairs, other=EP + 1).to(tl.int32)
    is_chosen = expert_of_pair == own
    place = tl.cumsum(is_chosen.to(tl.int32), 0) - 1 - skipped
    tl.store(slot_pairs + slot * BM + place, pair, mask=is_chosen & (place >= 0) & (place < BM))
    every_place = tl.arange(0, BM)
    nothing = tl.full([BM], -1, tl.int32)
    tl.store(slot_pairs + slot * BM + every_place, nothing, mask=skipped + every_place >= size)
    tl.store(slot_expert + slot, tl.where(own < E, own, -1))


def slots_launch(pairs: int, experts: int, bm: int) -> Launch:
    """`slots_kernel` for so many pairs, experts, and places in a slot; the same for numbers of pairs that are alike."""
    types = {"indices": "*i64", "slot_expert": "*i32", "slot_pairs": "*i32", "pairs": "i32"}
    padded = max(power_of_two(pairs), _PAIRS_AT_ONCE)
    constants = {
        "PP": padded, "CHUNK": _PAIRS_AT_ONCE, "E": experts, "EP": power_of_two(experts), "BM": bm,
    }  # fmt: skip
    return Launch(slots_kernel, types, constants)


@triton.jit
def place_in_eighths(column, WIDTH: tl.constexpr):
    """Where a column of a row [WIDTH] stands when the row is kept as [8, WIDTH/8], with column 8 w + j at [j, w]."""
    return column % 8 * (WIDTH // 8) + column // 8


@triton.jit
def low_rank_kernel(
    x, a, indices, z, scaling,
    IN: tl.constexpr, K: tl.constexpr, R: tl.constexpr, RB: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """z[pair] = scaling * A[expert] x[pair // K], for RB rows of A. Grid: pairs, groups of RB rows.

    x: [N, IN], with SPLIT [N, 8, IN/8] and column 8 w + j at [j, w]. a: fp32 [E, R, IN]. z: fp32 [P, R].
    """
    pair = tl.program_id(0)
    rank = tl.program_id(1) * RB + tl.arange(0, RB)
    expert = tl.load(indices + pair)
    row = (expert * R + rank) * IN
    total = tl.zeros([RB, BK], tl.float32)
    for start in range(0, IN, BK):
        column = start + tl.arange(0, BK)
        is_inside = column < IN
        stands_at = column
        if SPLIT:
            stands_at = place_in_eighths(column, IN)
        value = tl.load(x + pair // K * IN + stands_at, mask=is_inside, other=0.0).to(tl.float32)
        weight = tl.load(a + row[:, None] + column[None, :], mask=(rank < R)[:, None] & is_inside[None, :], other=0.0)
        total += weight * value[None, :]
    tl.store(z + pair * R + rank, tl.sum(total, 1) * scaling, mask=rank < R)


def low_rank_launch(dtype: torch.dtype, width: int, pairs_per_row: int, rank: int, split: bool) -> Launch:
    """`low_rank_kernel` for x of `dtype` and `width` columns."""
    types = {"x": POINTERS[dtype], "a": "*fp32", "indices": "*i64", "z": "*fp32", "scaling": "fp32"}
    ranks = min(_RANKS, power_of_two(rank))
    constants = {"IN": width, "K": pairs_per_row, "R": rank, "RB": ranks, "BK": _COLUMNS, "SPLIT": split}
    return Launch(low_rank_kernel, types, constants)


def low_rank(x: Tensor, a: Tensor, indices: Tensor, scaling: float, *, split: bool) -> Tensor:
    """scaling * A x of each pair (token, expert), fp32 [P, r].

    x: [N, in], a row a token or a row a pair; split: [N, 8, in / 8], column 8 w + j at [j, w]. a: fp32 [E, r, in].
    indices: int64 [T, K].
    """
    pairs = indices.numel()
    rank = a.shape[1]
    width = a.shape[2]
    z = torch.empty(pairs, rank, device=x.device)
    launch = low_rank_launch(x.dtype, width, pairs * width // x.numel(), rank, split)
    grid = (pairs, triton.cdiv(rank, launch.constants["RB"]))
    launch(grid, x, a, indices, z, scaling)
    return z


@triton.jit
def rotate_kernel(
    qkv, cos, sin, positions, q, keys, values,
    HQ: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """One head of one row: rotate it and write it to q, or to its place in the cache. Grid: rows, heads.

    Every product and the sum are rounded to the dtype of the operands, as PyTorch rounds them.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    dim = tl.arange(0, D)
    source = qkv + (row * (HQ + 2 * HKV) + head) * D
    x = tl.load(source + dim)
    position = tl.load(positions + row)
    if head < HQ + HKV:
        exchanged = tl.load(source + (dim + D // 2) % D)
        turned = (x.to(tl.float32) * tl.load(cos + position * D + dim).to(tl.float32)).to(x.dtype)
        turned_other = (exchanged.to(tl.float32) * tl.load(sin + position * D + dim).to(tl.float32)).to(x.dtype)
        x = (turned.to(tl.float32) + turned_other.to(tl.float32)).to(x.dtype)
    if head < HQ:
        tl.store(q + (row * HQ + head) * D + dim, x)
    else:
        key_head = (head - HQ) % HKV
        place = 1 + position % CAPACITY  # of a layer with full attention no position is beyond its capacity
        to = ((row * HKV + key_head) * (1 + CAPACITY) + place) * D
        if head < HQ + HKV:
            tl.store(keys + to + dim, x)
        else:
            tl.store(values + to + dim, x)


def rotate_launch(dtype: torch.dtype, heads: int, key_heads: int, head_dim: int, capacity: int) -> Launch:
    """`rotate_kernel` for a cache of `capacity` positions a row."""
    types = dict.fromkeys(("qkv", "cos", "sin", "q", "keys", "values"), POINTERS[dtype]) | {"positions": "*i64"}
    constants = {"HQ": heads, "HKV": key_heads, "D": head_dim, "CAPACITY": capacity}
    return Launch(rotate_kernel, types, constants, warps=1)


def rotate_and_cache(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, keys: Tensor, values: Tensor, heads: int
) -> Tensor:
    """Rotate queries and keys, and write keys and values to the cache of one layer; one token a row.

    qkv: [B, Hq + 2 Hkv, D]. cos, sin: [length, D], as `helpers.rollout.weights.DecoderWeights` has them. positions:
    int64 [B]. keys, values: [rows, Hkv, 1 + capacity, D], the first B rows are written. Returns q [B, Hq, D].
    """
    batch, _, dim = qkv.shape
    key_heads = keys.shape[1]
    capacity = keys.shape[2] - 1
    q = torch.empty(batch, heads, dim, dtype=qkv.dtype, device=qkv.device)
    launch = rotate_launch(qkv.dtype, heads, key_heads, dim, capacity)
    launch((batch, heads + 2 * key_heads), qkv, cos, sin, positions, q, keys, values)
    return q

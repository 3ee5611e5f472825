"""The Triton kernels over packed experts: multiply a few tokens, unpack one expert, fetch rows of a host table.

Decoding is bound by the bytes read as long as few instructions are spent on each. Two forms of the products:

- Multiply-adds, for one or two tokens of an expert, and for any number below compute capability 8.0, where Triton 3.4
  to 3.9 compile `tl.dot` without tensor cores and with spills. Each thread keeps its own sums; threads exchange them
  once, after the loop.
- `tl.dot` from 8.0 on, for more tokens: an instruction of the tensor cores takes sixteen of them at once.

To multiply many tokens an expert is unpacked and handed to cuBLAS. `helpers.kernels.launches` lists every launch for
the ahead-of-time test.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from helpers.kernels.decode_triton import low_rank, place_in_eighths, slots_launch
from helpers.kernels.launch import POINTERS, Launch, power_of_two
from helpers.kernels.mxfp4 import GROUP
from helpers.kernels.swiglu_triton import swiglu


@triton.jit
def _low_fp4(byte):
    """E2M1 codes in the low four bits -> fp32, times 2**-14: sign, exponent and mantissa moved to an fp16's places."""
    wide = byte.to(tl.int32)
    bits = ((wide << 12) & 0x8000) | ((wide << 9) & 0x0E00)
    return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _e8m0(byte):
    """Scale bytes 0..254 -> fp32 powers of two, exact; 0 is the subnormal 2**-127."""
    bits = tl.where(byte == 0, 0x00400000, byte.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _pair_of_fp4(word, J: tl.constexpr):
    """Values J and J + 4 of a word of eight E2M1 codes -> fp32, times 2**-14.

    Both are moved at once to where the two halves of the word have an fp16's sign, exponent and mantissa.
    """
    signs = (word << (12 - 4 * J)) & 0x80008000
    if J < 3:
        magnitudes = (word << (9 - 4 * J)) & 0x0E000E00
    else:
        magnitudes = (word >> 3) & 0x0E000E00
    both = signs | magnitudes
    first = both.to(tl.uint16).to(tl.float16, bitcast=True)
    second = (both >> 16).to(tl.uint16).to(tl.float16, bitcast=True)
    return first.to(tl.float32), second.to(tl.float32)


@triton.jit
def _row_products(
    x, words, scales, rows, live, tokens,
    IN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """fp32 [BM, BN]: packed rows [BN] times tokens [BM].

    words: uint32 [rows, IN/8], eight columns each; a tile is BW words of each row. x: [N, 8, IN/8], column 8 w + j of a
    token at [j, w] (`place_in_eighths`).
    """
    WORDS: tl.constexpr = IN // 8
    if DOT:
        total = tl.zeros([BM, BN], tl.float32)
    else:
        total = tl.zeros([BM, BN, BW], tl.float32)  # every thread's own: no exchange inside the loop
    for start in range(0, WORDS, BW):
        place = start + tl.arange(0, BW)
        good = place < WORDS
        word = tl.load(words + rows[:, None] * WORDS + place[None, :], mask=good[None, :], other=0)
        word = word.to(tl.uint32, bitcast=True)
        group = rows[:, None] * (WORDS // 4) + place[None, :] // 4
        scale = _e8m0(tl.load(scales + group, mask=good[None, :], other=0))
        seen = live[:, None] & good[None, :]
        of_tokens = x + tokens[:, None] * IN + place[None, :]
        if DOT:
            scale *= 16384.0
        else:
            products = tl.zeros([BM, BN, BW], tl.float32)
        for j in tl.static_range(4):
            first, second = _pair_of_fp4(word, j)
            x_first = tl.load(of_tokens + j * WORDS, mask=seen, other=0.0)
            x_second = tl.load(of_tokens + (j + 4) * WORDS, mask=seen, other=0.0)
            if DOT:
                total = tl.dot(x_first, tl.trans((first * scale).to(x_first.dtype)), total)
                total = tl.dot(x_second, tl.trans((second * scale).to(x_second.dtype)), total)
            else:
                products += first[None] * x_first.to(tl.float32)[:, None]
                products += second[None] * x_second.to(tl.float32)[:, None]
        if not DOT:
            total += products * scale[None]
    if not DOT:
        total = tl.sum(total, 2) * 16384.0
    return total


@triton.jit
def _low_rank(z, b, pairs, live, rows, R: tl.constexpr, RP: tl.constexpr):
    """fp32 [BM, BN]: z [P, R] of the pairs times rows of B [E * out, R]."""
    rank = tl.arange(0, RP)
    left = tl.load(z + pairs[:, None] * R + rank[None, :], mask=live[:, None] & (rank < R)[None, :], other=0.0)
    right = tl.load(b + rows[:, None] * R + rank[None, :], mask=(rank < R)[None, :], other=0.0)
    return tl.sum(left[:, None, :] * right[None, :, :], 2)


@triton.jit
def _adapted_rows(
    x, words, scales, bias, z, b, rows, tokens, pairs, live,
    IN: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """fp32 [BM, BN]: x W + bias + z B for packed rows [BN] of an expert."""
    y = _row_products(x, words, scales, rows, live, tokens, IN, BM, BN, BW, DOT) + tl.load(bias + rows)[None, :]
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
    x, words, scales, bias, slot_expert, slot_pairs, z, b, out, alpha, limit,
    IN: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """h[pair] = swiglu(x[token] W + bias + z B) for columns of one slot; out [P, 8, INNER/8], like x."""
    expert = tl.load(slot_expert + tl.program_id(1))
    if expert < 0:
        return
    pairs, live, column = _slot(slot_pairs, BM, BN)
    rows = expert * (2 * INNER) + 2 * tl.minimum(column, INNER - 1)
    tokens = pairs // K
    gate = _adapted_rows(x, words, scales, bias, z, b, rows, tokens, pairs, live, IN, R, RP, BM, BN, BW, DOT)
    up = _adapted_rows(x, words, scales, bias, z, b, rows + 1, tokens, pairs, live, IN, R, RP, BM, BN, BW, DOT)
    h = swiglu(gate, up, alpha, limit)
    at = pairs[:, None] * INNER + place_in_eighths(column, INNER)[None, :]
    tl.store(out + at, h.to(out.dtype.element_ty), mask=live[:, None] & (column < INNER)[None, :])


@triton.jit
def down_kernel(
    h, words, scales, bias, slot_expert, slot_pairs, z, b, out,
    IN: tl.constexpr, OUT: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """out[pair] = h[pair] W + bias + z B, fp32 [P, OUT], for columns of one slot."""
    expert = tl.load(slot_expert + tl.program_id(1))
    if expert < 0:
        return
    pairs, live, column = _slot(slot_pairs, BM, BN)
    rows = expert * OUT + tl.minimum(column, OUT - 1)
    y = _adapted_rows(h, words, scales, bias, z, b, rows, pairs, pairs, live, IN, R, RP, BM, BN, BW, DOT)
    tl.store(out + pairs[:, None] * OUT + column[None, :], y, mask=live[:, None] & (column < OUT)[None, :])


@triton.jit
def unpack_kernel(blocks, scales, out, groups, BG: tl.constexpr):
    """Dense values of packed groups: out [groups * 32]."""
    group = tl.program_id(0) * BG + tl.arange(0, BG)
    good = group < groups
    inside = tl.arange(0, 16)
    byte = tl.load(blocks + group[:, None] * 16 + inside[None, :], mask=good[:, None], other=0)
    scale = (_e8m0(tl.load(scales + group, mask=good, other=0)))[:, None]
    values = tl.join(_low_fp4(byte) * 16384.0 * scale, _low_fp4(byte >> 4) * 16384.0 * scale)  # [BG, 16, 2]
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


#: Tokens of one expert that are multiplied together -> (columns, words of each) of a tile of multiply-adds.
TILES = {1: (8, 128), 2: (8, 128), 4: (16, 64), 8: (16, 32)}
#: The largest number of tokens for which so many are multiplied together; above the last, 8.
_FEW_TOKENS = {1: 2, 2: 8, 4: 16}
#: With `tl.dot`: tokens multiplied together, and the tile.
DOT_TOKENS, DOT_TILE = 16, (64, 32)
#: Loads that are on their way while a tile is multiplied, where the GPU copies asynchronously.
_DOT_STAGES = 3
#: The compute capability from which on `tl.dot` compiles to tensor cores.
_TENSOR_CORES = (8, 0)


class Tiling(NamedTuple):
    """The form of the products over packed rows.

    tokens: of one expert that are multiplied together. dot: by tensor cores.
    """

    tokens: int
    dot: bool

    @classmethod
    def choose(cls, tokens: int, capability: tuple[int, int]) -> "Tiling":
        """The form for a step of so many tokens: about what uniform routing over 32 experts sends to each."""
        together = next((few for few, most in _FEW_TOKENS.items() if tokens <= most), 8)
        if together > 2 and capability >= _TENSOR_CORES:
            return cls(DOT_TOKENS, True)
        return cls(together, False)


#: Every form there is.
MULTIPLY_ADDS = tuple(Tiling(tokens, False) for tokens in TILES)
TENSOR_CORES = Tiling(DOT_TOKENS, True)


def _products(kernel, tiling: Tiling, rank: int, dtype: torch.dtype, **sizes: int) -> Launch:
    """The launch of a kernel that multiplies packed rows."""
    columns, width = DOT_TILE if tiling.dot else TILES[tiling.tokens]
    types = {
        "words": "*i32", "scales": "*u8", "slot_expert": "*i32", "slot_pairs": "*i32",
        "bias": "*fp32", "z": "*fp32", "b": "*fp32",
    }  # fmt: skip
    tokens_name = kernel.arg_names[0]
    types[tokens_name] = POINTERS[dtype]
    constants = {
        **sizes, "R": rank, "RP": power_of_two(rank), "BM": tiling.tokens, "BN": columns, "BW": width,
        "DOT": tiling.dot,
    }  # fmt: skip
    return Launch(kernel, types, constants, stages=_DOT_STAGES if tiling.dot else 1)


def gate_up_launch(tiling: Tiling, rank: int, dtype: torch.dtype, hidden: int, inner: int, top_k: int) -> Launch:
    """`gate_up_kernel`; rank 0: no adapter."""
    launch = _products(gate_up_kernel, tiling, rank, dtype, IN=hidden, INNER=inner, K=top_k)
    return launch._replace(types=launch.types | {"out": POINTERS[dtype], "alpha": "fp32", "limit": "fp32"})


def down_launch(tiling: Tiling, rank: int, dtype: torch.dtype, hidden: int, inner: int) -> Launch:
    """`down_kernel`; rank 0: no adapter."""
    launch = _products(down_kernel, tiling, rank, dtype, IN=inner, OUT=hidden)
    return launch._replace(types=launch.types | {"out": "*fp32"})


def unpack_launch(dtype: torch.dtype) -> Launch:
    """`unpack_kernel` to dense values of `dtype`."""
    types = {"blocks": "*u8", "scales": "*u8", "out": POINTERS[dtype], "groups": "i32"}
    return Launch(unpack_kernel, types, {"BG": 64})


def gather_launch(dtype: torch.dtype, width: int) -> Launch:
    """`gather_kernel` for a table of `dtype` with rows of `width` values."""
    types = {"ids": "*i64", "table": POINTERS[dtype], "out": "*fp32"}
    return Launch(gather_kernel, types, {"WIDTH": width, "BLOCK": 1024})


class Workspace(NamedTuple):
    """Buffers of `decode` for one number of tokens T; P = T * K pairs (token, expert), S slots of up to BM pairs.

    operands: the tokens as they are multiplied, [T, 8, H / 8], column 8 w + j at [j, w]. inside: between the two
    products, [P, 8, I / 8] likewise. outside: fp32 [T, K, H], of each pair. slot_expert: int32 [S]. slot_pairs: int32
    [S, BM].
    """

    operands: Tensor
    inside: Tensor
    outside: Tensor
    slot_expert: Tensor
    slot_pairs: Tensor
    tiling: Tiling

    @classmethod
    def allocate(cls, tokens: int, top_k: int, experts: tuple, tiling: Tiling | None = None) -> "Workspace":
        """experts: `helpers.kernels.experts.ExpertWeights`. tiling: default: the one for the experts' device."""
        device = experts.down_bias.device
        count, width = experts.down_bias.shape
        inner = experts.gate_up_bias.shape[1] // 2
        pairs = tokens * top_k
        if tiling is None:
            capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
            tiling = Tiling.choose(tokens, capability)
        most_slots = min(pairs, count + pairs // tiling.tokens)

        def empty(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        return cls(
            operands=empty(tokens, 8, width // 8, dtype=experts.dtype),
            inside=empty(pairs, 8, inner // 8, dtype=experts.dtype),
            outside=empty(tokens, top_k, width, dtype=torch.float32),
            slot_expert=empty(most_slots, dtype=torch.int32),
            slot_pairs=empty(most_slots, tiling.tokens, dtype=torch.int32),
            tiling=tiling,
        )


def fill_slots(indices: Tensor, workspace: Workspace, experts: int) -> None:
    """Sort pairs (token, expert) into slots of pairs of one expert, without a host synchronisation.

    indices: int64 [T, K]. Writes `slot_expert` and `slot_pairs`, -1 where a slot or a place in it is empty.
    """
    slots, together = workspace.slot_pairs.shape
    launch = slots_launch(indices.numel(), experts, together)
    launch((slots,), indices, workspace.slot_expert, workspace.slot_pairs, indices.numel())


def decode(
    hidden: Tensor, indices: Tensor, weights: Tensor, experts: tuple, lora: tuple | None, workspace: Workspace
) -> Tensor:
    """`helpers.kernels.experts.expert_forward` for a few tokens, without gradients.

    Arguments and result as there; experts: `ExpertWeights`, lora: `ExpertLora` or None. workspace: for as many tokens.
    """
    hidden = hidden.contiguous()
    indices = indices.contiguous()
    width = hidden.shape[1]
    top_k = indices.shape[1]
    count, gate_up_width = experts.gate_up_bias.shape
    inner = gate_up_width // 2
    tiling = workspace.tiling
    rank = lora.gate_up_A.shape[1] if lora else 0
    fill_slots(indices, workspace, count)
    slots = (workspace.slot_expert, workspace.slot_pairs)
    # z [P, r] is the low-rank part between A and B; without an adapter the kernels read neither
    z = b = experts.down_bias

    x = workspace.operands
    x.copy_(hidden.unflatten(-1, (-1, 8)).transpose(1, 2))
    if lora:
        z = low_rank(hidden, lora.gate_up_A, indices, lora.scaling, split=False)
        b = lora.gate_up_B
    h = workspace.inside
    launch = gate_up_launch(tiling, rank, experts.dtype, width, inner, top_k)
    grid = (triton.cdiv(inner, launch.constants["BN"]), len(workspace.slot_expert))
    launch(grid, x, *_words(experts.gate_up), experts.gate_up_bias, *slots, z, b, h, experts.alpha, experts.limit)

    if lora:
        z = low_rank(h, lora.down_A, indices, lora.scaling, split=True)
        b = lora.down_B
    y = workspace.outside
    launch = down_launch(tiling, rank, experts.dtype, width, inner)
    grid = (triton.cdiv(width, launch.constants["BN"]), len(workspace.slot_expert))
    launch(grid, h, *_words(experts.down), experts.down_bias, *slots, z, b, y)
    return torch.bmm(weights.float()[:, None], y)[:, 0]  # the sum over a token's experts


def _words(packed: tuple) -> tuple[Tensor, Tensor]:
    """The blocks of a `Packed` matrix four bytes at a time, int32 [E, out, in/32, 4], and its scales."""
    return packed.blocks.view(torch.int32), packed.scales


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

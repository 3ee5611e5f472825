"""Attention with sinks, three ways to compute it.

gpt-oss gives every query head a learned logit, the sink, that joins the softmax and has no
value: it lets a head attend to nothing. With lse = log sum exp of the visible scores,

    output = softmax(scores) V * sigmoid(lse - sink)

which is how a kernel without sinks can serve (gpt-oss model card, 2025, section 2.2).
"""

import inspect
import math
from functools import cache

import torch
import torch.nn.functional as F

from helpers.kernels.linear import WIDE
from helpers.kernels.masks import AttentionMask

BACKENDS = ("flex", "sdpa", "eager")
#: What the sink's key has in `_sdpa` where queries have the sink, and its value where the share of the sink is read:
#: powers of two that keep strong sinks and small shares within fp16's range.
SINK_KEY, SINK_VALUE = 64.0, 1024.0
#: What the operator behind FlexAttention takes in the versions of PyTorch that this was tested with.
FLEX_OPERATOR = (
    "query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers",
    "mask_mod_other_buffers",
)  # fmt: skip


def sink_attention(q, k, v, sinks, mask, *, scale, backend="auto", return_lse=False):
    """Attention whose softmax has one extra, valueless entry per head.

    Args:
        q: [B, Hq, Q, D]. k, v: [B, Hkv, K, D], Hkv dividing Hq.
        sinks: [Hq]. mask: `AttentionMask`.
        scale: factor on the scores, usually D ** -0.5.
        backend: "eager" (the definition, any dtype), "sdpa" (exact, PyTorch's fused kernels), "flex"
            (FlexAttention, memory linear in the length on a GPU), or "auto": see `choose_backend`.
        return_lse: also return lse fp32 [B, Hq, Q], natural log, sink not included; not with sdpa.

    Returns: [B, Hq, Q, D] in q's dtype, and differentiable, as is lse. A query that may see no key gets zeros, and
    gives no gradient. Against float64: 2e-6 and gradients 1e-5 in fp32; in norm 0.5 % and 2 % in bf16, 0.07 % and
    0.3 % in fp16. Raises ValueError for shapes that do not fit each other.
    """
    _check_shapes(q, k, v, sinks, mask)
    if backend == "auto":
        backend = choose_backend(q, mask)
    if backend not in BACKENDS:
        raise ValueError(f"backend must be auto or one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "sdpa" and return_lse:
        raise ValueError("backend 'sdpa' has no lse to return: use 'flex' or 'eager'")
    with torch.autocast(q.device.type, enabled=False):  # it would round what is fp32 here
        if backend == "sdpa":
            return _sdpa(q, k, v, sinks, mask, scale)
        if backend == "flex":
            output, lse = _flex(q, k, v, sinks, mask, scale)
        else:
            output, lse = _eager(q, k, v, sinks, mask, scale, return_lse)
    return (output, lse.float()) if return_lse else output


def choose_backend(q, mask):
    """The backend for a regime on q's device.

    One query a row, or float64: eager, two products that read keys and values where they lie. Else flex on a GPU with
    tensor cores that Triton can use (compute capability 8.0 on; on a T4 it has none), for the memory; else sdpa.
    """
    if mask.q_len == 1 or q.dtype == torch.float64:
        return "eager"
    return "flex" if q.is_cuda and torch.cuda.get_device_capability(q.device) >= (8, 0) else "sdpa"


def _check_shapes(q, k, v, sinks, mask):
    if not isinstance(mask, AttentionMask):
        raise ValueError(f"mask must be an AttentionMask, got {type(mask).__name__}")
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}, sinks {list(sinks.shape)}"
    if {q.dim(), k.dim(), v.dim()} != {4} or k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q must be [B, Hq, Q, D], k and v [B, Hkv, K, D], got {shapes}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must have one dtype, got {q.dtype}, {k.dtype} and {v.dtype} for {shapes}")
    if q.shape[1] % k.shape[1] or sinks.shape != (q.shape[1],):
        raise ValueError(f"the heads of k and v must divide those of q, and sinks be [Hq], got {shapes}")
    if (q.shape[0], k.shape[0], q.shape[2], k.shape[2]) != (mask.batch, mask.batch, mask.q_len, mask.kv_len):
        raise ValueError(f"mask is for batch {mask.batch}, q_len {mask.q_len} and kv_len {mask.kv_len}, got {shapes}")


def _eager(q, k, v, sinks, mask, scale, return_lse):
    """By the definition: append the sink to the scores, softmax, drop it.

    The query heads of a key head stand below each other, so that keys and values are read once and never copied.
    """
    batch, heads, queries, dim = q.shape
    grouped = q.reshape(batch, k.shape[1], -1, dim)
    scores = _wide_bmm(grouped, k.transpose(-1, -2)).view(batch, heads, queries, -1) * scale
    scores = scores.masked_fill(~mask.dense(), -math.inf)
    sink = sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1].reshape(batch, k.shape[1], -1, k.shape[2])
    output = _wide_bmm(weights.to(v.dtype), v).view_as(q).to(q.dtype)
    return output, scores.logsumexp(-1) if return_lse else None


def _wide_bmm(a, b):
    """a @ b with sums in fp32 (fp64 for fp64), batched over two axes."""
    if a.dtype in WIDE:
        return a @ b
    if a.is_cuda and not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)):
        return torch.bmm(a.flatten(0, 1), b.flatten(0, 1), out_dtype=torch.float32).unflatten(0, a.shape[:2])
    return a.float() @ b.float()


def _sdpa(q, k, v, sinks, mask, scale):
    """Exact on kernels without sinks: one more key, whose score is the sink and whose value is zero.

    The head grows by eight dimensions, which keeps its alignment. In the first three a query has the sink, in pieces
    that 16 bits can hold. Values grow as well: some fused kernels want equal sizes, and the sink's key has a number
    there, so that the share of the sink comes out beside the output. Its gradient is made of that, in fp32: the
    kernel's own would be rounded to 16 bits at each query, and vanish in fp16.
    """
    dim, extra = q.shape[3], 8
    pieces = F.pad(_pieces(sinks.detach(), scale, q.dtype), (0, extra - 3)).reshape(1, -1, 1, extra)
    q = torch.cat([q, pieces.to(q.dtype).expand(*q.shape[:3], extra)], -1)
    if mask.plain:  # one dummy query in front of them shifts the triangle past the sink
        output = _with_sink_key(F.pad(q, (0, 0, 1, 0)), k, v, None, scale)[:, :, 1:]
    elif mask.window and mask.q_len == mask.kv_len > 3 * mask.window:
        output = _sliding(q, k, v, mask, scale)
    else:
        visible = mask.derived("with sink key", lambda: _sink_visible(mask.dense()))
        output = _with_sink_key(q, k, v, visible, scale)
    output, share = output[..., :dim], output[..., dim : dim + 1].detach()
    if not sinks.requires_grad:
        return output
    wide = torch.promote_types(output.dtype, torch.float32)
    change = (sinks - sinks.detach()).to(wide).reshape(1, -1, 1, 1)  # zero, with a gradient
    # d output / d sink = - share * output
    return (output.to(wide) * (1 - share.to(wide) / SINK_VALUE * change)).to(output.dtype)


def _pieces(sinks, scale, dtype):
    """sinks [H] as three numbers [H, 3] that `dtype` can hold and whose sum, times SINK_KEY * scale, is the sink to
    fp32's last bit; what is beyond the dtype's range is at its end."""
    most = torch.finfo(dtype).max
    x = (sinks.to(torch.promote_types(dtype, torch.float32)) / (scale * SINK_KEY)).clamp(-most, most)
    first = x.to(dtype).to(x.dtype)
    second = (x - first).to(dtype).to(x.dtype)
    return torch.stack([first, second, x - first - second], -1)


def _sink_visible(visible):
    """bool [..., Q, K] with a column for the sink in front, and padding to a multiple of eight, as kernels want it."""
    return F.pad(F.pad(visible, (1, 0), value=True), (0, -(visible.shape[-1] + 1) % 8))


def _with_sink_key(q, k, v, visible, scale):
    """One fused call, k and v made as wide as q and the sink's key put in front; visible: bool that broadcasts to the
    scores, None: causal."""
    dim = k.shape[3]
    tail = 0 if visible is None else visible.shape[-1] - k.shape[2] - 1
    k, v = (F.pad(x, (0, q.shape[3] - dim, 1, tail)) for x in (k, v))
    k[:, :, 0, dim : dim + 3] = SINK_KEY
    v[:, :, 0, dim] = SINK_VALUE
    if q.is_cuda:  # the memory-efficient kernel wants as many key heads as query heads
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=visible, is_causal=visible is None, scale=scale, enable_gqa=not q.is_cuda
    )


def _sliding(q, k, v, mask, scale):
    """A window's worth of queries at a time, which see that many keys and as many before them: linear in the length."""
    window = mask.window
    count = -(-mask.q_len // window)
    tail = count * window - mask.q_len
    q = F.pad(q, (0, 0, 0, tail)).unflatten(2, (count, window)).transpose(1, 2).flatten(0, 1)
    k, v = (
        F.pad(x, (0, 0, window, tail)).unfold(2, 2 * window, window).permute(0, 2, 1, 4, 3).flatten(0, 1)
        for x in (k, v)
    )
    visible = mask.derived("sliding", lambda: _sink_visible(_sliding_visible(mask, count)))
    output = _with_sink_key(q, k, v, visible, scale)
    return output.unflatten(0, (mask.batch, count)).transpose(1, 2).flatten(2, 3)[:, :, : mask.q_len]


def _sliding_visible(mask, count):
    """bool [batch * count, 1, window, 2 * window]: of each block of queries, its own keys and those before."""
    window, last = mask.window, mask.q_len - 1
    row, block, query, key = (torch.arange(n, device=mask.device) for n in (mask.batch, count, window, 2 * window))
    query = (block[:, None] * window + query)[:, :, None]
    key = ((block[:, None] - 1) * window + key)[:, None]
    seen = mask.mask_mod(row[:, None, None, None], None, query.clamp(max=last), key.clamp(0, last))
    return (seen & (key >= 0) & (key <= last)).flatten(0, 1).unsqueeze(1)


def _flex(q, k, v, sinks, mask, scale):
    """FlexAttention without the sink, rescaled by sigmoid(lse - sink); lse stays in fp32 (fp64 in fp64)."""
    output, lse = (_flex_cuda if q.is_cuda else _flex_cpu)(q, k, v, mask, scale)
    # Not sigmoid: its gradient takes 1 - sigmoid, of which fp32 leaves little where the sink is weak.
    kept = F.logsigmoid(lse - sinks.to(lse.dtype).reshape(1, -1, 1)).exp()  # [B, Hq, Q]; 0 where nothing is visible
    return (output * kept.unsqueeze(-1)).to(q.dtype), lse


def _flex_cuda(q, k, v, mask, scale):
    from torch.nn.attention.flex_attention import AuxRequest

    options = kernel_options(torch.cuda.get_device_capability(q.device), mask.q_len)
    output, extra = _compiled_flex()(
        q, k, v, block_mask=mask.block_mask(), scale=scale, enable_gqa=True, kernel_options=options,
        return_aux=AuxRequest(lse=True),
    )  # fmt: skip
    return output, extra.lse


@cache
def _compiled_flex():
    """`flex_attention`, compiled on first use and again for another dtype, for gradients, for a batch or length of one
    and once more when lengths begin to vary; offset, window and padding change nothing."""
    from torch.nn.attention.flex_attention import flex_attention

    # training, scoring, prefill and decoding are together more than PyTorch's default of 8
    more = {"recompile_limit": 64} if "recompile_limit" in inspect.signature(torch.compile).parameters else {}
    return torch.compile(flex_attention, **more)


def kernel_options(capability, queries):
    """FlexAttention's options for so many queries on a GPU of this compute capability, a pair.

    Before 8.0 Triton has no tensor cores and little shared memory (64 KiB on a T4), and PyTorch's tiles spill 5 KB of
    every thread. These fit the registers, in prefill, decoding and the backward pass; `tests/kernels/test_flex_aot.py`
    compiles PyTorch's kernels with them.
    """
    options = {}
    if capability < (8, 0):
        options = {"fwd_BLOCK_N": 16, "fwd_num_stages": 1, "fwd_num_warps": 4, "bwd_num_stages": 1, "bwd_num_warps": 4}
        options |= {f"bwd_BLOCK_{side}": 16 for side in ("M1", "N1", "M2", "N2")}
    if queries > 1:
        # PyTorch's kernel for few queries has no tiles for 17 to 127 of them with eight query heads to a key head,
        # and takes another number of rows than its own for safe (torch 2.13)
        options["FORCE_USE_FLEX_ATTENTION"] = True
        if capability < (8, 0):
            options["fwd_BLOCK_M"] = 32
    return options


@torch.compiler.disable  # the operator by itself cannot be traced
def _flex_cpu(q, k, v, mask, scale):
    """The operator behind `flex_attention`, unfused: on the CPU only it has a backward pass."""
    options = {"OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False}
    block_mask = mask.block_mask().as_tuple()
    output, lse = _flex_operator()(q, k, v, _identity, block_mask, scale, options, (), ())[:2]
    return output, lse * math.log(2)  # the operator's lse is in base 2


@cache
def _flex_operator():
    try:
        from torch._higher_order_ops.flex_attention import flex_attention as operator

        known = tuple(inspect.signature(operator.__call__).parameters) == FLEX_OPERATOR
    except ImportError:
        known = False
    if not known:
        raise RuntimeError(
            f"FlexAttention's operator is not known in torch {torch.__version__}: on the CPU use backend 'sdpa' or "
            "'eager', or a torch that constraints.txt names."
        )
    return operator


def _identity(score, row, head, query, key):
    return score

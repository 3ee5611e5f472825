"""Attention with sinks on PyTorch's fused kernels, which know no sinks.

For one query q and one head, with keys k_j, values v_j, scale c and sink logit s, attention with a sink is

    o = sum_j p_j v_j,    p_j = exp(c q.k_j) / (exp(s) + sum_i exp(c q.k_i)).

That is ordinary attention over one key more, if the score of that key is s and its value is zero. Its share of the
softmax is p_s = exp(s) / (exp(s) + sum_i exp(c q.k_i)).

1. **The score.** Queries and keys get `EXTRA` more dimensions. In three of them a query has the sink in pieces,
   s = c * SINK_KEY * (a + b + d), and the sink's key has SINK_KEY there; all other keys have zeros. Then the product of
   an extended query with the sink's key is s, and with any other key what it was. One piece in 16 bits would round the
   sink to 8 or 11 bits; three hold it to fp32's last bit. Eight dimensions keep the alignment that fused kernels want.
2. **The value.** Some fused kernels want values as wide as keys, so values are padded with zeros as well. In the first
   of these dimensions the sink's value is SINK_VALUE, so the output has SINK_VALUE * p_s there.
3. **The sink's gradient.** From the formula, d o / d s = -p_s o. The gradient that the kernel would give the extended
   query is rounded to the operands' dtype at each query, and vanishes in fp16. So the pieces are detached, and the
   output is multiplied by 1 - p_s * (s - detach(s)) in fp32: its value is 1, its derivative in s is -p_s.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.kernels.masks import AttentionMask

#: Dimensions that queries, keys and values grow by. The sink's pieces stand in the first `PIECES` of them.
EXTRA, PIECES = 8, 3
#: The sink's key, where queries have the sink's pieces, and the sink's value, where its share is read: powers of two
#: that keep strong sinks and small shares within fp16's range.
SINK_KEY, SINK_VALUE = 64.0, 1024.0


def sdpa_with_sinks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, mask: AttentionMask, scale: float) -> Tensor:
    """Attention with sinks, exact, by PyTorch's fused kernels.

    q: [B, Hq, Q, D]. k, v: [B, Hkv, K, D]. sinks: [Hq]. Returns [B, Hq, Q, D] in q's dtype.
    """
    dim = q.shape[3]
    q = append_sink(q, sinks.detach(), scale)  # [B, Hq, Q, D + EXTRA]
    if mask.plain:
        # one dummy query in front shifts the causal triangle past the sink's key
        shifted = F.pad(q, (0, 0, 1, 0))
        extended = _attend(shifted, k, v, None, scale)[:, :, 1:]
    elif mask.window and mask.q_len == mask.kv_len > 3 * mask.window:
        extended = _attend_by_window(q, k, v, mask, scale)
    else:
        visible = mask.derived("with sink key", lambda: _with_sink_column(mask.dense()))
        extended = _attend(q, k, v, visible, scale)
    output = extended[..., :dim]
    share = extended[..., dim : dim + 1].detach()  # SINK_VALUE * p_s, [B, Hq, Q, 1]
    return _with_sink_gradient(output, share, sinks)


def append_sink(q: Tensor, sinks: Tensor, scale: float) -> Tensor:
    """Extend queries [B, Hq, Q, D] by the pieces of their head's sink and zeros to [B, Hq, Q, D + EXTRA]."""
    pieces = split_sinks(sinks, scale, q.dtype)  # [Hq, PIECES]
    padded = F.pad(pieces, (0, EXTRA - PIECES))
    tail = padded.reshape(1, -1, 1, EXTRA).to(q.dtype)
    return torch.cat([q, tail.expand(*q.shape[:3], EXTRA)], -1)


def split_sinks(sinks: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Split sinks [H] into three numbers [H, 3] that `dtype` holds and whose sum, times SINK_KEY * scale, is the sink.

    The sum is exact to fp32's last bit. A sink beyond the range of `dtype` becomes the end of that range.
    """
    limit = torch.finfo(dtype).max
    wide = torch.promote_types(dtype, torch.float32)
    target = (sinks.to(wide) / (scale * SINK_KEY)).clamp(-limit, limit)
    first = target.to(dtype).to(wide)
    second = (target - first).to(dtype).to(wide)
    third = target - first - second
    return torch.stack([first, second, third], -1)


def _with_sink_gradient(output: Tensor, share: Tensor, sinks: Tensor) -> Tensor:
    """`output` [B, Hq, Q, D], with the gradient that the sinks [Hq] deserve; share: SINK_VALUE * p_s [B, Hq, Q, 1]."""
    if not sinks.requires_grad:
        return output
    wide = torch.promote_types(output.dtype, torch.float32)
    change = (sinks - sinks.detach()).to(wide).reshape(1, -1, 1, 1)  # zero, with a gradient of one
    factor = 1 - share.to(wide) / SINK_VALUE * change
    return (output.to(wide) * factor).to(output.dtype)


def _with_sink_column(visible: Tensor) -> Tensor:
    """bool [..., Q, K] with a column for the sink's key in front, and padding to a multiple of eight, as kernels want
    it."""
    with_sink = F.pad(visible, (1, 0), value=True)
    return F.pad(with_sink, (0, -with_sink.shape[-1] % 8))


def _attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, scale: float) -> Tensor:
    """One fused call with the sink's key in front of the others.

    q: [B, Hq, Q, D + EXTRA], as `append_sink` gives it. k, v: [B, Hkv, K, D].
    visible: bool that broadcasts to the scores, as `_with_sink_column` gives it; None: causal.
    """
    dim = k.shape[3]
    more_dimensions = q.shape[3] - dim
    more_keys = 0 if visible is None else visible.shape[-1] - k.shape[2] - 1
    k = F.pad(k, (0, more_dimensions, 1, more_keys))
    v = F.pad(v, (0, more_dimensions, 1, more_keys))
    k[:, :, 0, dim : dim + PIECES] = SINK_KEY
    v[:, :, 0, dim] = SINK_VALUE
    if q.is_cuda:  # the memory-efficient kernel wants as many key heads as query heads
        group = q.shape[1] // k.shape[1]
        k = k.repeat_interleave(group, 1)
        v = v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=visible, is_causal=visible is None, scale=scale, enable_gqa=not q.is_cuda
    )


def _attend_by_window(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, scale: float) -> Tensor:
    """A window's worth of queries at a time, which see that many keys and as many before them: linear in the length."""
    window = mask.window
    count = -(-mask.q_len // window)  # blocks of queries, rounded up
    tail = count * window - mask.q_len

    queries = F.pad(q, (0, 0, 0, tail)).unflatten(2, (count, window))  # [B, Hq, count, window, D + EXTRA]
    queries = queries.transpose(1, 2).flatten(0, 1)  # [B * count, Hq, window, D + EXTRA]
    keys = _windows(k, window, tail)
    values = _windows(v, window, tail)
    visible = mask.derived("sliding", lambda: _with_sink_column(_visible_in_windows(mask, count)))
    output = _attend(queries, keys, values, visible, scale)
    in_rows = output.unflatten(0, (mask.batch, count)).transpose(1, 2).flatten(2, 3)  # [B, Hq, count * window, ...]
    return in_rows[:, :, : mask.q_len]


def _windows(x: Tensor, window: int, tail: int) -> Tensor:
    """[B, Hkv, K, D] -> [B * count, Hkv, 2 * window, D]: for each block of queries, its own keys and those before."""
    padded = F.pad(x, (0, 0, window, tail))
    pieces = padded.unfold(2, 2 * window, window)  # [B, Hkv, count, D, 2 * window]
    return pieces.permute(0, 2, 1, 4, 3).flatten(0, 1)


def _visible_in_windows(mask: AttentionMask, count: int) -> Tensor:
    """bool [B * count, 1, window, 2 * window]: the mask between the queries and the keys that `_windows` pairs."""
    window = mask.window
    last = mask.q_len - 1
    row = torch.arange(mask.batch, device=mask.device)[:, None, None, None]
    block = torch.arange(count, device=mask.device)[:, None]
    query = block * window + torch.arange(window, device=mask.device)  # [count, window]
    key = (block - 1) * window + torch.arange(2 * window, device=mask.device)  # [count, 2 * window]
    query = query[:, :, None]
    key = key[:, None]
    exists = (key >= 0) & (key <= last)
    seen = mask.mask_mod(row, None, query.clamp(max=last), key.clamp(0, last)) & exists
    return seen.flatten(0, 1).unsqueeze(1)

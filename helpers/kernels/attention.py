"""Attention with sinks: who may see whom, and three ways to compute it.

gpt-oss gives every query head a learned logit, the sink, that joins the softmax and has no
value: it lets a head attend to nothing. With lse = log sum exp of the visible scores,

    output = softmax(scores) V * sigmoid(lse - sink)

which is how a kernel without sinks can serve (gpt-oss model card, 2025, section 2.2).
"""

import math
from functools import cache

import torch
import torch.nn.functional as F

BACKENDS = ("flex", "sdpa", "eager")


class AttentionMask:
    """Causal visibility for `batch` rows of `q_len` queries and `kv_len` keys.

    Query i stands at position `q_offset + i`, key j at position j. Query p sees key j if

        left_pad[row] <= j <= p   and, with a window,   p - j < window

    so a window of 128 means 128 keys, the query's own among them. `left_pad` is a LongTensor
    [batch] or None.
    """

    def __init__(self, batch, q_len, kv_len, *, window=None, left_pad=None, q_offset=0, device=None):
        if window is not None and window <= 0:
            raise ValueError(f"window must be positive, got {window}")
        if q_offset + q_len > kv_len:
            raise ValueError(f"q_offset {q_offset} + q_len {q_len} lies beyond kv_len {kv_len}")
        if left_pad is not None and left_pad.shape != (batch,):
            raise ValueError(f"left_pad must have shape [{batch}], got {list(left_pad.shape)}")
        self.batch, self.q_len, self.kv_len = batch, q_len, kv_len
        self.window, self.left_pad, self.q_offset = window, left_pad, q_offset
        self.device = left_pad.device if left_pad is not None else torch.device(device or "cpu")
        self._dense = self._block_mask = None

    @property
    def mask_mod(self):
        """The rule as a function (row, head, query, key) -> bool, on indices that broadcast."""
        window, left_pad, q_offset = self.window, self.left_pad, self.q_offset

        def visible(row, head, query, key):
            position = query + q_offset
            seen = key <= position
            if window is not None:
                seen = seen & (position - key < window)
            if left_pad is not None:
                seen = seen & (key >= left_pad[row])
            return seen

        return visible

    def dense(self):
        """bool [batch, 1, q_len, kv_len], True where the key is visible."""
        if self._dense is None:
            index = [torch.arange(n, device=self.device) for n in (self.batch, self.q_len, self.kv_len)]
            visible = self.mask_mod(index[0][:, None, None], None, index[1][:, None], index[2])
            self._dense = visible.expand(self.batch, self.q_len, self.kv_len).unsqueeze(1)
        return self._dense

    def block_mask(self):
        """The same as a `BlockMask` for FlexAttention."""
        if self._block_mask is None:
            from torch.nn.attention.flex_attention import create_block_mask

            rows = self.batch if self.left_pad is not None else None
            self._block_mask = create_block_mask(self.mask_mod, rows, None, self.q_len, self.kv_len, device=self.device)
        return self._block_mask


def sink_attention(q, k, v, sinks, mask, *, scale, backend="auto", return_lse=False):
    """Attention whose softmax has one extra, valueless entry per head.

    Args:
        q: [B, Hq, Q, D]. k, v: [B, Hkv, K, D], Hkv dividing Hq.
        sinks: [Hq]. mask: `AttentionMask`.
        scale: factor on the scores, usually D ** -0.5.
        backend: "eager" (the reference, any dtype), "sdpa" (exact, PyTorch's fused kernels),
            "flex" (FlexAttention), or "auto": sdpa, but eager to decode on the CPU, where
            the copies that sdpa needs cost more than they save.
        return_lse: also return lse fp32 [B, Hq, Q], natural log, sink not included; not with sdpa.

    Returns: [B, Hq, Q, D] in q's dtype. A query that may see no key gets zeros.
    """
    if q.shape[1] % k.shape[1] or k.shape != v.shape or sinks.shape != (q.shape[1],):
        raise ValueError(
            f"heads do not match: q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}, sinks {list(sinks.shape)}"
        )
    if (q.shape[0], q.shape[2], k.shape[2]) != (mask.batch, mask.q_len, mask.kv_len):
        raise ValueError(
            f"mask is for [{mask.batch}, {mask.q_len}, {mask.kv_len}], q is {list(q.shape)}, k {list(k.shape)}"
        )
    if backend == "auto":
        backend = "eager" if mask.q_len == 1 and not q.is_cuda else "sdpa"
    if backend not in BACKENDS:
        raise ValueError(f"backend must be auto or one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "sdpa":
        if return_lse:
            raise ValueError("backend 'sdpa' has no lse to return: use 'flex' or 'eager'")
        return _sdpa(q, k, v, sinks, mask, scale)
    output, lse = (_flex if backend == "flex" else _eager)(q, k, v, sinks, mask, scale)
    return (output, lse) if return_lse else output


def _repeat_heads(x, heads):
    """[B, Hkv, K, D] -> [B, heads, K, D], each key head serving heads / Hkv query heads."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def _eager(q, k, v, sinks, mask, scale):
    """By the definition: append the sink to the scores, softmax, drop it."""
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    scores = (q.to(wide) @ k.to(wide).transpose(-1, -2)) * scale  # [B, Hq, Q, K]
    scores = scores.masked_fill(~mask.dense(), -math.inf)
    sink = sinks.to(wide).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    lse = scores.detach().logsumexp(-1)  # to look at; gradients flow through the weights
    return (weights @ v.to(wide)).to(q.dtype), lse.float()


def _sdpa(q, k, v, sinks, mask, scale):
    """Exact on kernels without sinks: one more key that scores the sink and has value zero.

    The head grows by eight dimensions, which keeps its alignment: the first is 1 in every
    query and sink / scale in the extra key, 0 in every other.
    """
    (batch, heads, queries, dim), extra = q.shape, 8
    k, v = _repeat_heads(k, heads), _repeat_heads(v, heads)
    one = F.pad(q.new_ones(batch, heads, queries, 1), (0, extra - 1))
    sink_key = F.pad((sinks / scale).to(k.dtype).reshape(1, heads, 1, 1), (dim, extra - 1)).expand(batch, -1, -1, -1)
    k = torch.cat([sink_key, F.pad(k, (0, extra))], 2)
    visible = F.pad(mask.dense(), (1, 0), value=True)
    return F.scaled_dot_product_attention(
        torch.cat([q, one], -1), k, F.pad(v, (0, 0, 1, 0)), attn_mask=visible, scale=scale
    )


def _flex(q, k, v, sinks, mask, scale):
    """FlexAttention without the sink, rescaled by sigmoid(lse - sink); lse stays in fp32."""
    output, lse = (_flex_cuda if q.is_cuda else _flex_cpu)(q, k, v, mask, scale)
    kept = torch.sigmoid(lse - sinks.float().reshape(1, -1, 1))  # [B, Hq, Q]; 0 where nothing is visible
    return (output * kept.unsqueeze(-1)).to(q.dtype), lse


def _flex_cuda(q, k, v, mask, scale):
    return _compiled_flex()(q, k, v, block_mask=mask.block_mask(), scale=scale, enable_gqa=True, return_lse=True)


@cache
def _compiled_flex():
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _flex_cpu(q, k, v, mask, scale):
    """The operator behind `flex_attention`, unfused: on the CPU only it has a backward pass."""
    from torch._higher_order_ops.flex_attention import flex_attention as operator

    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    options = {"OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False}
    block_mask = mask.block_mask().as_tuple()
    output, lse = operator(q, k, v, _identity, block_mask, scale, options, (), ())[:2]
    return output, lse.float() * math.log(2)  # the operator's lse is in base 2


def _identity(score, row, head, query, key):
    return score

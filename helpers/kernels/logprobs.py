"""Log-probabilities of chosen tokens without ever holding all logits."""

import torch

from helpers.kernels.linear import wide_mm

#: Positions, and words of the vocabulary, at a time.
ROWS, TILE = 1024, 8192


def token_logprobs(hidden, head_weight, token_ids, *, temperature=1.0, chunk=TILE):
    """log p(token) and the entropy of p at each position, p = softmax(hidden @ head.T / temperature).

    Args:
        hidden: [..., H], rounded to the head's dtype. head_weight: [V, H]. token_ids: int64 [...], all in 0..V-1.
        temperature: divides the logits.
        chunk: words of the vocabulary at a time; the peak is a few tiles of fp32 [`ROWS`, chunk].

    Returns: `(logprobs, entropy)`, fp32 [...] (fp64 for an fp64 head), reduced in that precision.
    The entropy carries no gradient. Raises ValueError for shapes that do not fit.

    The softmax runs over the tiles with a moving maximum (Milakov and Gimelshein, 2018), and so does
    the mean of the head's rows under p, which is all the gradient needs:
    d log p(token) / d hidden = (head[token] - sum_v p(v) head[v]) / temperature.
    So a frozen head costs two products, as without tiles.
    """
    if hidden.shape[:-1] != token_ids.shape or hidden.shape[-1] != head_weight.shape[-1] or chunk < 1:
        raise ValueError(
            f"hidden must be [..., H], head_weight [V, H] and token_ids [...], chunk at least 1; "
            f"got {list(hidden.shape)}, {list(head_weight.shape)}, {list(token_ids.shape)} and {chunk}"
        )
    flat, ids = hidden.flatten(0, -2), token_ids.flatten()
    logprobs, entropy = _TokenLogprobs.apply(flat, head_weight, ids, temperature, chunk)
    return logprobs.view(token_ids.shape), entropy.view(token_ids.shape)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, head, ids, temperature, chunk):
        wide = torch.promote_types(head.dtype, torch.float32)
        lse, entropy = (torch.empty(len(ids), dtype=wide, device=ids.device) for _ in range(2))
        slope = torch.empty(hidden.shape, dtype=head.dtype, device=ids.device) if ctx.needs_input_grad[0] else None
        chosen = torch.empty_like(lse)
        for n in range(0, len(ids), ROWS):
            rows, words = hidden[n : n + ROWS].to(head.dtype), head[ids[n : n + ROWS]]
            lse[n : n + ROWS], entropy[n : n + ROWS], mean = _sweep(rows, head, temperature, chunk, slope is not None)
            chosen[n : n + ROWS] = (rows.to(wide) * words.to(wide)).sum(-1) / temperature
            if slope is not None:
                slope[n : n + ROWS] = (words.to(wide) - mean) / temperature
        ctx.save_for_backward(hidden, head, ids, lse, slope)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.mark_non_differentiable(entropy)
        return chosen - lse, entropy

    @staticmethod
    def backward(ctx, grad, _):
        hidden, head, ids, lse, slope = ctx.saved_tensors
        grad = grad[:, None]
        to_hidden = (slope.to(grad.dtype) * grad).to(hidden.dtype) if ctx.needs_input_grad[0] else None
        to_head = _head_gradient(grad, hidden, head, ids, lse, ctx) if ctx.needs_input_grad[1] else None
        return to_hidden, to_head, None, None, None


def _sweep(rows, head, temperature, chunk, with_mean):
    """lse [n], entropy [n] and, if asked, the mean row of the head under p [n, H], over tiles of the vocabulary."""
    wide = torch.promote_types(head.dtype, torch.float32)
    top = torch.full((len(rows), 1), -torch.inf, dtype=wide, device=rows.device)
    total, weighted = torch.zeros_like(top), torch.zeros_like(top)
    mean = torch.zeros(rows.shape, dtype=wide, device=rows.device) if with_mean else None
    for tile in head.split(chunk):
        logits = wide_mm(rows, tile.T).div_(temperature)  # [n, chunk]
        new = torch.maximum(top, logits.amax(-1, keepdim=True))
        kept, top = torch.exp(top - new), new
        p = torch.exp(logits - top)  # at most 1, so 16 bits hold it
        total = total * kept + p.sum(-1, keepdim=True)
        weighted = weighted * kept + logits.mul_(p).sum(-1, keepdim=True)
        if with_mean:
            mean = mean.mul_(kept).add_(wide_mm(p.to(head.dtype), tile))
    lse = top + total.log()
    return lse[:, 0], (lse - weighted / total)[:, 0], mean.div_(total) if with_mean else None


def _head_gradient(grad, hidden, head, ids, lse, ctx):
    """For a head that is trained: sum over positions of grad (onehot - p) hidden / temperature, tile by tile."""
    gradient = torch.zeros(head.shape, dtype=lse.dtype, device=head.device)
    scaled = grad / ctx.temperature * hidden.to(head.dtype).to(lse.dtype)
    for start in range(0, len(head), ctx.chunk):
        for n in range(0, len(ids), ROWS):
            rows, tile = slice(n, n + ROWS), slice(start, start + ctx.chunk)
            p = torch.exp(wide_mm(hidden[rows].to(head.dtype), head[tile].T) / ctx.temperature - lse[rows, None])
            gradient[tile] -= p.T @ scaled[rows]
    return gradient.index_add_(0, ids, scaled).to(head.dtype)

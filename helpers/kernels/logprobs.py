"""Log-probabilities of chosen tokens without ever holding all logits."""

import torch
from torch import Tensor

from helpers.kernels.linear import wide_mm

#: Positions, and words of the vocabulary, at a time.
ROWS, TILE = 1024, 8192


def token_logprobs(
    hidden: Tensor, head_weight: Tensor, token_ids: Tensor, *, temperature: float = 1.0, chunk: int = TILE
) -> tuple[Tensor, Tensor]:
    """log p(token) and the entropy of p at each position, p = softmax(hidden @ head.T / temperature).

    Args:
        hidden: [..., H], rounded to the head's dtype.
        head_weight: [V, H].
        token_ids: int64 [...], all in 0..V-1.
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
    rows = hidden.flatten(0, -2)  # [N, H]
    ids = token_ids.flatten()  # [N]
    logprobs, entropy = _TokenLogprobs.apply(rows, head_weight, ids, temperature, chunk)
    return logprobs.view(token_ids.shape), entropy.view(token_ids.shape)


class _TokenLogprobs(torch.autograd.Function):
    """hidden [N, H], head [V, H], ids [N] -> log-probabilities and entropies, both [N]."""

    @staticmethod
    def forward(ctx, hidden, head, ids, temperature, chunk):
        wide = torch.promote_types(head.dtype, torch.float32)
        hidden_is_trained = ctx.needs_input_grad[0]
        lse = torch.empty(len(ids), dtype=wide, device=ids.device)
        entropy = torch.empty_like(lse)
        chosen_logits = torch.empty_like(lse)
        slope = None  # d log p(token) / d hidden, [N, H]
        if hidden_is_trained:
            slope = torch.empty(hidden.shape, dtype=head.dtype, device=ids.device)

        for start in range(0, len(ids), ROWS):
            here = slice(start, start + ROWS)
            rows = hidden[here].to(head.dtype)
            chosen = head[ids[here]].to(wide)  # the head's rows of the tokens, [n, H]
            lse[here], entropy[here], mean = _sweep(rows, head, temperature, chunk, hidden_is_trained)
            chosen_logits[here] = (rows.to(wide) * chosen).sum(-1) / temperature
            if hidden_is_trained:
                slope[here] = (chosen - mean) / temperature

        ctx.save_for_backward(hidden, head, ids, lse, slope)
        ctx.temperature = temperature
        ctx.chunk = chunk
        ctx.mark_non_differentiable(entropy)
        return chosen_logits - lse, entropy

    @staticmethod
    def backward(ctx, grad, _):
        hidden, head, ids, lse, slope = ctx.saved_tensors
        grad = grad[:, None]  # [N, 1]
        to_hidden = None
        to_head = None
        if ctx.needs_input_grad[0]:
            to_hidden = (slope.to(grad.dtype) * grad).to(hidden.dtype)
        if ctx.needs_input_grad[1]:
            to_head = _head_gradient(grad, hidden, head, ids, lse, ctx.temperature, ctx.chunk)
        return to_hidden, to_head, None, None, None


def _sweep(
    rows: Tensor, head: Tensor, temperature: float, chunk: int, with_mean: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """lse [n], entropy [n] and, if asked, the mean row of the head under p [n, H], over tiles of the vocabulary."""
    wide = torch.promote_types(head.dtype, torch.float32)
    top = torch.full((len(rows), 1), -torch.inf, dtype=wide, device=rows.device)  # the largest logit so far
    total = torch.zeros_like(top)  # sum of exp(logit - top)
    weighted = torch.zeros_like(top)  # sum of logit * exp(logit - top)
    mean = torch.zeros(rows.shape, dtype=wide, device=rows.device) if with_mean else None
    for tile in head.split(chunk):
        logits = wide_mm(rows, tile.T).div_(temperature)  # [n, chunk]
        new_top = torch.maximum(top, logits.amax(-1, keepdim=True))
        kept = torch.exp(top - new_top)
        top = new_top
        p = torch.exp(logits - top)  # at most 1, so 16 bits hold it
        total = total * kept + p.sum(-1, keepdim=True)
        weighted = weighted * kept + logits.mul_(p).sum(-1, keepdim=True)
        if with_mean:
            mean = mean.mul_(kept).add_(wide_mm(p.to(head.dtype), tile))
    if with_mean:
        mean = mean.div_(total)
    lse = top + total.log()
    entropy = lse - weighted / total
    return lse[:, 0], entropy[:, 0], mean


def _head_gradient(grad, hidden, head, ids, lse, temperature, chunk):
    """The gradient [V, H] of a head that is trained, tile by tile.

    It is the sum over positions of grad (onehot - p) hidden / temperature. grad: [N, 1].
    """
    gradient = torch.zeros(head.shape, dtype=lse.dtype, device=head.device)
    rounded = hidden.to(head.dtype)
    scaled = grad / temperature * rounded.to(lse.dtype)  # [N, H]
    for first_word in range(0, len(head), chunk):
        words = slice(first_word, first_word + chunk)
        for start in range(0, len(ids), ROWS):
            here = slice(start, start + ROWS)
            logits = wide_mm(rounded[here], head[words].T) / temperature
            p = torch.exp(logits - lse[here, None])
            gradient[words] -= p.T @ scaled[here]
    gradient.index_add_(0, ids, scaled)
    return gradient.to(head.dtype)

"""Log-probabilities of chosen tokens without ever holding all logits."""

import torch
from torch.utils.checkpoint import checkpoint


def token_logprobs(hidden, head_weight, token_ids, *, temperature=1.0, chunk=1024):
    """log p(token) and the entropy of p at each position, p = softmax(hidden @ head.T / temperature).

    Args:
        hidden: [..., H]. head_weight: [V, H]. token_ids: int64 [...].
        temperature: divides the logits.
        chunk: positions at a time; logits of one chunk, fp32 [chunk, V], are the peak. They
            are computed again in the backward pass.

    Returns: `(logprobs, entropy)`, fp32 [...]. The entropy carries no gradient.
    """
    assert hidden.shape[:-1] == token_ids.shape and hidden.shape[-1] == head_weight.shape[-1]

    def one(hidden, token_ids):
        logits = (hidden @ head_weight.T).float() / temperature
        logprobs = logits.log_softmax(-1)
        with torch.no_grad():
            entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1), entropy

    flat, ids = hidden.flatten(0, -2), token_ids.flatten()
    parts = [
        checkpoint(one, flat[n : n + chunk], ids[n : n + chunk], use_reentrant=False) for n in range(0, len(ids), chunk)
    ]
    logprobs, entropy = (torch.cat(column).view(token_ids.shape) for column in zip(*parts))
    return logprobs, entropy

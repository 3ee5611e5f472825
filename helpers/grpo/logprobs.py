"""The policy's log-probabilities of completions, with gradients."""

import torch
from torch.nn.utils.rnn import pad_sequence

from helpers.kernels.logprobs import token_logprobs


def policy_logprobs(model, completions, temperature=1.0):
    """Score completions under the model as it is now.

    model: a `GptOssForCausalLM`, adapted by PEFT or not. completions: list[Completion].

    Returns: `(logprobs, entropy, mask)`, each [B, T] with T the longest completion. Rows are
    padded on the right, where causal attention keeps padding out of sight, so that every
    token stands at the position it was sampled at.
    """
    causal_lm = model.get_base_model() if hasattr(model, "get_base_model") else model
    device = causal_lm.lm_head.weight.device
    rows = [torch.tensor(c.prompt_ids + c.token_ids) for c in completions]
    ids = pad_sequence(rows, batch_first=True).to(device)
    starts = torch.tensor([len(c.prompt_ids) for c in completions], device=device)
    lengths = torch.tensor([len(c.token_ids) for c in completions], device=device)
    offsets = torch.arange(lengths.max(), device=device)
    mask_BT = offsets < lengths[:, None]
    at_BT = (starts[:, None] + offsets).clamp(max=ids.shape[1] - 1)
    tokens_BT = ids.gather(1, at_BT)
    hidden = causal_lm.model(input_ids=ids, use_cache=False).last_hidden_state  # [B, L, H]
    row_B1 = torch.arange(len(rows), device=device)[:, None]
    # hidden state p predicts token p + 1
    logprobs, entropy = token_logprobs(
        hidden[row_B1, at_BT - 1][mask_BT], causal_lm.lm_head.weight, tokens_BT[mask_BT], temperature=temperature
    )
    blank = torch.zeros(mask_BT.shape, device=device)
    return blank.masked_scatter(mask_BT, logprobs), blank.masked_scatter(mask_BT, entropy), mask_BT.float()

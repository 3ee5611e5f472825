"""The policy's log-probabilities of completions, with gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from helpers.kernels.logprobs import token_logprobs
from helpers.rollout.completion import Completion


def policy_logprobs(
    model: nn.Module, completions: Sequence[Completion], temperature: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Score completions under the model as it is now.

    model: a `GptOssForCausalLM`, adapted by PEFT or not.

    Returns: `(logprobs, entropy, mask)`, fp32 [B, T] each, with T the longest completion; the mask is 1 where there is
    a token. Rows are padded on the right, where causal attention keeps padding out of sight, so that every token stands
    at the position it was sampled at.
    """
    causal_lm = model.get_base_model() if hasattr(model, "get_base_model") else model
    device = causal_lm.lm_head.weight.device
    sequences = [torch.tensor(completion.prompt_ids + completion.token_ids) for completion in completions]
    ids_BL = pad_sequence(sequences, batch_first=True)
    longest = max(len(completion.token_ids) for completion in completions)

    # Of all N tokens: where each stands in ids_BL, and where in the result. The host knows this without asking the GPU.
    sources = []
    targets = []
    for row, completion in enumerate(completions):
        numbers = torch.arange(len(completion.token_ids))
        sources.append(row * ids_BL.shape[1] + len(completion.prompt_ids) + numbers)
        targets.append(row * longest + numbers)
    sources_N = torch.cat(sources)
    tokens_N = ids_BL.flatten()[sources_N]
    in_one_copy = torch.stack([sources_N, tokens_N, torch.cat(targets)]).to(device)
    sources_N, tokens_N, targets_N = in_one_copy

    hidden = causal_lm.model(input_ids=ids_BL.to(device), use_cache=False).last_hidden_state  # [B, L, H]
    before_N = hidden.flatten(0, 1)[sources_N - 1]  # the hidden state at p predicts token p + 1
    logprobs_N, entropy_N = token_logprobs(before_N, causal_lm.lm_head.weight, tokens_N, temperature=temperature)

    def in_rows(values_N: Tensor) -> Tensor:
        blank = torch.zeros(len(completions) * longest, device=device)
        return blank.scatter(0, targets_N, values_N).view(len(completions), longest)

    return in_rows(logprobs_N), in_rows(entropy_N), in_rows(torch.ones_like(entropy_N))


def recorded_experts(completions: Sequence[Completion]) -> Tensor | None:
    """The experts that the sampler chose, where `policy_logprobs` has the tokens: int64 [B, L, layers, K] on the CPU.

    -1 where nothing was recorded: for padding, and for the last token of a completion, which the sampler never read.
    None if no completion has any. For `helpers.model.routing`.
    """
    recorded = [completion.experts for completion in completions if completion.experts is not None]
    if not recorded:
        return None
    longest = max(len(completion.prompt_ids) + len(completion.token_ids) for completion in completions)
    experts = torch.full((len(completions), longest, *recorded[0].shape[1:]), -1)
    for row, completion in enumerate(completions):
        if completion.experts is not None:
            experts[row, : len(completion.experts)] = completion.experts
    return experts

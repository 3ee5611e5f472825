"""The clipped policy-gradient loss of GRPO and its two normalisations."""

import torch


def policy_loss(logprobs, old_logprobs, advantages, mask, *, normalizer, epsilon=0.2, epsilon_high=None):
    """-min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A) summed over tokens, over `normalizer`.

    Args:
        logprobs, old_logprobs: float [B, T], of the tokens drawn, now and when drawn; the
            ratio is r = exp(logprobs - old_logprobs).
        advantages: [B]. mask: [B, T], 1 where a token counts.
        normalizer: what the sum is divided by, for the whole optimizer step (`loss_normalizer`),
            so that cutting a step into micro-batches changes nothing.

    Returns: `(loss, clipped)`; clipped counts the tokens whose gradient the clip removes,
    `(low, high)`. PPO (2017), equation 7; the asymmetric clip is DAPO's (2025, section 3.1).
    """
    epsilon_high = epsilon if epsilon_high is None else epsilon_high
    ratio = torch.exp(logprobs - old_logprobs)
    gain = advantages.unsqueeze(1)
    per_token = -torch.min(ratio * gain, ratio.clamp(1 - epsilon, 1 + epsilon_high) * gain)
    low = ((ratio < 1 - epsilon) & (gain < 0) & (mask > 0)).sum().item()
    high = ((ratio > 1 + epsilon_high) & (gain > 0) & (mask > 0)).sum().item()
    return (per_token * mask).sum() / normalizer, (low, high)


def loss_normalizer(loss_type, tokens, completions, max_completion_length):
    """What a step's summed loss is divided by.

    "dapo": the tokens of the whole step (DAPO, 2025, equation 8). "dr_grpo": a constant,
    completions * max_completion_length, so that length earns nothing (Dr. GRPO, 2025, section 3.2).
    """
    return max(tokens, 1) if loss_type == "dapo" else completions * max_completion_length

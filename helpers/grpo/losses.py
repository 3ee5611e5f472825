"""The clipped policy-gradient loss of GRPO and its two normalisations."""

import torch


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    normalizer: float,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """-min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A) summed over tokens, over `normalizer`.

    Args:
        logprobs, old_logprobs: float [B, T], of the tokens drawn, now and when drawn; the
            ratio is r = exp(logprobs - old_logprobs).
        advantages: [B]. mask: [B, T], 1 where a token counts.
        normalizer: what the sum is divided by, for the whole optimizer step (`loss_normalizer`),
            so that cutting a step into micro-batches changes nothing.

    Returns: `(loss, clipped)`; clipped counts the tokens whose gradient the clip removes,
    `(low, high)`, on the device. PPO (2017), equation 7; the asymmetric clip is DAPO's (2025, section 3.1).
    """
    lowest = 1 - epsilon
    highest = 1 + (epsilon if epsilon_high is None else epsilon_high)
    ratio_BT = torch.exp(logprobs - old_logprobs)
    advantage_B1 = advantages.unsqueeze(1)
    unclipped_BT = ratio_BT * advantage_B1
    clipped_BT = ratio_BT.clamp(lowest, highest) * advantage_B1
    loss_BT = -torch.min(unclipped_BT, clipped_BT)
    counted_BT = mask > 0
    low_BT = (ratio_BT < lowest) & (advantage_B1 < 0) & counted_BT
    high_BT = (ratio_BT > highest) & (advantage_B1 > 0) & counted_BT
    loss = (loss_BT * mask).sum() / normalizer
    return loss, (low_BT.sum(), high_BT.sum())


def _dapo(tokens: int, completions: int, max_completion_length: int) -> int:
    """The tokens of the whole step (DAPO, 2025, equation 8)."""
    return max(tokens, 1)


def _dr_grpo(tokens: int, completions: int, max_completion_length: int) -> int:
    """A constant, so that length earns nothing (Dr. GRPO, 2025, section 3.2)."""
    return completions * max_completion_length


#: `GRPOConfig.loss_type` -> what a step's summed loss is divided by.
NORMALIZERS = {"dapo": _dapo, "dr_grpo": _dr_grpo}


def loss_normalizer(loss_type: str, tokens: int, completions: int, max_completion_length: int) -> int:
    """Return what a step's summed loss is divided by. tokens, completions: of the whole step."""
    return NORMALIZERS[loss_type](tokens, completions, max_completion_length)

"""Scores completions. A reward has TRL's signature: f(prompts, completions, **columns) -> list[float]."""

from helpers.rewards.matmul import (
    MATMUL_REWARDS,
    behaviours,
    correctness_check,
    extract_code,
    function_works,
    heldout_check,
    judge,
    no_cheating,
    speed_check,
)

__all__ = [
    "MATMUL_REWARDS",
    "behaviours",
    "correctness_check",
    "extract_code",
    "function_works",
    "heldout_check",
    "judge",
    "no_cheating",
    "speed_check",
]

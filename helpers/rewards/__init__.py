"""Reads answers and scores them. A reward has TRL's signature: f(prompts, completions, **columns) -> list[float]."""

from helpers.rewards import preference, presets  # these register rewards
from helpers.rewards.answers import last_box, plain_answer
from helpers.rewards.arguments import text_of
from helpers.rewards.code import extract_code
from helpers.rewards.lint import lint_rewards
from helpers.rewards.numbers import boxed_number, read_number
from helpers.rewards.registry import (
    Reward,
    get_reward,
    list_presets,
    list_rewards,
    register_preset,
    register_reward,
    reward_preset,
)

"""Reads answers and scores them. A reward has TRL's signature: f(prompts, completions, **columns) -> list[float]."""

from helpers.rewards import preference, presets  # these register rewards
from helpers.rewards.answers import boxed_number, last_box, read_number
from helpers.rewards.code import extract_code
from helpers.rewards.lint import lint_rewards
from helpers.rewards.registry import (
    Reward,
    get_reward,
    list_presets,
    list_rewards,
    register_preset,
    register_reward,
    reward_preset,
)
from helpers.rewards.text import text_of

"""Reads answers and scores them. A reward has TRL's signature: f(prompts, completions, **columns) -> list[float]."""

from helpers.rewards.answers import last_box, plain_answer
from helpers.rewards.arguments import text_of
from helpers.rewards.code import extract_code
from helpers.rewards.numbers import boxed_number, read_number
from helpers.rewards.registry import Reward

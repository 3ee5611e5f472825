"""Reads answers and scores them. A reward has TRL's signature: f(prompts, completions, **columns) -> list[float]."""

from helpers.rewards.code import extract_code
from helpers.rewards.math import boxed_integer, math_answer
from helpers.rewards.text import text_of

__all__ = ["boxed_integer", "extract_code", "math_answer", "text_of"]

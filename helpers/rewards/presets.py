"""The rewards of each task, with their weights. In each, being right outweighs everything else."""

from helpers.rewards import constraints, length, math, programs  # noqa: F401  (these register the rewards)
from helpers.rewards.puzzles import countdown, knights, order  # noqa: F401
from helpers.rewards.registry import register_preset

register_preset("math", [("math_answer", 1.0), ("math_number", 0.2), ("math_format", 0.1), ("length_penalty", 0.1)])
register_preset("code", [("code_correctness", 1.0), ("length_penalty", 0.1)])
register_preset("general", [("instruction_constraints", 1.0), ("length_penalty", 0.1)])
register_preset(
    "reasoning", [("countdown", 1.0), ("knights_and_knaves", 1.0), ("step_order", 1.0), ("length_penalty", 0.1)]
)

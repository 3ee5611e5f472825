"""The rewards of tasks whose answer is no program, with their weights. In each, being right outweighs everything else.

None of them has a price for length. Advantages are divided by the standard deviation of a group, so in a group whose
answers are all wrong the smallest difference is the whole lesson. If that is a price for each token, a model learns to
stop thinking; if it is `math_format`, it learns to write one box that can be read, which a right answer needs as well.
"""

from helpers.rewards import constraints, length, math  # noqa: F401  (these register the rewards)
from helpers.rewards.puzzles import countdown, knights, order  # noqa: F401
from helpers.rewards.registry import register_preset

register_preset("math", [("math_answer", 1.0), ("math_format", 0.1)])
register_preset("general", [("instruction_constraints", 1.0)])
register_preset("reasoning", [("countdown", 1.0), ("knights_and_knaves", 1.0), ("step_order", 1.0)])

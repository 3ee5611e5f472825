"""The matmul task's rewards, by name. All that are made with the same options share one judge and its verdicts."""

from collections.abc import Sequence
from functools import cache

from helpers.rewards.registry import Reward, register_preset, register_reward
from helpers.tasks.matmul.task import MatmulTask


@cache
def _shared_task(level: str, workers: int | None) -> MatmulTask:
    return MatmulTask(level=level, workers=workers)


class MatmulReward(Reward):
    """A reward of the matmul task.

    level: of the sandbox, "os", or "policy" for a host without seccomp. workers: programs judged at a time; None: one a
    core.
    """

    def __init__(self, level: str = "os", workers: int | None = None):
        self.task = _shared_task(level, workers)

    def __call__(self, prompts: Sequence, completions: Sequence, **columns) -> list[float | None]:
        reward = getattr(self.task, self.name)
        return reward(prompts, completions, **columns)


@register_reward(value_range=(-0.5, 0.5), needs=("contract",))
class FunctionWorks(MatmulReward):
    """Pay 0.5 for a pure program that raises in none of the calls made, 0 for one not allowed here, else -0.5."""

    name = "function_works"


@register_reward(value_range=(-1.0, 0.0), needs=("contract",))
class NoCheating(MatmulReward):
    """Take 1 from a cheat by the policy (numpy, torch, the clock, ...)."""

    name = "no_cheating"


@register_reward(value_range=(0.0, 1.0), needs=("contract",), pays_correctness=True)
class CorrectnessCheck(MatmulReward):
    """Pay 1 where every call returned the product, else 0."""

    name = "correctness_check"


@register_reward(value_range=(-0.25, 0.25), needs=("contract",))
class SpeedCheck(MatmulReward):
    """Pay between -0.25 and 0.25 by the logarithm of the speedup over plain loops; 0 unless correct."""

    name = "speed_check"


register_preset(
    "matmul", [("function_works", 1.0), ("no_cheating", 1.0), ("correctness_check", 1.0), ("speed_check", 1.0)]
)

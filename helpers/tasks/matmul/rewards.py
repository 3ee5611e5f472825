"""The matmul task's rewards, by name."""

from collections.abc import Callable, Sequence

from helpers.rewards.registry import Reward, register_preset, register_reward
from helpers.tasks.matmul.task import MatmulTask


class MatmulReward(Reward):
    """A reward of the matmul task.

    task: whose judge and verdicts it uses; default: a task of its own. Rewards of one task judge a program once.
    """

    def __init__(self, task: MatmulTask | None = None):
        self.task = MatmulTask() if task is None else task

    def __call__(self, prompts: Sequence, completions: Sequence, **columns) -> list[float | None]:
        reward = getattr(self.task, self.name)
        return reward(prompts, completions, **columns)

    def close(self) -> None:
        """End the sandbox's processes."""
        self.task.close()


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


def _of_one_task() -> list[Callable]:
    task = MatmulTask()
    return [reward(task) for reward in (FunctionWorks, NoCheating, CorrectnessCheck, SpeedCheck)]


register_preset(
    "matmul",
    [("function_works", 1.0), ("no_cheating", 1.0), ("correctness_check", 1.0), ("speed_check", 1.0)],
    make=_of_one_task,
)

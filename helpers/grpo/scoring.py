"""Calls the reward functions and the task's grader; what goes wrong in them becomes one sentence."""

import math
from collections.abc import Callable, Sequence

import torch

from helpers.grpo.guards import LimitReached, time_limit
from helpers.rewards.calling import (
    call_reward,
    check_count,
    completion_arguments,
    describe_failure,
    is_finite_number,
    name_of,
)
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks import Grade, Task
from helpers.tasks.grading import grade_answers
from helpers.tasks.task import Rewards, plain_number

GOES_ON = "training goes on from the last checkpoint"
#: Names and beginnings of names that a reward may not log under: the trainer's own.
OWN_NAMES = {
    "step", "loss", "grad_norm", "learning_rate", "entropy", "num_tokens", "step_time",
    "reward", "reward_std", "frac_reward_zero_std",
}  # fmt: skip
OWN_BEGINNINGS = (
    "rewards/", "completions/", "advantages/", "clip_ratio/", "ratio/", "sampling/", "router/", "memory/", "time/",
    "monitor/", "outcomes/",
)  # fmt: skip
RECORD_NAMES = {
    "prompt", "thinking", "completion", "finish_reason", "rewards", "reward", "advantage", "outcome", "reason",
}  # fmt: skip


def score(
    reward_funcs: Sequence[Callable],
    columns: dict[str, list],
    completions: Sequence[Completion],
    trainer_state,
    timeout: float,
) -> tuple[torch.Tensor, dict[str, float], dict[str, list]]:
    """Call every reward function as TRL does, with keywords. Those written with `async def` are awaited, one by one.

    columns: name -> one value a completion, `prompt` among them. timeout: seconds for each function.

    Returns `(rewards float64 [B, R], {metric: value}, {name: one value a completion})`, the last from
    `log_extra`. Raises UserError for a function that raises or takes too long, a wrong number of values,
    and a value that is not a finite number or None.
    """
    columns = {("prompts" if name == "prompt" else name): values for name, values in columns.items()}
    log = _Log(len(completions))
    rewards = []
    for function in reward_funcs:
        arguments = {
            **completion_arguments(completions),
            "trainer_state": trainer_state,
            "log_metric": log.log_metric,
            "log_extra": log.log_extra,
            **columns,
        }
        name = name_of(function)
        values = _call(f"Reward '{name}'", call_reward, timeout, function, **arguments)
        rewards.append(_column(name, values, len(completions)))
    return torch.stack(rewards, 1), log.metrics, log.extras


def grade(
    task: Task, rows: Sequence[dict], completions: Sequence[Completion], rewards: Rewards | None, timeout: float
) -> list[Grade]:
    """Return the task's grades, as `grade_answers` does. Raises UserError also if its grader takes too long."""
    return _call(f"The grader of task '{task.name}'", grade_answers, timeout, task, rows, completions, rewards)


class _Log:
    """Collects what the reward functions log of one generation."""

    def __init__(self, count: int):
        self.count = count
        self.metrics = {}
        self.extras = {}

    def log_metric(self, name: str, value: float) -> None:
        if name in OWN_NAMES or name.startswith(OWN_BEGINNINGS):
            raise UserError(f"log_metric('{name}', ...): the trainer logs under that name; choose another.")
        self.metrics[name] = float(value)

    def log_extra(self, name: str, values: Sequence) -> None:
        if name in RECORD_NAMES:
            raise UserError(f"log_extra('{name}', ...): a completion's record has that already; choose another name.")
        if len(values) != self.count:
            raise UserError(f"log_extra('{name}', ...) got {len(values)} values for {self.count} completions.")
        self.extras[name] = [_plain(value) for value in values]


def _plain(value):
    """Return a value that JSON can hold."""
    value = plain_number(value)
    if isinstance(value, (str, int, float, type(None))):
        return value
    return str(value)


def _call(what: str, function: Callable, timeout: float, *arguments, **keywords):
    """Call a function of the user's. what: how messages name it, such as "Reward 'f'"."""
    try:
        with time_limit(timeout):
            return function(*arguments, **keywords)
    except UserError:
        raise
    except LimitReached as error:
        raise UserError(
            f"{what} gave no answer within reward_timeout={timeout:g} seconds: fix it or raise "
            f"reward_timeout, and run this again; {GOES_ON}."
        ) from error
    except Exception as error:
        raise UserError(f"{describe_failure(what, error)}: fix it and run this again; {GOES_ON}.") from error


def _column(name: str, values, count: int) -> torch.Tensor:
    """Return float64 [B] from what the reward `name` returned; None becomes NaN."""
    check_count(name, values, count, then=f"; {GOES_ON}")
    for value in values:
        if value is not None and not is_finite_number(value):
            raise UserError(
                f"Reward '{name}' returned {repr(value)[:80]}: return a finite number, or None for not applicable; "
                f"{GOES_ON}."
            )
    return torch.tensor([math.nan if value is None else float(value) for value in values], dtype=torch.float64)

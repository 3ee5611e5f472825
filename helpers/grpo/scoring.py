"""Calls the reward functions; what goes wrong in them becomes one sentence."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from helpers.grpo.batch import Group
from helpers.grpo.guards import LimitReached, time_limit
from helpers.rewards.calling import (
    call_reward,
    describe_failure,
    is_nan,
    name_of,
    reward_arguments,
    reward_values,
)
from helpers.runtime import UserError
from helpers.tasks.task import Row, plain_number

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


class Scores(NamedTuple):
    """What the reward functions gave: rewards float64 [B, R], NaN for None; what they logged, by name; and, from
    `log_extra`, one value a completion by name."""

    rewards: Tensor
    metrics: dict[str, float]
    extras: dict[str, list]


def score(
    reward_funcs: Sequence[Callable], rows: Sequence[Row], groups: Sequence[Group], trainer_state, timeout: float
) -> Scores:
    """Call every reward function as TRL does, with keywords. Those written with `async def` are awaited, one by one.

    rows: of the data set, one a group. timeout: seconds for each function.

    The metrics have the share of the completions for which a function returned NaN, which counts as None.

    Raises UserError for a function that raises or takes too long, a wrong number of values, and an infinite value or
    one that is no number.
    """
    completions = [completion for group in groups for completion in group.completions]
    rows_B = rows_of_completions(rows, groups)
    log = _Log(len(completions))
    rewards = []
    has_nan_B = [False] * len(completions)
    for function in reward_funcs:
        name = name_of(function)
        arguments = {
            "trainer_state": trainer_state,
            "log_metric": log.log_metric,
            "log_extra": log.log_extra,
            **reward_arguments(rows_B, completions),
        }
        with user_code(f"Reward '{name}'", timeout):
            returned = call_reward(function, **arguments)
        values = reward_values(name, returned, len(completions), then=f"; {GOES_ON}")
        has_nan_B = [had or is_nan(value) for had, value in zip(has_nan_B, returned, strict=True)]
        rewards.append(torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64))
    metrics = {"completions/nan_reward_ratio": sum(has_nan_B) / len(completions), **log.metrics}
    return Scores(torch.stack(rewards, 1), metrics, log.extras)


def rows_of_completions(rows: Sequence[Row], groups: Sequence[Group]) -> list[Row]:
    """Return the row of the data set that each completion answers. rows: one a group."""
    return [row for row, group in zip(rows, groups, strict=True) for _ in group.completions]


@contextmanager
def user_code(what: str, timeout: float) -> Iterator[None]:
    """Turn what goes wrong in a block of the user's code into one sentence: an exception, and too long a time.

    what: how the sentence names it, such as "Reward 'f'". timeout: seconds.
    """
    try:
        with time_limit(timeout):
            yield
    except UserError:
        raise
    except LimitReached as error:
        raise UserError(
            f"{what} gave no answer within reward_timeout={timeout:g} seconds: fix it or raise "
            f"reward_timeout, and run this again; {GOES_ON}."
        ) from error
    except Exception as error:
        raise UserError(f"{describe_failure(what, error)}: fix it and run this again; {GOES_ON}.") from error


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

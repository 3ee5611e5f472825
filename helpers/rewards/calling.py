"""What everyone who calls a reward function needs: its arguments, its name, and sentences on what goes wrong in it."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from helpers.rollout.completion import Completion
from helpers.runtime import UserError, first_line


def completion_arguments(completions: Sequence[Completion]) -> dict[str, list]:
    """Return the arguments of a reward function that are made of the completions, under TRL's names and ours."""
    return {
        "completions": [completion.message for completion in completions],
        "completion_ids": [list(completion.token_ids) for completion in completions],
        "logprobs": [list(completion.logprobs) for completion in completions],
        "finish_reasons": [completion.finish_reason for completion in completions],
    }


def name_of(function: Callable) -> str:
    """Return the name of a reward in logs and messages."""
    return getattr(function, "__name__", type(function).__name__)


def check_count(name: str, values: object, count: int, then: str = "") -> None:
    """Raise UserError unless the reward `name` returned a list of `count` values. then: ends the sentence."""
    if isinstance(values, (list, tuple)) and len(values) == count:
        return
    returned = f"{len(values)} values" if isinstance(values, (list, tuple)) else f"a {type(values).__name__}"
    raise UserError(f"Reward '{name}' returned {returned}: return a list of {count}, one for each completion{then}.")


def describe_failure(what: str, error: Exception) -> str:
    """Return such as "Reward 'f' raised KeyError: 'x' (rewards.py, line 7)". what: names the function."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file = Path(place.filename).name
    return f"{what} raised {type(error).__name__}: {first_line(error)} ({file}, line {place.lineno})"

"""What everyone who calls a reward function needs: its arguments, its name, and sentences on what goes wrong in it."""

import asyncio
import functools
import inspect
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from helpers.rollout.completion import Completion
from helpers.runtime import UserError, first_line


def reward_arguments(rows: Sequence[Mapping], completions: Sequence[Completion]) -> dict[str, list]:
    """Return the arguments of a reward function that rows of a data set and their completions make.

    The names are TRL's, which passes the column `prompt` as `prompts`, and ours. rows: one a completion. A function may
    change what it gets, so make the arguments of each call anew.
    """
    columns = {"prompts" if name == "prompt" else name: [row[name] for row in rows] for name in rows[0]}
    return {
        "completions": [completion.message for completion in completions],
        "completion_ids": [list(completion.token_ids) for completion in completions],
        "logprobs": [list(completion.logprobs) for completion in completions],
        "finish_reasons": [completion.finish_reason for completion in completions],
        **columns,
    }


def arguments_without_logs(rows: Sequence[Mapping], completions: Sequence[Completion]) -> dict[str, object]:
    """Return `reward_arguments` and functions in place of the trainer's log functions, which log nothing."""
    return {"log_metric": _ignore, "log_extra": _ignore, **reward_arguments(rows, completions)}


def _ignore(name: str, value: object) -> None:
    """Take the place of the trainer's log functions."""


def behind_partials(function: Callable) -> Callable:
    """Return the function that a partial, or a partial of one, calls at last."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def name_of(function: Callable) -> str:
    """Return the name of a reward in logs and messages, which is TRL's: a partial is called as its function."""
    function = behind_partials(function)
    return getattr(function, "__name__", type(function).__name__)


def call_reward(function: Callable, *arguments, **keywords):
    """Call a reward function and return what it returned. An `async def` one is awaited, also within a notebook.

    A notebook's cell has an event loop that runs already, so the awaiting is done in a thread. All calls share that
    thread's loop, since clients that a reward keeps from call to call are bound to it.
    """
    returned = function(*arguments, **keywords)
    return _await(returned) if inspect.isawaitable(returned) else returned


def _await(awaitable: Awaitable):
    """Return the result of an awaitable. What interrupts this thread, such as a time limit, cancels it."""
    global _background
    if _background is None or not _background.responds():
        _background = _EventLoopThread()
    future = asyncio.run_coroutine_threadsafe(_result_of(awaitable), _background.loop)
    try:
        return future.result()
    finally:
        future.cancel()


async def _result_of(awaitable: Awaitable):
    try:
        return await awaitable
    except SystemExit as error:  # it would end the loop, and whoever waits for the result would not be told
        raise RuntimeError("it calls exit") from error


class _EventLoopThread:
    """A thread that runs an event loop for as long as the process lives."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="async rewards", daemon=True)
        self.thread.start()

    def responds(self) -> bool:
        """Tell whether it can take a call: not in a process forked from its own, nor where a reward blocks it."""
        if not self.thread.is_alive():
            return False
        answered = threading.Event()
        self.loop.call_soon_threadsafe(answered.set)
        return answered.wait(timeout=1)


_background: _EventLoopThread | None = None


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

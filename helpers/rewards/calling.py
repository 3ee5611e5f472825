"""What everyone who calls a reward function needs: its arguments, its name, and sentences on what goes wrong in it."""

import asyncio
import functools
import hashlib
import inspect
import math
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import CellType, CodeType

from helpers.rewards.arguments import scalar, shown
from helpers.rollout.completion import Completion
from helpers.runtime import UserError, first_line, is_finite_number


def reward_arguments(rows: Sequence[Mapping], completions: Sequence[Completion]) -> dict[str, list]:
    """Return the arguments of a reward function that rows of a data set and their completions make.

    The names are TRL's, which passes the column `prompt` as `prompts`, and ours. rows: one a completion. As in TRL a
    completion is a list of messages where the prompt is one, and the text of the final channel where the prompt is a
    text.
    """
    pairs = list(zip(rows, completions, strict=True))
    columns = {"prompts" if name == "prompt" else name: [row[name] for row in rows] for name in rows[0]}
    return {
        "completions": [one.text if isinstance(row["prompt"], str) else one.message for row, one in pairs],
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


def source_digest(function: Callable) -> str:
    """Return a short digest of a reward: of its source and of the plain values that it is made with.

    Those are the arguments of a partial, what a closure holds, and the attributes of an object that can be called.
    Where the source is not to be had, as in `exec`, the compiled code stands for it.
    """
    values = []
    while isinstance(function, functools.partial):
        values += [function.args, function.keywords]
        function = function.func
    function = inspect.unwrap(function)
    if inspect.ismethod(function):
        values.append(vars(function.__self__))
    if not inspect.isroutine(function):
        values.append(getattr(function, "__dict__", {}))
        function = type(function)
    closure = getattr(function, "__closure__", None) or ()
    values += [cell.cell_contents for cell in closure if _is_filled(cell)]
    text = f"{_source_of(function)} {[_plain(value) for value in values]}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # raises where nothing is in it yet
    except ValueError:
        return False
    return True


def _source_of(function: Callable) -> str:
    """Return the source of a function or class, or what stands for it: of a class without one, that of its methods."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        pass
    if inspect.isclass(function):
        members = [member for base in function.__mro__[:-1] for member in vars(base).values()]
        members += [part for member in members for part in getattr(member, "__dict__", {}).values()]
        return " ".join(_source_of(member) for member in members if inspect.isfunction(member))
    code = getattr(function, "__code__", None)
    if code is None:
        return name_of(function)
    return f"{_text_of_code(code)} {_plain(function.__defaults__)} {_plain(function.__kwdefaults__)}"


def _text_of_code(code: CodeType) -> str:
    """Return a text that is the same in every process, for the same code."""
    constants = [_text_of_code(value) if isinstance(value, CodeType) else _plain(value) for value in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"


def _plain(value: object) -> str:
    """Return a value as text if it is plain; of others, whose text may differ from process to process, the type."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_plain, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_plain(key)}: {_plain(item)}' for key, item in value.items())}}}"
    return repr(value) if type(value) in PLAIN else type(value).__name__


def call_reward(function: Callable, *arguments, **keywords):
    """Call a reward function and return what it returned. An `async def` one is awaited, also within a notebook.

    A notebook's cell has an event loop that runs already, so the awaiting is done in a thread. All calls share that
    thread's loop, since clients that a reward keeps from call to call are bound to it.

    Raises UserError where the reward changed a list or a dictionary of an argument, since the rows of the data set
    belong to all rewards, and RuntimeError where it calls exit.
    """
    before = {name: _frozen(value) for name, value in keywords.items()}
    try:
        returned = function(*arguments, **keywords)
    except SystemExit as error:
        raise RuntimeError("it calls exit") from error
    values = _await(returned) if inspect.isawaitable(returned) else returned
    for name, value in keywords.items():
        if _frozen(value) != before[name]:
            raise UserError(
                f"Reward '{name_of(function)}' changes its argument '{name}', which other rewards get, too: let it "
                "change a copy."
            )
    return values


#: Of values within values, deeper changes are not seen.
MOST_DEPTH = 10
#: A list of these is copied at once: token ids come by the hundred thousand.
PLAIN = {str, int, float, bool, type(None)}


def _frozen(value: object, depth: int = 0) -> object:
    """Return something that is equal later where a value of lists, dictionaries and plain values has not changed."""
    if isinstance(value, (list, tuple)) and PLAIN.issuperset(map(type, value)):
        return list(value)
    if depth < MOST_DEPTH and isinstance(value, (list, tuple)):
        return [_frozen(item, depth + 1) for item in value]
    if depth < MOST_DEPTH and isinstance(value, dict):
        return [(key, _frozen(item, depth + 1)) for key, item in value.items()]
    return value if isinstance(value, (str, int, float)) else id(value)


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


def reward_values(name: str, returned: object, count: int, then: str = "") -> list[float | None]:
    """Return the values that the reward `name` returned as Python's numbers; None for None and, as in TRL, for NaN.

    They may be numbers of numpy or torch, or one array or tensor of them. then: ends the sentence of an error.

    Raises UserError unless there are `count` values, each a finite number, None or NaN.
    """
    is_array = getattr(returned, "ndim", None) == 1 and hasattr(returned, "tolist")
    values = returned.tolist() if is_array else returned
    if not isinstance(values, (list, tuple)) or len(values) != count:
        what = f"{len(values)} values" if isinstance(values, (list, tuple)) else f"a {type(values).__name__}"
        raise UserError(f"Reward '{name}' returned {what}: return a list of {count}, one for each completion{then}.")
    return [_reward_value(name, value, then) for value in values]


def _reward_value(name: str, value: object, then: str) -> float | None:
    number = scalar(value)
    if number is None or is_nan(value):
        return None
    if is_finite_number(number):
        return float(number)
    raise UserError(
        f"Reward '{name}' returned {shown(value)}: return a finite number, or None for not applicable{then}."
    )


def is_nan(value: object) -> bool:
    """Tell whether one value that a reward returned is NaN."""
    number = scalar(value)
    return isinstance(number, float) and math.isnan(number)


def describe_failure(what: str, error: Exception) -> str:
    """Return such as "Reward 'f' raised KeyError: 'x' (rewards.py, line 7)". what: names the function."""
    origin = error.__cause__ if isinstance(error.__cause__, SystemExit) else error
    place = traceback.extract_tb(origin.__traceback__)[-1]
    file = Path(place.filename).name
    return f"{what} raised {type(error).__name__}: {first_line(error)} ({file}, line {place.lineno})"

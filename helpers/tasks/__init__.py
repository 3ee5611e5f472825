"""What can be learned: each task has its prompts, rewards and grades.

Importing this also registers the rewards that belong to a task, so the lists of rewards are complete from here.
"""

import inspect
from collections.abc import Callable

from helpers.rewards.calling import describe_failure
from helpers.rewards.registry import (
    get_reward,
    list_presets,
    list_rewards,
    register_preset,
    register_reward,
    reward_preset,
)
from helpers.runtime import UserError, did_you_mean
from helpers.tasks.code.task import CodeTask
from helpers.tasks.custom import CustomTask
from helpers.tasks.general.task import GeneralTask
from helpers.tasks.importing import import_by_name
from helpers.tasks.math.task import MathTask
from helpers.tasks.matmul.task import MatmulTask
from helpers.tasks.reasoning.task import ReasoningTask
from helpers.tasks.task import CORRECT, REFUSED, UNJUDGED, Grade, Measure, Task

_TASKS: dict[str, Callable[..., Task]] = {
    "matmul": MatmulTask,
    "math": MathTask,
    "code": CodeTask,
    "general": GeneralTask,
    "reasoning": ReasoningTask,
}


def get_task(name: str, **options) -> Task:
    """Return the task of that name. options: of its class, such as speed=False for "matmul".

    name: one of `list_tasks()`, or "module:function" for a function of your own that returns a `Task`.

    Raises UserError for an unknown name, and for a module that cannot be imported.
    """
    if ":" in name:
        return _make_imported(name, options)
    if name not in _TASKS:
        raise UserError(
            f"There is no task '{name}'{did_you_mean(name, _TASKS)}: choose {', '.join(_TASKS)}, or write "
            "module:function."
        )
    return _TASKS[name](**options)


def _make_imported(name: str, options: dict) -> Task:
    """Return the task of "module:function", or of "module:task" where it is there already."""
    task = import_by_name("task", name)
    if callable(task) and not isinstance(task, Task):
        try:
            task = task(**options)
        except UserError:
            raise
        except Exception as error:
            failure = describe_failure(f"Making the task '{name}'", error)
            raise UserError(f"{failure}: fix it and run this again.") from error
    if not isinstance(task, Task):
        raise UserError(f"'{name}' gives a {type(task).__name__}: name a function or class that returns a Task.")
    return task


def known_options(name: str, **options) -> dict:
    """Return those of the options that the task of that name takes, for callers that serve every task."""
    make_task = import_by_name("task", name) if ":" in name else _TASKS.get(name)
    if not callable(make_task):
        return {}
    parameters = inspect.signature(make_task).parameters
    return {option: value for option, value in options.items() if option in parameters}


def list_tasks() -> list[str]:
    """Return the names that `get_task` knows."""
    return list(_TASKS)


def register_task(name: str, make_task: Callable[..., Task]) -> None:
    """Make a task known by name. make_task: a class or function that returns a `Task`; it gets `get_task`'s options."""
    _TASKS[name] = make_task

"""What can be learned: each task has its prompts, rewards and grades.

A task is known by its name in `TASKS`, by its place ("module:function"), or is an object that a notebook made. The task
"custom" is made of data of the user's alone (`choosing.choose_task`).
"""

from collections.abc import Callable

from helpers.rewards.calling import describe_failure
from helpers.rewards.registry import (
    add_reward_modules,
    get_reward,
    list_presets,
    list_rewards,
    register_preset,
    register_reward,
    reward_preset,
)
from helpers.runtime import UserError, did_you_mean
from helpers.tasks.custom import CustomTask
from helpers.tasks.data.task import NAME as DATA_TASK
from helpers.tasks.data.task import DataTask
from helpers.tasks.importing import import_by_name
from helpers.tasks.task import CORRECT, REFUSED, UNJUDGED, Grade, Measure, Task

#: task -> the place of the class that makes it. A task's module is imported when the task, or a list of all, is asked
#: for, and registers its rewards. No other module names one of the gallery.
TASKS = {
    "matmul": "helpers.tasks.matmul.task:MatmulTask",
    "math": "helpers.gallery.math.task:MathTask",
    "code": "helpers.gallery.code.task:CodeTask",
    "general": "helpers.gallery.general.task:GeneralTask",
    "reasoning": "helpers.gallery.reasoning.task:ReasoningTask",
}
add_reward_modules({name: place.partition(":")[0] for name, place in TASKS.items()})


def get_task(name: str, **options) -> Task:
    """Return the task of that name. options: of its class, such as speed=False for "matmul".

    name: one of `list_tasks()`, or "module:function" for a class or function of your own that returns a `Task`, or
    "module:task" for one that is there already.

    Raises UserError for an unknown name, for a module that cannot be imported, and if making the task fails.
    """
    task = task_factory(name)
    if not isinstance(task, Task):
        try:
            task = task(**options)
        except UserError:
            raise
        except Exception as error:
            failure = describe_failure(f"Making the task '{name}'", error)
            raise UserError(f"{failure}: fix it and run this again.") from error
    _check_is_task(name, task)
    return task


def task_factory(name: str) -> Callable[..., Task] | Task:
    """Return what a task's name stands for: a class or function that makes it, or a task that is there already.

    Raises UserError as `get_task`.
    """
    if not isinstance(name, str):
        raise UserError(
            f"A task's name is a text, and this is a {type(name).__name__}: use a task that you have made as it is, or "
            "name its place, module:function."
        )
    if name == DATA_TASK:
        raise UserError(f"Task '{name}' is made of data of yours: name them in DATA.")
    place = TASKS.get(name, name)
    if ":" not in place:
        known = [*TASKS, DATA_TASK]
        raise UserError(
            f"There is no task '{name}'{did_you_mean(name, known)}: choose {', '.join(TASKS)}, or '{DATA_TASK}' with "
            "data of yours, or write module:function."
        )
    found = import_by_name("task", place)
    if not callable(found):
        _check_is_task(name, found)
    return found


def _check_is_task(name: str, found: object) -> None:
    if not isinstance(found, Task):
        raise UserError(f"'{name}' gives a {type(found).__name__}: name a function or class that returns a Task.")


def list_tasks() -> list[str]:
    """Return the names of `TASKS`."""
    return list(TASKS)

"""The rewards of a run: the task's own, or others by name."""

import inspect
import math
from collections.abc import Callable, Sequence

from helpers.rewards.calling import name_of
from helpers.rewards.registry import Reward, check_signature, get_reward, list_presets, list_rewards
from helpers.runtime import UserError, did_you_mean, first_line
from helpers.tasks.importing import import_by_name
from helpers.tasks.task import Task

Chosen = tuple[list[Callable], list[float]]


def choose_rewards(text: str, task: Task) -> Chosen:
    """Return reward functions and their weights.

    text: "", or the task's name, for its own; the name of a preset, such as "math"; or names of rewards with commas
    between them, each with a weight if it is not 1, such as "math_answer, math_format=0.1". A name is that of a
    registered reward, of one of the task's own, or "module:function". The task's grades stay what they are.

    Raises UserError for an unknown name, a weight that is no number, a reward named twice, and a reward that reads a
    column which the task's data do not have.
    """
    if text.strip() in ("", task.name):
        return list(task.reward_funcs), list(task.reward_weights)
    own = {name_of(function): function for function in task.reward_funcs}
    if text.strip() in list_presets():
        pairs = list_presets()[text.strip()]
    else:
        pairs = _parse(text)
    functions = [_find(name, own) for name, _ in pairs]
    weights = [weight for _, weight in pairs]
    names = [name_of(function) for function in functions]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"REWARDS names '{name}' twice: give it once, with its weight.")
    if not any(weights):
        raise UserError("All weights in REWARDS are 0, so nothing could be learned: give one reward another weight.")
    _check_rewards(functions, task)
    return functions, weights


def _check_rewards(functions: Sequence[Callable], task: Task) -> None:
    """Raise UserError for a reward that the trainer could not call with the columns of the task's data."""
    columns = [column for column in task.dataset("train", 1).column_names if column != "prompt"]
    needs = {spec.name: spec.needs for spec in list_rewards()}
    for function in functions:
        name = name_of(function)
        missing = [column for column in needs.get(name, ()) if column not in columns]
        if missing:
            raise UserError(
                f"Reward '{name}' reads the column '{missing[0]}', and the data of task '{task.name}' have "
                f"{', '.join(columns)}: choose another reward or add the column."
            )
        check_signature(name, function, columns)


def _parse(text: str) -> list[tuple[str, float]]:
    """Return (name, weight) of each reward in a text."""
    pairs = []
    for part in text.split(","):
        name, equals, weight = (piece.strip() for piece in part.partition("="))
        if not name:
            raise UserError(f"REWARDS='{text}' has an empty name: leave out the comma, or write a reward there.")
        if name in list_presets():
            raise UserError(f"'{name}' in REWARDS is a preset: give it alone, or name its rewards one by one.")
        pairs.append((name, _weight(name, weight) if equals else 1.0))
    return pairs


def _find(name: str, own: dict[str, Callable]) -> Callable:
    """Return a reward function: of the task's own, which share what they judge with, before all others."""
    if ":" in name:
        return _import_reward(name)
    if name in own:
        return own[name]
    registered = [spec.name for spec in list_rewards()]
    if name not in registered:
        known = {*own, *registered, *list_presets()}
        raise UserError(
            f"There is no reward '{name}'{did_you_mean(name, known)}: write names with commas between them. `make "
            "rewards` lists those that there are, and module:function takes one of yours."
        )
    return get_reward(name)


def _import_reward(name: str) -> Callable:
    found = import_by_name("reward", name)
    if inspect.isclass(found) and issubclass(found, Reward):
        try:
            return found()
        except TypeError as error:
            raise UserError(
                f"The reward '{name}' needs options ({first_line(error)}): name a function or an instance in that "
                "module which has them."
            ) from error
    if not callable(found):
        raise UserError(f"'{name}' is a {type(found).__name__}: a reward is a function f(prompts, completions, ...).")
    return found


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise UserError(f"The weight of reward '{name}' must be a finite number; got '{text}'.")
    return weight

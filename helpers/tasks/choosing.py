"""The task of a run with its options, and its rewards: the task's own, or others by name."""

import ast
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from helpers.profiles import Profile
from helpers.rewards.calling import arguments_without_logs, call_reward, name_of
from helpers.rewards.registry import Reward, check_signature, columns_of, get_reward, list_presets, list_rewards
from helpers.rollout.completion import Completion
from helpers.runtime import UserError, did_you_mean, first_line
from helpers.tasks import DATA_TASK, get_task, task_factory
from helpers.tasks.custom import CustomTask
from helpers.tasks.data.columns import ARGUMENTS, Columns
from helpers.tasks.data.sources import open_source
from helpers.tasks.data.task import FIRST_ROWS, DataTask, check_answers, has_answers
from helpers.tasks.importing import import_by_name
from helpers.tasks.task import Row, Task

Chosen = tuple[list[Callable], list[float]]


def choose_task(
    name: str,
    profile: Profile,
    options: str = "",
    *,
    data: str | Path = "",
    columns: Columns | None = None,
    rewards: str = "",
    drop_faulty: bool = False,
    **common,
) -> Task:
    """Return a task, with the options that suit the profile's model but for those that are given.

    name: as for `get_task`, or "custom" for data alone. options: "", or name=value for options of the task, with commas
    between them; `make tasks` lists them. common: options that a notebook has for every task; a task that lacks one
    does without it.

    data: "", or rows of the user's that the task is to judge in place of its own (`DataTask`). columns, drop_faulty: as
    for `DataTask`. rewards: as for `choose_rewards`; they grade where the data have no answers.

    Raises UserError for an option that the task does not have or that has no such value, for data that the task cannot
    judge, and as `get_task`.
    """
    if not str(data):
        return _choose_own(name, profile, options, common)
    if name != DATA_TASK:
        if ":" in name:
            raise UserError(
                f"'{name}' makes its own rows, so DATA='{data}' has no effect: leave one of them out, or let a "
                "CustomTask read the data there."
            )
        base = _choose_own(name, profile, options, common)
        return DataTask(data, columns, base, drop_faulty=drop_faulty)
    if options.strip():
        raise UserError(f"Task '{name}' has no options, so TASK_OPTIONS='{options}' has no effect: leave it empty.")
    return _choose_data(data, columns or Columns(), rewards, drop_faulty)


def _choose_data(data: str | Path, columns: Columns, rewards: str, drop_faulty: bool) -> Task:
    """Return a task of data alone: graded by their answers or, where they have none, by the rewards."""
    source = open_source(data)
    first = islice(source.rows(), FIRST_ROWS)
    if rewards.strip() in ("", DATA_TASK) or has_answers(first, columns):
        return DataTask(source, columns, drop_faulty=drop_faulty)
    functions, weights = _parse_rewards(rewards, {})
    return DataTask(source, columns, None, functions, reward_weights=weights, drop_faulty=drop_faulty)


def _choose_own(name: str, profile: Profile, options: str, common: Mapping[str, object]) -> Task:
    """Return a task that has its own rows."""
    factory = task_factory(name)
    if isinstance(factory, Task):
        if options.strip():
            raise UserError(f"'{name}' is a task already, so TASK_OPTIONS='{options}' has no effect: leave it empty.")
        return factory
    parameters = _parameters_of(factory)
    # A task may say which of its options a run sets. Of others a run sets all.
    settable = [option for option in getattr(factory, "options", ()) or parameters if option in parameters]
    given = {}
    for option, text in _parse_options(options):
        if option not in settable:
            known = ", ".join(settable) or "none"
            raise UserError(
                f"Task '{name}' has no option '{option}'{did_you_mean(option, settable)}: its options are {known}."
            )
        if option in given:
            raise UserError(f"TASK_OPTIONS gives '{option}' twice: give it once.")
        given[option] = _option_value(option, text, parameters[option].default)
    suited = factory.options_for(profile) if hasattr(factory, "options_for") else {}
    known = {option: value for option, value in {**suited, **common}.items() if option in parameters}
    return get_task(name, **{**known, **given})


def _parameters_of(factory: Callable) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except ValueError:  # some written in C tell none
        return {}


def _parse_options(text: str) -> list[tuple[str, str]]:
    """Return (name, value) of each option in a text."""
    pairs = []
    for part in filter(str.strip, text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            raise UserError(f"'{part.strip()}' in TASK_OPTIONS is no option: write name=value, commas between them.")
        pairs.append((name, value))
    return pairs


def _option_value(name: str, text: str, default: object) -> object:
    """Return a value of the default's kind: True or False, a text, or else a number where the text is one."""
    if isinstance(default, bool):
        if text not in ("True", "False"):
            raise UserError(f"{name} in TASK_OPTIONS must be True or False; got '{text}'.")
        return text == "True"
    if isinstance(default, str):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def choose_rewards(text: str, task: Task) -> Chosen:
    """Return reward functions and their weights.

    text: "", or the task's name, for its own; the name of a preset, such as "math"; or names of rewards with commas
    between them, each with a weight if it is not 1, such as "math_answer, math_format=0.1". A name is that of a
    registered reward, of one of the task's own, "module:function" or "path/to/file.py:function". The task's grades
    stay what they are.

    Raises UserError for an unknown name, a weight that is no number, a reward named twice, and a reward that reads a
    column which the task's data do not have or have in another form: one that is not the task's own is called once, on
    a row of the task.
    """
    if text.strip() in ("", task.name):
        return list(task.reward_funcs), list(task.reward_weights)
    own = {name_of(function): function for function in task.reward_funcs}
    functions, weights = _parse_rewards(text, own)
    _check_rewards(functions, task)
    return functions, weights


def _parse_rewards(text: str, own: dict[str, Callable]) -> Chosen:
    """Return reward functions and their weights. own: those of the task, by name."""
    preset = text.strip()
    if preset.isidentifier() and preset not in own and preset in list_presets():
        pairs = list_presets()[preset]
    else:
        pairs = _parse(text, own)
    functions = [_find(name, own) for name, _ in pairs]
    weights = [weight for _, weight in pairs]
    names = [name_of(function) for function in functions]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"REWARDS names '{name}' twice: give it once, with its weight.")
    if not any(weights):
        raise UserError("All weights in REWARDS are 0, so nothing could be learned: give one reward another weight.")
    return functions, weights


def _check_rewards(functions: Sequence[Callable], task: Task) -> None:
    """Raise UserError for a reward that the trainer could not call with the columns of the task's data."""
    first = task.dataset("train", 1)
    columns = [column for column in first.column_names if column != "prompt"]
    for function in functions:
        name = name_of(function)
        for column in (*columns_of(name), *_required_columns(function)):
            if column not in columns:
                raise _missing_column(name, column, task, columns)
        check_signature(name, function, columns)
        if function not in task.reward_funcs:
            _try_reward(function, task, first[0], columns)
            if isinstance(task, CustomTask) and columns_of(name):  # the project's, which costs nothing to call
                check_answers(function, task)


def _missing_column(reward: str, column: str, task: Task, columns: Sequence[str]) -> UserError:
    return UserError(
        f"Reward '{reward}' reads the column '{column}'{did_you_mean(column, columns)}, and the data of task "
        f"'{task.name}' have {', '.join(columns)}: choose another reward or add the column."
    )


def _required_columns(function: Callable) -> list[str]:
    """Return the parameters of a reward that only a column of the data can fill."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # `check_signature` says so
        return []
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = [one.name for one in parameters if one.kind in by_name and one.default is one.empty]
    return [name for name in required if name not in ARGUMENTS]


def _try_reward(function: Callable, task: Task, row: Row, columns: Sequence[str]) -> None:
    """Call a reward on one row. Raises UserError where it cannot read the row's columns.

    Other exceptions say nothing of the data: the reward may need a trainer, or a text of another form.
    """
    arguments = arguments_without_logs([row], [Completion.of_text("an answer")])
    name = name_of(function)
    try:
        call_reward(function, **arguments, trainer_state=None)
    except KeyError as error:
        column = error.args[0] if error.args else ""
        if isinstance(column, str) and column.isidentifier() and column not in (*columns, *ARGUMENTS):
            raise _missing_column(name, column, task, columns) from error
        raise _does_not_fit(name, task, error) from error
    except (UserError, TypeError) as error:
        raise _does_not_fit(name, task, error) from error
    except Exception:
        return


def _does_not_fit(reward: str, task: Task, error: Exception) -> UserError:
    said = first_line(error)
    what = said.rpartition(": ")[0] or said if isinstance(error, UserError) else f"{type(error).__name__}: {said}"
    return UserError(
        f"Reward '{reward}' cannot read the data of task '{task.name}' ({what.rstrip('.')}): choose another reward, or "
        "data with what it reads."
    )


def _parse(text: str, own: Mapping[str, Callable]) -> list[tuple[str, float]]:
    """Return (name, weight) of each reward in a text. own: those of the task, by name."""
    pairs = []
    for part in text.split(","):
        name, equals, weight = (piece.strip() for piece in part.partition("="))
        if not name:
            raise UserError(f"REWARDS='{text}' has an empty name: leave out the comma, or write a reward there.")
        if name not in own and ":" not in name and name in list_presets():
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

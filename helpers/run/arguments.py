"""The arguments of a command: NAME=value, flags, and what was given to make."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers.processes import is_running, read_process_file
from helpers.run.opening import Run, make_run
from helpers.run.settings import by_own_name, canonical_name, is_setting, parse_truth, parse_value, read_config
from helpers.runtime import ROOT, UserError

#: Variables of the Makefile that are no settings of a run.
OF_MAKE = ("PYTHON", "VENV", "PARAMS", "NEEDED")
#: A variable of make's command line: its name, behind a blank that belongs to no value.
_OVERRIDE = re.compile(r"(?:^|(?<!\\)\s)([A-Za-z_]\w*)\s?[:+?]?=")
#: An argument that is a pair, and no flag's value.
_PAIR = re.compile(r"[A-Z][A-Z0-9_]*=")
#: Settings that name a file or a folder, which is looked for in the folder that the command was called in.
PATHS = ("data", "model", "sources_dir")
#: Settings that name a folder to write to.
FOLDERS = ("run_dir", "backup_dir")


def pairs_of(arguments: Sequence[str]) -> list[str]:
    """Return ["NAME=value", ...] of arguments that are such pairs, or flags: --name value, --name=value, or --name.

    A flag without a value stands for True.
    """
    pairs = []
    waiting = None  # a flag whose value may come next
    for argument in arguments:
        if argument.startswith("--"):
            if waiting is not None:
                pairs.append(f"{waiting}=True")
            name, equals, value = argument[2:].partition("=")
            waiting = None if equals else name
            if equals:
                pairs.append(f"{name}={value}")
        elif waiting is not None and not _PAIR.match(argument):
            pairs.append(f"{waiting}={argument}")
            waiting = None
        else:
            if waiting is not None:
                pairs.append(f"{waiting}=True")
                waiting = None
            pairs.append(argument)
    if waiting is not None:
        pairs.append(f"{waiting}=True")
    return pairs


def pairs_of_make(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return ["NAME=value", ...] of the variables on make's command line, such as those of `make run LEARNING_RATE=1`.

    make names them in MAKEFLAGS and gives their values to its commands in the environment. Empty ones are left out.
    """
    flags = environment.get("MAKEFLAGS", "")
    _, dashes, overrides = f" {flags}".partition(" -- ")
    if not dashes:
        return []
    pairs = []
    for name in _OVERRIDE.findall(overrides):
        value = environment.get(name, "")
        if value and name not in OF_MAKE:
            pairs.append(f"{name}={value}")
    return pairs


def take(pairs: Sequence[str], *names: str) -> tuple[str, list[str]]:
    """Return the value that is given under a name, "" where none is, and the other pairs.

    names: the name in capitals, and others that stand for it. Raises UserError for two values.
    """
    values = []
    others = []
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key.upper().replace("-", "_") in names:
            values.append(value)
        else:
            others.append(pair)
    if len(values) > 1:
        raise UserError(f"{names[0]} is given {len(values)} times: give it once.")
    return (values[0] if values else ""), others


def read_pairs(pairs: Sequence[str], of_notebooks: Mapping[str, object] = MappingProxyType({})) -> dict[str, Any]:
    """Return {"max_steps": 5, "control": "shuffle"} from ["MAX_STEPS=5", "CONTROL=shuffle"].

    A name is a setting of a run, in capitals or not, or an alias. CONFIG=file adds the settings in a file; a pair
    stands above them. of_notebooks: parameters with their defaults that notebooks have besides; they are True or False.
    Raises UserError for what is no such pair, for an unknown name, for one that is given twice, and for a value of
    another kind.
    """
    given = {}
    config = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"'{pair}' is not a setting: write NAME=value, such as MAX_STEPS=10.")
        if name.upper() == "CONFIG":
            config |= by_own_name(read_config(text))
            continue
        if isinstance(of_notebooks.get(name), bool):
            key, value = name.lower(), parse_truth(name, text)
        else:
            key = canonical_name(name)
            value = parse_value(key, text)
        if given.setdefault(key, value) != value:
            raise UserError(f"'{name}' gives {key} a second time, as {value!r} after {given[key]!r}: give it once.")
    return config | given


def open_from(pairs: Sequence[str], of_notebooks: Mapping[str, object] = MappingProxyType({})) -> tuple[Run, dict]:
    """Return the run that a command asks for, checked and without its folder, and the settings that were given.

    NAME among the pairs names its folder under runs/. Raises UserError for whatever the run would refuse, and where the
    run is under way in another process.
    """
    name, pairs = take(pairs, "NAME", "TMUX_SESSION")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise UserError(f"NAME is a folder under runs/; got '{name}': RUN_DIR names one elsewhere.")
    given = with_absolute_paths(read_pairs(pairs, of_notebooks))
    if name or "run_dir" not in given:
        given["run_dir"] = str(ROOT / "runs" / (name or time.strftime("%Y-%m-%d_%H-%M-%S")))
    run = make_run({key: value for key, value in given.items() if is_setting(key)})  # not those of one notebook
    other = read_process_file(run.folder)
    if is_running(run.folder) and other.pid != os.getpid():
        raise UserError(
            f"{run.folder} is in use by process {other.pid}: follow it with make watch, or choose another NAME."
        )
    run.check()
    return run, given


def with_absolute_paths(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with absolute paths: notebooks are executed in the project's folder."""
    absolute = dict(given)
    for name in (*PATHS, *FOLDERS):
        value = given.get(name)
        if not value or not isinstance(value, str):
            continue
        path = Path(os.path.expanduser(value))
        if name in FOLDERS or path.exists():
            absolute[name] = str(path.resolve())
    return absolute

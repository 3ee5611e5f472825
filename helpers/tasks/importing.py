"""Tasks and rewards of the user's own, named as "module:function" or "path/to/file.py:function"."""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from helpers.runtime import UserError, did_you_mean, first_line

#: The variable with the folder in which a user gave a command; notebooks run in another one.
CALLER_DIR = "HELPERS_CALLER_DIR"


def import_by_name(what: str, name: str) -> object:
    """Return what "module:function" or "path/to/file.py:function" names. what: "task" or "reward", for the message.

    A module is looked for in the folder that the user is in, too. Raises UserError if it cannot be imported, whatever
    goes wrong in the module.
    """
    place, _, attribute = name.rpartition(":")
    try:
        module = _import_file(place) if place.endswith(".py") else _import_module(place)
        if hasattr(module, attribute):
            return getattr(module, attribute)
    except SystemExit as error:
        raise UserError(
            f"Cannot import the {what} '{name}': its module calls sys.exit({error.code!r:.80}); put what it does as a "
            "program below if __name__ == '__main__'."
        ) from error
    except Exception as error:
        raise UserError(
            f"Cannot import the {what} '{name}' ({type(error).__name__}: {first_line(error)}): write module:function, "
            "with a module in the folder that you are in or in one of PYTHONPATH, or path/to/file.py:function."
        ) from error
    file = getattr(module, "__file__", None) or f"the module {place}"
    raise UserError(
        f"Cannot import the {what} '{name}': {file} has no '{attribute}'{did_you_mean(attribute, vars(module))}; name "
        "a function that is there."
    )


def _callers_folders() -> list[Path]:
    folders = [Path.cwd()]
    if os.environ.get(CALLER_DIR):
        folders.append(Path(os.environ[CALLER_DIR]).absolute())
    return folders


def _import_module(name: str) -> ModuleType:
    with _searched_first(_callers_folders()):
        return import_module(name)


def _import_file(place: str) -> ModuleType:
    """Import a file under a name of its own, since its stem may be the name of another module. It is imported once."""
    candidates = [folder / Path(place).expanduser() for folder in _callers_folders()]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"there is no file {place}")
    path = path.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _searched_first([path.parent, *_callers_folders()]):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _searched_first(folders: Sequence[Path]) -> Iterator[None]:
    """Let Python look for modules in some folders first; afterwards they are searched last, for later imports."""
    invalidate_caches()  # a module may have been written a moment ago
    added = [str(folder) for folder in folders]
    before = list(sys.path)
    sys.path[:0] = added
    try:
        yield
    finally:
        behind = dict.fromkeys([*sys.path, *added])  # a module may have changed it, for its own later imports
        sys.path[:] = before + [folder for folder in behind if folder not in before]

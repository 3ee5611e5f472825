"""What a program finds in the process: Python's built-in names, and the modules of this list.

The modules are loaded before the first fork, as a process can open no file. Nothing in them computes an inner product
in C: `math` has three functions that do, and they are taken out. numpy is not on the path, and `ctypes`, which the
lockdown needs, is no longer among the modules when a program runs.

That is a matter of what lies in ordinary reach, and no wall. A program that corrupts CPython's memory can have all of
it back, so the task pays no more for it (`README.md`).
"""

import ctypes
import importlib
import linecache
import math
import sys

MODULES = (
    # What programs about numbers and lists are written with.
    "array", "bisect", "cmath", "collections", "collections.abc", "decimal", "fractions", "functools", "heapq",
    "itertools", "math", "numbers", "operator", "random",
    # What people structure a program with.
    "__future__", "abc", "builtins", "contextlib", "copy", "dataclasses", "enum", "string", "sys", "types", "typing",
    "weakref",
    # What a demonstration, a message or a check is made with.
    "io", "json", "logging", "pprint", "re", "struct", "textwrap", "traceback", "warnings",
    # What those import only when some function of theirs is called.
    "copyreg", "encodings", "inspect", "keyword", "linecache", "reprlib", "tokenize", "unicodedata",
)  # fmt: skip
#: Inner products in C: of two vectors, and of a vector with itself, which gives the other by polarisation.
INNER_PRODUCTS = ("sumprod", "dist", "hypot")


def load_modules() -> None:
    """Import the modules, and make it impossible to import another one."""
    for name in MODULES:
        importlib.import_module(name)
    _take_out_inner_products()
    linecache.updatecache = _no_lines
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path.clear()


def _no_lines(filename: str, module_globals: dict | None = None) -> list[str]:
    """Return the lines of a file for a traceback: none, as a process can open no file.

    The library's own function imports `os` before it tries, from Python 3.13 on.
    """
    return []


def hide_other_modules() -> None:
    """Leave no other module among the loaded ones. For a process that needs none of them any more."""
    for name in set(sys.modules) - set(MODULES):
        del sys.modules[name]


class _Entry(ctypes.Structure):
    """`PyMethodDef`: one function in a module's table."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


def _take_out_inner_products():
    """Delete the functions from `math`, and overwrite the entries that Python would make them of again.

    A module that is built into the interpreter can be made a second time from its table of functions. So an entry of
    that table gets the function of `math.gcd`, which takes the same kind of arguments and is of no use.

    Raises RuntimeError on an interpreter whose functions are laid out otherwise than CPython's.
    """
    replacement = _entry_of(math.gcd)
    for name in INNER_PRODUCTS:
        function = vars(math).get(name)
        if function is None:  # sumprod is new in Python 3.12
            continue
        entry = _entry_of(function)
        entry.function = replacement.function
        entry.flags = replacement.flags
        delattr(math, name)


def _entry_of(function):
    """Return the entry in its module's table of a function written in C."""
    address_of_entry = ctypes.c_void_p.from_address(id(function) + object.__basicsize__)
    entry = _Entry.from_address(address_of_entry.value)
    if entry.name != function.__name__.encode():
        raise RuntimeError("the sandbox needs CPython: this interpreter lays out its functions in another way")
    return entry

"""Takes the inner products in C out of this interpreter, so that whoever gets round the policy finds none.

`math.sumprod` is one, and `dist` and `hypot` give one by polarisation. Deleting the names is not enough, since a module
that is built into the interpreter can be made a second time from its table of functions. So the entries of that table
are overwritten, too, with that of a function that takes the same kind of arguments and is of no use.
"""

import ctypes
import math

NAMES = ("sumprod", "dist", "hypot")
_REPLACEMENT = math.gcd


class _Entry(ctypes.Structure):
    """`PyMethodDef`: one function in a module's table."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


def take_out_inner_products() -> None:
    """Delete the functions from `math`, and overwrite what Python would make them of again.

    Raises RuntimeError on an interpreter whose functions are laid out otherwise than CPython's.
    """
    replacement = _entry_of(_REPLACEMENT)
    for name in NAMES:
        function = vars(math).get(name)
        if function is None:  # sumprod is new in Python 3.12
            continue
        entry = _entry_of(function)
        entry.function = replacement.function
        entry.flags = replacement.flags
        delattr(math, name)


def _entry_of(function):
    """The entry in its module's table of a function written in C."""
    address_of_entry = ctypes.c_void_p.from_address(id(function) + object.__basicsize__)
    entry = _Entry.from_address(address_of_entry.value)
    if entry.name != function.__name__.encode():
        raise RuntimeError("the sandbox needs CPython: this interpreter lays out its functions in another way")
    return entry

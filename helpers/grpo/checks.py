"""Checks of single settings; each raises one sentence that names the setting, what it must be and what was given."""

import math
from collections.abc import Sequence
from numbers import Real
from os import PathLike

from helpers.runtime import UserError, did_you_mean


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise UserError unless a setting has one of the allowed values."""
    if value not in allowed:
        close = did_you_mean(value, allowed) if isinstance(value, str) else ""
        raise UserError(f"{name} must be one of {', '.join(allowed)}; got {value!r}{close}.")


def check_count(name: str, value: object, least: int) -> None:
    """Raise UserError unless a setting is a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name} must be a whole number from {least} on; got {value!r}.")


def check_number(name: str, value: object, least: float, is_least_allowed: bool) -> None:
    """Raise UserError unless a setting is a finite number from `least` on, or above it."""
    is_in_range = _is_number(value) and (value >= least if is_least_allowed else value > least)
    if not is_in_range:
        limit = f"from {least} on" if is_least_allowed else f"above {least}"
        raise UserError(f"{name} must be a number {limit}; got {value!r}.")


def check_numbers(name: str, values: object) -> None:
    """Raise UserError unless a setting is a list of finite numbers."""
    if not isinstance(values, (list, tuple)) or not all(_is_number(value) for value in values):
        raise UserError(f"{name} must be a list of finite numbers; got {values!r}.")


def _is_number(value: object) -> bool:
    """Tell whether a value is a finite number, and no boolean."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def check_path(name: str, value: object) -> None:
    """Raise UserError unless a setting is the path of a file or folder."""
    if not isinstance(value, (str, PathLike)) or not str(value):
        raise UserError(f"{name} must be a path; got {value!r}.")


def check_mapping(name: str, value: object) -> None:
    """Raise UserError unless a setting is a dictionary."""
    if not isinstance(value, dict):
        raise UserError(f"{name} must be a dictionary; got {value!r}.")


def check_flag(name: str, value: object) -> None:
    """Raise UserError unless a setting is True or False."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be True or False; got {value!r}.")

"""A sentence on what went wrong in a function of the user's."""

import traceback
from pathlib import Path

from helpers.runtime import first_line


def describe_failure(what: str, error: Exception) -> str:
    """Return such as "Reward 'f' raised KeyError: 'x' (rewards.py, line 7)". what: names the function."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file = Path(place.filename).name
    return f"{what} raised {type(error).__name__}: {first_line(error)} ({file}, line {place.lineno})"

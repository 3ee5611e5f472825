"""The common part of the puzzles: finding the answer, reading the columns, and paying a right answer."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from helpers.rewards.answers import boxed_answer, plain_answer
from helpers.rewards.arguments import rows_of, shown
from helpers.runtime import UserError


class Puzzle(ABC):
    """A puzzle of one row of a data set. It reads what a box holds, and tells right answers from wrong ones."""

    #: A longer box holds no answer. It also bounds the time and memory that reading takes.
    most_characters: int

    @abstractmethod
    def read(self, content: str) -> Any | None:
        """Return the answer that the content of a box is, or None if it does not have the stated form."""

    @abstractmethod
    def fault(self, answer: Any) -> str:
        """Return what is wrong with an answer that `read` returned, or an empty text for a right one."""

    @abstractmethod
    def describe(self, answer: Any) -> str:
        """Return a text that is the same for answers that amount to the same."""

    def read_box(self, content: str | None) -> Any | None:
        """Return the answer in a box; None for no box, a box that is too long, and one without an answer."""
        if content is None or len(content) > self.most_characters:
            return None
        return self.read(content)


def pay(
    reward: str,
    make: Callable[..., Puzzle],
    completions: Sequence,
    finish_reasons: Sequence[str] | None,
    **columns: Sequence,
) -> list[float | None]:
    """Return 1 for each right answer, 0 for another, and None for a row of another kind: all its columns are None.

    make: takes a row's values of the columns, and raises UserError where they are invalid.
    """
    values = []
    for text, finish_reason, *own in rows_of(reward, completions, finish_reasons, **columns):
        if all(value is None for value in own):
            values.append(None)
            continue
        puzzle = make(*own)
        answer = puzzle.read_box(boxed_answer(text, finish_reason))
        is_right = answer is not None and not puzzle.fault(answer)
        values.append(float(is_right))
    return values


def read_json(reward: str, column: str, text: object, kind: type) -> Any:
    """Return the value that a column holds as JSON text. kind: list or dict.

    Raises UserError for anything else. reward: its name, for the message.
    """
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        value = None
    if not isinstance(value, kind) or not value:
        shape = "a list" if kind is list else "an object"
        raise UserError(
            f"{reward}: the column '{column}' must be JSON text of {shape} that is not empty; got {shown(text)}."
        )
    return value


def unmarked(content: str) -> str:
    """Return the content of a box of words without its dressing, and without marks for types, formulas and texts."""
    return re.sub(r"[*`$\"]", "", plain_answer(content)).strip()

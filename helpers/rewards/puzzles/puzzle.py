"""The common part of the puzzles: finding the answer, reading the columns, and paying a right answer."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from helpers.rewards.answers import last_box
from helpers.rewards.text import known_finish_reasons, text_of
from helpers.runtime import UserError

#: Text in a formula. What is inside has no braces, so that this takes linear time.
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|it|rm|sf|tt)|mbox)\s*\{([^{}]*)\}")
#: LaTeX's blanks: `\quad`, `~`, a backslash before a blank or a mark; and the no-break, thin and narrow no-break space.
_BLANK = re.compile(r"\\q?quad(?![A-Za-z])|\\[ ,;:!]|[~\u00a0\u2009\u202f]")
_LINE_END = re.compile(r"\\\\")
#: What may stand around an answer, and says nothing.
AROUND = " \t\r\n$`"
#: Blanks at the ends of a box, and between its words. Other characters that look like a blank are not blanks.
BLANKS = " \t\r\n"


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


def box_of(completion: str | list[dict], finish_reason: str = "stop") -> str | None:
    r"""Return what stands in the last complete `\boxed{}` of the final channel; None in a completion cut off."""
    return last_box(text_of(completion)) if finish_reason == "stop" else None


def pay(
    puzzles: Sequence[Puzzle | None], completions: Sequence, finish_reasons: Sequence[str] | None
) -> list[float | None]:
    """Return 1 for each right answer, 0 for another, and None where the row has no puzzle of this kind."""
    finish_reasons = known_finish_reasons(finish_reasons, completions)
    values = []
    for puzzle, completion, finish_reason in zip(puzzles, completions, finish_reasons, strict=True):
        if puzzle is None:
            values.append(None)
        else:
            answer = puzzle.read_box(box_of(completion, finish_reason))
            is_right = answer is not None and not puzzle.fault(answer)
            values.append(float(is_right))
    return values


def puzzles_of(make: Callable[..., Puzzle], *columns: Sequence) -> list[Puzzle | None]:
    """Return the puzzle of each row; None where every one of the columns is None, which is a row of another kind.

    make: takes a row's values of the columns, and raises UserError where they are invalid.
    """
    puzzles = []
    for values in zip(*columns, strict=True):
        is_other_kind = all(value is None for value in values)
        puzzle = None if is_other_kind else make(*values)
        puzzles.append(puzzle)
    return puzzles


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
            f"{reward}: the column '{column}' must be JSON text of {shape} that is not empty; got {text!r:.80}."
        )
    return value


def plain_words(content: str) -> str:
    r"""Return the content of a box of words as plain text.

    `\text{}` and its like are taken off, LaTeX's blanks and line ends become plain ones, and dollars, stars, backquotes
    and a full stop around the whole are left out.
    """
    plain = _TEXT.sub(r"\1", content)
    plain = _LINE_END.sub("\n", plain)
    plain = _BLANK.sub(" ", plain).strip(AROUND)
    return plain.removeprefix("**").removesuffix("**").removesuffix(".")

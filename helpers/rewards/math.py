r"""Answers to mathematical problems: one integer in `\boxed{}`. A first version of the answer grammar."""

import re
from collections.abc import Sequence

from helpers.rewards.text import text_of
from helpers.runtime import UserError

#: A brace; an opening one with the command that makes it a box.
BRACE = re.compile(r"\\boxed\s*\{|[{}]")
#: Digits, or well-formed groups of three; a sign may stand before them. ASCII digits only.
INTEGER = re.compile(r"([+\-\u2212]?)\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)")
#: More digits than any answer has. Python refuses to read integers of more than some thousand digits.
MOST_DIGITS = 100


def boxed_integer(completion: str | list[dict], finish_reason: str = "stop") -> int | None:
    r"""Return the integer in the last complete `\boxed{}` of the final channel, or None.

    The box must hold one integer and nothing else but spaces. A sign, leading zeros, and thousands in groups of three
    (`1,200`) are read. A completion that was cut off has no answer.
    """
    if finish_reason != "stop":
        return None
    content = last_box(text_of(completion))
    return None if content is None else read_integer(content)


def last_box(text: str) -> str | None:
    r"""Return what stands in the last `\boxed{}` whose braces close, or None. A box may hold braces.

    Takes time linear in the text, however many boxes are left open.
    """
    last_start = -1
    content = None
    opened = []  # of each brace that is open: where its box's content begins, or None for a plain brace
    for brace in BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(None if brace[0] == "{" else brace.end())
            continue
        start = opened.pop() if opened else None
        if start is not None and start > last_start:
            last_start = start
            content = text[start : brace.start()]
    return content


def read_integer(text: str) -> int | None:
    """Return the integer that a text consists of, or None."""
    match = INTEGER.fullmatch(text.strip())
    if match is None:
        return None
    sign, digits = match.groups()
    if len(digits) > MOST_DIGITS:
        return None
    value = int(digits.replace(",", ""))
    return value if sign in ("", "+") else -value


def right_integer(answer: int | str) -> int:
    """Return the right answer that a row of the data set gives. Raises UserError if it is no integer."""
    value = read_integer(str(answer))
    if value is None:
        raise UserError(f"The right answer {answer!r} is no integer: math_answer compares integers only.")
    return value


def math_answer(
    prompts: Sequence, completions: Sequence, answer: Sequence, finish_reasons: Sequence[str] | None = None, **_
) -> list[float]:
    """Pay 1 for the right integer in the box, else 0. answer: the right integers, as numbers or text."""
    finish_reasons = finish_reasons or ["stop"] * len(completions)
    found = [boxed_integer(*pair) for pair in zip(completions, finish_reasons, strict=True)]
    return [float(value == right_integer(right)) for value, right in zip(found, answer, strict=True)]

r"""Answers to mathematical problems: one integer in `\boxed{}`. A first version of the answer grammar."""

import re
from collections.abc import Sequence

from helpers.rewards.text import text_of

#: A complete box that holds no braces.
BOX = re.compile(r"\\boxed\s*\{([^{}]*)\}")
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
    boxes = BOX.findall(text_of(completion))
    if not boxes:
        return None
    match = INTEGER.fullmatch(boxes[-1].strip())
    if match is None:
        return None
    sign, digits = match.groups()
    if len(digits) > MOST_DIGITS:
        return None
    value = int(digits.replace(",", ""))
    return value if sign in ("", "+") else -value


def math_answer(
    prompts: Sequence, completions: Sequence, answer: Sequence, finish_reasons: Sequence[str] | None = None, **_
) -> list[float]:
    """Pay 1 for the right integer in the box, else 0. answer: the right integers, as numbers or text."""
    finish_reasons = finish_reasons or ["stop"] * len(completions)
    found = [boxed_integer(*pair) for pair in zip(completions, finish_reasons, strict=True)]
    return [float(value == int(right)) for value, right in zip(found, answer, strict=True)]

r"""Rewards for mathematical problems: the number or the text in the last `\boxed{}` of the final channel."""

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from math import isfinite

from helpers.rewards.answers import find_boxes, last_box, plain_answer, seen_part
from helpers.rewards.arguments import rows_of, shown
from helpers.rewards.numbers import Number, boxed_number, is_short, read_number, right_number
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError

#: A longer text is compared as it is: the time of Unicode's normalisation is not linear.
MOST_NORMALISED = 1000
#: Unicode's subscripts behind a letter or a bracket, and their digits.
_SUBSCRIPT = re.compile(r"(?<=[A-Za-z)\]])[\u2080-\u2089]+")
_DIGITS = {0x2080 + digit: str(digit) for digit in range(10)}
#: Forms of one formula: single characters in braces, blanks before commands and around signs, the bases of subscripts,
#: names of functions.
_SAME_FORMULA = (
    (re.compile(r"(\\frac) ?\{([0-9])\} ?\{([0-9])\}"), r"\1\2\3"),
    (re.compile(r"(\\(?:frac|sqrt)) (?=[0-9{])"), r"\1"),
    (re.compile(r"([_^]|\\sqrt)\{([^{}])\}(?![0-9A-Za-z])"), r"\1\2"),
    (re.compile(r"(?<=[0-9A-Za-z)}]) (?=\\[a-z])"), ""),
    (re.compile(r"(?:(?<=[A-Z)\]])|(?<=[A-Z][a-z]))_\{?([0-9]+)\}?"), r"\1"),
    (re.compile(r" ?([=+*/<>^,:-]) ?"), r"\1"),
    (re.compile(r"\\(?=(?:sin|cos|tan|log|ln|exp|lim|max|min|gcd)(?![A-Za-z]))"), ""),
)


@register_reward(value_range=(0, 1), needs=("answer",), pays_correctness=True)
def math_answer(
    prompts: Sequence,
    completions: Sequence,
    answer: Sequence,
    unit: Sequence[str | None] | None = None,
    finish_reasons: Sequence[str] | None = None,
    **_,
) -> list[float]:
    """Pay 1 for exactly the right number in the last box, else 0.

    answer: the right numbers, as numbers or text; unit: the unit that each answer may name. Raises UserError for a
    right answer that is no single number.
    """
    rows = rows_of("math_answer", completions, finish_reasons, answer=answer, unit=unit)
    pairs = [_found_and_right(*row) for row in rows]
    return [float(found == right.value) for found, right in pairs]


@register_reward(value_range=(0, 1), needs=("answer",), pays_correctness=True)
def math_number(
    prompts: Sequence,
    completions: Sequence,
    answer: Sequence,
    unit: Sequence[str | None] | None = None,
    finish_reasons: Sequence[str] | None = None,
    **_,
) -> list[float]:
    """Pay 1 for a number in the last box that is right to the precision of the right answer, else 0.

    A right answer with a decimal point is rounded: 3.14 stands for the values from 3.135 to 3.145. Integers and
    fractions are exact. The arguments are those of `math_answer`.
    """
    values = []
    rows = rows_of("math_number", completions, finish_reasons, answer=answer, unit=unit)
    for row in rows:
        found, right = _found_and_right(*row, is_rounded=True)
        is_right = found is not None and abs(found - right.value) <= _half_a_unit(right)
        values.append(float(is_right))
    return values


def _found_and_right(
    text: str, finish_reason: str, answer: object, unit: object, is_rounded: bool = False
) -> tuple[Fraction | None, Number]:
    """Return the number in the last box of a completion, None where there is none, and the right one."""
    right = right_number(answer, unit)
    return boxed_number(text, finish_reason, unit, is_rounded), right


def _half_a_unit(number: Number) -> Fraction:
    """Return half a unit of the last decimal; 0 for a number without a decimal point."""
    return Fraction(0) if number.decimals is None else Fraction(1, 2 * 10**number.decimals)


@register_reward(value_range=(0, 1))
def math_format(
    prompts: Sequence,
    completions: Sequence,
    unit: Sequence[str | None] | None = None,
    finish_reasons: Sequence[str] | None = None,
    **_,
) -> list[float]:
    """Pay 1 for exactly one box, closed and with one number in it, right or wrong, else 0."""
    values = []
    for text, finish_reason, its_unit in rows_of("math_format", completions, finish_reasons, unit=unit):
        is_in_format = finish_reason == "stop" and _has_one_number(text, its_unit)
        values.append(float(is_in_format))
    return values


def _has_one_number(text: str, unit: str | None) -> bool:
    text = seen_part(text)
    boxes = find_boxes(text)
    if len(boxes.complete) != 1 or boxes.unclosed:
        return False
    begin, end = boxes.complete[0]
    return read_number(text[begin:end], unit) is not None


@register_reward(value_range=(0, 1), needs=("answer",), pays_correctness=True)
def exact_match(
    prompts: Sequence, completions: Sequence, answer: Sequence, finish_reasons: Sequence[str] | None = None, **_
) -> list[float]:
    """Pay 1 for the right text in the last box, or in the whole completion where there is no box, else 0.

    Both texts are compared without their dressing (`plain_answer`), and without what only sets a formula: blanks around
    its signs, braces around one character, the form of its subscripts. Every other character counts, and so does case.
    Raises UserError for a right answer that is missing or holds a box itself.
    """
    values = []
    for text, finish_reason, right in rows_of("exact_match", completions, finish_reasons, answer=answer):
        right_text = _right_text(right)
        content = last_box(text)
        found = text if content is None else content
        is_same = _compared(found) == right_text and _opening(right) in ("", _opening(found))
        values.append(float(finish_reason == "stop" and is_same))
    return values


def _right_text(answer: object) -> str:
    is_text = isinstance(answer, str) or is_short(answer) or (isinstance(answer, float) and isfinite(answer))
    text = str(answer).strip() if is_text else ""
    if not text:
        raise UserError(
            f"The right answer {shown(answer)} is no text: exact_match needs a text to compare with in every row."
        )
    if last_box(text) is not None:
        raise UserError(rf"The right answer {text[:80]!r} holds a \boxed{{}}: give what stands in the box.")
    compared = _compared(text)
    if not compared:
        raise UserError(f"The right answer {text[:80]!r} is empty without its dressing: give a text to compare with.")
    return compared


def _opening(answer: object) -> str:
    """Return the bracket around an answer, such as that of a tuple or a set, or an empty text.

    A round one around a single part, as in "(B)", says nothing.
    """
    text = plain_answer(str(answer), keeps_brackets=True)
    says_something = text.startswith(("[", "{")) or (text.startswith("(") and "," in text)
    return text[0] if says_something else ""


def _compared(text: str) -> str:
    """Return the form of a text in which two are compared."""
    plain = plain_answer(text)
    if len(plain) <= MOST_NORMALISED:
        plain = unicodedata.normalize("NFC", plain)
    plain = _SUBSCRIPT.sub(lambda found: found[0].translate(_DIGITS), plain)
    for pattern, replacement in _SAME_FORMULA:
        plain = pattern.sub(replacement, plain)
    return plain

r"""Rewards for mathematical problems: the number or the text in the last `\boxed{}` of the final channel."""

from collections.abc import Sequence
from fractions import Fraction

from helpers.rewards.answers import Number, boxed_number, find_boxes, last_box, read_number, right_number
from helpers.rewards.registry import register_reward
from helpers.rewards.text import known_finish_reasons, text_of
from helpers.runtime import UserError


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
    pairs = _found_and_right(completions, answer, unit, finish_reasons)
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
    for found, right in _found_and_right(completions, answer, unit, finish_reasons):
        is_right = found is not None and abs(found - right.value) <= _half_a_unit(right)
        values.append(float(is_right))
    return values


def _found_and_right(
    completions: Sequence, answer: Sequence, unit: Sequence[str | None] | None, finish_reasons: Sequence[str] | None
) -> list[tuple[Fraction | None, Number]]:
    """Return for each completion the number in its last box, None where there is none, and the right one."""
    unit = unit or [None] * len(completions)
    finish_reasons = known_finish_reasons(finish_reasons, completions)
    pairs = []
    for completion, right, its_unit, reason in zip(completions, answer, unit, finish_reasons, strict=True):
        right_answer = right_number(right, its_unit)
        pairs.append((boxed_number(completion, reason, its_unit), right_answer))
    return pairs


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
    unit = unit or [None] * len(completions)
    finish_reasons = known_finish_reasons(finish_reasons, completions)
    values = []
    for completion, its_unit, reason in zip(completions, unit, finish_reasons, strict=True):
        is_in_format = reason == "stop" and _has_one_number(text_of(completion), its_unit)
        values.append(float(is_in_format))
    return values


def _has_one_number(text: str, unit: str | None) -> bool:
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

    Surrounding white space does not count; every other character does, and so do upper and lower case. Raises
    UserError for a right answer that is empty or holds a box itself.
    """
    finish_reasons = known_finish_reasons(finish_reasons, completions)
    values = []
    for completion, right, reason in zip(completions, answer, finish_reasons, strict=True):
        right_text = _right_text(right)
        text = text_of(completion)
        content = last_box(text)
        found = text if content is None else content
        values.append(float(reason == "stop" and found.strip() == right_text))
    return values


def _right_text(answer: object) -> str:
    text = "" if answer is None else str(answer).strip()
    if not text:
        raise UserError("A right answer is empty: exact_match needs a text to compare with in every row.")
    if last_box(text) is not None:
        raise UserError(rf"The right answer {text[:80]!r} holds a \boxed{{}}: give what stands in the box.")
    return text

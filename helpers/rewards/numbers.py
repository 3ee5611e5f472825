r"""Numbers in answers: integers, decimals and fractions, read as exact fractions, with the unit that a row declares.

A number is matched with regular expressions only. It is never evaluated, and never given to a computer algebra system.
"""

import re
import unicodedata
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from numbers import Rational
from typing import NamedTuple

from helpers.rewards.answers import boxed_answer, plain_answer
from helpers.rewards.arguments import shown
from helpers.runtime import UserError

#: More digits than any answer has. Python refuses to read integers of more than some thousand digits.
MOST_DIGITS = 100
#: A longer answer is no number.
MOST_CHARACTERS = 1000

#: Digits, or a first group of one to three that begins with no zero, and groups of three behind one kind of separator.
_INTEGER = r"(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)|[0-9]+)"
_SIGNED = rf"(?:[+-] ?)?{_INTEGER}"
_ARGUMENT = rf"(?:\{{ ?{_SIGNED} ?\}}|[0-9])"
#: What a number is the value of: a word or letters, with a subscript or an argument, such as `x`, `a_1` or `f(3)`.
_NAME = r"(?:m?\\angle ?|\\triangle ?)?[A-Za-z]{1,20}(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9]+\}))?(?:\(-?[A-Za-z0-9]{1,3}\))?"
#: The power of ten in scientific notation.
_POWER_OF_TEN = r"(?: ?\* ?10 ?\^ ?(?:\{ ?(?P<power>[+-]?[0-9]{1,2}) ?\}|(?P<power_digit>[0-9])))?"
_NUMBER = re.compile(
    rf"(?:(?:{_NAME}(?: ?[+-] ?{_NAME})*|\\(?!pm|mp)[a-z]{{2,8}}) ?= ?)?"
    r"(?P<sign>[+-])? ?"
    r"(?:(?P<currency>[$\u20ac\u00a3\u00a5]) ?(?P<sign_behind>[+-])? ?)?(?:"
    rf"(?P<mixed>[0-9]+)? ?\\[dt]?frac ?(?P<top>{_ARGUMENT}) ?(?P<bottom>{_ARGUMENT})"
    rf"|(?P<numerator>{_INTEGER}) ?/ ?(?P<denominator>{_SIGNED})"
    rf"|(?:(?P<whole>{_INTEGER})?\.(?P<decimals>[0-9]+)|(?P<integer>{_INTEGER})){_POWER_OF_TEN})"
)
#: What stands before a rounded number: a sign, and the name or the root that it is the value of.
_ABOUT = re.compile(r"^[\s$]*(?:(?:\\pi|\\?[A-Za-z]|\\sqrt ?\{? ?[0-9]+ ?\}?)[ ~]*)?(?:\\approx|\u2248)(?![A-Za-z])")
_DIGIT = re.compile("[0-9]")
#: Words and abbreviations for one unit, each in the singular and the plurals that are no matter of an ending.
_SAME_UNITS = (
    "percent %",
    "degree \u00b0",
    "dollar usd $",
    "euro eur \u20ac",
    "kilometer kilometre km",
    "meter metre m",
    "centimeter centimetre cm",
    "millimeter millimetre mm",
    "mile mi",
    "inch in",
    "foot feet ft",
    "yard yd",
    "hour hr h",
    "minute min",
    "second sec s",
    "kilogram kg",
    "gram g",
    "pound lb",
    "ounce oz",
    "liter litre l",
    "milliliter millilitre ml",
    "person people",
    "child children",
    "man men",
    "woman women",
)
_FORMS_OF = {form: forms.split() for forms in _SAME_UNITS for form in forms.split()}
_DEGREE_SIGN = r"\^?\{? ?\u00b0 ?\}?"


class Number(NamedTuple):
    """A number as it was written. decimals: how many digits stand behind its point; None: it has no point."""

    value: Fraction
    decimals: int | None


def read_number(text: str, unit: str | None = None) -> Fraction | None:
    r"""Return the number that a text consists of, or None.

    Read are integers, decimals (`7.0`, `.5`), fractions of integers (`1/2`, `\frac{1}{2}`, `\frac12`) and mixed numbers
    (`2\frac{1}{2}`), with one sign, leading zeros and thousands in groups of three, behind one letter and `=`, and with
    the dressing that `plain_answer` takes off. unit: may stand behind the number, in the singular or the plural, and
    "$" before it. Raises UserError for a unit that is none.
    """
    number = parse_number(text, unit)
    return None if number is None else number.value


def boxed_number(
    completion: str | list[dict], finish_reason: str = "stop", unit: str | None = None, is_rounded: bool = False
) -> Fraction | None:
    r"""Return the number in the last complete `\boxed{}` of the final channel, or None.

    A completion that was cut off has no answer. unit: as in `read_number`. is_rounded: whether it may be written as
    a rounded number is: behind `\approx`, as in `\pi \approx 3.14`, and in scientific notation.
    """
    content = boxed_answer(completion, finish_reason)
    if content is None:
        return None
    if is_rounded:
        content = _ABOUT.sub("", content, count=1)
    number = parse_number(content, unit, is_scientific=is_rounded)
    return None if number is None else number.value


def right_number(answer: str | int | float, unit: str | None = None) -> Number:
    """Return the right answer that a row of the data set gives. Raises UserError if the grammar cannot read it."""
    is_number = isinstance(answer, float) and isfinite(answer)
    is_text = isinstance(answer, str) or (is_short(answer) and not isinstance(answer, bool))
    if is_number and answer.is_integer():  # as pandas writes the integers of a column with a gap
        answer = int(answer)
    text = f"{Decimal(repr(answer)):f}" if is_number else str(answer) if is_text else ""  # 1e16 as digits
    number = parse_number(text, unit)
    if number is None:
        raise UserError(
            f"The right answer {shown(answer)} is no single number: give an integer, a decimal or a fraction "
            "such as 1/2, without words around it, and name its unit in the column 'unit'."
        )
    return number


def is_short(number: object) -> bool:
    """Tell whether a value is an integer or a fraction of no more digits than an answer has."""
    most = 10**MOST_DIGITS
    return isinstance(number, Rational) and abs(number.numerator) < most and number.denominator < most


def parse_number(text: str, unit: str | None = None, is_scientific: bool = False) -> Number | None:
    r"""Return the number that a text consists of, and how many decimals it was written with, or None.

    is_scientific: whether a power of ten may stand behind it, as in `3.2 \times 10^8`.
    """
    unit = checked_unit(unit)
    plain = plain_answer(text)
    found = _NUMBER.match(plain) if len(plain) <= MOST_CHARACTERS else None
    if found is None:
        return None
    rest = plain[found.end() :]
    if rest and (unit is None or _unit_pattern(unit).fullmatch(rest) is None):
        return None
    if found["currency"] and (unit is None or found["currency"] not in _unit_forms(unit)):
        return None
    if found["sign"] and found["sign_behind"]:
        return None
    power = found["power"] or found["power_digit"]
    if power and not is_scientific:
        return None
    value = _value(found)
    if value is None:
        return None
    if power:
        value *= Fraction(10) ** int(power)
    is_negative = "-" in (found["sign"], found["sign_behind"])
    decimals = found["decimals"]
    return Number(-value if is_negative else value, None if decimals is None else len(decimals))


def _value(found: re.Match) -> Fraction | None:
    """Return the value of a number without the sign in front of it; None for too many digits and for no fraction."""
    if len(_DIGIT.findall(found[0])) > MOST_DIGITS:
        return None
    if found["integer"]:
        return Fraction(_integer(found["integer"]))
    if found["decimals"]:
        digits = (found["whole"] or "") + found["decimals"]
        return Fraction(_integer(digits), 10 ** len(found["decimals"]))
    numerator = _integer(found["numerator"] or found["top"])
    denominator = _integer(found["denominator"] or found["bottom"])
    if not denominator:
        return None
    if found["mixed"] is None:
        return Fraction(numerator, denominator)
    is_proper = 0 < numerator < denominator
    return int(found["mixed"]) + Fraction(numerator, denominator) if is_proper else None


def _integer(text: str) -> int:
    """Return the integer whose digits and sign a text holds, whatever braces, blanks and separators it holds, too."""
    digits = "".join(_DIGIT.findall(text))
    return -int(digits) if "-" in text else int(digits)


def checked_unit(unit: object) -> str | None:
    """Return the unit of a row; None where it has none, for which pandas writes NaN. Raises UserError for another."""
    if unit is None or (isinstance(unit, str) and not unit) or (isinstance(unit, float) and unit != unit):
        return None
    if not isinstance(unit, str):
        raise UserError(f"The unit {shown(unit)} is no text: give '%', 'degrees', '$', a word such as 'cm', or none.")
    is_word = unit[0].isalpha() or unicodedata.category(unit[0]) == "Sc"
    if not is_word and unit[0] not in "%\u00b0":
        raise UserError(f"The unit {shown(unit)} is invalid: give '%', 'degrees', '$' or a word such as 'cm'.")
    return unit


@lru_cache(maxsize=256)
def _unit_forms(unit: str) -> list[str]:
    """Return the words and signs for a unit, in the singular, in small letters."""
    singulars = _singulars(unit.lower())
    known = [form for singular in singulars for form in _FORMS_OF.get(singular, ())]
    return known or singulars


@lru_cache(maxsize=256)
def _unit_pattern(unit: str) -> re.Pattern:
    """Return what may stand behind a number in that unit."""
    patterns = []
    for form in _unit_forms(unit):
        if form == "\u00b0":
            patterns.append(rf"{_DEGREE_SIGN}(?: ?[CF])?")
        elif len(form) > 1 and form[-1].isalpha():
            patterns.append(rf"{re.escape(form)}(?:e?s|\(e?s\))?")
            patterns.append(rf"{re.escape(form.removesuffix('y'))}ies")
        else:
            patterns.append(re.escape(form))
    return re.compile(rf" ?(?:{'|'.join(patterns)})", re.IGNORECASE | re.ASCII)


def _singulars(word: str) -> list[str]:
    """Return a noun of English as it is, and every word of which it may be the plural."""
    endings = {"ies": ("y", "ie"), "ves": ("f", "fe", "ve"), "es": ("", "e"), "s": ("",)}
    singulars = [word]
    for ending, replacements in endings.items():
        if word.endswith(ending) and len(word) > len(ending) + 1:
            singulars += [word.removesuffix(ending) + replacement for replacement in replacements]
    return singulars

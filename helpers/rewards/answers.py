r"""The answer grammar: one number in the last complete `\boxed{}` of the final channel.

A number is an integer, a decimal or a fraction, and is read as an exact `Fraction`. What a model wrote is matched with
regular expressions only: it is never evaluated, and it is never given to a computer algebra system. Each step takes
time linear in the text.
"""

import re
import unicodedata
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from helpers.rewards.text import text_of
from helpers.runtime import UserError

#: More digits than any answer has. Python refuses to read integers of more than some thousand digits.
MOST_DIGITS = 100
#: White space of ASCII, and the no-break, the thin and the narrow no-break space.
SPACES = " \t\n\r\f\v\u00a0\u2009\u202f"

# A backslash takes the next character with it, so the braces in `\{` and `\}` are none.
_BOX_TOKEN = re.compile(r"(?P<box>\\boxed[ \t\n\r\f\v]*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)

_SPACE = f"[{SPACES}]*"
_SIGN = r"[+\-\u2212]"
#: Digits, or a first group of one to three that begins with no zero, and groups of three behind one kind of separator.
_INTEGER = r"(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:\{,\}[0-9]{3})+|(?:\\,[0-9]{3})+)|[0-9]+)"
_SIGNED = rf"(?:{_SIGN}{_SPACE})?{_INTEGER}"
_ARGUMENT = rf"(?:\{{{_SPACE}{_SIGNED}{_SPACE}\}}|[0-9])"
_NUMBER = re.compile(
    rf"(?P<sign>{_SIGN})?{_SPACE}(?:"
    rf"\\[dt]?frac{_SPACE}(?P<top>{_ARGUMENT}){_SPACE}(?P<bottom>{_ARGUMENT})"
    rf"|(?P<numerator>{_INTEGER}){_SPACE}/{_SPACE}(?P<denominator>{_SIGNED})"
    rf"|(?P<whole>{_INTEGER})?\.(?P<decimals>[0-9]+)"
    rf"|(?P<integer>{_INTEGER}))"
)
_DOLLARS = re.compile(rf"(?P<sign>{_SIGN})?{_SPACE}\\?\${_SPACE}")
_DIGIT = re.compile("[0-9]")
#: What may stand between a number and its unit.
_GAP = rf"(?:[{SPACES}~]|\\[ ,;])*"
_DOLLAR_UNITS = ("$", "dollars")
_DEGREE_SYMBOLS = (rf"\^{_SPACE}\\circ", rf"\^{_SPACE}\{{{_SPACE}\\circ{_SPACE}\}}", "\u00b0", r"\\degree")
#: unit -> patterns of its symbols behind a number; that of "$" matches nothing, since it stands before.
_SYMBOLS = {"%": (r"\\?%",), "$": (r"(?!)",), "degrees": _DEGREE_SYMBOLS, "\u00b0": _DEGREE_SYMBOLS}


class Boxes(NamedTuple):
    r"""The boxes of a text. complete: where the content of each begins and ends; unclosed: how many never close."""

    complete: list[tuple[int, int]]
    unclosed: int


class Number(NamedTuple):
    """A number as it was written. decimals: how many digits stand behind its point; None: it has no point."""

    value: Fraction
    decimals: int | None


def find_boxes(text: str) -> Boxes:
    r"""Return the boxes of a text, in the order in which they close. `\{` and `\}` are no braces."""
    complete = []
    open_braces = []  # for each, where the content of its box begins; None: it opens no box
    for token in _BOX_TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "box":
            open_braces.append(token.end())
        elif kind == "open":
            open_braces.append(None)
        elif kind == "close" and open_braces:
            begin = open_braces.pop()
            if begin is not None:
                complete.append((begin, token.start()))
    unclosed = sum(begin is not None for begin in open_braces)
    return Boxes(complete, unclosed)


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{}`, or None. The last is the one that opens last."""
    boxes = find_boxes(text).complete
    if not boxes:
        return None
    begin, end = max(boxes)
    return text[begin:end]


def read_number(text: str, unit: str | None = None) -> Fraction | None:
    r"""Return the number that a text consists of, or None.

    Read are integers, decimals (`7.0`, `.5`) and fractions of integers (`1/2`, `\frac{1}{2}`, `\frac12`), with one
    sign, leading zeros, thousands in groups of three (`1,200`, `1{,}200`, `1\,200`) and surrounding spaces.
    unit: may stand behind the number, and "$" before it; its letters must be those of `unit`. Raises UserError for a
    unit that is none.
    """
    number = parse_number(text, unit)
    return None if number is None else number.value


def boxed_number(completion: str | list[dict], finish_reason: str = "stop", unit: str | None = None) -> Fraction | None:
    r"""Return the number in the last complete `\boxed{}` of the final channel, or None.

    A completion that was cut off has no answer. unit: as in `read_number`.
    """
    if finish_reason != "stop":
        return None
    content = last_box(text_of(completion))
    return None if content is None else read_number(content, unit)


def right_number(answer: str | int | float, unit: str | None = None) -> Number:
    """Return the right answer that a row of the data set gives. Raises UserError if the grammar cannot read it."""
    is_number = isinstance(answer, float) and isfinite(answer)
    text = f"{Decimal(repr(answer)):f}" if is_number else str(answer)  # 1e16 as digits
    number = parse_number(text, unit)
    if number is None:
        raise UserError(
            f"The right answer {_shortened(answer)} is no single number: give an integer, a decimal or a fraction "
            "such as 1/2, without a box or words around it, and name its unit in the column 'unit'."
        )
    return number


def parse_number(text: str, unit: str | None = None) -> Number | None:
    """Return the number that a text consists of, and how many decimals it was written with, or None."""
    text = text.strip(SPACES)
    unit = _checked_unit(unit)
    unit_behind = _unit_pattern(unit) if unit else None
    dollars = _DOLLARS.match(text) if unit in _DOLLAR_UNITS else None
    found = _NUMBER.match(text, dollars.end() if dollars else 0)
    if found is None:
        return None
    rest = text[found.end() :]
    if rest and (unit_behind is None or unit_behind.fullmatch(rest) is None):
        return None
    if dollars and dollars["sign"] and found["sign"]:
        return None
    value = _value(found)
    if value is None:
        return None
    is_negative = _is_negative(found["sign"]) or (dollars is not None and _is_negative(dollars["sign"]))
    decimals = found["decimals"]
    return Number(-value if is_negative else value, None if decimals is None else len(decimals))


def _value(found: re.Match) -> Fraction | None:
    """Return the value of a number without the sign in front of it, or None for too many digits and a division by 0."""
    if len(_DIGIT.findall(found[0])) > MOST_DIGITS:
        return None
    if found["integer"]:
        return Fraction(_integer(found["integer"]))
    if found["decimals"]:
        digits = (found["whole"] or "") + found["decimals"]
        return Fraction(_integer(digits), 10 ** len(found["decimals"]))
    numerator = _integer(found["numerator"] or found["top"])
    denominator = _integer(found["denominator"] or found["bottom"])
    return Fraction(numerator, denominator) if denominator else None


def _integer(text: str) -> int:
    """Return the integer whose digits and sign a text holds, whatever braces, spaces and separators it holds, too."""
    digits = "".join(_DIGIT.findall(text))
    is_negative = "-" in text or "\u2212" in text
    return -int(digits) if is_negative else int(digits)


def _is_negative(sign: str | None) -> bool:
    return sign in ("-", "\u2212")


def _checked_unit(unit: object) -> str | None:
    """Return the unit of a row; None where it has none, for which pandas writes NaN. Raises UserError for another."""
    if unit is None or unit == "" or unit != unit:
        return None
    if not isinstance(unit, str):
        raise UserError(
            f"The unit {_shortened(unit)} is no text: give '%', 'degrees', '$', a word such as 'cm', or none."
        )
    is_word = unit[0].isalpha() or unicodedata.category(unit[0]) == "Sc"
    if unit not in _SYMBOLS and not is_word:
        raise UserError(f"The unit {_shortened(unit)} is invalid: give '%', 'degrees', '$' or a word such as 'cm'.")
    return unit


@lru_cache(maxsize=256)
def _unit_pattern(unit: str) -> re.Pattern:
    """Return what may stand behind a number in that unit: its symbols, its name, and that as text in a formula."""
    forms = list(_SYMBOLS.get(unit, ()))
    if unit[0].isalpha() or unit not in _SYMBOLS:
        name = re.escape(unit)
        forms += [name, rf"\\(?:text|textrm|mbox|mathrm){_SPACE}\{{{_GAP}{name}{_GAP}\}}"]
    return re.compile(f"{_GAP}(?:{'|'.join(forms)})")


def _shortened(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."

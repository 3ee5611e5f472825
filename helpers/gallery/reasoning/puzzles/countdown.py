"""Countdown: make a target from given numbers. The answer is an expression, which is parsed and never executed."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from helpers.gallery.reasoning.puzzles.puzzle import Puzzle, pay, read_json
from helpers.rewards.answers import plain_answer
from helpers.rewards.arguments import shown
from helpers.rewards.numbers import is_short
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError, is_whole_number

#: One token of a plain answer: blanks (which are left out), digits, a fraction of LaTeX, or a sign. ASCII digits only.
_TOKEN = re.compile(
    r"(?P<blank>[ \t\n]+)"
    r"|(?P<number>[0-9]+)"
    r"|(?P<fraction>\\[dt]?frac(?![A-Za-z]))"
    r"|(?P<sign>[-+*/(){}\[\]\u00f7])"
    r"|(?P<times>[xX](?![A-Za-z]))"
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
#: Parentheses and fractions inside each other. The parser calls itself for each.
MOST_NESTED = 20
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Expression(NamedTuple):
    """An expression that was read. value: None where it divides by zero. numbers: those that it uses, sorted."""

    value: Fraction | None
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Countdown(Puzzle):
    """Use each of the numbers exactly once, with + - * / and parentheses, to make the target."""

    numbers: tuple[int, ...]
    target: int
    most_characters = 200

    @classmethod
    def from_columns(cls, numbers: str, target: int | str) -> "Countdown":
        """Build the puzzle of a row. Raises UserError for invalid columns."""
        given = read_json("countdown", "numbers", numbers, list)
        for number in given:
            if not is_whole_number(number) or number < 0:
                raise UserError(f"countdown: the column 'numbers' must list integers from 0 up; got {numbers!r:.80}.")
        is_integer = isinstance(target, str) or (is_short(target) and not isinstance(target, bool))
        if not is_integer or not _INTEGER.fullmatch(str(target)):
            raise UserError(f"countdown: the column 'target' must be an integer; got {shown(target)}.")
        return cls(tuple(sorted(given)), int(target))

    def read(self, content: str) -> Expression | None:
        sides = [plain_answer(side) for side in plain_answer(content).split("=")]
        if len(sides) > 2:
            return None
        expressions = [side for side in sides if side.strip() != str(self.target)]
        says_another_target = len(sides) == 2 and len(expressions) != 1
        return None if says_another_target else read_expression((expressions or sides)[0])

    def fault(self, answer: Expression) -> str:
        if Counter(answer.numbers) != Counter(self.numbers):
            return "does not use each number exactly once"
        if answer.value is None:
            return "divides by zero"
        return "" if answer.value == self.target else "has another value than the target"

    def describe(self, answer: Expression) -> str:
        used = ", ".join(map(str, answer.numbers))
        return f"{answer.value} from {used}"


@register_reward(value_range=(0, 1), needs=("numbers", "target"), pays_correctness=True)
def countdown(
    prompts: Sequence,
    completions: Sequence,
    numbers: Sequence[str | None],
    target: Sequence[int | str | None],
    finish_reasons: Sequence[str] | None = None,
    **_,
) -> list[float | None]:
    r"""Pay 1 for a boxed expression that uses each number exactly once and makes the target, else 0.

    The last complete box holds integers, `+ - * /` and their usual other signs, `\frac{a}{b}` and brackets. A product
    with a bracket needs no sign, and a number may have one sign before it. `=` and the target may stand on either side.
    A power, a decimal and another equation are not read.
    numbers: JSON text such as "[3, 5, 8]". target: an integer. A row where both are None is another task's and gets
    None. Raises UserError for other columns.
    """
    return pay("countdown", Countdown.from_columns, completions, finish_reasons, numbers=numbers, target=target)


def read_expression(content: str) -> Expression | None:
    """Return the value of an arithmetic expression and the numbers in it, or None if it is not one."""
    tokens = _split(content)
    if tokens is None:
        return None
    parser = _Parser(tokens)
    try:
        value = parser.sum(0)
    except _NotAnExpressionError:
        return None
    if parser.next() is not None:
        return None
    return Expression(value, tuple(sorted(parser.numbers)))


def _split(content: str) -> list[str] | None:
    """Return the tokens of a text, each sign in one spelling; None if there is anything else in it."""
    tokens = []
    place = 0
    while place < len(content):
        match = _TOKEN.match(content, place)
        if match is None:
            return None
        place = match.end()
        kind = match.lastgroup
        if kind == "fraction":
            tokens.append(r"\frac")
        elif kind == "times":
            tokens.append("*")
        elif kind != "blank":
            tokens.append("/" if match[0] == "\u00f7" else match[0])
    return tokens


class _NotAnExpressionError(Exception):
    pass


class _Parser:
    """A reader of tokens from left to right, a method for each level of binding. Values are exact; None: undefined."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.place = 0
        self.numbers = []

    def next(self):
        """Return the next token without taking it; None at the end."""
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self, *wanted):
        """Take the next token if it is one of those wanted, and return it; else None."""
        token = self.next()
        if token not in wanted:
            return None
        self.place += 1
        return token

    def need(self, wanted):
        if self.take(wanted) is None:
            raise _NotAnExpressionError

    def sum(self, depth):
        value = self.product(depth)
        while sign := self.take("+", "-"):
            value = _apply(sign, value, self.product(depth))
        return value

    def product(self, depth):
        value = self.factor(depth)
        while True:
            sign = self.take("*", "/")
            if sign is None and not self.is_product_without_sign():
                return value
            value = _apply(sign or "*", value, self.factor(depth))

    def is_product_without_sign(self):
        """Whether a bracket stands directly behind a factor, or a number directly behind a bracket."""
        following = self.next()
        if following in ("(", "["):
            return True
        is_after_bracket = self.tokens[self.place - 1] in (")", "]")
        return is_after_bracket and following is not None and following.isdigit()

    def factor(self, depth):
        if depth > MOST_NESTED:
            raise _NotAnExpressionError
        if sign := self.take("+", "-"):
            return _apply(sign, Fraction(0), self.unsigned(depth))
        return self.unsigned(depth)

    def unsigned(self, depth):
        if opening := self.take(*_CLOSING):
            return self.inside(depth, _CLOSING[opening])
        if self.take(r"\frac"):
            self.need("{")
            above = self.inside(depth, "}")
            self.need("{")
            below = self.inside(depth, "}")
            return _apply("/", above, below)
        token = self.next()
        if token is None or not token.isdigit():
            raise _NotAnExpressionError
        self.place += 1
        number = int(token)
        self.numbers.append(number)
        return Fraction(number)

    def inside(self, depth, closing):
        value = self.sum(depth + 1)
        self.need(closing)
        return value


def _apply(sign, left, right):
    if left is None or right is None:
        return None
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    return left / right if right else None

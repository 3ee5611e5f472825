"""The grammar of Countdown's answers: what is right, what is wrong, and what is no answer."""

import random
import re
from fractions import Fraction

import pytest

from helpers.gallery.reasoning.puzzles.countdown import MOST_NESTED, Countdown, countdown, read_expression

PUZZLE = Countdown.from_columns("[3, 5, 8]", 16)
#: Right answers for the numbers 3, 5, 8 and the target 16.
RIGHT = [
    "3 + 5 + 8",
    "3+5+8",
    "8 + 5 + 3",
    "(3 + 5) + 8",
    "((3 + 5) + 8)",
    "(((3))) + (5 + 8)",
    " 3 + 5 + 8 ",
    "\n3 + 5\n+ 8\n",
    "3\t+\t5 + 8",
    "3 +  5+ 8",
    r"3\, + \,5 + 8",
    r"3\ +\ 5\ +\ 8",
    r"\left(3 + 5\right) + 8",
    r"\left( 3 + 5 \right) + 8",
    "03 + 5 + 8",
    "3 + 5 + 0008",
    "3 + 5 + 8 = 16",
    "3 + 5 + 8.",
    r"$3 + 5 + 8$",
    "`3 + 5 + 8`",
    "+ 3 + 5 + 8",
    "+3 + 5 + 8",
    "8 + 5 - -3",
    "8 + 5 + +3",
    "3 ++ 5 + 8",
    "16 = 3 + 5 + 8",
    "~3 + 5 + 8",
    "[3 + 5] + 8",
    "{3 + 5} + 8",
    r"\{3 + 5\} + 8",
    r"\text{3 + 5 + 8}",
    "'3 + 5 + 8'",
    r"\left 3 + 5 + 8",
    r"\left[3 + 5\right] + 8",
    r"\left(3 + 5) \right + 8",
    "3\u00a0+ 5 + 8",
    "3\u2003+ 5 + 8",
    "3\\\\ + 5 + 8",
]
#: Right answers for other puzzles: content, numbers, target.
RIGHT_ELSEWHERE = [
    ("8 * 3 - 5", "[3, 5, 8]", 19),
    ("8 \u00d7 3 - 5", "[3, 5, 8]", 19),
    ("8 \u00b7 3 - 5", "[3, 5, 8]", 19),
    ("8 \u22c5 3 - 5", "[3, 5, 8]", 19),
    (r"8 \times 3 - 5", "[3, 5, 8]", 19),
    (r"8 \cdot 3 - 5", "[3, 5, 8]", 19),
    (r"8\times3-5", "[3, 5, 8]", 19),
    ("8 * 3 \u2212 5", "[3, 5, 8]", 19),
    ("5 - 8 * 3", "[3, 5, 8]", -19),
    ("5 - 8 * 3", "[3, 5, 8]", "-19"),
    ("8 * (5 - 3)", "[3, 5, 8]", 16),
    ("8 / (5 - 3)", "[3, 5, 8]", 4),
    ("8 \u00f7 (5 - 3)", "[3, 5, 8]", 4),
    (r"8 \div (5 - 3)", "[3, 5, 8]", 4),
    (r"\frac{8}{5 - 3}", "[3, 5, 8]", 4),
    (r"\dfrac{8}{5 - 3}", "[3, 5, 8]", 4),
    (r"\tfrac{8}{5 - 3}", "[3, 5, 8]", 4),
    (r"\frac{ 8 }{ (5 - 3) }", "[3, 5, 8]", 4),
    (r"\frac {8} {5 - 3}", "[3, 5, 8]", 4),
    (r"\frac{\frac{8}{2}}{4}", "[2, 4, 8]", 1),
    (r"6 \cdot \frac{8}{2} \cdot 1", "[1, 2, 6, 8]", 24),
    ("8 / (3 - 8 / 3)", "[3, 3, 8, 8]", 24),
    ("6 / (1 - 3 / 4)", "[1, 3, 4, 6]", 24),
    ("5 * (5 - 1 / 5)", "[1, 5, 5, 5]", 24),
    ("10 - 4 - 3", "[3, 4, 10]", 3),
    ("24 / 4 / 3", "[3, 4, 24]", 2),
    ("24 / 4 * 3", "[3, 4, 24]", 18),
    ("1 + 2 * 3", "[1, 2, 3]", 7),
    ("2 * 3 + 1", "[1, 2, 3]", 7),
    ("7", "[7]", 7),
    ("(7)", "[7]", 7),
    ("0 * 9", "[0, 9]", 0),
    ("0 / 9", "[0, 9]", 0),
    ("1000000 * 1000000", "[1000000, 1000000]", 10**12),
]
#: Expressions that are read and are not right for the numbers 3, 5, 8 and the target 16.
WRONG = [
    "3 + 5 * 8",
    "(3 + 5) * 8",
    "8 * (3 - 5)",
    "8 + 8",
    "16",
    "3 + 5 + 8 + 0",
    "3 + 5 + 8 - 3 + 3",
    "(3 + 5 + 8) * 1",
    "(3 + 5 + 8) / 1",
    "5 + 8",
    "3 + 13",
    "38 - 5",
    "2 * 8",
    "8 + 5 + 3 * (8 / 8)",
    "3 / (5 - 5) + 8",
    "8 / 0",
    "8 / (3 - 3) * 0",
    "0 * (8 / 0)",
    r"\frac{8}{0}",
    r"\frac{8}{5 - 5} + 3",
    "3 + 5 + 9",
    "35 + 8",
    "30 + 5 + 8",
    "-3 + 5 + 8",
    "-(3 - 5) + 8",
    "\u22123 + 5 + 8",
    "0x3 + 5 + 8",
    "3(5) + 8",
    "(3)(5) + 8",
    "2(8)",
    "3 \u2013 5 + 8",
    "3 x 5 + 8",
]
#: What is no expression at all, though the numbers would do.
UNREADABLE = [
    "3{5} + 8",
    "{3}{5} + 8",
    r"8\frac{5}{3}",
    "",
    " ",
    "3 5 8",
    "3 + 5 8",
    "3 + 58 +",
    "3 + 5 + 8,",
    "3, 5, 8",
    "3 + 5, 8",
    "3.0 + 5 + 8",
    "3. + 5 + 8",
    ".3 + 5 + 8",
    "3,0 + 5 + 8",
    "3e0 + 5 + 8",
    "3_0 + 5 + 8",
    "0b11 + 5 + 8",
    "3j + 5 + 8",
    "(3 + 5 + 8",
    "3 + 5 + 8)",
    ")3 + 5 + 8(",
    "3 + () + 5 + 8",
    "()",
    "(",
    ")",
    "3 + (5 + ) 8",
    "3 + 5 + 8 +",
    "* 3 + 5 + 8",
    "3 ** 5 + 8",
    "3 // 5 + 8",
    "3 ^ 5 + 8",
    "3^{5} + 8",
    "2^{4}",
    "3 % 5 + 8",
    "3! + 5 + 8",
    "3 & 5 | 8",
    "3 << 5",
    "3 + 5 + x",
    "three + 5 + 8",
    "a + b + c",
    "(a - b) * c",
    "3 + 5 + 8 # a comment",
    "3 + 5 + 8; 1",
    "3 + 5 + 8 or 1",
    "3 if 5 else 8",
    r"\sqrt{9} + 5 + 8",
    r"\frac{3}5 + 8",
    r"\frac35 + 8",
    r"\frac{3} + 5 + 8",
    r"\frac{}{3} + 5 + 8",
    r"\frac{3}{} + 5 + 8",
    r"\fraction{3}{5} + 8",
    r"\frac(3)(5) + 8",
    r"\left(3 + 5 + 8",
    r"3 \timesx 5",
    r"3 \pm 5 + 8",
    "3 + 5 + \uff18",
    "\u0663 + 5 + 8",
    "3 + 5 + \u2467",
    "3 + 5 + 8\u00b2",
    "3 \uff0b 5 + 8",
    "3\u200b + 5 + 8",
    "\u202e3 + 5 + 8",
    "3 + 5 + 8\x00",
    "3 + 5 + 8\ud800",
    "3 + 5 + 8" + " " * 200,
    "3 + 5 + 8" + " + 0" * 60,
]


def paid(content, numbers="[3, 5, 8]", target=16):
    (value,) = countdown([None], [rf"It is \boxed{{{content}}}."], numbers=[numbers], target=[target])
    return value


@pytest.mark.parametrize("content", RIGHT)
def test_right_answers_are_paid(content):
    """An answer refused for how it is written teaches the model to avoid what is right."""
    assert paid(content) == 1.0
    assert paid(content, target=17) == 0.0


@pytest.mark.parametrize(("content", "numbers", "target"), RIGHT_ELSEWHERE)
def test_signs_bind_and_are_spelt_as_usual(content, numbers, target):
    """A wrong precedence would pay for wrong expressions, and refuse right ones."""
    assert paid(content, numbers, target) == 1.0
    assert paid(content, numbers, int(target) + 1) == 0.0


@pytest.mark.parametrize("content", WRONG)
def test_wrong_expressions_are_read_and_not_paid(content):
    """A number left out, taken twice or glued together would make every puzzle easy."""
    assert PUZZLE.read(content) is not None
    assert paid(content) == 0.0


@pytest.mark.parametrize("content", UNREADABLE)
def test_what_is_no_expression_is_not_paid(content):
    """Whatever else Python or LaTeX would calculate is no answer."""
    assert paid(content) == 0.0
    if len(content) <= 200:
        assert PUZZLE.read(content) is None


def test_no_two_cases_are_the_same():
    for cases in (RIGHT, RIGHT_ELSEWHERE, WRONG, UNREADABLE):
        assert len(set(cases)) == len(cases)


def test_values_are_exact():
    """With floating-point numbers 8 / (3 - 8 / 3) is 23.999999999999989."""
    assert read_expression("8 / (3 - 8 / 3)").value == 24
    assert read_expression("1 / 3 + 1 / 7").value == Fraction(10, 21)
    large = "9" * 99
    assert read_expression(f"{large} * {large}").value == (10**99 - 1) ** 2


def test_what_is_read_is_pythons_arithmetic():
    """A random text that is read has the value that Python gives it, with the signs of products that it leaves out."""
    rng = random.Random(0)
    count = 0
    for _ in range(20_000):
        text = "".join(rng.choice("12+-*/()3 ") for _ in range(rng.randint(1, 9)))
        expression = read_expression(text)
        if expression is None:
            continue
        count += 1
        with_signs = re.sub(r"(?<=[0-9)])(\s*)(?=\()|(?<=\))(\s*)(?=[0-9])", "*", text)
        exact = re.sub("([0-9]+)", r"Fraction(\1)", with_signs).strip()
        try:
            value = eval(exact, {"Fraction": Fraction})
        except ZeroDivisionError:
            value = None
        assert expression.value == value, text
    assert count > 1000


def test_division_by_zero_is_wrong_wherever_it_is():
    for content in ("8 / 0", "0 * (8 / 0)", "1 + 8 / (3 - 3)", r"\frac{1}{0} - 1"):
        assert read_expression(content).value is None


def test_depth_and_length_are_limited():
    """The parser calls itself for each parenthesis: without a limit a deep answer would end the training."""
    for depth, is_read in ((MOST_NESTED, True), (MOST_NESTED + 1, False), (90, False)):
        content = "0 + " + "(" * depth + "7" + ")" * depth
        assert (read_expression(content) is not None) == is_read
        assert paid(content, "[0, 7]", 7) == float(is_read)
    for blanks, value in ((200 - len("3+5+8"), 1.0), (201 - len("3+5+8"), 0.0)):
        assert paid("3+5" + " " * blanks + "+8") == value


def test_a_number_that_is_given_twice_is_used_twice():
    assert paid("4 + 4", "[4, 4]", 8) == 1.0
    assert paid("4 + 4", "[4]", 8) == 0.0
    assert paid("4 * 2", "[4, 4]", 8) == 0.0
    assert paid("4 + 4 + 4 - 4", "[4, 4]", 8) == 0.0

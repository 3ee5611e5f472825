r"""Our verdicts beside math-verify's, over a large sample of answers: `python -m tests.rewards.agreement`.

Every kind of answer is drawn together with the verdict that our grammar must give by construction. A kind either has
to agree with math-verify everywhere, or it has a sentence that says why the two differ, and in which direction. It
fails when a verdict of ours is not the constructed one, when the two differ where no sentence says so, and when a
sentence explains a difference that there is not. math-verify reads with the settings that its README recommends for
rewards.
"""

import json
import logging
import platform
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from importlib.metadata import version

from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify

from helpers.gallery.math.rewards import math_answer
from helpers.rewards.numbers import read_number
from helpers.runtime import ROOT, write_whole

RESULTS = ROOT / "tests" / "benchmarks" / "results" / "math-verify.json"
PACKAGES = ("math-verify", "latex2sympy2_extended", "antlr4-python3-runtime", "sympy")
SEED = "agreement"
PAIRS_PER_KIND = 500

_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=True, malformed_operators=False, nits=False, boxed="all", equations=False
)
_EXTRACTION = [
    LatexExtractionConfig(normalization_config=_NORMALIZATION, boxed_match_priority=0, try_extract_without_anchor=False)
]

Draw = Callable[[random.Random], tuple[str, Fraction]]


@dataclass(frozen=True)
class Kind:
    """A kind of answers.

    draw: returns what stands in the box, and the number that it says or that a lenient reader sees in it. is_read:
    whether our grammar reads it; None: that is not known by construction. why: why math-verify says otherwise; "": it
    must not. differs_on: our verdict where it may say otherwise; None: whatever `is_read` is. patterns: if any, it may
    say otherwise only where one is found in the box, each with our verdict then. frame: what stands around the answer.
    shift: added to the number to make the right answer. weight: how many times as many pairs as of another kind.
    """

    draw: Draw
    is_read: bool | None
    why: str = ""
    differs_on: bool | None = None
    patterns: tuple[tuple[str, bool], ...] = ()
    unit: str | None = None
    frame: str = r"\boxed{%s}"
    shift: Fraction = Fraction(0)
    weight: int = 1

    def explains(self, ours: bool, text: str) -> bool:
        if self.patterns:
            return any(ours is verdict and re.search(pattern, text) for pattern, verdict in self.patterns)
        differs_on = self.is_read if self.differs_on is None else self.differs_on
        return bool(self.why) and ours is differs_on


@dataclass
class Result:
    """What came out for a kind. wrong: our verdicts that are not the constructed ones; unexplained: see above."""

    name: str
    pairs: int = 0
    paid: int = 0
    stricter: int = 0
    more_lenient: int = 0
    example: str = ""
    wrong: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)

    @property
    def disagreements(self) -> int:
        return self.stricter + self.more_lenient


# Accepted forms.


def _natural(rng: random.Random) -> int:
    return rng.randrange(10 ** rng.randint(1, 6))


def _positive(rng: random.Random) -> int:
    return 1 + _natural(rng)


def _signed(rng: random.Random, text: str, value: Fraction | int, signs=("", "", "-", "+")) -> tuple[str, Fraction]:
    sign = rng.choice(signs)
    return sign + text, Fraction(-value if sign.strip() in ("-", "\u2212") else value)


def _integer(rng):
    value = _natural(rng)
    zeros = "0" * rng.choice((0, 0, 0, 1, 2))
    return _signed(rng, f"{zeros}{value}", value)


def _long_integer(rng):
    value = rng.randrange(10**30, 10**90)
    return _signed(rng, str(value), value)


def _padded_integer(rng):
    text, value = _integer(rng)
    blanks = rng.choice((" ", "  ", "\n", "\t"))
    return blanks + text + blanks, value


def _spaced_sign(rng):
    value = _positive(rng)
    return _signed(rng, str(value), value, ("- ", "+ ", "-  "))


def _unicode_minus(rng):
    value = _positive(rng)
    return _signed(rng, str(value), value, ("\u2212", "\u2212 "))


def _no_break_space(rng):
    value = _positive(rng)
    return f"-\u00a0{value}", Fraction(-value)


def _decimal_parts(rng, most=5):
    whole = rng.choice(("", str(_natural(rng))))
    decimals = "".join(rng.choices("0123456789", k=rng.randint(1, most)))
    return f"{whole}.{decimals}", Fraction(f"0{whole}.{decimals}")


def _decimal(rng):
    return _signed(rng, *_decimal_parts(rng))


def _grouped(rng, separator):
    value = rng.randrange(1000, 10 ** rng.randint(4, 9))
    return f"{value:,}".replace(",", separator), Fraction(value)


def _grouped_comma(rng):
    return _signed(rng, *_grouped(rng, ","), ("", "-"))


def _grouped_braces(rng):
    return _signed(rng, *_grouped(rng, "{,}"), ("", "-"))


def _grouped_thin_space(rng):
    return _signed(rng, *_grouped(rng, r"\,"))


def _grouped_blank(rng):
    return _signed(rng, *_grouped(rng, rng.choice((" ", "\u00a0", "\u202f", "~", r"\ ", r"\;"))), ("", "-"))


def _grouped_after_other_signs(rng):
    return _signed(rng, *_grouped(rng, rng.choice((",", "{,}"))), ("\u2212", "+", "- "))


def _grouped_in_fraction(rng):
    numerator_text, numerator = _grouped(rng, rng.choice((",", "{,}")))
    denominator = rng.randint(2, 99)
    text = rng.choice((r"\frac{%s}{%s}", "%s/%s")) % (numerator_text, denominator)
    return text, numerator / denominator


def _slash(rng):
    numerator, denominator = _natural(rng), _positive(rng)
    text = f"{numerator}{rng.choice(('/', ' / '))}{rng.choice(('', '', '-'))}{denominator}"
    value = Fraction(numerator, -denominator if "-" in text else denominator)
    return _signed(rng, text, value)


def _fraction(rng):
    top_text, top = _signed_natural(rng)
    bottom_text, bottom = _signed_natural(rng, least=1)
    command = rng.choice((r"\frac", r"\dfrac", r"\tfrac"))
    return _signed(rng, f"{command}{{{top_text}}}{{{bottom_text}}}", top / bottom)


def _signed_natural(rng, least=0):
    value = least + _natural(rng)
    return _signed(rng, str(value), value, ("", "", "-"))


def _digit_fraction(rng):
    top, bottom = rng.randint(0, 9), rng.randint(1, 9)
    command = rng.choice((r"\frac", r"\dfrac", r"\tfrac"))
    return _signed(rng, f"{command}{rng.choice(('', ' '))}{top}{bottom}", Fraction(top, bottom))


def _with(draw, *ends):
    """Return a draw of what `draw` gives, with one of `ends` behind it."""

    def drawn(rng):
        text, value = draw(rng)
        return text + rng.choice(ends), value

    return drawn


def _before(draw, *fronts):
    def drawn(rng):
        text, value = draw(rng)
        return rng.choice(fronts) + text, value

    return drawn


def _between(draw, *pairs):
    def drawn(rng):
        text, value = draw(rng)
        front, end = rng.choice(pairs)
        return front + text + end, value

    return drawn


def _plain(rng):
    return str(value := _positive(rng)), Fraction(value)


# Forms that the grammar rejects, each with the number that a lenient reader may see.

_JOINTS = (", ", " , ", ";", "; ", r" \text{ or } ", r" \text{ and } ", " or ")


def _undone(rng):
    a, b = rng.randint(2, 60), rng.randint(2, 60)
    choices = [
        (rf"{a}\cdot {b}", a * b),
        (rf"{a} \times {b}", a * b),
        (f"{a}*{b}", a * b),
        (f"{a}+{b}", a + b),
        (f"{a + b}-{b}", a),
        (rf"\sqrt{{{a * a}}}", a),
        (f"|{a}|", a),
        (rf"\frac{{{a}}}{{2}}+\frac{{{a}}}{{2}}", a),
        (rf"\binom{{{a}}}{{1}}", a),
        (rf"{a} \div 1", a),
    ]
    text, value = rng.choice(choices)
    return text, Fraction(value)


def _power(rng):
    base, exponent = rng.randint(2, 12), rng.randint(1, 10)
    text = rng.choice(("%d^{%d}", r"{%d}^{%d}", "%d^{ %d }")) % (base, exponent)
    return text, Fraction(base**exponent)


def _scientific(rng):
    digits, exponent = rng.randint(1, 99), rng.randint(0, 5)
    text = rng.choice(("%de%d", "%dE%d", r"%d \times 10^{%d}", r"%d\cdot10^{%d}")) % (digits, exponent)
    return text, Fraction(digits * 10**exponent)


def _equation(rng):
    value = _natural(rng)
    text = rng.choice(("x = %d", "x=%d", "n = %d", "y=%d")) % value
    return text, Fraction(value)


def _two_values(rng):
    first, second = rng.sample(range(10**4), 2)
    return f"{first}{rng.choice(_JOINTS)}{second}", Fraction(rng.choice((first, second)))


def _same_value_twice(rng):
    value = _natural(rng)
    return f"{value}{rng.choice(_JOINTS)}{value}", Fraction(value)


def _plus_or_minus(rng):
    value = _positive(rng)
    return rng.choice((r"\pm %d", r"\mp %d", "\u00b1%d")) % value, Fraction(rng.choice((value, -value)))


def _mixed_number(rng, is_proper=True):
    whole = rng.randint(1, 99)
    bottom = rng.randint(2, 9)
    top = rng.randint(1, bottom - 1) if is_proper else rng.randint(bottom, 9)
    text = rf"{whole}{rng.choice(('', ' '))}\frac{{{top}}}{{{bottom}}}"
    return text, whole + Fraction(top, bottom)


def _two_signs(rng):
    text, value = _plain(rng)
    signs = rng.choice(("--", "++", "+-", "-+", "- -", "-\u2212"))
    is_negative = (signs.count("-") + signs.count("\u2212")) % 2
    return signs + text, -value if is_negative else value


def _mixed_groups(rng):
    value = rng.randrange(10**6, 10**9)
    first, second, third = f"{value:,}".split(",")
    joints = rng.choice(((",", "{,}"), ("{,}", ","), (",\\!", ",\\!"), ("\\!", "\\!")))
    return first + joints[0] + second + joints[1] + third, Fraction(value)


def _bad_groups(rng):
    value = rng.randrange(10, 10**5)
    digits = str(value)
    cut = rng.randint(1, len(digits) - 1)
    if len(digits) - cut == 3:
        cut += 1 if cut == 1 else -1
    if len(digits) - cut == 3 or not digits[cut:]:
        return "12,00", Fraction(1200)
    return f"{digits[:cut]},{digits[cut:]}", Fraction(value)


def _decimal_comma(rng):
    return f"{rng.randint(0, 99)},{rng.choice('123456789')}", Fraction(0)


def _open_point(rng):
    value = _natural(rng)
    return f"{value}.", Fraction(value)


def _nested_fraction(rng):
    a, b, c = rng.randint(1, 20), rng.randint(2, 20), rng.randint(2, 20)
    choices = [
        (rf"\frac{{{a}/{b}}}{{{c}}}", Fraction(a, b * c)),
        (rf"\frac{{\frac{{{a}}}{{{b}}}}}{{{c}}}", Fraction(a, b * c)),
        (f"{a}/{b}/{c}", Fraction(a, b * c)),
        (rf"\frac{{{a}.5}}{{{b}}}", Fraction(2 * a + 1, 2 * b)),
        (f"{a}.5/{b}", Fraction(2 * a + 1, 2 * b)),
        (rf"\cfrac{{{a}}}{{{b}}}", Fraction(a, b)),
        (rf"{a} \over {b}", Fraction(a, b)),
        (f"({a})/({b})", Fraction(a, b)),
        (rf"\frac{{{{{a}}}}}{{{b}}}", Fraction(a, b)),
    ]
    return rng.choice(choices)


def _division_by_zero(rng):
    value = _natural(rng)
    return rng.choice((r"\frac{%d}{0}", "%d/0", r"\frac{%d}{00}", "%d/-0")) % value, Fraction(rng.choice((0, value)))


def _python(rng):
    value = rng.randint(1000, 9999)
    text = str(value)
    choices = [f"{text[0]}_{text[1:]}", hex(value), bin(value), oct(value), f"{value}L", f"{value}j", f"{value}f"]
    return rng.choice(choices), Fraction(value)


def _words(rng):
    return rng.choice(("nan", "inf", "-inf", "\\infty", "None", "seven", "VII", "O", "x", "?")), Fraction(7)


def _other_digits(rng):
    zero = ord(rng.choice("\uff10\u0660\u0966\U0001d7ce"))
    value = _positive(rng)
    return "".join(chr(zero + int(digit)) for digit in str(value)), Fraction(value)


def _other_dashes(rng):
    value = _positive(rng)
    return rng.choice("\u2013\u2014\u2010\uff0d") + str(value), Fraction(-value)


def _invisible(rng):
    text, value = _plain(rng)
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice("\u200b\u200e\u202e\ufeff\u2066\0") + text[place:], value


def _two_in_a_row(rng):
    first, second = _positive(rng), _positive(rng)
    if len(str(second)) == 3:  # it would be a group of a larger number
        second *= 10
    return f"{first} {second}", Fraction(rng.choice((first, second, int(f"{first}{second}"))))


def _percentage(rng):
    text = rng.choice((f"-{rng.randint(1, 99)}", f"{rng.randint(0, 99)}.5"))
    return text, Fraction(text)


def _hundredth(rng):
    value = rng.randint(1, 99)
    return rf"{value}{rng.choice(('', ' '))}\%", Fraction(value, 100)


def _one_character_changed(rng):
    """One character of an accepted form inserted, left out, or swapped with the one before it."""
    draw = rng.choice((_integer, _decimal, _slash, _fraction, _grouped_comma, _grouped_braces))
    text, value = draw(rng)
    place = rng.randint(1, len(text))
    edit = rng.choice(("insert", "leave out", "swap"))
    if edit == "insert":
        changed = text[:place] + rng.choice("0123456789+-.,/ {}") + text[place:]
    elif edit == "leave out":
        changed = text[: place - 1] + text[place:]
    else:
        changed = text[: place - 1] + text[place : place + 1] + text[place - 1] + text[place + 1 :]
    read = read_number(changed)
    return changed, value if read is None or rng.random() < 0.3 else read


#: What explains a difference about a text that was changed at random, and our verdict then.
_PATTERNS = (
    (r"[+-] *[+-]", False),  # repeated signs
    (r"[0-9}] *[+-] *[0-9.\\]", False),  # a sum
    (r"/[^/]*/", False),  # two divisions
    (r"[0-9] *\\[dt]?frac|\}[0-9]", False),  # a mixed number or a product
    (r"\{ ,\}|\{, \}| \{,\}|\{,\} |\b0+ +[0-9]", False),  # a space at a separator or behind a leading zero
    (r"^(\+|- ) *[0-9]+(,|\{,\})[0-9]{3}", True),  # thousands behind a plus, or a minus and a space
    (r"\.$", True),  # a full stop
    (r"[0-9] +[0-9]{3}", True),  # thousands with a blank
    (r"frac\{[^}]*\}[0-9]\}", True),  # a fraction with a single-digit denominator
    (r"(/.*[0-9]|frac.*[0-9])(,|\{,\})[0-9]{3}|[0-9](,|\{,\})[0-9]{3} */", True),  # thousands in a fraction
)
_UNITS = (r"\text{ cm}", r"\text{cm}", r" \text{cm}", r"\ \text{cm}", r"\,\mathrm{cm}", " cm", "cm")

KINDS: dict[str, Kind] = {
    "integer": Kind(_integer, True),
    "integer of many digits": Kind(_long_integer, True),
    "integer between blanks": Kind(_padded_integer, True),
    "sign and blank": Kind(_spaced_sign, True),
    "Unicode minus": Kind(_unicode_minus, True),
    "decimal": Kind(_decimal, True),
    "thousands with a comma": Kind(_grouped_comma, True),
    "thousands with a comma in braces": Kind(_grouped_braces, True),
    "slash": Kind(_slash, True),
    "LaTeX fraction": Kind(_fraction, True),
    "box in a sentence": Kind(_decimal, True, frame="So $x$ is 7 or \\[ \\boxed{%s} \\] and that is all."),
    "earlier unclosed box": Kind(_integer, True, frame=r"\boxed{7 and \boxed{%s}"),
    "two values": Kind(_two_values, False),
    "same value twice": Kind(
        _same_value_twice, False, "It reads a list as a set, where equal elements count once; no list is right here."
    ),
    "plus or minus": Kind(_plus_or_minus, False),
    "two numbers in a row": Kind(_two_in_a_row, False),
    "division by zero": Kind(_division_by_zero, False),
    "decimal comma": Kind(_decimal_comma, False),
    "nan, inf, words": Kind(_words, False),
    "unclosed box": Kind(_integer, False, frame=r"The answer is \boxed{%s"),
    "empty box": Kind(_integer, False, frame=r"%s is \boxed{}"),
    "no box": Kind(_integer, False, frame="The answer is %s."),
    "no-break space": Kind(
        _no_break_space, True, "It does not read a no-break space behind a sign; a typesetter writes one there."
    ),
    "thousands with a thin space": Kind(
        _grouped_thin_space, True, r"It does not read `1\,200`, the separator of the International System of Units."
    ),
    "thousands after other signs": Kind(
        _grouped_after_other_signs,
        True,
        "It reads a plus, a Unicode minus, and a minus and a space before plain digits, but not before groups.",
    ),
    "thousands in a fraction": Kind(
        _grouped_in_fraction, True, "It does not read thousands in a numerator; the value is as plain as without them."
    ),
    "single-digit fraction": Kind(
        _digit_fraction,
        True,
        r"`\frac12` is one half in LaTeX; its normalisation of such fractions is switched off as its README advises.",
    ),
    "earlier box": Kind(
        _integer, True, "It compares all boxes of a text together; here the last one is the answer.",
        frame=r"First \boxed{7.125}, then \boxed{%s}",
    ),
    "space before the brace": Kind(
        _integer, True, r"It does not find `\boxed {7}`, which LaTeX reads as `\boxed{7}`.", frame=r"\boxed {%s}"
    ),
    "nearby decimal": Kind(
        _decimal,
        True,
        "It rounds to six decimals before it compares; values are compared exactly here, and math_number rounds.",
        differs_on=False,
        shift=Fraction(1, 10**9),
    ),
    "computation left undone": Kind(
        _undone, False, "It evaluates; a policy would be paid for leaving the computation to the grader."
    ),
    "power": Kind(_power, False, "It evaluates powers, too; the time of a power tower has no bound."),
    "scientific notation": Kind(
        _scientific, False, "It multiplies `1 \\times 10^{3}` out and reads `1E3`; a second notation only adds cases."
    ),
    "equation": Kind(_equation, True),
    "mixed number": Kind(_mixed_number, True),
    "mixed number, improper": Kind(
        partial(_mixed_number, is_proper=False), False, "It adds a fraction of 1 or more, too; that is no mixed number."
    ),
    "two signs": Kind(_two_signs, False, "It works out repeated signs, which is arithmetic and no notation."),
    "mixed separators": Kind(_mixed_groups, True),
    "thousands with a blank": Kind(
        _grouped_blank, True, "It does not read blanks between groups; half of the world writes thousands so."
    ),
    "bad groups": Kind(_bad_groups, False),
    "point without decimals": Kind(
        _open_point, True, "It does not read a number with a full stop behind it, which ends a sentence."
    ),
    "fraction of more than integers": Kind(
        _nested_fraction, False, "It divides decimals and fractions, which is a computation left undone."
    ),
    "notation of Python": Kind(_python, False),
    "other digits": Kind(_other_digits, False),
    "other dashes": Kind(_other_dashes, True, "It reads no dash as a minus; models write en dashes."),
    "invisible characters": Kind(_invisible, False),
    "braces, brackets and fonts": Kind(
        _between(
            _plain,
            *(("{", "}"), (r"\text{", "}"), (r"\textbf{", "}"), (r"\mathbf{", "}"), ("(", ")"), ("[", "]")),
            *(("$", "$"), (r"\(", r"\)"), ("'", "'"), (r"\left(", r"\right)")),
        ),
        True,
    ),
    "Markdown's bold type": Kind(
        _between(_plain, ("**", "**"), ("__", "__")), True, "It knows LaTeX's types; models write both."
    ),
    "other spaces": Kind(_before(_plain, "\u3000", "\u2003", "\u2028", r"\,", r"\quad "), True),
    "escaped backslash": Kind(
        _integer, False, r"It finds `\boxed` behind another backslash, where LaTeX reads a line break and a word.",
        frame=r"\\boxed{%s}",
    ),
    "undeclared unit": Kind(
        _with(_plain, *_UNITS, r"^\circ", r"^{\circ}", r"\%", "%", " apples"),
        False,
        "It drops units; a row declares its unit here, since 42 cm is not 42 m.",
    ),
    "undeclared dollars": Kind(_before(_plain, r"\$", "$"), False, "It drops a dollar sign, too."),
    "declared unit": Kind(_with(_decimal, *_UNITS), True, unit="cm"),
    "declared degrees": Kind(_with(_plain, r"^\circ", r"^{\circ}"), True, unit="degrees"),
    "declared degrees, other signs": Kind(
        _with(_plain, "\u00b0", r"\degree"), True, "It knows `^\\circ` only.", unit="degrees"
    ),
    "declared dollars": Kind(_before(_plain, r"\$", "$"), True, unit="$"),
    "declared percent": Kind(_with(_plain, r"\%", "%", r" \%"), True, unit="%"),
    "declared percent, signs and decimals": Kind(
        _with(_percentage, r"\%", "%", r" \%"),
        True,
        "Unless it is a natural number, it takes a percentage as a hundredth of itself; here the number counts.",
        unit="%",
    ),
    "percentage as a fraction": Kind(
        _hundredth, False, "It takes 50% for 1/2, too; the row says 50, and one answer has one value.", unit="%"
    ),
    "another unit than declared": Kind(
        _with(_plain, " mm", r"\text{ mm}", r"\%"), False, "It drops whatever unit stands there.", unit="cm"
    ),
    "one character changed": Kind(
        _one_character_changed,
        None,
        "Each is of a kind above, or it skips a space at a separator or behind a leading zero.",
        patterns=_PATTERNS,
        weight=8,
    ),
}  # fmt: skip


def _right_answer(rng: random.Random, kind: Kind, value: Fraction) -> Fraction:
    """Return the number itself, mostly, and otherwise one that a slip would give."""
    if kind.shift:
        return value + kind.shift
    if not kind.is_read or rng.random() < 0.5:
        return value
    slips = [value + 1, value - 1, -value, value * 10, value / 10, value + Fraction(1, 100), value * 1000]
    if value:
        slips.append(1 / value)
    return rng.choice(slips)


def _latex(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def math_verify_says(completion: str, right: Fraction) -> bool:
    """Return math-verify's verdict. Its timeout is off: it would need the main thread."""
    gold = parse(rf"\boxed{{{_latex(right)}}}", extraction_config=_EXTRACTION, parsing_timeout=None)
    found = parse(completion, extraction_config=_EXTRACTION, parsing_timeout=None)
    return bool(verify(gold, found, timeout_seconds=None))


def compare_kind(name: str, pairs: int, seed: str = SEED) -> Result:
    """Draw pairs of an answer and a right answer of one kind and compare the verdicts."""
    kind = KINDS[name]
    rng = random.Random(f"{seed} {name}")
    result = Result(name)
    for _ in range(pairs):
        text, value = kind.draw(rng)
        right = _right_answer(rng, kind, value)
        completion = kind.frame.replace("%s", text)
        expected = None if kind.is_read is None else kind.is_read and right == value
        ours = math_answer([None], [completion], answer=[str(right)], unit=[kind.unit]) == [1.0]
        theirs = math_verify_says(completion, right)
        pair = f"{completion!r} for {right}"
        result.pairs += 1
        result.paid += ours
        if expected is not None and ours is not expected:
            result.wrong.append(pair)
        if ours is theirs:
            continue
        result.stricter += theirs
        result.more_lenient += ours
        result.example = result.example or pair
        if not kind.explains(ours, text):
            result.unexplained.append(pair)
    if kind.why and not result.disagreements:
        result.unexplained.append(f"no difference, and a sentence that explains one: {kind.why}")
    return result


def compare_all(pairs_per_kind: int, seed: str = SEED) -> list[Result]:
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    logging.getLogger("latex2sympy2_extended").setLevel(logging.CRITICAL)
    return [compare_kind(name, kind.weight * pairs_per_kind, seed) for name, kind in KINDS.items()]


def main() -> None:
    results = compare_all(PAIRS_PER_KIND)
    print(f"{'kind':38} {'pairs':>6} {'paid':>6} {'only it':>7} {'only we':>8}  why")
    for result in results:
        why = KINDS[result.name].why if result.disagreements else ""
        counts = f"{result.pairs:6} {result.paid:6} {result.stricter:7} {result.more_lenient:8}"
        print(f"{result.name:38} {counts}  {why}")
    pairs = sum(result.pairs for result in results)
    disagreements = sum(result.disagreements for result in results)
    print(f"{pairs} pairs, {disagreements} disagreements ({disagreements / pairs:.1%}).")
    wrong = [pair for result in results for pair in result.wrong]
    unexplained = [f"{result.name}: {pair}" for result in results for pair in result.unexplained]
    write_whole(RESULTS, json.dumps(_record(results, pairs, disagreements, wrong, unexplained), indent=1) + "\n")
    if wrong or unexplained:
        lines = [f"wrong: {pair}" for pair in wrong[:40]] + [f"unexplained: {pair}" for pair in unexplained[:200]]
        sys.exit("\n".join([*lines, f"{len(wrong)} wrong verdicts, {len(unexplained)} unexplained disagreements."]))


def _record(results, pairs, disagreements, wrong, unexplained) -> dict:
    rows = []
    for result in results:
        row = {"kind": result.name, "pairs": result.pairs, "paid": result.paid}
        row |= {"only_math_verify_pays": result.stricter, "only_we_pay": result.more_lenient}
        if result.disagreements:
            row |= {"why": KINDS[result.name].why, "example": result.example}
        rows.append(row)
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    return {
        "command": "python -m tests.rewards.agreement",
        "versions": versions,
        "seed": SEED,
        "pairs": pairs,
        "disagreements": disagreements,
        "wrong_verdicts": len(wrong),
        "unexplained": len(unexplained),
        "rows": rows,
    }


if __name__ == "__main__":
    main()

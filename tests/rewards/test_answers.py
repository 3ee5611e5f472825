r"""The answer grammar: the cases, every form of every number, and texts that mean harm."""

from fractions import Fraction
from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.gallery.math.rewards import exact_match, math_answer, math_format, math_number
from helpers.rewards.answers import find_boxes, last_box
from helpers.rewards.numbers import MOST_DIGITS, boxed_number, parse_number, read_number, right_number
from helpers.runtime import UserError
from tests.rewards.answer_cases import ALL_CASES, CASES
from tests.timing import assert_linear


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    """Every verdict was written down before the parser was: a wrong one is a wrong reward."""
    for text, right, unit, is_right in CASES[name]:
        value = boxed_number(text, unit=unit)
        assert (value == right_number(right, unit).value) is is_right, (text, right, unit)


REJECTED = (
    "bad signs", "bad decimals", "bad thousands", "bad fractions", "bad spaces", "no box", "computations", "programs",
    "other digits", "decorations", "undeclared units",
)  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_what_is_rejected_has_no_value_at_all(name):
    """Read as another number than the right one, it would be rejected by luck."""
    for text, _, unit, _ in CASES[name]:
        assert boxed_number(text, unit=unit) is None, text


def test_dollars_between_two_signs_have_no_value():
    assert read_number(r"-\$-42", "$") is None


def test_the_cases_are_many_and_differ():
    cases = [case[1:4] for case in ALL_CASES]
    assert len(cases) == len(set(cases)) >= 350
    right = sum(case[4] for case in ALL_CASES)
    assert 150 < right < len(cases) - 150


def test_only_the_final_channel_of_a_completion_that_ended():
    """Paying for what stands in the analysis, or for what was cut off, teaches not to answer."""
    message = [{"role": "assistant", "content": "None.", "thinking": r"\boxed{42}"}]
    assert boxed_number(message) is None
    message[0]["content"] = r"\boxed{42}"
    assert boxed_number(message) == 42
    assert boxed_number(message, "length") is None
    assert boxed_number([]) is None and boxed_number([{"role": "assistant", "content": None}]) is None


def test_boxes_are_spans_and_the_outermost_counts():
    text = r"\boxed{1 \boxed{2}} \boxed{3"
    complete, unclosed = find_boxes(text)
    assert [text[begin:end] for begin, end in complete] == [r"1 \boxed{2}"]
    assert unclosed == 1 and last_box(text) == r"1 \boxed{2}"
    assert find_boxes(r"\{ \boxed{\}} {").unclosed == 0


@pytest.mark.parametrize(
    "hidden",
    [r"<del>%s</del>", r"<s>%s</s>", r"\cancel{%s}", r"\sout{ %s }", r"\phantom{%s}", r"\begin{comment}%s\end{comment}",
     "<span style='display:none'>%s</span>", "<div hidden>%s</div>", r"\iffalse %s \fi", "\n% %s", "<!-- %s -->",
     "\n[//]: # (%s)", "~~%s~~", "```python\nprint('%s')\n```", r"\verb|%s|", r"`print('%s')`"],
)  # fmt: skip
def test_a_box_that_nobody_sees_is_none(hidden):
    text = hidden.replace("%s", r"\boxed{42}")
    assert boxed_number(text) is None and math_format([None], [text]) == [0.0]
    assert boxed_number("\\boxed{41}\n" + text) == 41
    assert boxed_number(text + "\n\n" + r"\boxed{43}") == (None if "hidden" in hidden or "display" in hidden else 43)


@pytest.mark.parametrize(
    "text", ["`\\boxed{42}`", "<b>\\boxed{42}</b>", "50% of \\boxed{42}", "a <s and b> \\boxed{42}"]
)
def test_a_box_that_is_seen_is_one(text):
    assert boxed_number(text) == 42


UNITS = {
    "cookies": "cookie cookies Cookies cookie(s)", "movies": "movie", "buses": "bus buses", "potatoes": "potato",
    "knives": "knife knives", "women": "woman women", "city": "cities city",
    "hour": "h hrs hours hour hr", "hrs": "hours",
    "minute": "min mins minutes", "inch": "in inches", "lbs": "pounds lb", "litres": "liters L l litre", "$": "dollars",
    "USD": "dollars usd", "\u00b0C": "\u00b0C", "degrees": "^\\circ \u00b0 degrees", "people": "person persons people",
}  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_in_all_its_forms(unit):
    for form in UNITS[unit].split():
        assert read_number(f"3 {form}", unit) == 3, form
    assert read_number("3 km", unit) is read_number("3 elephants", unit) is read_number("3 ms", unit) is None


def test_currencies_before_a_number():
    assert read_number(r"\$3", "USD") == read_number("$3", "Dollars") == read_number("\u20ac3", "euros") == 3
    assert read_number("$3", "euros") is read_number("\u20ac3", "$") is read_number("$3") is None


def test_decimals_are_counted_as_they_were_written():
    """math_number takes the precision from them."""
    assert parse_number("3.140") == (Fraction(314, 100), 3)
    assert parse_number("314") == (Fraction(314), None)
    assert parse_number(r"-\frac{1}{2}") == (Fraction(-1, 2), None)


@pytest.mark.parametrize("answer", ["", " ", "x", "1, 2", "5 cm", "1e3", None, True, float("nan"), float("inf")])
def test_a_right_answer_that_is_no_number_is_one_sentence(answer):
    with pytest.raises(UserError, match="^The right answer .* is no single number: give an integer.*'unit'\\.$"):
        right_number(answer)


def test_a_right_answer_may_be_a_number_of_python():
    assert right_number(42).value == 42
    assert right_number(7.5).value == Fraction(15, 2)
    assert right_number(Fraction(1, 3)).value == Fraction(1, 3)
    assert right_number("42 cm", "cm").value == 42
    with pytest.raises(UserError, match="'42 cm' is no single number"):
        right_number("42 cm")


@pytest.mark.parametrize("unit", ["2", "-", ".", ",", r"\%", r"^\circ", "/h", "{cm}", " ", "\u2212", "\ud800"])
def test_a_unit_that_is_none_is_one_sentence(unit):
    r"""With "0" as a unit, `420` would have two readings; `\%` in a row would never match."""
    with pytest.raises(
        UserError, match="^The unit .* is invalid: give '%', 'degrees', '\\$' or a word such as 'cm'\\.$"
    ):
        read_number("42", unit)


@pytest.mark.parametrize("unit", [5, True, ["cm"]])
def test_a_unit_that_is_no_text_is_one_sentence(unit):
    with pytest.raises(UserError, match="is no text: give '%'"):
        read_number("42", unit)


def test_a_missing_unit_is_none():
    """pandas writes NaN where a table has no value."""
    for unit in (None, "", float("nan")):
        assert read_number("42", unit) == 42 and read_number("42 cm", unit) is None


def test_a_right_answer_may_be_a_float():
    """Python writes 1e+16 and 1e-07, which the grammar does not read."""
    assert right_number(1e16).value == 10**16
    assert right_number(1e-07).value == Fraction(1, 10**7)
    assert right_number(0.1).value == Fraction(1, 10)


def test_dollars():
    """A row that counts dollars may be answered with the sign."""
    for text in ("14", r"\$14", "$14", "14 dollars", r"14\text{ dollars}"):
        assert read_number(text, "dollars") == 14


def test_a_long_right_answer_is_shortened_in_the_message():
    with pytest.raises(UserError) as error:
        right_number("9" * 100_000)
    assert len(str(error.value)) < 300


# Round trips: a number is rendered in a form that the grammar accepts, and must be read as itself.

signs = st.sampled_from([("", 1), ("+", 1), ("-", -1), ("\u2212", -1), ("- ", -1), ("+ ", 1), ("-\u00a0", -1)])
SPACES = " \t\u00a0\u202f"
spaces = st.text(alphabet=SPACES, max_size=3)
naturals = st.one_of(st.integers(0, 20), st.integers(0, 10**9), st.integers(0, 10**40))
separators = st.sampled_from([",", "{,}", r"\,"])


@st.composite
def integer_texts(draw):
    """(text without a sign, its value)"""
    value = draw(naturals)
    form = draw(st.sampled_from(["plain", "zeros", "groups"]))
    if form == "zeros":
        return "0" * draw(st.integers(1, 5)) + str(value), value
    if form == "groups":
        return f"{value:,}".replace(",", draw(separators)), value
    return str(value), value


@st.composite
def decimal_texts(draw):
    whole_text, whole = draw(st.one_of(integer_texts(), st.just(("", 0))))
    decimals = draw(st.text(alphabet="0123456789", min_size=1, max_size=20))
    return f"{whole_text}.{decimals}", whole + Fraction(int(decimals), 10 ** len(decimals))


@st.composite
def signed_integer_texts(draw):
    text, value = draw(integer_texts())
    sign, factor = draw(signs)
    return sign + text, factor * value


@st.composite
def fraction_texts(draw):
    numerator_text, numerator = draw(integer_texts())
    signed_text, signed = draw(signed_integer_texts())
    denominator_text, denominator = draw(signed_integer_texts())
    assume(denominator)
    form = draw(st.sampled_from(["slash", "spaced slash", "braces", "digits"]))
    if form == "slash":
        return f"{numerator_text}/{denominator_text}", Fraction(numerator, denominator)
    if form == "spaced slash":
        return f"{numerator_text} / {denominator_text}", Fraction(numerator, denominator)
    command = draw(st.sampled_from([r"\frac", r"\dfrac", r"\tfrac"]))
    gap = draw(spaces)
    if form == "braces":
        text = f"{command}{gap}{{{gap}{signed_text}}}{gap}{{{denominator_text}{gap}}}"
        return text, Fraction(signed, denominator)
    top, bottom = draw(st.integers(0, 9)), draw(st.integers(1, 9))
    return f"{command}{gap}{top}{gap}{bottom}", Fraction(top, bottom)


@st.composite
def number_texts(draw):
    text, value = draw(st.one_of(integer_texts(), decimal_texts(), fraction_texts()))
    sign, factor = draw(signs)
    text = draw(spaces) + sign + text + draw(spaces)
    assume(sum(map(str.isdigit, text)) <= MOST_DIGITS)
    return text, factor * value


@settings(max_examples=200, deadline=None)
@given(number_texts())
def test_every_form_of_a_number_is_read_as_itself(rendered):
    text, value = rendered
    assert read_number(text) == value
    assert boxed_number(rf"It is \boxed{{{text}}}.") == value
    assert math_answer([None], [rf"\boxed{{{text}}}"], answer=[text]) == [1.0]
    assert math_answer([None], [rf"\boxed{{{text}}}"], answer=[str(value + 1)]) == [0.0]


#: No accepted form holds only one of these, but behind a backslash.
FORBIDDEN = (
    "eExX_^*%$!=()[]<>|&:;'\"#@?\0\x1c\x85\u00b0\u00b1\u00bd\u00b2\u0663\u07c0\u200b\u202e\uff11\ufeff\ud800\U0001d7d2"
)


@settings(max_examples=200, deadline=None)
@given(number_texts(), st.sampled_from(FORBIDDEN), st.data())
def test_no_number_holds_a_forbidden_character(rendered, character, data):
    text, _ = rendered
    place = data.draw(st.integers(0, len(text)))
    assume(text[place - 1 : place] != "\\")
    assert read_number(text[:place] + character + text[place:]) is None


@settings(max_examples=200, deadline=None)
@given(number_texts(), number_texts(), st.sampled_from([", ", "; ", r" \pm ", r"\cdot ", " + ", "=", "--"]))
def test_two_numbers_are_no_number(first, second, joint):
    """An answer list would be right about everything."""
    both = first[0] + joint + second[0]
    assert read_number(both) is None
    assert math_format([None], [rf"\boxed{{{both}}}"]) == [0.0]


@settings(max_examples=200, deadline=None)
@given(number_texts(), st.sampled_from(["cm", "km/h", "%", "degrees", "$", "square meters"]), st.data())
def test_a_unit_changes_no_value(rendered, unit, data):
    text, value = rendered
    number = text.strip(SPACES)
    if unit == "$":
        with_unit = data.draw(st.sampled_from([r"\$", "$", r"\$ "])) + number
    elif unit == "%":
        with_unit = number + data.draw(st.sampled_from([r"\%", "%", r" \%"]))
    elif unit == "degrees":
        with_unit = number + data.draw(st.sampled_from([r"^\circ", r"^{\circ}", "\u00b0", r"\degree", " degrees"]))
    else:
        forms = [rf"\text{{ {unit}}}", rf"\ \text{{{unit}}}", rf"\,\mathrm{{{unit}}}", f" {unit}", unit]
        with_unit = number + data.draw(st.sampled_from(forms))
    assert read_number(with_unit, unit) == value == read_number(text, unit)
    assert read_number(with_unit) is None
    assert read_number(with_unit, "kg") is None


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789+-\u2212.,/{}\\fracdtboxe %$^ ", max_size=30))
def test_any_text_is_read_or_is_not(text):
    """No text of these characters may raise, and what is read must be read again from its own value."""
    for unit in (None, "cm", "%", "degrees", "$"):
        value = read_number(text, unit)
        assert value is None or read_number(str(value)) == value
    assert (last_box(text) is None) == (not find_boxes(text).complete)


# Texts that mean harm: nothing is executed, nothing raises, everything earns the minimum, in linear time.

PAYLOADS = {
    "import": "__import__('pathlib').Path('{canary}').touch() or 42",
    "eval": "eval(\"open('{canary}', 'w')\")",
    "system": "__import__('os').system('touch {canary}')",
    "file": "open('{canary}', 'w').write('x')",
    "exec": "exec('import pathlib\\npathlib.Path(\"{canary}\").touch()')",
    "lambda": "(lambda: open('{canary}', 'w'))()",
    "latex power tower": "9^{{9^{{9^{{9}}}}}}",
    "python power tower": "9**9**9**9",
    "digits": "9" * 100_000,
    "format string": "{{0.__class__.__init__.__globals__}} %s %n {{answer}}",
    "attributes": "().__class__.__base__.__subclasses__()",
}
LARGE = 1_000_000
#: Texts that grow by repetition, of `size` characters.
GROWING = {
    "tildes and a backquote": lambda size: "~" * size + "`\n" + r"\boxed{x}",
    "verbatim marks": lambda size: "".join(rf"\verb{chr(0x4E00 + n % 20_000)}" for n in range(size // 6)),
    "open elements": lambda size: "<del> <span style=" * (size // 18) + r"\boxed{x}",
    "cancelled": lambda size: r"\cancel{" * (size // 8) + r"\boxed{x}",
    "approximations": lambda size: r"\boxed{" + r"\sqrt " * (size // 6) + "}",
    "open boxes": lambda size: r"\boxed{" * (size // 7),
    "open boxes, then digits": lambda size: r"\boxed{4" * (size // 8),
    "boxes without a brace": lambda size: r"\boxed " * (size // 7),
    "one box, then spaces": lambda size: r"\boxed" + " " * size,
    "open braces": lambda size: r"\boxed" + "{" * size,
    "closing braces": lambda size: "}" * size,
    "nested braces": lambda size: r"\boxed{" + "{" * (size // 2) + "}" * (size // 2) + "}",
    "nested boxes": lambda size: r"\boxed{" * (size // 8) + "}" * (size // 8),
    "empty boxes": lambda size: r"\boxed{}" * (size // 8),
    "backslashes": lambda size: r"\boxed{" + "\\" * size + "}",
    "digits": lambda size: r"\boxed{" + "4" * size + "}",
    "groups": lambda size: r"\boxed{4" + ",444" * (size // 4) + "}",
    "bad groups": lambda size: r"\boxed{4" + ",44" * (size // 3) + "}",
    "decimals": lambda size: r"\boxed{4." + "4" * size + "}",
    "points": lambda size: r"\boxed{" + "." * size + "}",
    "signs": lambda size: r"\boxed{" + "-" * size + "}",
    "fractions": lambda size: r"\boxed{" + r"\frac{" * (size // 7) + "}" * (size // 7) + "}",
    "open fractions": lambda size: r"\frac{" * (size // 6),
    "spaces": lambda size: r"\boxed{4" + " " * size + "2}",
    "spaces behind a sign": lambda size: r"\boxed{-" + " " * size + "x}",
    "spaces in a fraction": lambda size: r"\boxed{\frac{" + " " * size + "}{2}}",
    "gaps before a unit": lambda size: r"\boxed{42" + r"\," * (size // 2) + "x}",
    "powers": lambda size: r"\boxed{9" + "^{9" * (size // 4) + "}" * (size // 4) + "}",
    "bidi": lambda size: "\\boxed{42" + "\u202e\u2066" * (size // 2) + "}",
    "nul": lambda size: "\\boxed{42" + "\0" * size + "}",
    "surrogates": lambda size: "\\boxed{42" + "\ud800" * size + "}",
}


def everything_paid(text, unit=None):
    """Return what all four rewards pay for the text together."""
    completions = [[{"role": "assistant", "content": text}]]
    rewards = [
        math_answer([None], completions, answer=["42"], unit=[unit]),
        math_number([None], completions, answer=["42.0"], unit=[unit]),
        math_format([None], completions, unit=[unit]),
        exact_match([None], completions, answer=["42"]),
    ]
    return sum(map(sum, rewards))


@pytest.mark.parametrize("kind", PAYLOADS)
@pytest.mark.parametrize(
    "frame", ["%s", r"\boxed{%s}", r"\boxed{42} \boxed{%s}", r"\boxed{\frac{%s}{1}}", r"\boxed{42%s}"]
)
def test_a_payload_is_text(kind, frame, tmp_path):
    """A grader that evaluates what a model wrote runs what the model wants."""
    canary = tmp_path / "canary"
    payload = PAYLOADS[kind].format(canary=canary) if kind != "digits" else PAYLOADS[kind]
    assert everything_paid(frame.replace("%s", payload)) == 0
    assert not canary.exists()


@pytest.mark.parametrize("kind", GROWING)
def test_a_million_characters_earn_nothing(kind):
    assert everything_paid(GROWING[kind](LARGE), "cm") == 0


@pytest.mark.parametrize("kind", GROWING)
def test_the_time_is_linear(kind):
    make = GROWING[kind]
    assert_linear(partial(boxed_number, unit="cm"), make(LARGE // 16), make(LARGE), times=16)

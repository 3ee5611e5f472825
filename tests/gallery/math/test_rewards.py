"""The rewards for mathematical problems."""

import pytest

from helpers.gallery.math.rewards import exact_match, math_answer, math_format, math_number
from helpers.rewards.registry import reward_spec
from helpers.runtime import UserError


def paid(reward, texts, finish_reasons=None, **columns):
    """Return what a reward pays, and see that messages earn what strings do."""
    count = len(texts)
    columns = {name: [value] * count for name, value in columns.items()}
    values = reward(prompts=[None] * count, completions=texts, finish_reasons=finish_reasons, other=1, **columns)
    messages = [[{"role": "assistant", "content": text, "thinking": r"\boxed{99}"}] for text in texts]
    assert values == reward([None] * count, messages, finish_reasons=finish_reasons, **columns)
    assert all(type(value) is float for value in values)
    return values


@pytest.mark.parametrize("reward", [math_answer, math_number, exact_match, math_format])
def test_registered(reward):
    spec = reward_spec(reward.__name__)
    assert spec.make() is reward
    assert spec.value_range == (0, 1)
    assert spec.needs == (() if reward is math_format else ("answer",))
    assert spec.pays_correctness is (reward is not math_format)


@pytest.mark.parametrize("reward", [math_answer, math_number, exact_match])
def test_a_right_answer_that_was_cut_off_earns_nothing(reward):
    assert paid(reward, [r"\boxed{42}"] * 2, ["stop", "length"], answer="42") == [1.0, 0.0]
    assert paid(math_format, [r"\boxed{42}"] * 2, ["stop", "length"]) == [1.0, 0.0]


def test_math_answer_compares_values():
    texts = [r"\boxed{0.5}", r"\boxed{\frac{2}{4}}", r"\boxed{1/2}", r"\boxed{0.50001}", "1/2", r"\boxed{1/2"]
    assert paid(math_answer, texts, answer="1/2") == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert paid(math_answer, [r"\boxed{-3}"], answer=-3) == [1.0]
    assert paid(math_answer, [r"\boxed{7.5}"], answer=7.5) == [1.0]


def test_a_unit_is_read_where_the_row_declares_it():
    texts = [r"\boxed{42\text{ cm}}", r"\boxed{42}", r"\boxed{42\text{ mm}}"]
    assert paid(math_answer, texts, answer="42", unit="cm") == [1.0, 1.0, 0.0]
    assert paid(math_answer, texts, answer="42", unit=None) == [0.0, 1.0, 0.0]
    assert paid(math_number, texts, answer="42", unit="cm") == [1.0, 1.0, 0.0]
    assert paid(math_format, texts, unit="cm") == [1.0, 1.0, 0.0]
    mixed = math_answer([None] * 2, texts[:2], answer=["42", "42"], unit=["cm", ""])
    assert mixed == [1.0, 1.0]


def test_math_number_is_right_to_the_precision_of_the_right_answer():
    r"""A model that says 22/7 or 3.14159 for 3.14 has not miscalculated."""
    texts = [r"\boxed{3.14}", r"\boxed{3.14159}", r"\boxed{\frac{22}{7}}", r"\boxed{3.145}", r"\boxed{3.135}"]
    assert paid(math_number, texts, answer="3.14") == [1.0] * 5
    assert (
        paid(math_number, [r"\boxed{3.1450001}", r"\boxed{3.1349999}", r"\boxed{-3.14}", "3.14"], answer="3.14")
        == [0.0] * 4
    )
    assert paid(math_number, [r"\boxed{3.145}", r"\boxed{3.1404}"], answer="3.140") == [0.0, 1.0]
    assert paid(math_number, [r"\boxed{-0.5}", r"\boxed{-0.54}", r"\boxed{0.5}"], answer="-0.5") == [1.0, 1.0, 0.0]
    assert paid(math_number, [r"\boxed{12.34\%}", r"\boxed{12.4}"], answer="12.3%", unit="%") == [1.0, 0.0]


def test_math_number_is_exact_for_integers_and_fractions():
    """A ratio between 0.9 and 1.1 paid for 45 where 42 is right, and a right answer of 0 could not be met."""
    assert paid(math_number, [r"\boxed{42}", r"\boxed{42.0}", r"\boxed{42.1}", r"\boxed{45}"], answer="42") == [
        1.0, 1.0, 0.0, 0.0,
    ]  # fmt: skip
    assert paid(math_number, [r"\boxed{0.333}", r"\boxed{1/3}"], answer="1/3") == [0.0, 1.0]
    assert paid(math_number, [r"\boxed{0}", r"\boxed{0.1}", ""], answer="0") == [1.0, 0.0, 0.0]
    assert paid(math_number, [r"\boxed{1000}"], answer="1,000") == [1.0]


def test_math_format_pays_the_form_alone():
    in_format = [r"\boxed{42}", r"So \boxed{-\frac{1}{2}}.", r"\boxed{1,200}", r"2^{10} \{ \boxed{7}"]
    assert paid(math_format, in_format) == [1.0] * 4
    others = [
        "", "42", r"\boxed{}", r"\boxed{ }", r"\boxed{x}", r"\boxed{1, 2}", r"\boxed{42", r"\boxed{1} \boxed{1}",
        r"\boxed{1} \boxed{", r"\boxed{1} \boxed{}", r"\boxed{42 cm}", r"\boxed{2^{10}}",
    ]  # fmt: skip
    assert paid(math_format, others) == [0.0] * len(others)


def test_exact_match_compares_texts():
    texts = ["Paris", " Paris\n", r"It is \boxed{Paris}.", r"\boxed{ Paris }", r"\boxed{Rome}? No, \boxed{Paris}"]
    assert paid(exact_match, texts, answer="Paris ") == [1.0] * 5
    others = ["", "paris", "Paris..", "In Paris.", "Rome", r"Paris \boxed{Rome}", r"\boxed{Paris} \boxed{}", "Pa ris"]
    assert paid(exact_match, others, answer="Paris") == [0.0] * len(others)
    assert paid(exact_match, ["42"], answer=42) == [1.0]
    assert paid(exact_match, ["0"], answer=0) == [1.0]


def test_exact_match_compares_what_a_reader_sees():
    """Composed and decomposed characters look the same, and so do the ways to set a formula; another case does not."""
    assert paid(exact_match, ["caf\u00e9", "cafe\u0301", "CAF\u00c9"], answer="caf\u00e9") == [1.0, 1.0, 0.0]
    formulas = [
        r"\boxed{x^{2}+1}",
        r"\boxed{x^2 + 1}",
        r"\boxed{x^2+1.}",
        r"\boxed{x^2-1}",
        r"\boxed{x^{21}}",
        r"\boxed{x2+1}",
    ]
    assert paid(exact_match, formulas, answer="x^2 + 1") == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    water = [r"\mathrm{H_2O}", r"\ce{H2O}", "H\u2082O", "H\u00b2O", "H20", "h2o", r"\text{H}_{2}\text{O}"]
    assert paid(exact_match, water, answer="H2O") == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    assert paid(exact_match, [r"\boxed{\sin(x)}", r"\sin x", "sin(x)"], answer="sin(x)") == [1.0, 0.0, 1.0]
    assert paid(exact_match, ["\u2074\u00b2", "\uff14\uff12", "\u2084\u2082"], answer="42") == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("right", "other"),
    [("[0, 1]", "(0, 1)"), (r"\{1, 2\}", "(1, 2)"), ("[1]", "1"), ("file_1", "file1"), ("(2, 3)", "(3, 2)")],
)
def test_exact_match_keeps_what_brackets_say(right, other):
    assert paid(exact_match, [right, rf"\boxed{{{right}}}", other], answer=right) == [1.0, 1.0, 0.0]


def test_math_number_reads_approximations_of_names_and_roots():
    right = [
        r"\boxed{\approx 3.14}",
        r"\boxed{\pi \approx 3.14}",
        "\\boxed{x \u2248 3.14}",
        r"\boxed{\sqrt{10} \approx 3.14}",
    ]
    assert paid(math_number, right, answer="3.14") == [1.0] * 4
    wrong = [
        r"\boxed{\not\approx 3.14}",
        r"\boxed{not \approx 3.14}",
        r"\boxed{3.14 \approx \pi}",
        r"\boxed{2 \approx 3.14}",
    ]
    assert paid(math_number, wrong, answer="3.14") == [0.0] * 4
    assert paid(math_answer, right, answer="3.14") == [0.0] * 4


def test_math_number_reads_scientific_notation():
    right = [
        r"\boxed{3.2 \times 10^{8}}",
        r"\boxed{3.2\cdot10^8}",
        "\\boxed{3.2 \u00d7 10^{8}}",
        r"\boxed{c = 3.20 \times 10^{+8}}",
        r"\boxed{-3.2 \times 10^8}",
    ]
    assert paid(math_number, right, answer="320000000") == [1.0] * 4 + [0.0]
    assert paid(math_number, [r"\boxed{1.5 \times 10^{-4}}"], answer="0.00015") == [1.0]
    wrong = [
        r"\boxed{3.2 \times 10^{9}}",
        r"\boxed{32 \times 10^{999999999}}",
        r"\boxed{3.2 \times 11^8}",
        r"\boxed{3.2 \times 10^{8} \times 1}",
    ]
    assert paid(math_number, wrong, answer="320000000") == [0.0] * 4
    assert paid(math_answer, right, answer="320000000") == [0.0] * 5


def test_the_name_of_what_was_asked_for_may_stand_before_a_number():
    names = [
        "x",
        "Area",
        "f(10)",
        "f(-1)",
        r"\text{Total}",
        r"m\angle ABC",
        r"\lambda",
        "AB",
        "a+b",
        "m - n",
        "a_1",
        "x_{12}",
        "f(3)",
        r"\angle ABC",
        r"\alpha",
    ]
    assert paid(math_answer, [rf"\boxed{{{name} = 42}}" for name in names], answer="42") == [1.0] * len(names)
    others = ["41", "2x", r"\pm x", "x = y", "x >", "not x and so", "x - 1"]
    assert paid(math_answer, [rf"\boxed{{{name} = 42}}" for name in others], answer="42") == [0.0] * len(others)


def test_a_list_of_boxes_is_no_answer():
    """Whoever boxes every candidate is right by the last of them."""
    lists = [
        r"either \boxed{41} or \boxed{42}",
        r"\boxed{40}, \boxed{41}, \boxed{42}",
        r"$\boxed{41}$ and $\boxed{42}$",
        r"\(\boxed{41}\) or \(\boxed{42}\)",
        r"**\boxed{41}** or **\boxed{42}**",
        "- \\boxed{41}\n- \\boxed{42}",
        r"\boxed{41}\text{ or }\boxed{42}",
        r"\boxed{41}\quad\boxed{42}",
        "\\boxed{41}\n\\boxed{42}",
    ]
    assert paid(math_answer, lists, answer="42") == [0.0] * len(lists)
    again = [r"\boxed{42} or \boxed{$42$}", r"\boxed{41}, no: \boxed{42}", "\\boxed{41}\n\nHence \\boxed{42}"]
    assert paid(math_answer, again, answer="42") == [1.0] * 3


def test_a_box_behind_not_is_no_answer():
    negated = [
        r"not \boxed{42}",
        r"It isn't $\boxed{42}$",
        "It isn\u2019t \\boxed{42}",
        r"\boxed{41}, never \boxed{42}",
    ]
    assert paid(math_answer, negated, answer="42") == [0.0] * 4
    assert paid(math_answer, [r"\boxed{42}, not \boxed{41}", r"a knot: \boxed{42}"], answer="42") == [1.0] * 2


@pytest.mark.parametrize(
    ("right", "other"),
    [
        (r"\frac{1}{2}", r"\frac12"),
        (r"\frac{1}{2}", r"\dfrac 12"),
        (r"2\sqrt{3}", r"2 \sqrt 3"),
        (r"2\sqrt{3}", r"2\,\sqrt{3}"),
        ("3:2", "3 : 2"),
    ],
)
def test_exact_match_knows_the_forms_of_a_formula(right, other):
    assert paid(exact_match, [rf"\boxed{{{other}}}"], answer=right) == [1.0]
    assert paid(exact_match, [rf"\boxed{{{right}}}"], answer=other) == [1.0]


def test_exact_match_tells_formulas_apart():
    pairs = [(r"\frac{1}{23}", r"\frac{12}{3}"), (r"\sqrt{12}", r"\sqrt12"), (r"\sqrt[3]{2}", r"3\sqrt{2}")]
    for right, other in pairs:
        assert paid(exact_match, [rf"\boxed{{{other}}}"], answer=right) == [0.0]


def test_a_round_bracket_around_one_part_says_nothing():
    forms = [r"\boxed{B}", r"\boxed{(B)}", r"\boxed{\text{(B)}}", "(B)"]
    assert paid(exact_match, forms, answer="(B)") == [1.0] * 4
    pairs = [r"\boxed{\text{(1, 2)}}", r"\boxed{{(1,2)}}", r"\boxed{\displaystyle (1,2)}", r"`(1, 2)`"]
    assert paid(exact_match, pairs, answer="(1,2)") == [1.0] * 4
    assert paid(exact_match, [r"\boxed{[1,2]}", r"\boxed{1,2}", r"\boxed{\{1,2\}}"], answer="(1,2)") == [0.0] * 3


def test_a_number_of_a_column_of_floats_is_exact():
    """pandas makes 7.0 of 7 where another row has none."""
    assert paid(math_number, [r"\boxed{7}", r"\boxed{7.04}"], answer=7.0) == [1.0, 0.0]
    assert paid(math_number, [r"\boxed{7.04}"], answer="7.0") == [1.0]


@pytest.mark.parametrize("answer", [r"\text{}", "."])
def test_a_right_answer_of_dressing_alone_is_one_sentence(answer):
    with pytest.raises(UserError, match="is empty without its dressing"):
        paid(exact_match, [""], answer=answer)


@pytest.mark.parametrize("answer", ["", " \n\u3000", None])
def test_an_empty_right_answer_is_one_sentence(answer):
    """It paid for saying nothing."""
    with pytest.raises(UserError, match="^The right answer .* is no text: exact_match needs a text"):
        exact_match([None], [""], answer=[answer])
    with pytest.raises(UserError, match="is no single number"):
        math_answer([None], [""], answer=[answer])


def test_a_right_answer_in_a_box_is_one_sentence():
    """No completion could ever match it."""
    with pytest.raises(UserError, match=r"holds a \\boxed\{\}: give what stands in the box"):
        exact_match([None], [r"\boxed{Paris}"], answer=[r"\boxed{Paris}"])


@pytest.mark.parametrize("reward", [math_answer, math_number])
@pytest.mark.parametrize("answer", ["x", "1, 2", "5 cm"])
def test_a_right_answer_that_is_no_number_is_one_sentence(reward, answer):
    """Every completion of such a row would earn nothing, and nobody would know why. It holds for cut-off ones, too."""
    for finish_reason in ("stop", "length"):
        with pytest.raises(UserError, match="is no single number: give an integer"):
            reward([None], [r"\boxed{7}"], answer=[answer], finish_reasons=[finish_reason])

import pytest

from helpers import UserError
from helpers.rewards import boxed_integer, math_answer


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\boxed{42}", 42),
        (r"So it is \boxed{ -7 }.", -7),
        ("\\boxed{\u22127}", -7),
        (r"\boxed{+7}", 7),
        (r"\boxed{007}", 7),
        (r"\boxed {7}", 7),
        (r"\boxed{1,200}", 1200),
        (r"first \boxed{1}, then \boxed{2}", 2),
        (r"\boxed{2}, and \boxed{3", 2),
        (r"wrong \boxed{3} then \boxed{\frac{1}{2}}", None),
        (r"\boxed{3} \boxed{\text{5}}", None),
        (r"\boxed{12", None),
        (r"\boxed{}", None),
        (r"\boxed{1 2}", None),
        (r"\boxed{1,2}", None),
        (r"\boxed{12,00}", None),
        (r"\boxed{1_000}", None),
        (r"\boxed{1e3}", None),
        (r"\boxed{2^{10}}", None),
        (r"\boxed{7.0}", None),
        (r"\boxed{x = 7}", None),
        ("\\boxed{\uff17}", None),
        ("\\boxed{\u0667}", None),
        ("7", None),
        ("", None),
        (r"\boxed{" + "9" * 5000 + "}", None),
    ],
)
def test_boxed_integer(text, value):
    message = [{"role": "assistant", "content": text, "thinking": r"\boxed{99}"}]
    assert boxed_integer(text) == value
    assert boxed_integer(message) == value, "only the final channel counts"
    assert boxed_integer(text, finish_reason="length") is None


def test_only_the_right_integer_is_paid():
    answers = [r"\boxed{42}", r"\boxed{41}", "42", r"\boxed{42}"]
    finish_reasons = ["stop", "stop", "stop", "length"]
    assert math_answer([None] * 4, answers, answer=["42"] * 4, finish_reasons=finish_reasons) == [1.0, 0.0, 0.0, 0.0]
    assert math_answer(
        prompts=[None], completions=[[{"role": "assistant", "content": r"\boxed{-3}"}]], answer=[-3]
    ) == [1.0]


def test_a_right_answer_that_is_no_integer_is_one_sentence():
    """`int(7.5)` would pay for 7."""
    assert math_answer([None], [r"\boxed{1200}"], answer=["1,200"]) == [1.0]
    for answer in (7.5, "7.0", "x", None):
        with pytest.raises(UserError, match="is no integer: math_answer compares integers only"):
            math_answer([None], [r"\boxed{7}"], answer=[answer])

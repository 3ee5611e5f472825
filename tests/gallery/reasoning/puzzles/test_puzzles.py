"""What the rewards for puzzles share: boxes, columns, other tasks' rows, and answers that attack."""

import json
import time
from pathlib import Path

import pytest

from helpers import UserError
from helpers.gallery.reasoning.puzzles import countdown, knights_and_knaves, step_order
from helpers.rewards.registry import reward_spec
from tests.timing import assert_linear

SOLUTION = json.dumps({"Ann": "knight", "Ben": "knave"})
STEPS = json.dumps({"A": "wash the car", "B": "feed the cat"})
RULES = json.dumps([["B", "before", "A"]])
#: reward -> its columns for one row, and a right answer.
CASES = {
    countdown: ({"numbers": "[3, 5]", "target": 8}, "3 + 5"),
    knights_and_knaves: ({"solution": SOLUTION}, "Ann: knight, Ben: knave"),
    step_order: ({"steps": STEPS, "rules": RULES}, "B, A"),
}
REWARDS = pytest.mark.parametrize("reward", CASES, ids=lambda reward: reward.__name__)


def pay(reward, texts, **more):
    columns, _ = CASES[reward]
    count = len(texts)
    repeated = {name: [value] * count for name, value in columns.items()}
    return reward(prompts=[None] * count, completions=texts, **repeated, **more)


@REWARDS
def test_the_last_complete_box_of_the_final_channel_counts(reward):
    _, right = CASES[reward]
    box = rf"\boxed{{{right}}}"
    messages = [
        [{"role": "assistant", "content": box, "thinking": ""}],
        [{"role": "assistant", "content": "no box", "thinking": box}],
        [{"role": "assistant", "content": box}, {"role": "assistant", "content": "no box"}],
        [{"role": "assistant", "content": None}],
        [],
    ]
    assert pay(reward, messages) == [1.0, 0.0, 0.0, 0.0, 0.0]
    texts = [rf"\boxed{{1}} then {box}", rf"{box} then \boxed{{1}}", rf"{box} then \boxed{{1", right, box[:-1], ""]
    assert pay(reward, texts) == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]


@REWARDS
def test_an_answer_that_was_cut_off_earns_nothing(reward):
    _, right = CASES[reward]
    texts = [rf"\boxed{{{right}}}"] * 2
    assert pay(reward, texts, finish_reasons=["stop", "length"]) == [1.0, 0.0]
    assert pay(reward, texts, finish_reasons=None, completion_ids=[[1]] * 2, logprobs=None) == [1.0, 1.0]


@REWARDS
def test_rows_of_other_kinds_get_none(reward):
    """TRL mixes tasks by it; 0 would count as a wrong answer to a question that was never asked."""
    columns, right = CASES[reward]
    with_gap = {name: [value, None] for name, value in columns.items()}
    assert reward([None] * 2, [rf"\boxed{{{right}}}"] * 2, **with_gap) == [1.0, None]


@REWARDS
def test_the_registry_knows_them(reward):
    spec = reward_spec(reward.__name__)
    assert spec.pays_correctness and spec.value_range == (0, 1)
    assert set(spec.needs) == set(CASES[reward][0])


MALFORMED = [
    (countdown, {"numbers": "[3, 5]", "target": None}, "'target' must be an integer"),
    (countdown, {"numbers": None, "target": 8}, "'numbers' must be JSON"),
    (countdown, {"numbers": [3, 5], "target": 8}, "'numbers' must be JSON"),
    (countdown, {"numbers": "3, 5", "target": 8}, "'numbers' must be JSON"),
    (countdown, {"numbers": "{}", "target": 8}, "'numbers' must be JSON"),
    (countdown, {"numbers": "[]", "target": 8}, "not empty"),
    (countdown, {"numbers": "[" * 100_000, "target": 8}, "'numbers' must be JSON"),
    (countdown, {"numbers": "[3.5]", "target": 8}, "integers from 0 up"),
    (countdown, {"numbers": "[true]", "target": 8}, "integers from 0 up"),
    (countdown, {"numbers": "[-3]", "target": 8}, "integers from 0 up"),
    (countdown, {"numbers": '["3"]', "target": 8}, "integers from 0 up"),
    (countdown, {"numbers": "[3]", "target": 8.5}, "'target' must be an integer"),
    (countdown, {"numbers": "[3]", "target": True}, "'target' must be an integer"),
    (countdown, {"numbers": "[3]", "target": "8.0"}, "'target' must be an integer"),
    (countdown, {"numbers": "[3]", "target": "9" * 5000}, "'target' must be an integer"),
    (knights_and_knaves, {"solution": "Ann: knight"}, "'solution' must be JSON"),
    (knights_and_knaves, {"solution": "[]"}, "'solution' must be JSON"),
    (knights_and_knaves, {"solution": '{"Ann": "liar"}'}, "must say"),
    (knights_and_knaves, {"solution": '{"Ann": ["knight"]}'}, "must say"),
    (knights_and_knaves, {"solution": '{"": "knave"}'}, "no answer can name"),
    (step_order, {"steps": STEPS, "rules": None}, "'rules' must be JSON"),
    (step_order, {"steps": None, "rules": RULES}, "'steps' must be JSON"),
    (step_order, {"steps": '["A", "B"]', "rules": RULES}, "'steps' must be JSON"),
    (step_order, {"steps": '{"A": 1, "B": 2}', "rules": RULES}, "must give a text"),
    (step_order, {"steps": '{" A": "x"}', "rules": RULES}, "no answer can name"),
    (step_order, {"steps": '{"A": "1. x"}', "rules": RULES}, "no answer can name"),
    (step_order, {"steps": '{"A": "x", "B": "X"}', "rules": RULES}, "two steps one name"),
    (step_order, {"steps": '{"A": "b", "B": "x"}', "rules": RULES}, "two steps one name"),
    (step_order, {"steps": STEPS, "rules": '[["B", "A"]]'}, "a rule is a list"),
    (step_order, {"steps": STEPS, "rules": '[["B", "after", "A"]]'}, "a rule is a list"),
    (step_order, {"steps": STEPS, "rules": '[["B", "before", "Z"]]'}, "a rule is a list"),
    (step_order, {"steps": STEPS, "rules": '[["B", "before", "B"]]'}, "a rule is a list"),
    (step_order, {"steps": STEPS, "rules": '[["B", "not first", "A"]]'}, "a rule is a list"),
    (step_order, {"steps": STEPS, "rules": '["B before A"]'}, "a rule is a list"),
    (step_order, {"steps": STEPS, "rules": '[["B", "before", ["A"]]]'}, "a rule is a list"),
]


@pytest.mark.parametrize(("reward", "columns", "words"), MALFORMED)
def test_malformed_columns_are_one_sentence(reward, columns, words):
    """A mistake in the data would otherwise show as a reward that is always 0."""
    with pytest.raises(UserError, match=words) as caught:
        reward([None], [""], **{name: [value] for name, value in columns.items()})
    assert str(caught.value).startswith(f"{reward.__name__}: ") and "\n" not in str(caught.value)


def _attacks(canary: Path) -> list[str]:
    """Return contents of boxes that would run code, or take long, in a grader that calculates what it is given."""
    write = f"open({str(canary)!r}, 'w').write('x')"
    return [
        f"__import__('pathlib').Path({str(canary)!r}).touch()",
        f"eval({write!r})",
        f"__import__('os').system('touch {canary}')",
        write,
        f"exec({write!r}) or 8",
        f"(lambda: {write})()",
        "9**9**9**9",
        "9^{9^{9}}",
        "9^{9^{9^{9}}}",
        "9!!!!!!",
        "1" * 1_000_000,
        "3 + 5" + " " * 1_000_000,
        "3 + 5" + "+0" * 500_000,
        "0" * 999_999 + "3 + 5",
        "{0.__class__.__mro__[1].__subclasses__()}",
        "%s%n%d" * 100,
        "{numbers.__globals__}",
        "().__class__.__bases__[0].__subclasses__()",
        "3 + 5 if open else 8",
        "(" * 1_000_000 + "8" + ")" * 1_000_000,
        "(" * 1_000_000,
        "{" * 500_000 + "8" + "}" * 500_000,
        r"\frac{" * 200_000 + "8" + "}{1}" * 200_000,
        r"\text{" * 100_000 + "}" * 100_000,
        "[" * 1_000_000,
        "-" * 1_000_000 + "8",
        "3 + 5\u202e",
        "\u202a\u202e\u2066" * 100_000,
        "3\x00 + 5",
        "\x00" * 1_000_000,
        "\ud800" * 100_000,
        "3 + 5\udfff",
        "Ann: knight, " * 80_000 + "Ben: knave",
        "Ann" + " " * 900 + "Ben",
        "A" + " ," * 400_000,
        "B, A, " * 150_000 + "B, A",
        r"\to" * 300_000,
        "Ann: knight, Ben: knave, Ann: knave, Ben: knight",
        "B, A, A, B",
    ]


def _texts(canary: Path) -> list[str]:
    boxed = [rf"\boxed{{{content}}}" for content in _attacks(canary)]
    floods = [r"\boxed{" * 140_000, r"\boxed{}" * 120_000, r"\boxed{" * 70_000 + "}" * 70_000, "\\boxed" * 150_000]
    return boxed + _attacks(canary) + floods + [r"\boxed" + " " * 1_000_000]


@REWARDS
def test_hostile_answers_earn_the_minimum_and_nothing_runs(reward, tmp_path, monkeypatch):
    """A grader that evaluates answers runs what a model writes."""
    monkeypatch.chdir(tmp_path)
    texts = _texts(tmp_path / "canary")
    before = time.process_time()
    assert pay(reward, texts) == [0.0] * len(texts)
    assert time.process_time() - before < 20
    assert list(tmp_path.iterdir()) == []


LINEAR = {
    "a long box": lambda n: r"\boxed{" + "3 + " * (n // 4) + "5}",
    "nested parentheses": lambda n: r"\boxed{" + "(" * (n // 2) + "8" + ")" * (n // 2) + "}",
    "nested braces": lambda n: r"\boxed{" + "{" * (n // 2) + "}" * (n // 2) + "}",
    "digits": lambda n: r"\boxed{" + "7" * n + "}",
    "persons": lambda n: r"\boxed{" + "Ann: knight, " * (n // 13) + "}",
    "open boxes": lambda n: r"\boxed{" * (n // 7),
    "nested boxes": lambda n: r"\boxed{" * (n // 8) + "}" * (n // 8),
    "many boxes": lambda n: r"\boxed{3 + 5}, " * (n // 15) + r"\boxed{1}",
}


@pytest.mark.parametrize("shape", LINEAR)
def test_reading_takes_linear_time(shape):
    def pay_all(text):
        for reward in CASES:
            pay(reward, [text])

    make = LINEAR[shape]
    assert_linear(pay_all, make(50_000), make(400_000), times=8)

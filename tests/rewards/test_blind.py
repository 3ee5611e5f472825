"""The graders on answers that were written before them: 98 of 100 natural right ones are paid, and no wrong one.

`blind/README.md` says who wrote them and how. The rows of `code_correctness` are tried in tests/gallery/code. Of the
controls, which were written after them, the misses are known by name.
"""

import json
from pathlib import Path

import pytest

from helpers.rewards.registry import get_reward
from helpers.runtime import UserError
from helpers.tasks import get_task  # noqa: F401  # registers the rewards of tasks

FOLDER = Path(__file__).with_name("blind")
GRADERS = (
    "math_answer", "math_number", "exact_match", "countdown", "knights_and_knaves", "step_order",
    "instruction_constraints",
)  # fmt: skip
#: The share of right answers that must be paid.
PAID = 0.98
#: What a wrong answer may be paid: for instructions a tenth, where it satisfies some.
MOST_PAY = {"instruction_constraints": 0.1}
#: The beginnings of the names of rows whose right answer is none: the grader says so.
BAD_ROWS = ("w_nan_gold", "w_none_gold", "w_inf_gold", "w_neg_inf_gold")
#: Set -> right answers that are not paid, and wrong ones that are.
KNOWN = {
    "second": (
        {"ma_r12", "ma_r13", "ma_r30", "mn_r19", "mn_r33"},
        {"ma_w28", "ic-w10"},
    ),
    "third": ({"mn_r18"}, {"ma_w18"}),
    "fourth": (
        {
            "em-r-052",
            "ma-r-031",
            "mn-r-017",
            "mn-r-045",
            "mn-r-061",
            "knights_and_knaves-right-52",
            "knights_and_knaves-right-64",
        },  # fmt: skip
        set(),
    ),
}


def answers_of(path):
    return [json.loads(line) for line in path.open()]


def pay(reward, answer):
    columns = {name: [value] for name, value in answer["columns"].items()}
    (value,) = reward(prompts=[None], completions=[answer["text"]], **columns)
    return value


@pytest.mark.parametrize("name", GRADERS)
def test_right_answers_are_paid_and_wrong_ones_are_not(name):
    reward = get_reward(name)
    answers = answers_of(FOLDER / f"{name}.jsonl")
    right = [answer for answer in answers if answer["right"]]
    wrong = [answer for answer in answers if not answer["right"]]
    assert len(right) >= 60 and len(wrong) >= 60
    unpaid = [answer["id"] for answer in right if pay(reward, answer) != 1.0]
    assert len(unpaid) <= (1 - PAID) * len(right), unpaid
    for answer in wrong:
        if answer["id"].startswith(BAD_ROWS):
            with pytest.raises(UserError, match="The right answer"):
                pay(reward, answer)
        else:
            assert pay(reward, answer) <= MOST_PAY.get(name, 0.0), answer["id"]


@pytest.mark.parametrize("control", KNOWN)
@pytest.mark.parametrize("name", GRADERS)
def test_what_the_controls_found_is_known(control, name):
    reward = get_reward(name)
    answers = answers_of(FOLDER / control / f"{name}.jsonl")
    paid = {answer["id"]: pay(reward, answer) == 1.0 for answer in answers}
    unpaid = {answer["id"] for answer in answers if answer["right"] and not paid[answer["id"]]}
    wrong = {answer["id"] for answer in answers if not answer["right"] and paid[answer["id"]]}
    ids = {answer["id"] for answer in answers}
    known_unpaid, known_wrong = KNOWN[control]
    assert (unpaid, wrong) == (known_unpaid & ids, known_wrong & ids)

"""Programs in texts that were written before the reader of programs: 98 of 100 right ones are paid, no wrong one."""

import json

import pytest

from helpers.gallery.code.task import CodeTask
from tests.rewards.test_blind import FOLDER, PAID


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "fourth"], ids=["first", "fourth"])
def test_right_programs_are_paid_and_wrong_ones_are_not(folder):
    tests = [json.loads(line)["tests"] for line in (folder / "code_rows.jsonl").open()]
    answers = [json.loads(line) for line in (folder / "code_correctness.jsonl").open()]
    task = CodeTask(level="os")
    (reward,) = task.reward_funcs
    values = reward(
        [None] * len(answers), [answer["text"] for answer in answers], tests=[tests[a["row"]] for a in answers]
    )
    task.close()
    right = [(answer["id"], value) for answer, value in zip(answers, values) if answer["right"]]
    wrong = [(answer["id"], value) for answer, value in zip(answers, values) if not answer["right"]]
    assert len(right) >= 60 and len(wrong) >= 60
    unpaid = [name for name, value in right if value != 1.0]
    assert len(unpaid) <= (1 - PAID) * len(right), unpaid
    assert [name for name, value in wrong if value != 0.0] == []

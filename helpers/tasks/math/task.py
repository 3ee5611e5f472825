"""The math task: word problems whose answer is one integer in a box."""

import random
from collections.abc import Sequence

from helpers.rewards.answers import boxed_number, right_number
from helpers.rewards.math import math_answer
from helpers.rollout.completion import Completion
from helpers.tasks.drawing import draw_dataset, make_row
from helpers.tasks.math.problems import WORDINGS, draw_problem
from helpers.tasks.task import CORRECT, Grade, Rewards, Row, Task
from helpers.tasks.wording import wording_sentence


class MathTask(Task):
    r"""Solve a word problem and give its answer, one integer, in `\boxed{}` in the final channel."""

    name = "math"
    outcomes = (CORRECT, "wrong", "unanswered")
    watch_copies = False  # many problems have the same small answer

    def __init__(self):
        self.reward_funcs = [math_answer]
        self.reward_weights = [1.0]

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Draw problems. Beside the usual columns: answer, the integer as text."""
        return draw_dataset(self.name, WORDINGS, _draw_row, split, size, seed)

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        return [_grade(row, completion) for row, completion in zip(rows, completions, strict=True)]

    def behaviours(
        self, prompts: Sequence, completions: Sequence, finish_reasons: Sequence[str] | None = None, **_
    ) -> list[str | None]:
        """Return the number that each completion answers with, as text, whatever way it was written."""
        finish_reasons = finish_reasons or ["stop"] * len(completions)
        return [str(value) for value in map(boxed_number, completions, finish_reasons)]

    def reference_answer(self, row: Row) -> str:
        return rf"\boxed{{{row['answer']}}}"

    def describe_group(self, column: str, value: str) -> str:
        return wording_sentence(WORDINGS, value)


def _grade(row: Row, completion: Completion) -> Grade:
    value = boxed_number(completion.text, completion.finish_reason)
    if value is None:
        return Grade(0.0, False, "unanswered", "no single number in the last box of the final channel")
    if value != right_number(row["answer"]).value:
        return Grade(0.0, False, "wrong", "wrong number")
    return Grade(1.0, True, CORRECT)


def _draw_row(rng: random.Random, wording: str, split: str) -> Row:
    problem = draw_problem(rng, wording)
    return make_row("math", problem.text, str(problem.answer), wording)

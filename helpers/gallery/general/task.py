"""The general task: instructions that code can verify."""

import random
from collections.abc import Sequence

import helpers.gallery.general.length
import helpers.gallery.general.preference  # noqa: F401  # these two register rewards
from helpers.gallery.general.constraints import judge_constraints
from helpers.gallery.general.instructions import PROBE_WORDINGS, WORDINGS, draw_instructions
from helpers.rewards.registry import register_preset, reward_preset
from helpers.rollout.completion import Completion
from helpers.tasks.drawing import make_row
from helpers.tasks.generated import GeneratedTask
from helpers.tasks.task import CORRECT, Grade, Rewards, Row

register_preset("general", [("instruction_constraints", 1.0)])

PARTIAL = "partial"


class GeneralTask(GeneratedTask):
    """Write a text on two given words that satisfies two to four instructions and the limits that every prompt states.

    An answer is correct if it satisfies all of them; what the text says is not judged. It is partial if it keeps the
    limits and satisfies some of the others.

    The split "probe" combines four instructions, of which at least one is of a kind that is in no other split, where
    two or three are combined. Beside the usual columns, a row has constraints (JSON text, see
    `constraints.read_constraints`) and answer.
    """

    name = "general"
    outcomes = (CORRECT, PARTIAL, "wrong")
    wordings = WORDINGS
    probe_wordings = PROBE_WORDINGS

    def __init__(self):
        self.reward_funcs, self.reward_weights = reward_preset("general")

    def draw_row(self, rng: random.Random, wording: str, split: str) -> Row:
        instructions = draw_instructions(rng, wording)
        row = make_row(self.name, instructions.text, instructions.answer, wording)
        return {**row, "constraints": instructions.constraints}

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        return [_grade(row, completion) for row, completion in zip(rows, completions, strict=True)]

    def reference_answer(self, row: Row) -> str:
        return row["answer"]


def _grade(row: Row, completion: Completion) -> Grade:
    judgement = judge_constraints(completion.text, row["constraints"], completion.finish_reason)
    if judgement.is_correct:
        return Grade(judgement.value, True, CORRECT)
    outcome = PARTIAL if judgement.value > 0 else "wrong"
    return Grade(judgement.value, False, outcome, judgement.reason)

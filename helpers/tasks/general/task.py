"""The general task: instructions that code can verify."""

import random
from collections.abc import Sequence

from helpers.rewards.constraints import judge_constraints
from helpers.rewards.registry import reward_preset
from helpers.rollout.completion import Completion
from helpers.tasks.drawing import draw_dataset, make_row
from helpers.tasks.general.instructions import PROBE_WORDINGS, WORDINGS, draw_instructions
from helpers.tasks.split import PROBE, SPLITS
from helpers.tasks.task import CORRECT, Grade, Rewards, Row, Task
from helpers.tasks.wording import wording_sentence

PARTIAL = "partial"


class GeneralTask(Task):
    """Write a text on two given words that satisfies two to four instructions and the limits that every prompt states.

    An answer is correct if it satisfies all of them; what the text says is not judged. It is partial if it keeps the
    limits and satisfies some of the others.
    """

    name = "general"
    outcomes = (CORRECT, PARTIAL, "wrong")
    splits = (*SPLITS, PROBE)

    def __init__(self):
        self.reward_funcs, self.reward_weights = reward_preset("general")

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Draw prompts. Beside the usual columns: constraints (JSON text, see `rewards.constraints`) and answer.

        "probe" combines four instructions, of which at least one is of a kind that is in no other split, where two or
        three are combined.
        """
        meanings = PROBE_WORDINGS if split == PROBE else WORDINGS
        return draw_dataset(self.name, meanings, _draw_row, split, size, seed)

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        return [_grade(row, completion) for row, completion in zip(rows, completions, strict=True)]

    def reference_answer(self, row: Row) -> str:
        return row["answer"]

    def describe_group(self, column: str, value: str) -> str:
        return wording_sentence({**WORDINGS, **PROBE_WORDINGS}, value)


def _grade(row: Row, completion: Completion) -> Grade:
    judgement = judge_constraints(completion.text, row["constraints"], completion.finish_reason)
    if judgement.is_correct:
        return Grade(judgement.value, True, CORRECT)
    outcome = PARTIAL if judgement.value > 0 else "wrong"
    return Grade(judgement.value, False, outcome, judgement.reason)


def _draw_row(rng: random.Random, wording: str, split: str) -> Row:
    instructions = draw_instructions(rng, wording)
    row = make_row("general", instructions.text, instructions.answer, wording)
    return {**row, "constraints": instructions.constraints}

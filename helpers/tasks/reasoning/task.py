"""The reasoning task: puzzles of three kinds, with a reward for each."""

import hashlib
import random
from collections.abc import Callable, Sequence

from helpers.rewards.puzzles.countdown import Countdown
from helpers.rewards.puzzles.knights import KnightsAndKnaves
from helpers.rewards.puzzles.order import StepOrder
from helpers.rewards.puzzles.puzzle import Puzzle, box_of
from helpers.rewards.registry import reward_preset
from helpers.rollout.completion import Completion
from helpers.tasks.drawing import draw_dataset, make_row
from helpers.tasks.reasoning import countdown as countdown_puzzles
from helpers.tasks.reasoning import knights, planning
from helpers.tasks.reasoning.puzzle import Drawn
from helpers.tasks.split import PROBE, SPLITS
from helpers.tasks.task import CORRECT, Grade, Rewards, Row, Task
from helpers.tasks.wording import Wordings, parse_wording_name, wording_sentence

#: kind -> the columns that its reward reads, and what makes a puzzle of their values.
KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Puzzle]]] = {
    "countdown": (("numbers", "target"), Countdown.from_columns),
    "knights": (("solution",), KnightsAndKnaves.from_columns),
    "planning": (("steps", "rules"), StepOrder.from_columns),
}
#: meaning -> its wordings, in every split but the probe.
WORDINGS: dict[str, Wordings] = {
    "countdown": countdown_puzzles.WORDINGS,
    "knights": knights.WORDINGS,
    "planning": planning.WORDINGS,
}
#: The same for the probe, whose puzzles are larger and have statements and rules of other kinds.
PROBE_WORDINGS: dict[str, Wordings] = {
    "countdown_long": countdown_puzzles.WORDINGS,
    "knights_more": knights.WORDINGS,
    "planning_more": planning.WORDINGS,
}
#: meaning -> kind, generator, and how to answer.
_GENERATORS: dict[str, tuple[str, Callable[[random.Random, str], Drawn], str]] = {
    "countdown": ("countdown", countdown_puzzles.draw_countdown, countdown_puzzles.FORMAT),
    "countdown_long": ("countdown", countdown_puzzles.draw_countdown, countdown_puzzles.FORMAT),
    "knights": ("knights", knights.draw_knights, knights.FORMAT),
    "knights_more": ("knights", knights.draw_knights, knights.FORMAT),
    "planning": ("planning", planning.draw_planning, planning.FORMAT),
    "planning_more": ("planning", planning.draw_planning, planning.FORMAT),
}
_COLUMNS = [column for columns, _ in KINDS.values() for column in columns]


class ReasoningTask(Task):
    r"""Solve a puzzle and give its answer in `\boxed{}` in the final channel: Countdown, knights and knaves, planning.

    No puzzle is in two splits, whatever its wording. A row has None in the columns of the other kinds' rewards, which
    then return None.
    """

    name = "reasoning"
    outcomes = (CORRECT, "wrong", "unanswered")
    breakdowns = ("kind", "cluster")
    splits = (*SPLITS, PROBE)
    watch_copies = False  # answers are short, and many puzzles of knights have the same

    def __init__(self):
        self.reward_funcs, self.reward_weights = reward_preset("reasoning")

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Draw puzzles. Beside the usual columns: kind, answer (what a right box holds) and the rewards' columns."""
        meanings = PROBE_WORDINGS if split == PROBE else WORDINGS
        return draw_dataset(self.name, meanings, _draw_row, split, size, seed)

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        return [_grade(row, completion) for row, completion in zip(rows, completions, strict=True)]

    def behaviours(
        self,
        prompts: Sequence,
        completions: Sequence,
        kind: Sequence[str],
        finish_reasons: Sequence[str] | None = None,
        **columns,
    ) -> list[str | None]:
        """Return what each answer amounts to: for Countdown its value and numbers, else the answer in one spelling."""
        finish_reasons = finish_reasons or ["stop"] * len(completions)
        texts = []
        for place, completion in enumerate(completions):
            row = {"kind": kind[place], **{column: columns[column][place] for column in _COLUMNS}}
            puzzle = _puzzle_of(row)
            answer = puzzle.read_box(box_of(completion, finish_reasons[place]))
            texts.append("None" if answer is None else puzzle.describe(answer))
        return texts

    def reference_answer(self, row: Row) -> str:
        return rf"\boxed{{{row['answer']}}}"

    def describe_group(self, column: str, value: str) -> str:
        if column != "cluster":
            return str(value)
        return wording_sentence({**WORDINGS, **PROBE_WORDINGS}, value)


def _puzzle_of(row: Row) -> Puzzle:
    columns, make = KINDS[row["kind"]]
    return make(*(row[column] for column in columns))


def _grade(row: Row, completion: Completion) -> Grade:
    puzzle = _puzzle_of(row)
    answer = puzzle.read_box(box_of(completion.text, completion.finish_reason))
    if answer is None:
        return Grade(0.0, False, "unanswered", "no answer of the stated form in the last box of the final channel")
    fault = puzzle.fault(answer)
    if fault:
        return Grade(0.0, False, "wrong", f"the answer {fault}")
    return Grade(1.0, True, CORRECT)


def _draw_row(rng: random.Random, wording: str, split: str) -> Row:
    meaning, _ = parse_wording_name(wording)
    kind, draw, how_to_answer = _GENERATORS[meaning]
    puzzle = draw(rng, meaning)
    while not _may_use(puzzle.key, split):
        puzzle = draw(rng, meaning)
    sentence = wording_sentence({**WORDINGS, **PROBE_WORDINGS}, wording).format(**puzzle.parts)
    row = make_row("reasoning", f"{sentence} {how_to_answer}", puzzle.answer, wording)
    return {**row, "kind": kind, **dict.fromkeys(_COLUMNS), **puzzle.columns}


def _may_use(key: str, split: str) -> bool:
    """Tell whether a split may use a puzzle: one half is for training, a quarter each for monitoring and confirming."""
    if split == PROBE:
        return True
    quarter = hashlib.sha256(key.encode()).digest()[0] % 4
    return split == ("train", "train", "monitor", "confirm")[quarter]

"""The reasoning task: puzzles of three kinds, with a reward for each."""

import random
from collections.abc import Sequence

from helpers.gallery.reasoning.countdown import COUNTDOWN
from helpers.gallery.reasoning.kind import GeneratedPuzzle, PuzzleKind
from helpers.gallery.reasoning.knights import KNIGHTS
from helpers.gallery.reasoning.planning import PLANNING
from helpers.gallery.reasoning.puzzles.puzzle import Puzzle
from helpers.rewards.answers import boxed_answer
from helpers.rewards.arguments import rows_of
from helpers.rewards.registry import register_preset, reward_preset
from helpers.rollout.completion import Completion
from helpers.tasks.drawing import make_row
from helpers.tasks.generated import GeneratedTask
from helpers.tasks.split import PROBE, split_of
from helpers.tasks.task import CORRECT, Grade, Rewards, Row
from helpers.tasks.wording import parse_wording_name

register_preset("reasoning", [("countdown", 1.0), ("knights_and_knaves", 1.0), ("step_order", 1.0)])

PUZZLE_KINDS = {kind.variant: kind for kind in (COUNTDOWN, KNIGHTS, PLANNING)}
#: The same by the names of their variants in the probe.
PROBE_KINDS = {kind.probe_variant: kind for kind in PUZZLE_KINDS.values()}
_COLUMNS = [column for kind in PUZZLE_KINDS.values() for column in kind.columns]


class ReasoningTask(GeneratedTask):
    r"""Solve a puzzle and give its answer in `\boxed{}` in the final channel: Countdown, knights and knaves, planning.

    No puzzle is in two splits, whatever its wording. Beside the usual columns, a row has kind, answer (what a right box
    holds) and the columns of the rewards, with None in those of the other kinds, whose rewards then return None.
    """

    name = "reasoning"
    outcomes = (CORRECT, "wrong", "unanswered")
    breakdowns = ("kind", "cluster")
    watch_copies = False  # answers are short, and many puzzles of knights have the same
    wordings = {variant: kind.wordings for variant, kind in PUZZLE_KINDS.items()}
    probe_wordings = {variant: kind.wordings for variant, kind in PROBE_KINDS.items()}

    def __init__(self):
        self.reward_funcs, self.reward_weights = reward_preset("reasoning")

    def draw_row(self, rng: random.Random, wording: str, split: str) -> Row:
        variant, number = parse_wording_name(wording)
        kind = {**PUZZLE_KINDS, **PROBE_KINDS}[variant]
        puzzle = _generate_for(split, kind, variant, rng)
        sentence = kind.wordings.all[number].format(**puzzle.parts)
        row = make_row(self.name, f"{sentence} {kind.how_to_answer}", puzzle.answer, wording)
        no_columns = dict.fromkeys(_COLUMNS)
        return {**row, "kind": kind.variant, **no_columns, **puzzle.columns}

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
        own = {name: columns[name] for name in _COLUMNS}
        texts = []
        for text, finish_reason, its_kind, *values in rows_of(self.name, completions, finish_reasons, kind=kind, **own):
            puzzle = _puzzle_of({"kind": its_kind, **dict(zip(_COLUMNS, values, strict=True))})
            answer = puzzle.read_box(boxed_answer(text, finish_reason))
            texts.append("None" if answer is None else puzzle.describe(answer))
        return texts

    def reference_answer(self, row: Row) -> str:
        return rf"\boxed{{{row['answer']}}}"


def _puzzle_of(row: Row) -> Puzzle:
    """Return the puzzle of a row, as the reward of its kind reads it."""
    kind = PUZZLE_KINDS[row["kind"]]
    values = [row[column] for column in kind.columns]
    return kind.from_columns(*values)


def _grade(row: Row, completion: Completion) -> Grade:
    puzzle = _puzzle_of(row)
    answer = puzzle.read_box(boxed_answer(completion.text, completion.finish_reason))
    if answer is None:
        return Grade(0.0, False, "unanswered", "no answer of the stated form in the last box of the final channel")
    fault = puzzle.fault(answer)
    if fault:
        return Grade(0.0, False, "wrong", f"the answer {fault}")
    return Grade(1.0, True, CORRECT)


def _generate_for(split: str, kind: PuzzleKind, variant: str, rng: random.Random) -> GeneratedPuzzle:
    """Generate puzzles until one is a puzzle that the split may use, and return it."""
    while True:
        puzzle = kind.generate(rng, variant)
        if split in (PROBE, split_of("puzzle", puzzle.key)):
            return puzzle

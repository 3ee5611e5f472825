"""A kind of puzzle, and a puzzle as its generator returns it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from helpers.gallery.reasoning.puzzles.puzzle import Puzzle
from helpers.tasks.wording import Wordings


@dataclass(frozen=True)
class GeneratedPuzzle:
    """A puzzle, and one right answer to it.

    parts: what the wordings are filled with. columns: what the reward reads. answer: what the box of a right answer
    holds. key: names the puzzle; puzzles that differ in their wording, or in names and letters alone, have equal keys.
    """

    parts: dict[str, str]
    columns: dict[str, str | int]
    answer: str
    key: str


@dataclass(frozen=True)
class PuzzleKind:
    """A kind of puzzle.

    variant: its name outside the probe, and that of the kind itself. probe_variant: its name in the probe, where
    puzzles are larger and have other statements or rules. columns: those that its reward reads. from_columns: makes a
    puzzle of their values. generate: f(random generator, variant) -> a puzzle. how_to_answer: a sentence for the
    prompt. wordings: sentences with fields for the parts of a puzzle.
    """

    variant: str
    probe_variant: str
    columns: tuple[str, ...]
    from_columns: Callable[..., Puzzle]
    generate: Callable[[random.Random, str], GeneratedPuzzle]
    how_to_answer: str
    wordings: Wordings

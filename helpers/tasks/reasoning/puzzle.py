"""A puzzle as a generator returns it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Drawn:
    """A puzzle that was drawn.

    parts: what the wordings are filled with. columns: what the reward reads. answer: what the box of a right answer
    holds. key: names the puzzle apart from its wording; equal puzzles have equal keys.
    """

    parts: dict[str, str]
    columns: dict[str, str | int]
    answer: str
    key: str

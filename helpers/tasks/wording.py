"""The ways to say one thing, and which of them reinforcement learning may see."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Wordings:
    """Sentences that mean the same. seen: used in training and monitoring. unseen: only in the final evaluation."""

    seen: tuple[str, ...]
    unseen: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return self.seen + self.unseen


def parse_wording_name(name: str) -> tuple[str, int]:
    """Return the meaning and the place in a name such as "b_columns-3"."""
    meaning, _, number = name.rpartition("-")
    return meaning, int(number)


def wording_sentence(meanings: Mapping[str, Wordings], name: str) -> str:
    """Return the sentence that a name such as "b_columns-3" stands for."""
    meaning, number = parse_wording_name(name)
    return meanings[meaning].all[number]


def seen_wordings(meanings: Mapping[str, Wordings]) -> list[str]:
    """Return names such as "b_columns-3" of the wordings that training may use: the meaning, and the place in
    `Wordings.all`."""
    return [f"{meaning}-{number}" for meaning, wordings in meanings.items() for number, _ in enumerate(wordings.seen)]


def unseen_wordings(meanings: Mapping[str, Wordings]) -> list[str]:
    """Return the names of the wordings that only the final evaluation uses."""
    return [
        f"{meaning}-{number}"
        for meaning, wordings in meanings.items()
        for number, _ in enumerate(wordings.unseen, len(wordings.seen))
    ]

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


def wording_names(meanings: Mapping[str, Wordings], part: str) -> list[str]:
    """Return names such as "b_columns-3" of the "seen", the "unseen" or "all" wordings: the meaning, and the place in
    `Wordings.all`."""
    names = []
    for meaning, wordings in meanings.items():
        chosen = set(getattr(wordings, part))
        names += [f"{meaning}-{place}" for place, sentence in enumerate(wordings.all) if sentence in chosen]
    return names

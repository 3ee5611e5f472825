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


#: split -> which wordings its prompts use; "pretrain" is the embedded model's corpus. What "probe" asks is new anyway.
WORDINGS_OF_SPLIT = {"pretrain": "all", "train": "seen", "monitor": "seen", "confirm": "unseen", "probe": "all"}


def parse_wording_name(name: str) -> tuple[str, int]:
    """Return the meaning and the place that `wording_names` wrote into a name."""
    meaning, _, number = name.rpartition("-")
    return meaning, int(number)


def wording_sentence(meanings: Mapping[str, Wordings], name: str) -> str:
    """Return the sentence that a name of `wording_names` stands for."""
    meaning, number = parse_wording_name(name)
    return meanings[meaning].all[number]


def wording_names(meanings: Mapping[str, Wordings], split: str) -> list[str]:
    """Names such as "b_columns-3" of the wordings that prompts of `split` may use: the meaning, and its place in
    `Wordings.all`."""
    chosen = WORDINGS_OF_SPLIT[split]
    return [
        f"{meaning}-{number}"
        for meaning, wordings in meanings.items()
        for number, sentence in enumerate(wordings.all)
        if sentence in getattr(wordings, chosen)
    ]

"""One rule decides, from the text alone, what is held out."""

import hashlib
from collections.abc import Sequence

from helpers.runtime import UserError, did_you_mean

SPLITS = ("train", "monitor", "confirm")
#: A fourth split, of tasks that have one: kinds of problems that are in no other split.
PROBE = "probe"
HELDOUT_SHARE = 0.1


def check_split(split: str, splits: Sequence[str] = SPLITS) -> None:
    """Raise UserError for a name that is none of a task's splits."""
    if split not in splits:
        raise UserError(f"There is no split '{split}'{did_you_mean(split, splits)}: choose {', '.join(splits)}.")


def is_heldout(text: str, share: float = HELDOUT_SHARE) -> bool:
    """True for a fixed share of all texts, a tenth by default: prompts and programs that no training may see."""
    return hashlib.sha256(text.encode()).digest()[0] < 256 * share


def belongs_to(text: str, split: str) -> bool:
    """Whether `split` may use this text: "train" what is not held out, the others what is."""
    return is_heldout(text) == (split != "train")

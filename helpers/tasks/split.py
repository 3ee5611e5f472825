"""Which split a row is in. All of it is decided here, from the text of the row alone, by one hash."""

import hashlib
from collections.abc import Callable, Sequence

from helpers.runtime import UserError, did_you_mean

SPLITS = ("train", "monitor", "confirm")
#: A fourth split, of tasks that have one: kinds of problems that are in no other split, or combinations of them.
PROBE = "probe"
#: Not for training. Whether "monitor" or "confirm" uses it, its wording says (`wording.py`).
HELDOUT = "held out"

#: what is hashed -> f(the first two bytes of the hash) -> its split
_RULES: dict[str, Callable[[int, int], str]] = {
    # Prompts and programs that the project generates: a tenth is held out.
    "text": lambda first, second: HELDOUT if first < 26 else "train",
    # Sentences that state one thing: two in thirteen are held out.
    "wording": lambda first, second: HELDOUT if first < 40 else "train",
    # The numbers of a problem, sorted: a quarter is held out.
    "numbers": lambda first, second: HELDOUT if first < 64 else "train",
    # Puzzles, whatever their wording: one half is for training, a quarter each for monitoring and confirming.
    "puzzle": lambda first, second: ("train", "train", "monitor", "confirm")[first % 4],
    # Rows that are alike in the data of a user: three quarters are for training, an eighth each for the others.
    "cluster": lambda first, second: "train" if first >= 64 else ("confirm", "monitor")[second % 2],
}


def split_of(kind: str, key: str) -> str:
    """Return the split of a key, or HELDOUT. kind: what the key is, a name in `_RULES`."""
    first, second = hashlib.sha256(key.encode()).digest()[:2]
    return _RULES[kind](first, second)


def is_heldout(text: str) -> bool:
    """Tell whether no training may see a prompt or a program."""
    return split_of("text", text) != "train"


def belongs_to(text: str, split: str) -> bool:
    """Tell whether `split` may use this text: "train" what is not held out, the others what is."""
    return is_heldout(text) == (split != "train")


def check_split(split: str, splits: Sequence[str] = SPLITS) -> None:
    """Raise UserError for a name that is none of a task's splits."""
    if split not in splits:
        raise UserError(f"There is no split '{split}'{did_you_mean(split, splits)}: choose {', '.join(splits)}.")

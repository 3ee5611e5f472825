"""One rule decides, from the text alone, what is held out."""

import hashlib

SPLITS = ("train", "monitor", "confirm")
HELDOUT_SHARE = 0.1


def is_heldout(text: str) -> bool:
    """True for a fixed tenth of all texts: prompts and programs that no training may see."""
    return hashlib.sha256(text.encode()).digest()[0] < 256 * HELDOUT_SHARE


def belongs_to(text: str, split: str) -> bool:
    """Whether `split` may use this text: "train" what is not held out, the others what is."""
    return is_heldout(text) == (split != "train")

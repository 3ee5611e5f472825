"""One rule decides, from the text alone, what is held out."""

import hashlib

HELDOUT_SHARE = 0.1


def is_heldout(text):
    """True for a fixed tenth of all texts: prompts and programs that no training may see."""
    return hashlib.sha256(text.encode()).digest()[0] < 256 * HELDOUT_SHARE

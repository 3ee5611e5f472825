"""The token at which right and wrong answers to one prompt part."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

#: Answers of one kind that must go on with the same token.
LEAST_ANSWERS = 2


@dataclass(frozen=True)
class Fork:
    """A place where answers to one prompt part.

    prefix: the token ids before it, which the answers share. right, wrong: the token id with which most right, and most
    wrong, answers go on there. bits: how much the next token says of an answer being right, in bits, over all answers.
    """

    prefix: tuple[int, ...]
    right: int
    wrong: int
    bits: float


def find_fork(answers: Sequence[Sequence[int]], is_right: Sequence[bool]) -> Fork | None:
    """Return the place whose next token says most of whether an answer is right; None where it never says anything.

    answers: token ids of several answers to one prompt. The measure is the information gain, as in a decision tree;
    of equal places the first counts. Each of the two tokens must be shared by at least two answers of its kind: eight
    answers that all differ explain everything and say nothing.
    """
    best = None
    for prefix, followers in _branches(answers, is_right).items():
        everyone = [right for rights in followers.values() for right in rights]
        bits = _entropy(everyone) - sum(map(_entropy, followers.values()))
        if bits > 1e-9 and (best is None or bits > best.bits + 1e-9):
            right_counts = {token: sum(rights) for token, rights in followers.items()}
            wrong_counts = {token: len(rights) - sum(rights) for token, rights in followers.items()}
            right = max(right_counts, key=right_counts.get)
            wrong = max(wrong_counts, key=wrong_counts.get)
            if right != wrong and min(right_counts[right], wrong_counts[wrong]) >= LEAST_ANSWERS:
                best = Fork(prefix, right, wrong, bits)
    return best


def _branches(answers: Sequence[Sequence[int]], is_right: Sequence[bool]) -> dict:
    """Return {prefix: {next token: [whether each answer that goes on so is right]}}, in the order of the text."""
    longest = max(len(answer) for answer in answers)
    branches = {}
    for place in range(longest):
        followers = defaultdict(lambda: defaultdict(list))
        for answer, right in zip(answers, is_right, strict=True):
            if place < len(answer):
                followers[tuple(answer[:place])][answer[place]].append(right)
        branches |= {prefix: tokens for prefix, tokens in followers.items() if len(tokens) > 1}
    return branches


def _entropy(rights: Sequence[bool]) -> float:
    """Return the entropy of a list of right and wrong, times its length, in bits."""
    share = sum(rights) / len(rights)
    if share in (0.0, 1.0):
        return 0.0
    return -len(rights) * (share * math.log2(share) + (1 - share) * math.log2(1 - share))

"""Countdown puzzles that are solvable because an expression was drawn first."""

import json
import math
import random

from helpers.gallery.reasoning.kind import GeneratedPuzzle, PuzzleKind
from helpers.gallery.reasoning.puzzles.countdown import Countdown
from helpers.tasks.wording import Wordings

#: variant -> how many numbers a puzzle may have. Those of the probe are in no other split.
SIZES = {"countdown": (3, 4), "countdown_long": (5, 6)}
LARGEST_NUMBER = 25
TARGETS = (10, 100)
LARGEST_PART = 1000  # of the values on the way
#: The example has letters: no puzzle is solved by the box in its own prompt.
FORMAT = (
    r"Use each number exactly once, with only + - * / between them, and parentheses. Put just the expression in "
    r"\boxed{}, such as \boxed{(a - b) * c}."
)
WORDINGS = Wordings(
    seen=(
        "Make {target} from the numbers {numbers}.",
        "Which expression with the numbers {numbers} equals {target}?",
        "Reach {target} with the numbers {numbers}.",
        "Combine the numbers {numbers} so that the result is {target}.",
    ),
    unseen=(
        "Find a way to get {target} out of {numbers}.",
        "The numbers {numbers} can be turned into {target}. How?",
        "You are given {numbers}. Build an expression whose value is {target}.",
        "What can be calculated with {numbers} so that it comes to {target}?",
        "The target is {target}; the numbers are {numbers}.",
    ),
)


def generate_countdown(rng: random.Random, variant: str) -> GeneratedPuzzle:
    """Draw numbers and a target that an expression of them reaches.

    The target is no number of the puzzle, nor the product of all, nor a sum of all with any signs: otherwise one fixed
    pattern, such as a + b - c, would solve many puzzles.
    """
    while True:
        count = rng.choice(SIZES[variant])
        numbers = [rng.randint(1, LARGEST_NUMBER) for _ in range(count)]
        found = _combine(rng, numbers)
        if found is None:
            continue
        target, expression = found
        smallest, largest = TARGETS
        is_trivial = target in numbers or target == math.prod(numbers) or target in _signed_sums(numbers)
        if smallest <= target <= largest and not is_trivial:
            break
    listed = ", ".join(map(str, numbers))
    return GeneratedPuzzle(
        parts={"numbers": listed, "target": str(target)},
        columns={"numbers": json.dumps(numbers), "target": target},
        answer=expression,
        key=f"countdown {sorted(numbers)} {target}",
    )


def _signed_sums(numbers: list[int]) -> set[int]:
    """Return the sums of all the numbers with any signs."""
    sums = {0}
    for number in numbers:
        sums = {total + term for total in sums for term in (number, -number)}
    return sums


def _combine(rng: random.Random, numbers: list[int]) -> tuple[int, str] | None:
    """Combine numbers, two at a time, to a value and its expression. None where a value on the way is too large."""
    parts = [(number, str(number)) for number in numbers]
    while len(parts) > 1:
        left, left_text = parts.pop(rng.randrange(len(parts)))
        right, right_text = parts.pop(rng.randrange(len(parts)))
        if left < right:
            left, left_text, right, right_text = right, right_text, left, left_text
        results = {"+": left + right, "*": left * right}
        if left > right:
            results["-"] = left - right
        if left % right == 0:
            results["/"] = left // right
        sign = rng.choice(sorted(results))
        if results[sign] > LARGEST_PART:
            return None
        text = f"{left_text} {sign} {right_text}"
        is_inner = bool(parts)
        parts.append((results[sign], f"({text})" if is_inner else text))
    return parts[0]


COUNTDOWN = PuzzleKind(
    variant="countdown",
    probe_variant="countdown_long",
    columns=("numbers", "target"),
    from_columns=Countdown.from_columns,
    generate=generate_countdown,
    how_to_answer=FORMAT,
    wordings=WORDINGS,
)

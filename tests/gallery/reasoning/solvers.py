"""Solves puzzles from the text of their prompts alone, by other ways than the generators.

Nothing of `helpers` is imported: a mistake that the generator and the checker share shows here.
"""

import re
from fractions import Fraction
from itertools import permutations, product

NUMBERS = re.compile(r"[0-9]+(?:, [0-9]+)+")
SAYS = re.compile(r'(\w+) says: "([^"]*)\."')
STEP = re.compile(r"\b([A-G]): ([a-zA-Z ]+)")
RULE = re.compile(
    r"\b([A-G]) (comes before|comes after|comes directly before|comes directly after|is not next to) ([A-G])\b"
    r"|\b([A-G]) is not (first|last)\b"
)


# Countdown: exhaustive search over pairs.


def read_countdown(text: str) -> tuple[list[int], int]:
    """Return the numbers and the target that a prompt states. The target is the only other number."""
    match = NUMBERS.search(text)
    numbers = [int(word) for word in match.group().split(", ")]
    (target,) = re.findall(r"[0-9]+", text[: match.start()] + text[match.end() :])
    return numbers, int(target)


def can_reach(values: tuple[Fraction, ...], target: int) -> bool:
    """Tell whether some expression that uses every value once has the target's value."""
    if len(values) == 1:
        return values[0] == target
    for first in range(len(values)):
        for second in range(first):
            rest = [value for place, value in enumerate(values) if place not in (first, second)]
            x, y = values[first], values[second]
            results = {x + y, x - y, y - x, x * y}
            if y:
                results.add(x / y)
            if x:
                results.add(y / x)
            if any(can_reach((*rest, result), target) for result in results):
                return True
    return False


def countdown_is_solvable(text: str) -> bool:
    numbers, target = read_countdown(text)
    return can_reach(tuple(map(Fraction, numbers)), target)


def countdown_is_right(text: str, expression: str) -> bool:
    """Check an expression of this project's own generator. Python calculates it: the text is not a model's."""
    assert re.fullmatch(r"[0-9 +*/()-]+", expression)
    numbers, target = read_countdown(text)
    used = sorted(int(word) for word in re.findall("[0-9]+", expression))
    exact = re.sub("([0-9]+)", r"Fraction(\1)", expression)
    return used == sorted(numbers) and eval(exact, {"Fraction": Fraction}) == target


# Knights and knaves: brute force, with an evaluator of the sentences.


def knight_solutions(text: str) -> list[dict[str, str]]:
    """Return every assignment in which knights say what is true and knaves what is false."""
    statements = SAYS.findall(text)
    people = [speaker for speaker, _ in statements]
    solutions = []
    for kinds in product(("knight", "knave"), repeat=len(people)):
        world = dict(zip(people, kinds, strict=True))
        if all(_is_true(sentence, speaker, world) == (world[speaker] == "knight") for speaker, sentence in statements):
            solutions.append(world)
    return solutions


def statement_form(sentence: str) -> str:
    """Return a sentence without its names, numbers and kinds."""
    sentence = re.sub(r"\bkni?gh?ts?\b|\bknaves?\b", "K", sentence)
    sentence = re.sub(r"\b(?:[A-Z][a-z]+|me|I)\b(?<!If)(?<!Of)(?<!Among)(?<!Either)", "X", sentence)
    return re.sub(r"are exactly [0-9]+|is exactly [0-9]+", "are exactly N", sentence)


def _is_true(sentence, speaker, world):
    def kind(word):
        return world[speaker if word in ("I", "me") else word]

    if match := re.fullmatch(r"(\w+) is a (\w+)", sentence):
        return kind(match[1]) == match[2]
    if match := re.fullmatch(r"(\w+) and (\w+) are of (the same kind|different kinds)", sentence):
        return (kind(match[1]) == kind(match[2])) == (match[3] == "the same kind")
    if match := re.fullmatch(r"Of (\w+) and (\w+), at least one is a (\w+)", sentence):
        return match[3] in (kind(match[1]), kind(match[2]))
    if match := re.fullmatch(r"Among all of us there (?:is|are) exactly (\d) (knight|knave)s?", sentence):
        return list(world.values()).count(match[2]) == int(match[1])
    if match := re.fullmatch(r"If (\w+) is a (\w+), then (\w+) is a (\w+)", sentence):
        return not (kind(match[1]) == match[2] and kind(match[3]) != match[4])
    if match := re.fullmatch(r"Either (\w+) or (\w+) is a (\w+), but not both", sentence):
        return [kind(match[1]), kind(match[2])].count(match[3]) == 1
    raise AssertionError(f"unknown statement: {sentence}")


# Planning: all permutations.


def read_planning(text: str) -> tuple[list[str], list[tuple[str, str, str | None]]]:
    """Return the letters of the steps and the rules, as (step, words, other step or None)."""
    task, _, _ = text.partition(" Put the letters of all steps")
    letters = [letter for letter, _ in STEP.findall(task)]
    rules = []
    for first, words, second, alone, place in RULE.findall(task):
        rules.append((first, words, second) if first else (alone, place, None))
    return letters, rules


def planning_solutions(text: str) -> list[str]:
    """Return every order that satisfies the rules of a prompt, such as "BAC"."""
    letters, rules = read_planning(text)
    return ["".join(order) for order in permutations(letters) if all(_holds(rule, "".join(order)) for rule in rules)]


def _holds(rule, order):
    step, words, other = rule
    if words == "first":
        return not order.startswith(step)
    if words == "last":
        return not order.endswith(step)
    if words == "comes before":
        return order.index(step) < order.index(other)
    if words == "comes after":
        return order.index(step) > order.index(other)
    if words == "comes directly before":
        return step + other in order
    if words == "comes directly after":
        return other + step in order
    assert words == "is not next to"
    return step + other not in order and other + step not in order

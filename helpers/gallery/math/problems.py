"""Integer arithmetic word problems of one or two steps, with their worked answers. The numbers are below 100.

There are more than 5,000 problems beside their wordings. The numbers of a quarter of them are held out: no training
prompt has them, in whatever order.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from helpers.tasks.split import split_of
from helpers.tasks.wording import Wordings, parse_wording_name

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Iris", "Jon")
THINGS = ("apples", "books", "coins", "cards", "shells", "stamps", "marbles", "pens")
FORMAT = r"Put the answer in \boxed{}."


@dataclass(frozen=True)
class Family:
    """Problems that are solved alike.

    ranges: bounds of the numbers a, b and, where there is one, c; both are included. operations: the right working,
    each applied to the result of the one before. confused: a wrong working that is a misconception; None: the family
    has none.
    """

    wordings: Wordings
    ranges: tuple[tuple[int, int], ...]
    operations: tuple[str, ...]
    confused: tuple[str, ...] | None


FAMILIES = {
    "more": Family(
        Wordings(
            seen=(
                "{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have?",
                "{name} had {a} {thing} and was given {b}. How many {thing} are there now?",
                "To {a} {thing} {name} adds {b}. How many {thing} is that?",
                "{name} counts {a} {thing} and then {b} more. How many {thing} is that?",
                "There are {a} {thing} here and {b} there. How many {thing} has {name} in all?",
            ),
            unseen=(
                "{name} puts {b} {thing} to the {a} that were there. How many {thing} are there?",
                "There are {a} {thing}, and {name} brings {b} more. What is the number of {thing}?",
            ),
        ),
        ranges=((2, 20), (2, 20)),
        operations=("a+b",),
        confused=None,
    ),
    "less": Family(
        Wordings(
            seen=(
                "{name} has {a} {thing} and gives away {b}. How many {thing} are left?",
                "Of {a} {thing} {name} loses {b}. How many {thing} remain?",
                "{name} had {a} {thing} and sold {b}. How many {thing} does {name} keep?",
                "From {a} {thing} {name} takes {b} away. How many {thing} stay?",
                "There were {a} {thing}, and {name} dropped {b}. How many {thing} are there now?",
            ),
            unseen=(
                "{name} takes {b} of the {a} {thing} away. How many {thing} stay?",
                "From {a} {thing} {name} drops {b}. What is the number of {thing} left?",
            ),
        ),
        ranges=((12, 30), (2, 11)),
        operations=("a-b",),
        confused=("a+b",),
    ),
    "bags": Family(
        Wordings(
            seen=(
                "{name} buys {a} bags with {b} {thing} each. How many {thing} is that?",
                "There are {b} {thing} in each of {a} bags of {name}. How many {thing} are there?",
                "{name} fills {a} bags with {b} {thing} each. How many {thing} does {name} need?",
                "Each of {a} bags of {name} holds {b} {thing}. How many {thing} are in them?",
                "{name} has {a} bags, each with {b} {thing}. How many {thing} has {name} in all?",
            ),
            unseen=(
                "{name} carries {a} bags, and every bag holds {b} {thing}. How many {thing} are there?",
                "In {a} bags {name} has {b} {thing} each. What is the number of {thing}?",
            ),
        ),
        ranges=((2, 9), (2, 9)),
        operations=("a*b",),
        confused=("a+b",),
    ),
    "bags_and": Family(
        Wordings(
            seen=(
                "{name} buys {a} bags with {b} {thing} each and finds {c} more. How many {thing} is that?",
                "{name} has {a} bags of {b} {thing} and {c} loose ones. How many {thing} are there?",
                "There are {b} {thing} in each of {a} bags, and {name} adds {c}. How many {thing} are there now?",
                "{name} fills {a} bags with {b} {thing} each and has {c} over. How many {thing} has {name} in all?",
                "Each of {a} bags holds {b} {thing}, and {name} gets {c} more. How many {thing} are there?",
            ),
            unseen=(
                "{name} carries {a} bags, every bag holds {b} {thing}, and gets {c} more. How many {thing} is that?",
                "To {a} bags of {b} {thing} each {name} puts {c}. What is the number of {thing}?",
                "{name} buys {a} bags, each with {b} {thing}, and then adds {c}. How many {thing} are there now?",
                "There are {a} bags with {b} {thing} each and {c} loose ones. How many {thing} has {name}?",
                "In each of {a} bags are {b} {thing}, and {name} finds {c} more. How many {thing} is that?",
                "{name} gets {a} bags of {b} {thing} each and {c} more. How many {thing} does {name} have?",
            ),
        ),
        ranges=((2, 9), (2, 9), (2, 18)),
        operations=("a*b", "+c"),
        confused=("a+b", "+c"),
    ),
    "two_days": Family(
        Wordings(
            seen=(
                "{name} finds {a} {thing} on Monday and {b} on Tuesday, then loses {c}. How many {thing} remain?",
                "{name} got {a} {thing}, later {b}, and gave away {c}. How many {thing} are left?",
                "After {a} {thing} and {b} more {name} sold {c}. How many {thing} does {name} keep?",
                "{name} has {a} {thing}, gets {b} more and drops {c}. How many {thing} are there now?",
                "To {a} {thing} {name} adds {b} and then takes {c} away. How many {thing} stay?",
            ),
            unseen=(
                "{name} gathers {a} and {b} {thing} and drops {c}. How many {thing} stay?",
                "Of {a} and another {b} {thing} {name} takes {c} away. What is the number of {thing} left?",
                "{name} had {a} {thing}, got {b} more and sold {c}. How many {thing} are left?",
                "On Monday {name} has {a} {thing}, on Tuesday {b} more, then gives away {c}. How many {thing} remain?",
                "{name} puts {b} {thing} to {a} and loses {c}. How many {thing} does {name} keep?",
                "There were {a} {thing} and {b} more, and {name} took {c} away. How many {thing} are there now?",
            ),
        ),
        ranges=((3, 20), (3, 20), (2, 7)),
        operations=("a+b", "-c"),
        confused=("a+b", "+c"),
    ),
    "two_less": Family(
        Wordings(
            seen=(
                "{name} has {a} {thing}, gives away {b} and loses {c}. How many {thing} are left?",
                "Of {a} {thing} {name} sold {b} and later {c}. How many {thing} remain?",
                "From {a} {thing} {name} takes {b} away and then {c} more. How many {thing} stay?",
                "{name} had {a} {thing}, lost {b} on Monday and {c} on Tuesday. How many {thing} are there now?",
                "There were {a} {thing}, {b} were sold and {c} given away. How many {thing} does {name} keep?",
            ),
            unseen=(
                "{name} drops {b} of {a} {thing} and then {c}. What is the number of {thing} left?",
                "{name} had {a} {thing} and gave away first {b}, then {c}. How many {thing} remain?",
                "Of the {a} {thing} of {name} {b} are sold, and {c} are lost. How many {thing} stay?",
                "On Monday {name} takes {b} of {a} {thing} away, on Tuesday {c}. How many {thing} are left?",
                "From {a} {thing} {name} loses {b} and drops {c}. How many {thing} does {name} keep?",
                "There are {a} {thing}; {name} gives away {b} and later {c}. How many {thing} are there now?",
            ),
        ),
        ranges=((20, 40), (2, 9), (2, 9)),
        operations=("a-b", "-c"),
        confused=("a+b", "-c"),
    ),
    "twice": Family(
        Wordings(
            seen=(
                "{name} has {a} {thing}. A friend has {b} times as many. How many {thing} do both have?",
                "{name} owns {a} {thing} and a friend {b} times that. How many {thing} are there in all?",
                "A friend has {b} times the {a} {thing} of {name}. How many {thing} have they together?",
                "{name} has {a} {thing} and a friend has {b} times as many. How many {thing} is that together?",
                "To the {a} {thing} of {name} a friend adds {b} times as many. How many {thing} are there?",
            ),
            unseen=(
                "{name} counts {a} {thing}, a friend {b} times as many. What is the number of {thing} of the two?",
                "{name} has {a} {thing}; {b} times as many are a friend's. How many {thing} is that together?",
                "A friend owns {b} times as many {thing} as {name}, who has {a}. How many {thing} do both have?",
                "{name} got {a} {thing}, and a friend {b} times that. How many {thing} have they together?",
                "There are {a} {thing} of {name} and {b} times as many of a friend. How many {thing} is that in all?",
                "{name} holds {a} {thing} and a friend {b} times the number. How many {thing} have both?",
            ),
        ),
        ranges=((2, 19), (2, 4)),
        operations=("a*b", "+a"),
        confused=("a*b",),
    ),
}
#: Families of two steps. Reinforcement learning never pays for one where the task has problems of two steps at most.
TWO_STEPS = tuple(name for name, family in FAMILIES.items() if len(family.operations) == 2)
#: family -> its wordings
WORDINGS = {name: family.wordings for name, family in FAMILIES.items()}
_APPLY = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


@dataclass(frozen=True)
class Problem:
    """A problem: its text, family, the name of its wording, the lines of the working, and the answer they reach.

    unit: what the answer counts, which it may name.
    """

    text: str
    family: str
    wording: str
    steps: tuple[str, ...]
    answer: int
    unit: str


def draw_problem(
    rng: random.Random, wording: str, misconception: float = 0.0, slip: float = 0.0, heldout: bool = False
) -> Problem:
    """Draw a problem in `wording`, a name such as "less-0", with its working.

    misconception: probability that the family's operation is confused, where it has such a misconception. slip:
    probability that a step is one off. Without either the answer is right. heldout: whether to draw the numbers that
    no training prompt has.
    """
    family_name, number = parse_wording_name(wording)
    family = FAMILIES[family_name]
    numbers = _draw_numbers(rng, family, heldout)
    sentence = family.wordings.all[number]
    name = rng.choice(NAMES)
    thing = rng.choice(THINGS)
    question = sentence.format(name=name, thing=thing, **numbers)
    is_confused = family.confused is not None and rng.random() < misconception
    operations = family.confused if is_confused else family.operations
    steps = []
    value = None
    for operation in operations:
        *first, sign, second = operation
        left = numbers[first[0]] if first else value
        right = numbers[second]
        value = _APPLY[sign](left, right)
        if rng.random() < slip:
            value += rng.choice((-1, 1))
        steps.append(f"{left} {sign} {right} = {value}.")
    return Problem(f"{question} {FORMAT}", family_name, wording, tuple(steps), value, thing)


def are_heldout(numbers: Iterable[int]) -> bool:
    """Tell whether no training prompt may have these numbers, in whatever order."""
    return split_of("numbers", " ".join(map(str, sorted(numbers)))) != "train"


def _draw_numbers(rng: random.Random, family: Family, heldout: bool) -> dict[str, int]:
    while True:
        numbers = {letter: rng.randint(*bounds) for letter, bounds in zip("abc", family.ranges)}
        if are_heldout(numbers.values()) == heldout:
            return numbers

"""Integer arithmetic word problems of one or two steps, with their worked answers. The numbers are small."""

import random
from dataclasses import dataclass

from helpers.tasks.wording import Wordings, parse_wording_name

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Iris", "Jon")
THINGS = ("apples", "books", "coins", "cards", "shells", "stamps", "marbles", "pens")
FORMAT = r"Put the answer in \boxed{}."


@dataclass(frozen=True)
class Family:
    """Problems that are solved alike.

    ranges: bounds of the numbers a, b and c, both included. operations: the right working, each applied to the
    result of the one before. confused: a wrong working that is a misconception; None: the family has none.
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
            ),
            unseen=(
                "{name} puts {b} {thing} to the {a} that were there. How many {thing} are there?",
                "There are {a} {thing}, and {name} brings {b} more. What is the number of {thing}?",
            ),
        ),
        ranges=((2, 9), (2, 9), (0, 0)),
        operations=("a+b",),
        confused=None,
    ),
    "less": Family(
        Wordings(
            seen=(
                "{name} has {a} {thing} and gives away {b}. How many {thing} are left?",
                "Of {a} {thing} {name} loses {b}. How many {thing} remain?",
                "{name} had {a} {thing} and sold {b}. How many {thing} does {name} keep?",
            ),
            unseen=(
                "{name} takes {b} of the {a} {thing} away. How many {thing} stay?",
                "From {a} {thing} {name} drops {b}. What is the number of {thing} left?",
            ),
        ),
        ranges=((7, 12), (2, 6), (0, 0)),
        operations=("a-b",),
        confused=("a+b",),
    ),
    "bags": Family(
        Wordings(
            seen=(
                "{name} buys {a} bags with {b} {thing} each. How many {thing} is that?",
                "There are {b} {thing} in each of {a} bags of {name}. How many {thing} are there?",
                "{name} fills {a} bags with {b} {thing} each. How many {thing} does {name} need?",
            ),
            unseen=(
                "{name} carries {a} bags, and every bag holds {b} {thing}. How many {thing} are there?",
                "In {a} bags {name} has {b} {thing} each. What is the number of {thing}?",
            ),
        ),
        ranges=((2, 5), (2, 6), (0, 0)),
        operations=("a*b",),
        confused=("a+b",),
    ),
    "bags_and": Family(
        Wordings(
            seen=(
                "{name} buys {a} bags with {b} {thing} each and finds {c} more. How many {thing} is that?",
                "{name} has {a} bags of {b} {thing} and {c} loose ones. How many {thing} are there?",
                "There are {b} {thing} in each of {a} bags, and {name} adds {c}. How many {thing} are there now?",
            ),
            unseen=(
                "{name} carries {a} bags, every bag holds {b} {thing}, and gets {c} more. How many {thing} is that?",
                "To {a} bags of {b} {thing} each {name} puts {c}. What is the number of {thing}?",
            ),
        ),
        ranges=((2, 4), (2, 4), (2, 5)),
        operations=("a*b", "+c"),
        confused=("a+b", "+c"),
    ),
    "two_days": Family(
        Wordings(
            seen=(
                "{name} finds {a} {thing} on Monday and {b} on Tuesday, then loses {c}. How many {thing} remain?",
                "{name} got {a} {thing}, later {b}, and gave away {c}. How many {thing} are left?",
                "After {a} {thing} and {b} more {name} sold {c}. How many {thing} does {name} keep?",
            ),
            unseen=(
                "{name} gathers {a} and {b} {thing} and drops {c}. How many {thing} stay?",
                "Of {a} and another {b} {thing} {name} takes {c} away. What is the number of {thing} left?",
            ),
        ),
        ranges=((3, 6), (3, 6), (2, 5)),
        operations=("a+b", "-c"),
        confused=("a+b", "+c"),
    ),
    "twice": Family(
        Wordings(
            seen=(
                "{name} has {a} {thing}. A friend has {b} times as many. How many {thing} do both have?",
                "{name} owns {a} {thing} and a friend {b} times that. How many {thing} are there in all?",
                "A friend has {b} times the {a} {thing} of {name}. How many {thing} have they together?",
            ),
            unseen=(
                "{name} counts {a} {thing}, a friend {b} times as many. What is the number of {thing} of the two?",
                "{name} has {a} {thing}; {b} times as many are a friend's. How many {thing} is that together?",
            ),
        ),
        ranges=((2, 5), (2, 3), (0, 0)),
        operations=("a*b", "+a"),
        confused=("a*b",),
    ),
}
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


def draw_problem(rng: random.Random, wording: str, misconception: float = 0.0, slip: float = 0.0) -> Problem:
    """Draw a problem in `wording`, a name such as "less-0", with its working.

    misconception: probability that the family's operation is confused, where it has such a misconception. slip:
    probability that a step is one off. Without either the answer is right.
    """
    family_name, number = parse_wording_name(wording)
    family = FAMILIES[family_name]
    numbers = {letter: rng.randint(*bounds) for letter, bounds in zip("abc", family.ranges)}
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

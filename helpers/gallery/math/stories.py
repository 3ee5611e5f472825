"""Word problems of any number of steps: a quantity that changes from sentence to sentence."""

import random
from dataclasses import dataclass

from helpers.gallery.math.problems import FORMAT, NAMES, Problem
from helpers.tasks.wording import Wordings, parse_wording_name

LARGEST = 5000
MOST_ADDED = 90  # or taken away at a time
MOST_STEPS = 12


@dataclass(frozen=True)
class Story:
    """A quantity and what can happen to it.

    unit: what is counted. wordings: each an opening and a question, with the events between them as `{events}`;
    `{name}` is a person and `{start}` the first quantity. events: operation -> the sentences that state it, with `{n}`
    for the number.
    """

    unit: str
    wordings: Wordings
    events: dict[str, tuple[str, ...]]


STORIES = {
    "shelf": Story(
        "books",
        Wordings(
            seen=(
                "{name} has {start} books on a shelf. {events} How many books are on the shelf in the end?",
                "There are {start} books on {name}'s shelf. {events} How many books does the shelf hold now?",
                "A shelf of {name} holds {start} books. {events} How many books are there at last?",
            ),
            unseen=(
                "{name} counts {start} books on the shelf. {events} What does {name} count after that?",
                "The shelf of {name} begins with {start} books. {events} With how many does it end?",
                "{start} books stand on a shelf that {name} keeps. {events} What is the number of books now?",
                "{name} owns one shelf with {start} books. {events} How many books stand on it in the end?",
            ),
        ),
        {
            "+": ("{n} new books are put on it.", "A parcel brings {n} more books to it."),
            "-": ("{n} of the books are sold.", "Friends borrow {n} of the books."),
            "*": ("Then purchases make the number of books {n} times as large.",),
            "/": ("Then only one book in {n} is kept.",),
        },
    ),
    "bus": Story(
        "passengers",
        Wordings(
            seen=(
                "A bus leaves with {start} passengers. {events} How many passengers are on the bus?",
                "{start} passengers sit in {name}'s bus. {events} How many passengers are in it now?",
                "{name} drives a bus with {start} passengers. {events} How many passengers are left in it?",
            ),
            unseen=(
                "At the first stop a bus carries {start} passengers. {events} What is the number of passengers then?",
                "{name} counts {start} passengers in the bus. {events} How many does {name} count at the last stop?",
                "The bus of {name} starts with {start} passengers. {events} With how many does it arrive?",
                "There are {start} passengers on a bus. {events} How many ride on?",
            ),
        ),
        {
            "+": ("At a stop {n} people get on.", "{n} more passengers come aboard."),
            "-": ("At a stop {n} people get off.", "{n} of the passengers leave."),
            "*": ("Then a crowd makes the number of passengers {n} times as large.",),
            "/": ("Then all but one passenger in {n} get off.",),
        },
    ),
    "tank": Story(
        "litres",
        Wordings(
            seen=(
                "A tank holds {start} litres of water. {events} How many litres are in the tank?",
                "{name} fills {start} litres into a tank. {events} How many litres does it hold now?",
                "There are {start} litres in the tank of {name}. {events} How many litres are left?",
            ),
            unseen=(
                "In the morning a tank has {start} litres. {events} What does it have in the evening, in litres?",
                "The tank of {name} starts at {start} litres. {events} At how many litres does it end?",
                "{name} measures {start} litres in a tank. {events} What does {name} measure then?",
                "{start} litres of water are in a tank. {events} What is the amount now, in litres?",
            ),
        ),
        {
            "+": ("{n} litres are poured in.", "Rain adds {n} litres."),
            "-": ("{n} litres are drawn off.", "A leak takes {n} litres."),
            "*": ("Then it is filled to {n} times the amount.",),
            "/": ("Then it is drained until one litre in {n} is left.",),
        },
    ),
}
#: Stories that no split but "probe" has.
PROBE_STORIES = {
    "savings": Story(
        "dollars",
        Wordings(
            seen=("{name} has saved {start} dollars. {events} How many dollars does {name} have?",),
            unseen=("An account of {name} stands at {start} dollars. {events} At how many dollars does it stand now?",),
        ),
        {
            "+": ("{name} earns {n} dollars.", "A gift adds {n} dollars."),
            "-": ("{name} spends {n} dollars.", "A fee takes {n} dollars."),
            "*": ("Then luck turns it into {n} times as much.",),
            "/": ("Then {name} keeps one dollar in {n} and gives the others away.",),
        },
    ),
    "orchard": Story(
        "trees",
        Wordings(
            seen=("An orchard of {name} has {start} trees. {events} How many trees does the orchard have?",),
            unseen=("{name} looks after {start} trees. {events} How many trees does {name} look after now?",),
        ),
        {
            "+": ("{n} trees are planted.", "A neighbour gives {n} trees."),
            "-": ("{n} trees are felled.", "A storm destroys {n} trees."),
            "*": ("Then planting makes the number of trees {n} times as large.",),
            "/": ("Then frost spares one tree in {n}.",),
        },
    ),
}
_ALL = STORIES | PROBE_STORIES


def story_wordings(stories: dict[str, Story], depths: range) -> dict[str, Wordings]:
    """Return the name of each story at each number of steps, such as "bus_4" -> its wordings."""
    return {f"{name}_{depth}": story.wordings for name, story in stories.items() for depth in depths}


def is_story(wording: str) -> bool:
    """Tell whether the name of a wording, such as "bus_4-0", is one of a story."""
    family, _ = parse_wording_name(wording)
    story, _, depth = family.rpartition("_")
    return story in _ALL and depth.isdigit()


def draw_story(rng: random.Random, wording: str) -> Problem:
    """Draw a problem in `wording`, a name such as "bus_4-0": the bus in four steps."""
    family, number = parse_wording_name(wording)
    story_name, _, depth = family.rpartition("_")
    story = _ALL[story_name]
    name = rng.choice(NAMES)
    start = rng.randint(12, 60)
    value = start
    events = []
    steps = []
    last_sign = ""
    for _ in range(int(depth)):
        sign, operand = _draw_operation(rng, value, last_sign)
        result = _apply(sign, value, operand)
        sentence = rng.choice(story.events[sign])
        events.append(sentence.format(name=name, n=operand))
        steps.append(f"{value} {sign} {operand} = {result}.")
        value = result
        last_sign = sign
    template = story.wordings.all[number]
    question = template.format(name=name, start=start, events=" ".join(events))
    return Problem(f"{question} {FORMAT}", family, wording, tuple(steps), value, story.unit)


def _draw_operation(rng: random.Random, value: int, last_sign: str) -> tuple[str, int]:
    """Return a sign and an operand that keep the quantity a positive integer of at most `LARGEST`."""
    divisors = [divisor for divisor in range(2, 8) if value % divisor == 0 and value // divisor >= 2]
    signs = []
    if value + MOST_ADDED <= LARGEST:
        signs.append("+")
    if value > 10:
        signs.append("-")
    if 7 * value <= LARGEST and last_sign != "/":
        signs.append("*")
    if divisors and last_sign != "*":
        signs.append("/")
    sign = rng.choice(signs)
    if sign == "+":
        return sign, rng.randint(3, MOST_ADDED)
    if sign == "-":
        return sign, rng.randint(3, min(MOST_ADDED, value - 2))
    if sign == "*":
        return sign, rng.randint(2, 7)
    return sign, rng.choice(divisors)


def _apply(sign: str, value: int, operand: int) -> int:
    if sign == "+":
        return value + operand
    if sign == "-":
        return value - operand
    if sign == "*":
        return value * operand
    return value // operand

"""Knights and knaves with exactly one solution, which is found by trying every assignment."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from helpers.tasks.reasoning.puzzle import Drawn
from helpers.tasks.wording import Wordings

PEOPLE = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Iris", "Jon", "Kim", "Leo")
#: meaning -> how many persons a puzzle may have. Two are rarer, since a guess is right for a quarter of them.
SIZES = {"knights": (2, 3, 3, 3, 3, 3), "knights_more": (4, 5)}
KINDS = ("knave", "knight")  # by the truth of what they say
#: The example names nobody who occurs in a puzzle.
FORMAT = r"Name everyone once with their kind in \boxed{}, such as \boxed{Yan: knight, Zoe: knave}."
WORDINGS = Wordings(
    seen=(
        "Knights always tell the truth and knaves always lie. {says} Who is a knight, and who is a knave?",
        "Everyone here is a knight, who only tells the truth, or a knave, who only lies. {says} What is each of them?",
        "On an island live knights, who never lie, and knaves, who always do. {says} Find out what everyone is.",
        "You meet people who are knights or knaves: a knight's words are true, a knave's are false. {says} Which kind "
        "is each?",
    ),
    unseen=(
        "{says} Each of them is a knight and says only true things, or a knave and says only false things. Who is "
        "which?",
        "A knave's every sentence is false, and a knight's every sentence is true. {says} Tell what all of them are.",
        "In this town there are truthful knights and lying knaves, and nobody else. {says} Decide what everyone is.",
        "Some are knights (they speak the truth), others knaves (they lie). {says} Sort them.",
        "{says} If knights always tell the truth and knaves never do, what are they?",
    ),
)

Assignment = tuple[bool, ...]


@dataclass(frozen=True)
class Statement:
    """What somebody says. text: in quotation marks. is_true: f(who is a knight) -> whether it is true."""

    text: str
    is_true: Callable[[Assignment], bool]


def draw_knights(rng: random.Random, meaning: str) -> Drawn:
    """Draw people, and a statement of each, that leave one solution. All solutions are equally likely."""
    count = rng.choice(SIZES[meaning])
    names = rng.sample(PEOPLE, count)
    solution = tuple(rng.random() < 0.5 for _ in names)
    assignments = list(product((False, True), repeat=count))
    while True:
        statements = [_draw_statement(rng, meaning, names, speaker, solution) for speaker in range(count)]
        if [found for found in assignments if _is_possible(found, statements)] == [solution]:
            break
    says = " ".join(f'{name} says: "{statement.text}"' for name, statement in zip(names, statements, strict=True))
    kinds = {name: KINDS[is_knight] for name, is_knight in zip(names, solution, strict=True)}
    return Drawn(
        parts={"says": says},
        columns={"solution": json.dumps(kinds)},
        answer=", ".join(f"{name}: {kind}" for name, kind in kinds.items()),
        key=f"knights {says}",
    )


def _is_possible(assignment: Assignment, statements: list[Statement]) -> bool:
    """Tell whether knights say what is true, and knaves what is false."""
    spoken = zip(assignment, statements, strict=True)
    return all(is_knight == statement.is_true(assignment) for is_knight, statement in spoken)


def _draw_statement(
    rng: random.Random, meaning: str, names: list[str], speaker: int, solution: Assignment
) -> Statement:
    """Draw a statement that the speaker can make: true if the solution makes them a knight, else false."""
    draw = _draw_plain if meaning == "knights" else _draw_hard
    while True:
        statement = draw(rng, names, speaker)
        if statement.is_true(solution) == solution[speaker]:
            return statement


def _draw_plain(rng: random.Random, names: list[str], speaker: int) -> Statement:
    """Draw a statement of the kinds that are in every split but the probe."""
    others = [person for person in range(len(names)) if person != speaker]
    x = rng.choice(others)
    form = rng.choice(("is", "kinds", "some"))
    if form == "is":
        wanted = rng.random() < 0.5
        return Statement(f"{names[x]} is a {KINDS[wanted]}.", lambda who: who[x] == wanted)
    y = rng.choice([person for person in range(len(names)) if person != x])
    second = "I" if y == speaker else names[y]
    if form == "kinds":
        is_same = rng.random() < 0.5
        text = f"{names[x]} and {second} are of {'the same kind' if is_same else 'different kinds'}."
        return Statement(text, lambda who: (who[x] == who[y]) == is_same)
    wanted = rng.random() < 0.5
    text = f"Of {names[x]} and {'me' if y == speaker else names[y]}, at least one is a {KINDS[wanted]}."
    return Statement(text, lambda who: wanted in (who[x], who[y]))


def _draw_hard(rng: random.Random, names: list[str], speaker: int) -> Statement:
    """Draw a statement of the kinds that only the probe has."""
    form = rng.choice(("count", "if", "between"))
    wanted = rng.random() < 0.5
    if form == "count":
        count = rng.randint(1, len(names) - 1)
        plural = "" if count == 1 else "s"
        text = f"Among all of us there {'is' if count == 1 else 'are'} exactly {count} {KINDS[wanted]}{plural}."
        return Statement(text, lambda who: who.count(wanted) == count)
    x, y = rng.sample([person for person in range(len(names)) if person != speaker], 2)
    if form == "if":
        then = rng.random() < 0.5
        text = f"If {names[x]} is a {KINDS[wanted]}, then {names[y]} is a {KINDS[then]}."
        return Statement(text, lambda who: who[x] != wanted or who[y] == then)
    text = f"Either {names[x]} or {names[y]} is a {KINDS[wanted]}, but not both."
    return Statement(text, lambda who: (who[x] == wanted) != (who[y] == wanted))

"""Knights and knaves with exactly one solution, which is found by trying every assignment."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

from helpers.gallery.reasoning.kind import GeneratedPuzzle, PuzzleKind
from helpers.gallery.reasoning.puzzles.knights import KNAVE, KNIGHT, KnightsAndKnaves
from helpers.tasks.wording import Wordings

PEOPLE = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Iris", "Jon", "Kim", "Leo")
#: variant -> how many persons a puzzle may have. Two are rarer, since a guess is right for a quarter of them.
SIZES = {"knights": (2, 3, 3, 3, 3, 3), "knights_more": (4, 5)}
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

_WORD = re.compile(r"\b")
#: Whether each person, by their number, is a knight.
Assignment = tuple[bool, ...]


@dataclass(frozen=True)
class Statement:
    """A sentence that somebody says, and f(who is a knight) -> whether it is true."""

    text: str
    is_true: Callable[[Assignment], bool]


def generate_knights(rng: random.Random, variant: str) -> GeneratedPuzzle:
    """Draw people, and a statement of each, that leave one solution. All solutions are equally likely."""
    count = rng.choice(SIZES[variant])
    names = rng.sample(PEOPLE, count)
    solution = tuple(rng.random() < 0.5 for _ in names)
    statements = _draw_statements(rng, variant, names, solution)
    spoken = [f'{name} says: "{statement.text}"' for name, statement in zip(names, statements, strict=True)]
    says = " ".join(spoken)
    kinds = {name: _kind_name(is_knight) for name, is_knight in zip(names, solution, strict=True)}
    return GeneratedPuzzle(
        parts={"says": says},
        columns={"solution": json.dumps(kinds)},
        answer=", ".join(f"{name}: {kind}" for name, kind in kinds.items()),
        key=_key(names, spoken),
    )


def _key(names: list[str], spoken: list[str]) -> str:
    """Return a text that is the same whatever the persons are called, and in whatever order they speak."""
    together = "\n".join(spoken)
    renamed = []
    for order in permutations(range(len(names))):
        numbers = dict(zip(names, order, strict=True))
        words = [str(numbers.get(word, word)) for word in _WORD.split(together)]
        lines = "".join(words).split("\n")
        renamed.append(sorted(lines))
    return f"knights {min(renamed)}"


def _draw_statements(rng: random.Random, variant: str, names: list[str], solution: Assignment) -> list[Statement]:
    """Draw a statement of each person, again and again until together they have only this solution."""
    speakers = range(len(names))
    assignments = list(product((False, True), repeat=len(names)))
    while True:
        statements = [_draw_statement(rng, variant, names, speaker, solution) for speaker in speakers]
        solutions = [assignment for assignment in assignments if _is_possible(assignment, statements)]
        if solutions == [solution]:
            return statements


def _is_possible(assignment: Assignment, statements: list[Statement]) -> bool:
    """Tell whether knights say what is true, and knaves what is false."""
    spoken = zip(assignment, statements, strict=True)
    return all(is_knight == statement.is_true(assignment) for is_knight, statement in spoken)


def _draw_statement(
    rng: random.Random, variant: str, names: list[str], speaker: int, solution: Assignment
) -> Statement:
    """Draw a statement that the speaker can make: true if the solution makes them a knight, else false."""
    draw = _draw_plain if variant == "knights" else _draw_hard
    while True:
        statement = draw(rng, names, speaker)
        if statement.is_true(solution) == solution[speaker]:
            return statement


def _draw_plain(rng: random.Random, names: list[str], speaker: int) -> Statement:
    """Draw a statement of the forms that are in every split but the probe."""
    x = rng.choice(_all_but(speaker, names))
    form = rng.choice(("is", "kinds", "some"))
    if form == "is":
        return _say_kind(names[x], x, _draw_truth(rng))
    y = rng.choice(_all_but(x, names))
    is_speaker = y == speaker
    if form == "kinds":
        second = "I" if is_speaker else names[y]
        return _say_whether_same(f"{names[x]} and {second}", x, y, _draw_truth(rng))
    second = "me" if is_speaker else names[y]
    return _say_at_least_one(f"Of {names[x]} and {second}", x, y, _draw_truth(rng))


def _draw_hard(rng: random.Random, names: list[str], speaker: int) -> Statement:
    """Draw a statement of the forms that only the probe has."""
    form = rng.choice(("count", "if", "between"))
    wanted = _draw_truth(rng)
    if form == "count":
        count = rng.randint(1, len(names) - 1)
        return _say_count(count, wanted)
    x, y = rng.sample(_all_but(speaker, names), 2)
    if form == "if":
        return _say_if(names, x, y, wanted, _draw_truth(rng))
    return _say_either(names, x, y, wanted)


def _all_but(person: int, names: list[str]) -> list[int]:
    return [other for other in range(len(names)) if other != person]


def _say_kind(name: str, x: int, wanted: bool) -> Statement:
    text = f"{name} is a {_kind_name(wanted)}."
    return Statement(text, lambda who: who[x] == wanted)


def _say_whether_same(both: str, x: int, y: int, is_same: bool) -> Statement:
    relation = "the same kind" if is_same else "different kinds"
    text = f"{both} are of {relation}."
    return Statement(text, lambda who: (who[x] == who[y]) == is_same)


def _say_at_least_one(of_both: str, x: int, y: int, wanted: bool) -> Statement:
    text = f"{of_both}, at least one is a {_kind_name(wanted)}."
    return Statement(text, lambda who: wanted in (who[x], who[y]))


def _say_count(count: int, wanted: bool) -> Statement:
    kind = _kind_name(wanted)
    counted = f"is exactly 1 {kind}" if count == 1 else f"are exactly {count} {kind}s"
    text = f"Among all of us there {counted}."
    return Statement(text, lambda who: who.count(wanted) == count)


def _say_if(names: list[str], x: int, y: int, wanted: bool, then: bool) -> Statement:
    text = f"If {names[x]} is a {_kind_name(wanted)}, then {names[y]} is a {_kind_name(then)}."
    return Statement(text, lambda who: who[x] != wanted or who[y] == then)


def _say_either(names: list[str], x: int, y: int, wanted: bool) -> Statement:
    text = f"Either {names[x]} or {names[y]} is a {_kind_name(wanted)}, but not both."
    return Statement(text, lambda who: (who[x] == wanted) != (who[y] == wanted))


def _draw_truth(rng: random.Random) -> bool:
    return rng.random() < 0.5


def _kind_name(is_knight: bool) -> str:
    return KNIGHT if is_knight else KNAVE


KNIGHTS = PuzzleKind(
    variant="knights",
    probe_variant="knights_more",
    columns=("solution",),
    from_columns=KnightsAndKnaves.from_columns,
    generate=generate_knights,
    how_to_answer=FORMAT,
    wordings=WORDINGS,
)

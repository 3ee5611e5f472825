"""Sentences that state a contract, composed from frames and from ways to name the operands and the result.

About one in seven is for the final evaluation alone: no training sees it, that of the embedded model included. Its
frame and its names are in training, each with others.
"""

from collections.abc import Iterator
from functools import cache

from helpers.tasks.matmul.contracts import CONTRACTS, Contract
from helpers.tasks.split import split_of
from helpers.tasks.wording import Wordings

#: Ways to name the two operands. {A} and {B} are the names that the prompt gives to the arguments.
OPERANDS = (
    ("{A}", "{B}"),
    ("the first argument", "the second argument"),
    ("the left matrix", "the right matrix"),
    ("the first operand", "the second operand"),
    ("the matrix {A}", "the matrix {B}"),
)
RESULTS = ("the result", "the product", "the answer", "the return value", "the returned matrix")
#: For any contract. {a}, {b} and {r} are "row" or "column": of which the lists of each matrix consist.
ANY_CONTRACT = (
    "{first} is a list of {a}s, {second} a list of {b}s, and {result} a list of {r}s.",
    "{first} comes {a} by {a}, {second} {b} by {b}, and {result} goes {r} by {r}.",
    "{first} is given by its {a}s, {second} by its {b}s, {result} by its {r}s.",
    "take {first} as {a}s and {second} as {b}s, and return {result} as {r}s.",
    "{result} holds {r}s, {first} holds {a}s and {second} holds {b}s.",
    "each inner list of {first} is a {a}, of {second} a {b}, and of {result} a {r}.",
    "entry i of {first} is {a} i, entry i of {second} is {b} i, and entry i of {result} is {r} i.",
    "{first} is {a}-major, {second} is {b}-major and {result} is {r}-major.",
    "given {first} in {a}s and {second} in {b}s, give {result} in {r}s.",
    "expect {a}s in {first} and {b}s in {second}, and put {r}s into {result}.",
    "I pass {first} {a} by {a} and {second} {b} by {b}, and want {result} {r} by {r}.",
    "{result} is stored by {r}s; {first} is stored by {a}s, {second} by {b}s.",
)
#: Where one matrix, {odd}, differs from the others, {one} and {other}. {o} and {s} are "row" or "column".
ONE_DIFFERS = (
    "{odd} is a list of {o}s; {one} and {other} are lists of {s}s.",
    "{one} and {other} are lists of {s}s, but {odd} is a list of {o}s.",
    "only {odd} is stored by {o}s, all else by {s}s.",
    "everything is stored by {s}s, except {odd}, which is stored by {o}s.",
    "{odd} is {o}-major, {one} and {other} are {s}-major.",
    "{s}s everywhere, but {o}s in {odd}.",
    "{one} and {other} hold {s}s, and {odd} holds {o}s.",
    "all matrices are nested lists of {s}s, only {odd} is one of {o}s.",
    "note that {odd} goes {o} by {o}, while {one} and {other} go {s} by {s}.",
    "{odd} consists of {o}s, and the others of {s}s.",
    "the inner lists are {s}s, but those of {odd} are {o}s.",
    "{odd} is transposed: its lists are {o}s, where those of {one} and {other} are {s}s.",
)
ALL_ALIKE = (
    "{first}, {second} and {result} are lists of {a}s.",
    "{first} and {second} are lists of {a}s, and so is {result}.",
    "{first}, {second} and {result} are all stored by {a}s.",
    "{result} is a list of {a}s, like {first} and {second}.",
    "{first} and {second} come {a} by {a}, and {result} goes the same way.",
    "{a}s come first in {first}, in {second} and in {result}.",
    "everything is {a}-major: {first}, {second} and {result}.",
    "each of {first}, {second} and {result} is a nested list, {a} by {a}.",
    "nothing is transposed: {first}, {second} and {result} hold {a}s.",
    "the inner lists of {first}, {second} and {result} are {a}s.",
    "take {a}s in {first} and {second}, and return {a}s in {result}.",
    "{first} and {second} hold {a}s; return {a}s in {result} too.",
)


@cache
def statements(contract: str) -> Wordings:
    """Return the sentences that state a contract, with {A} and {B} for the names of the arguments."""
    seen, unseen = [], []
    for sentence in frames(contract):
        chosen = seen if split_of("wording", sentence) == "train" else unseen
        chosen.append(sentence)
    return Wordings(tuple(seen), tuple(unseen))


@cache
def frames(contract: str) -> dict[str, str]:
    """Return sentence -> the frame it was composed from, such as "{one} and {other} hold {s}s, and {odd} holds {o}s.".

    Sentences of one frame are alike but for the names of the matrices.
    """
    return dict(_compose(CONTRACTS[contract]))


def reading(contract: str) -> str:
    """Return what a reader notes of a contract before the program: "A: rows. B: columns. Result: rows."."""
    layout = CONTRACTS[contract]
    matrices = ("A", layout.a_columns), ("B", layout.b_columns), ("Result", layout.result_columns)
    return " ".join(f"{name}: {_word(by_columns)}s." for name, by_columns in matrices)


def _compose(contract: Contract) -> Iterator[tuple[str, str]]:
    """Yield each sentence with its frame."""
    words = [_word(contract.a_columns), _word(contract.b_columns), _word(contract.result_columns)]
    places = {word: [place for place in range(3) if words[place] == word] for word in words}
    all_alike = len(places) == 1
    for operands in OPERANDS:
        for result in RESULTS:
            matrices = (*operands, result)
            names = dict(zip(("first", "second", "result"), matrices)) | dict(zip("abr", words))
            if not all_alike:
                (odd,), (one, other) = sorted(places.values(), key=len)
                names |= {"odd": matrices[odd], "one": matrices[one], "other": matrices[other]}
                names |= {"o": words[odd], "s": words[one]}
            for frame in ANY_CONTRACT + (ALL_ALIKE if all_alike else ONE_DIFFERS):
                yield _as_sentence(_fill(frame, names)), frame


def _word(is_columns: bool) -> str:
    return "column" if is_columns else "row"


def _fill(frame: str, names: dict[str, str]) -> str:
    for name, text in names.items():
        frame = frame.replace(f"{{{name}}}", text)
    return frame


def _as_sentence(text: str) -> str:
    return text[0].upper() + text[1:]

"""Order steps under rules. Any order that satisfies them is right."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from helpers.rewards.puzzles.puzzle import BLANKS, Puzzle, pay, plain_words, puzzles_of, read_json
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError

#: What separates the steps of an answer.
_SEPARATOR = re.compile(
    r"[,;\n](?:[ \t\n]*and[ \t]+)?|[-=]{0,2}>|[\u2192\u21d2\u27f6]|\\(?:to|(?:long)?[rR]ightarrow)(?![A-Za-z])"
)

#: A step, by its letter in an answer, or by its number.
Step = str | int
#: (step, relation) or (step, relation, other step).
Rule = tuple[Step, str] | tuple[Step, str, Step]
#: relation -> f(place of the first step, place of the second, number of steps) -> whether it holds.
PAIR_RELATIONS: dict[str, Callable[[int, int, int], bool]] = {
    "before": lambda first, second, _: first < second,
    "directly before": lambda first, second, _: first + 1 == second,
    "not next to": lambda first, second, _: abs(first - second) != 1,
}
#: relation -> f(place of the step, number of steps) -> whether it holds.
SINGLE_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "not first": lambda place, _: place != 0,
    "not last": lambda place, count: place != count - 1,
}


@dataclass(frozen=True)
class StepOrder(Puzzle):
    """Put all the steps in an order that satisfies all rules. steps: letter -> what is to be done."""

    steps: dict[str, str]
    rules: tuple[Rule, ...]
    most_characters = 1000

    @classmethod
    def from_columns(cls, steps: str, rules: str) -> "StepOrder":
        """Build the puzzle of a row. Raises UserError for invalid columns."""
        named = read_json("step_order", "steps", steps, dict)
        for letter, name in named.items():
            if not isinstance(name, str):
                raise UserError(f"step_order: the column 'steps' must give a text for each letter; got {name!r:.80}.")
            if letter.strip(BLANKS) != letter or not letter or _SEPARATOR.search(letter):
                raise UserError(f"step_order: no answer can name the step {letter!r:.40}: use a letter or a word.")
        spelling_count = sum(len(_spellings(step)) for step in named.items())
        if spelling_count > len(_by_spelling(named)):
            raise UserError("step_order: the column 'steps' gives two steps one name: make the names different.")
        listed = read_json("step_order", "rules", rules, list)
        return cls(named, tuple(_rule(entry, named) for entry in listed))

    def read(self, content: str) -> tuple[str, ...] | None:
        by_spelling = _by_spelling(self.steps)
        order = []
        parts = [part.strip(BLANKS) for part in _SEPARATOR.split(_without_brackets(plain_words(content)))]
        for part in filter(None, parts):
            letter = by_spelling.get(part)
            if letter is None:
                return None
            order.append(letter)
        return tuple(order) or None

    def fault(self, answer: tuple[str, ...]) -> str:
        if sorted(answer) != sorted(self.steps):
            return "does not name every step once"
        places = {letter: place for place, letter in enumerate(answer)}
        for rule in self.rules:
            if not holds(rule, places):
                return "breaks a rule"
        return ""

    def describe(self, answer: tuple[str, ...]) -> str:
        return ", ".join(answer)


@register_reward(value_range=(0, 1), needs=("steps", "rules"), pays_correctness=True)
def step_order(
    prompts: Sequence,
    completions: Sequence,
    steps: Sequence[str | None],
    rules: Sequence[str | None],
    finish_reasons: Sequence[str] | None = None,
    **_,
) -> list[float | None]:
    r"""Pay 1 for a box that names every step once, in an order that satisfies the rules, else 0.

    The last complete box lists letters or names, separated by commas, semicolons, line ends or arrows. steps: JSON
    text of an object, letter -> name. rules: JSON text of a list with entries such as ["A", "before", "B"] and
    ["C", "not first"]; the relations are those of `PAIR_RELATIONS` and `SINGLE_RELATIONS`. A row where both are
    None is another task's and gets None. Raises UserError for other columns.
    """
    return pay(puzzles_of(StepOrder.from_columns, steps, rules), completions, finish_reasons)


def holds(rule: Rule, places: Mapping[Step, int] | Sequence[int]) -> bool:
    """Tell whether an order satisfies a rule. places: step -> its place, from 0; a sequence where steps are numbers."""
    count = len(places)
    if len(rule) == 2:
        step, relation = rule
        return SINGLE_RELATIONS[relation](places[step], count)
    first, relation, second = rule
    return PAIR_RELATIONS[relation](places[first], places[second], count)


def _spellings(step: tuple[str, str]) -> set[str]:
    """Return what an answer may write for a step: its letter or its name, in small letters or with a capital."""
    letter, name = step
    spellings = {f"{letter}: {name}", f"{letter} ({name})"}
    for word in step:
        spellings |= {word, word.lower(), word[:1].upper() + word[1:], word.capitalize()}
    return spellings


def _without_brackets(text: str) -> str:
    """Return a list without the brackets around it."""
    is_bracketed = text[:1] + text[-1:] in ("()", "[]")
    return text[1:-1] if is_bracketed else text


def _by_spelling(steps: dict[str, str]) -> dict[str, str]:
    """Return spelling -> letter of the step."""
    return {spelling: step[0] for step in steps.items() for spelling in _spellings(step)}


def _rule(entry: object, steps: dict[str, str]) -> Rule:
    """Check one entry of the column. Raises UserError for an invalid one."""
    is_texts = isinstance(entry, list) and all(isinstance(part, str) for part in entry)
    if is_texts and len(entry) == 3:
        step, relation, other = entry
        is_known = relation in PAIR_RELATIONS and step in steps and other in steps and step != other
    elif is_texts and len(entry) == 2:
        step, relation = entry
        is_known = relation in SINGLE_RELATIONS and step in steps
    else:
        is_known = False
    if not is_known:
        relations = ", ".join([*PAIR_RELATIONS, *SINGLE_RELATIONS])
        raise UserError(
            'step_order: a rule is a list such as ["A", "before", "B"] or ["A", "not first"], of letters in '
            f"'steps' and one of the relations {relations}; got {entry!r:.80}."
        )
    return tuple(entry)

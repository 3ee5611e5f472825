"""Order steps under rules. Any order that satisfies them is right."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from helpers.gallery.reasoning.puzzles.puzzle import Puzzle, pay, read_json, unmarked
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError

#: What stands between two steps.
_SEPARATOR = re.compile(r"\s*(?P<mark>[,;>|/.&]|-+>|=+>|\u2192|-|)\s*")
#: Those that may stand between a letter and its step's name, too.
_BEFORE_NAMES = {"", ".", "-", "|", "/"}
#: What may stand before the first step.
_TITLE = re.compile(r"(?ai:(?:the )?(?:final |correct |right )?order(?: is)?:? +)")
#: What may stand before a step: a bullet, its place, and words of an order.
_BEFORE = re.compile(
    r"(?:[-\u2022] )?(?:\(?(?P<place>[0-9]{1,3})[.):] ?)?(?:(?ai:first|next|then|and|finally|lastly|step):?,? +)*"
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
            step = cls({letter: unmarked(name)}, ())
            if not letter or any(step.read(spelling) != (letter,) for spelling in (letter, name)):
                raise UserError(f"step_order: no answer can name the step {letter!r:.40}: use other words for it.")
        spellings = [spelling.lower() for step in named.items() for spelling in {*step}]
        if len(set(spellings)) < len(spellings):
            raise UserError("step_order: the column 'steps' gives two steps one name: make the names different.")
        named = {letter: unmarked(name) for letter, name in named.items()}
        listed = read_json("step_order", "rules", rules, list)
        return cls(named, tuple(_rule(entry, named) for entry in listed))

    def read(self, content: str) -> tuple[str, ...] | None:
        """Return the steps that a text lists, in its order; None if it says anything else, or nothing.

        Steps that are numbered stand in the order of their numbers. Letters and names are mixed only where commas or
        arrows stand between them, so that no letter is taken with another step's name; and `/` is not mixed with other
        separators, since it may mean a choice.
        """
        text = unmarked(content)
        if self._is_run_of_letters(text):
            return tuple(text)
        title = _TITLE.match(text)
        if title:
            text = text[title.end() :]
        order = []
        forms = set()
        marks = set()
        place = 0
        while place < len(text):
            before = _BEFORE.match(text, place)
            step = self._step.match(text, before.end())
            is_in_place = before["place"] in (None, str(len(order) + 1))
            if step is None or not is_in_place:
                return None
            letter = self._by_spelling[step[step.lastgroup].lower()]
            order.append(letter)
            forms.add("name" if step.lastgroup == "name" else "letter")
            own_name = self._own_names[letter].match(text, step.end())
            separator = _SEPARATOR.match(text, own_name.end())
            place = separator.end()
            if place < len(text):
                marks.add(separator["mark"])
        is_choice = "/" in marks and len(marks) > 1
        is_mixed = len(forms) > 1 and marks & _BEFORE_NAMES
        return None if is_choice or is_mixed else tuple(order) or None

    def _is_run_of_letters(self, text: str) -> bool:
        return text.isascii() and text.isupper() and all(letter in self.steps for letter in text)

    @cached_property
    def _by_spelling(self) -> dict[str, str]:
        """A step's letter or name in small letters -> its letter."""
        return {spelling.lower(): step[0] for step in self.steps.items() for spelling in step}

    @cached_property
    def _step(self) -> re.Pattern:
        """Such as "B", "(B)" or "fix the lamp"."""
        letters = _alternatives(self.steps)
        names = _alternatives(self.steps.values())
        return re.compile(
            rf"(?<!\w)(?ai:\((?P<bracketed>{letters})\)|(?P<letter>{letters})(?!\w)|(?P<name>{names})(?!\w))"
        )

    @cached_property
    def _own_names(self) -> dict[str, re.Pattern]:
        """A letter -> its step's name behind it, such as ": fix the lamp" or " (fix the lamp)", or nothing."""
        patterns = {}
        for letter, name in self.steps.items():
            escaped = re.escape(name)
            patterns[letter] = re.compile(rf"(?ai: ?[-:.)] ?{escaped}(?!\w)| ?\({escaped}\)| ?\[{escaped}\]|)")
        return patterns

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

    The last complete box lists letters, with their names or without, or names alone, in any usual form. steps: JSON
    text of an object, letter -> name. rules: JSON text of a list with entries such as ["A", "before", "B"] and
    ["C", "not first"]; the relations are those of `PAIR_RELATIONS` and `SINGLE_RELATIONS`. A row where both are
    None is another task's and gets None. Raises UserError for other columns.
    """
    return pay("step_order", StepOrder.from_columns, completions, finish_reasons, steps=steps, rules=rules)


def holds(rule: Rule, places: Mapping[Step, int] | Sequence[int]) -> bool:
    """Tell whether an order satisfies a rule. places: step -> its place, from 0; a sequence where steps are numbers."""
    count = len(places)
    if len(rule) == 2:
        step, relation = rule
        return SINGLE_RELATIONS[relation](places[step], count)
    first, relation, second = rule
    return PAIR_RELATIONS[relation](places[first], places[second], count)


def _alternatives(texts: Iterable[str]) -> str:
    """Return a pattern for any of these texts, the longest first."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


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

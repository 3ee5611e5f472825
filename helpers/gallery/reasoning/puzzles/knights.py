"""Knights and knaves: say of each person whether they always tell the truth or always lie."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from helpers.gallery.reasoning.puzzles.puzzle import Puzzle, pay, read_json, unmarked
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError

KNIGHT = "knight"
KNAVE = "knave"
#: What stands between persons of one kind, and what before the next statement.
_AND = r"(?: ?, ?(?:and )?| ?& ?| and )"
_BETWEEN = re.compile(r"[\s,;.|&]*(?:(?:and|while|but) )?(?:\(?[0-9]+[.)] ?|[-\u2022] )?")
#: What joins persons with their kind.
_LINK = r"(?: ?&? ?:?= ?| ?&? ?: ?| ?[-=]*> ?| ?\u2192 ?| ?- ?| is | are (?:both |all )?| )"
#: Only the case of ASCII letters is ignored: a Kelvin sign is no k.
_KIND = r"(?:an? |the )?(?P<kind>(?ai:knight|knave))(?ai:s?)(?!\w)"
_TITLE = r"(?ai:the )?(?ai:only )?(?P<title>(?ai:knight|knave))(?ai:s?) ?(?:[:=-]|are|is) ?"
_NOBODY = r"(?ai:none|nobody|no one)(?!\w)"

#: (person, "knight" or "knave") in the order of an answer.
KindsNamed = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KnightsAndKnaves(Puzzle):
    """Say of every person once what they are. solution: person -> "knight" or "knave"."""

    solution: dict[str, str]
    most_characters = 1000

    @classmethod
    def from_columns(cls, solution: str) -> "KnightsAndKnaves":
        """Build the puzzle of a row. Raises UserError for an invalid column."""
        kinds = read_json("knights_and_knaves", "solution", solution, dict)
        kinds = {unmarked(person): kind for person, kind in kinds.items()}
        for person, kind in kinds.items():
            if kind not in (KNIGHT, KNAVE):
                raise UserError(
                    'knights_and_knaves: the column \'solution\' must say "knight" or "knave" of each person; got '
                    f"{kind!r:.40} of {person!r:.40}."
                )
            can_be_named = cls({person: kind}).read(f"{person}: {kind}") == ((person, kind),)
            if not person or not can_be_named:
                raise UserError(
                    f"knights_and_knaves: no answer can name the person {person!r:.40}: leave blanks at the ends, "
                    "line ends and punctuation out of names."
                )
        return cls(kinds)

    def read(self, content: str) -> KindsNamed | None:
        """Return what a text says of each person, in its order; None if it says anything else, or nothing."""
        text = unmarked(content)
        said = []
        absent = set()  # kinds of which the text says that nobody is one
        place = _BETWEEN.match(text).end()
        while place < len(text):
            statement = self._statement.match(text, place)
            if statement is None:
                return None
            kind = (statement["kind"] or statement["inside"] or statement["title"]).lower()
            named = statement["persons"] or statement["group"] or ""
            if not named:
                absent.add(kind)
            said += [(self._by_spelling[found[0].lower()], kind) for found in self._person.finditer(named)]
            place = _BETWEEN.match(text, statement.end()).end()
        contradicts_itself = any(kind in absent for _, kind in said)
        return None if contradicts_itself else tuple(said) or None

    @cached_property
    def _by_spelling(self) -> dict[str, str]:
        """A person's name in small letters -> the name."""
        return {person.lower(): person for person in self.solution}

    @cached_property
    def _person(self) -> re.Pattern:
        longest_first = sorted(self.solution, key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?ai:{'|'.join(map(re.escape, longest_first))})(?!\w)")

    @cached_property
    def _statement(self) -> re.Pattern:
        """Such as "Ann: knight", "Ann is a knight", "Ann (knave)", "Ann and Ben are knights", "Knaves: Ann, Ben"."""
        person = self._person.pattern
        persons = rf"{person}(?:{_AND}{person})*"
        return re.compile(
            rf"(?:(?:[Bb]oth )?(?P<persons>{persons})(?:{_LINK}{_KIND}| ?[(\[]{_KIND.replace('kind', 'inside')}[)\]])"
            rf"|{_TITLE}(?:[{{(\[] ?)?(?:(?P<group>{persons})|{_NOBODY})(?: ?[}})\]])?)"
        )

    def fault(self, answer: KindsNamed) -> str:
        said = sorted((person.lower(), kind) for person, kind in answer)
        right = sorted((person.lower(), kind) for person, kind in self.solution.items())
        if [person for person, _ in said] != [person for person, _ in right]:
            return "does not name every person once"
        return "" if said == right else "takes a knight for a knave or a knave for a knight"

    def describe(self, answer: KindsNamed) -> str:
        return ", ".join(f"{person}: {kind}" for person, kind in sorted(answer))


@register_reward(value_range=(0, 1), needs=("solution",), pays_correctness=True)
def knights_and_knaves(
    prompts: Sequence,
    completions: Sequence,
    solution: Sequence[str | None],
    finish_reasons: Sequence[str] | None = None,
    **_,
) -> list[float | None]:
    r"""Pay 1 for a box that says of every person once, and rightly, whether they are a knight or a knave, else 0.

    The last complete box reads like `Ann: knight, Ben is a knave` or `Knights: Ann; Knaves: Ben`, in any order.
    solution: JSON text such as '{"Ann": "knight", "Ben": "knave"}'. A row where it is None is another task's and gets
    None. Raises UserError for other columns.
    """
    make = KnightsAndKnaves.from_columns
    return pay("knights_and_knaves", make, completions, finish_reasons, solution=solution)

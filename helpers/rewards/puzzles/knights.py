"""Knights and knaves: say of each person whether they always tell the truth or always lie."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.rewards.puzzles.puzzle import BLANKS, Puzzle, pay, plain_words, puzzles_of, read_json
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError

KNIGHT = "knight"
KNAVE = "knave"
#: What separates the persons of an answer.
_SEPARATOR = re.compile(r"[,;\n](?:[ \t\n]*and[ \t]+)?|[ \t]and[ \t]")
#: What is said of one person, such as "Ann: knight", "Ann = knight", "Ann - knight" or "Ann is a knight". A name holds
#: none of these signs. Only the case of ASCII letters is ignored: a Kelvin sign is no k.
_STATEMENT = re.compile(
    r"([^:=]+?)(?:[ \t]*[:=][ \t]*(?:a[ \t]+)?|[ \t]+[-\u2013\u2014][ \t]+|[ \t]+is[ \t]+(?:a[ \t]+)?)(knight|knave)",
    re.IGNORECASE | re.ASCII,
)

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
        for person, kind in kinds.items():
            if kind not in (KNIGHT, KNAVE):
                raise UserError(
                    'knights_and_knaves: the column \'solution\' must say "knight" or "knave" of each person; got '
                    f"{kind!r:.40} of {person!r:.40}."
                )
            can_be_named = read_kinds(f"{person}: {kind}") == ((person, kind),)
            if not can_be_named:
                raise UserError(
                    f"knights_and_knaves: no answer can name the person {person!r:.40}: leave blanks at the ends, "
                    "line ends and , ; : out of names."
                )
        return cls(kinds)

    def read(self, content: str) -> KindsNamed | None:
        return read_kinds(content)

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

    The last complete box reads like `Ann: knight, Ben is a knave`, in any order, separated by commas, semicolons, line
    ends or "and". solution: JSON text such as '{"Ann": "knight", "Ben": "knave"}'. A row where it is None is another
    task's and gets None. Raises UserError for other columns.
    """
    return pay(puzzles_of(KnightsAndKnaves.from_columns, solution), completions, finish_reasons)


def read_kinds(content: str) -> KindsNamed | None:
    """Return what a text says of each person, in its order; None if it says anything else, or nothing."""
    said = []
    parts = [part.strip(BLANKS) for part in _SEPARATOR.split(plain_words(content))]
    for part in filter(None, parts):
        statement = _STATEMENT.fullmatch(part)
        if statement is None:
            return None
        person, kind = statement.groups()
        said.append((person, kind.lower()))
    return tuple(said) or None

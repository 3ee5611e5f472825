"""Verifiable instructions: demands on a text that code can check, and the reward that pays for them.

What words, lines, sentences and paragraphs are is what a reader sees (`reading.py`); README.md states the rules.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from helpers.gallery.general.kinds import CONSTRAINT_KINDS, FIELDS, VALUES, ConstraintKind
from helpers.gallery.general.reading import AnswerText, has_letter
from helpers.rewards.arguments import rows_of, shown, text_of
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError, did_you_mean, first_line

#: What an answer that breaks one of very many demands earns. It is little, and falls with the square of the share that
#: is satisfied, since words without meaning satisfy half of the demands: nouns drawn at random behind the words that a
#: prompt asks for earn less than 0.05 on average.
PARTIAL = 0.1
_EXAMPLE = '[{"kind": "words_exactly", "count": 20}]'


@dataclass(frozen=True)
class Constraint:
    """A kind of constraint with its values."""

    kind: ConstraintKind
    values: Mapping[str, object]

    def is_satisfied_by(self, answer: AnswerText) -> bool:
        return self.kind.check(answer, **self.values)

    def describe(self, sentence: str) -> str:
        """Return a sentence that states this in a prompt, with the values in place of their names."""
        shown = {name: _shown(value) for name, value in self.values.items()}
        return sentence.format(**shown)


def _shown(value: object) -> object:
    """Return a value of a constraint as a prompt shows it."""
    if isinstance(value, list):
        quoted_words = [f'"{word}"' for word in value]
        return _joined(quoted_words)
    if isinstance(value, dict):
        keys = [f'"{key}" ({FIELDS[kind][0]})' for key, kind in value.items()]
        return _joined(keys)
    return value


def _joined(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def read_constraints(column: str) -> tuple[Constraint, ...]:
    """Return the constraints that a row's column `constraints` states.

    column: JSON text, a list of objects, each with a `kind` and that kind's values, such as
    [{"kind": "words_exactly", "count": 20}]. Raises UserError for anything else.
    """
    if not isinstance(column, str):
        raise UserError(f"The column 'constraints' holds {shown(column)}: write JSON text such as {_EXAMPLE}.")
    return _read_column(column)


@lru_cache(maxsize=4096)  # a group's completions share a row, and every step's monitor reads the same rows
def _read_column(column: str) -> tuple[Constraint, ...]:
    try:
        items = json.loads(column)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"The column 'constraints' holds {column!r:.80}, which is not JSON text ({first_line(error)}): write a "
            f"list such as {_EXAMPLE}."
        ) from error
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise UserError(f"The column 'constraints' holds {column!r:.80}: write a list of objects such as {_EXAMPLE}.")
    return tuple(map(_read_constraint, items))


def _read_constraint(item: dict) -> Constraint:
    name = item.get("kind")
    if not isinstance(name, str) or name not in CONSTRAINT_KINDS:
        hint = did_you_mean(name, CONSTRAINT_KINDS) if isinstance(name, str) else ""
        raise UserError(f"There is no kind of constraint {name!r:.60}{hint}: choose {', '.join(CONSTRAINT_KINDS)}.")
    kind = CONSTRAINT_KINDS[name]
    values = {key: value for key, value in item.items() if key != "kind"}
    if values.keys() != kind.values.keys():
        needed = ", ".join(kind.values) or "none"
        given = ", ".join(values) or "none"
        raise UserError(f"The constraint '{name}' needs these values: {needed}; it has: {given:.80}.")
    for key, value in values.items():
        is_valid, description = VALUES[kind.values[key]]
        if not is_valid(value):
            raise UserError(f"The constraint '{name}' has {key} = {value!r:.60}: write {description}.")
    return Constraint(kind, values)


@dataclass(frozen=True)
class Judgement:
    """The pay of an answer, and the names of the constraints that it breaks.

    value: 1 where it breaks none. broken: only the first guard, where it breaks one. reason: why the value is less;
    empty for 1.
    """

    value: float
    broken: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_correct(self) -> bool:
        return self.value == 1.0


def judge_constraints(completion: str | list[dict], column: str, finish_reason: str = "stop") -> Judgement:
    """Judge the final channel of a completion by the constraints in a row's column.

    An answer that satisfies all of them earns 1. Another one earns a tenth of the square of the share that it satisfies
    of those that are not guards. It earns nothing if it breaks a guard, was cut off, or has no word.

    Raises UserError for a malformed column.
    """
    constraints = read_constraints(column)
    if finish_reason != "stop":
        return Judgement(0.0, reason="was cut off")
    answer = AnswerText(text_of(completion))
    guards = [constraint for constraint in constraints if constraint.kind.is_guard]
    for guard in guards:  # the first one that is broken decides, so that a long answer costs little
        if not guard.is_satisfied_by(answer):
            broken = (guard.kind.name,)
            return Judgement(0.0, broken, _reason(broken))
    if not has_letter(answer.seen):
        return Judgement(0.0, reason="has no word")
    others = [constraint for constraint in constraints if not constraint.kind.is_guard]
    broken = tuple(constraint.kind.name for constraint in others if not constraint.is_satisfied_by(answer))
    if broken:
        share = 1 - len(broken) / len(others)
        return Judgement(PARTIAL * share**2, broken, _reason(broken))
    return Judgement(1.0)


def _reason(broken: Sequence[str]) -> str:
    return f"breaks {', '.join(broken)}"


@register_reward(value_range=(0.0, 1.0), needs=("constraints",), pays_correctness=True)
def instruction_constraints(
    prompts: Sequence,
    completions: Sequence,
    constraints: Sequence[str],
    finish_reasons: Sequence[str] | None = None,
    **_,
) -> list[float]:
    """Pay 1 for an answer that satisfies every constraint of its row, and at most a tenth of that for any other.

    constraints: for each completion, JSON text as `read_constraints` reads it. See `judge_constraints`.
    """
    rows = rows_of("instruction_constraints", completions, finish_reasons, constraints=constraints)
    values = []
    for text, finish_reason, column in rows:
        judgement = judge_constraints(text, column, finish_reason)
        values.append(judgement.value)
    return values

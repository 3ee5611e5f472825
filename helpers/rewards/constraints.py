"""Verifiable instructions: demands on a text that code can check, and the reward that pays for them.

What words, lines, sentences and paragraphs are is what a reader sees (`reading.py`); README.md states the rules.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from helpers.rewards.arguments import rows_of, shown, text_of
from helpers.rewards.reading import (
    AnswerText,
    first_letter,
    has_content,
    has_digit_in_word,
    has_letter,
    plain_characters,
    read_json,
    unfenced,
    words_of,
)
from helpers.rewards.registry import register_reward
from helpers.runtime import UserError, did_you_mean, first_line

_CONSONANTS = re.compile(r"[b-df-hj-np-tv-xz0-9'.,:/-]+")
_ASCII = re.compile(r"[\t\n\x20-\x7e]*+")
MOST_COUNT = 100_000
#: A hyphen, or a dash in its place.
_BULLETS = ("- ", "\u2013 ", "\u2014 ")
#: What an answer that breaks one of very many demands earns. It is little, and falls with the square of the share that
#: is satisfied, since words without meaning satisfy half of the demands: nouns drawn at random behind the words that a
#: prompt asks for earn less than 0.05 on average.
PARTIAL = 0.1
_EXAMPLE = '[{"kind": "words_exactly", "count": 20}]'


def _is_count(value):
    return type(value) is int and 1 <= value <= MOST_COUNT


def _is_word(value):
    return isinstance(value, str) and words_of(plain_characters(value)) == [plain_characters(value)]


def _are_words(value):
    return isinstance(value, list) and len(value) > 0 and all(map(_is_word, value))


def _is_phrase(value):
    return isinstance(value, str) and len(_compared_words(value)) > 0


def _compared(word: str) -> str:
    """Return a word or a letter of a constraint in the form in which those of an answer are compared."""
    return plain_characters(word).casefold()


def _compared_words(text: str) -> list[str]:
    """Return the words of a value as `AnswerText.words` has those of an answer."""
    return [word.casefold() for word in words_of(plain_characters(text))]


def _is_letter(value):
    return isinstance(value, str) and len(value) == len(value.casefold()) == 1 and value.isalpha()


def _are_fields(value):
    is_object = isinstance(value, dict) and len(value) > 0
    return is_object and all(isinstance(kind, str) and kind in FIELDS for kind in value.values())


def _is_list_of_texts(value):
    return type(value) is list and len(value) > 0 and all(map(_is_text, value))


def _is_text(value):
    """A text that says something."""
    return type(value) is str and any(map(str.isalnum, value))


#: kind of a value in a JSON object -> how a prompt says it, and the test of a value that was read.
FIELDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "text": ("a text", _is_text),
    "integer": ("an integer", lambda value: type(value) is int),
    "number": ("a number", lambda value: type(value) in (int, float)),
    "boolean": ("true or false", lambda value: type(value) is bool),
    "texts": ("a list of texts", _is_list_of_texts),
}
#: Type of a value of a constraint -> its test, and how a message says it.
_VALUES = {
    "count": (_is_count, f"a whole number from 1 to {MOST_COUNT}"),
    "word": (_is_word, "one word"),
    "words": (_are_words, "a list of words"),
    "phrase": (_is_phrase, "a text with a word"),
    "letter": (_is_letter, "one letter"),
    "fields": (_are_fields, f"an object of key: kind, where the kinds are {', '.join(FIELDS)}"),
}


@dataclass(frozen=True)
class ConstraintKind:
    """A kind of constraint.

    sentence: states it in a prompt, with the values in braces. check: f(answer, **values) -> whether it is satisfied.
    values: name -> type, a key of `_VALUES`. is_guard: an answer that breaks it earns nothing, since such an
    answer can satisfy others by their letter alone.
    """

    name: str
    sentence: str
    check: Callable[..., bool]
    values: Mapping[str, str]
    is_guard: bool


#: name -> kind
CONSTRAINT_KINDS: dict[str, ConstraintKind] = {}


def _constraint_kind(sentence: str, is_guard: bool = False, **values: str) -> Callable:
    def add(check):
        CONSTRAINT_KINDS[check.__name__] = ConstraintKind(check.__name__, sentence, check, values, is_guard)
        return check

    return add


@_constraint_kind("Use at least {count} different words.", is_guard=True, count="count")
def different_words(answer: AnswerText, count: int) -> bool:
    """Tell whether at least `count` words differ by more than case. Numerals, and runs of consonants, are none here."""
    return len({word for word in answer.words if not _CONSONANTS.fullmatch(word)}) >= count


@_constraint_kind("Use at most {count} characters.", is_guard=True, count="count")
def characters_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether there are at most `count` characters of any kind, white space within the answer included."""
    return len(answer.written) <= count


@_constraint_kind("Use plain ASCII characters only.", is_guard=True)
def plain_text(answer: AnswerText) -> bool:
    """Tell whether all characters are printable ASCII, tabs or line ends: none is invisible or looks like another."""
    return _ASCII.fullmatch(answer.written) is not None


@_constraint_kind("Use exactly {count} words.", count="count")
def words_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of words is `count`."""
    return answer.word_count == count


@_constraint_kind("Use at least {count} words.", count="count")
def words_at_least(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of words is `count` or more."""
    return answer.word_count is not None and answer.word_count >= count


@_constraint_kind("Use at most {count} words.", count="count")
def words_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of words is `count` or less."""
    return answer.word_count is not None and answer.word_count <= count


@_constraint_kind("Write exactly {count} lines.", count="count")
def lines_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of lines that count is `count`."""
    return len(answer.lines) == count


@_constraint_kind('Write exactly {count} bullet points, lines that begin with "- ".', count="count")
def bullets_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of bullets is `count`. Other lines may stand between them."""
    bullets = [line for line in answer.lines if line.startswith(_BULLETS)]
    return len(bullets) == count


@_constraint_kind('Write nothing but a numbered list of {count} lines: "1. ", "2. " and so on.', count="count")
def numbered_list(answer: AnswerText, count: int) -> bool:
    """Tell whether there are `count` lines, of which line n begins with n, a full stop and a space, and says more."""
    if len(answer.lines) != count:
        return False
    for number, line in enumerate(answer.lines, 1):
        start = f"{number}. "
        if not line.startswith(start) or not has_content(line.removeprefix(start)):
            return False
    return True


@_constraint_kind("Write exactly {count} sentences.", count="count")
def sentences_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of sentences is `count`."""
    return answer.sentence_count == count


@_constraint_kind("Write exactly {count} paragraphs, with an empty line between them.", count="count")
def paragraphs_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of paragraphs is `count`."""
    return answer.paragraph_count == count


@_constraint_kind("Use the words {words}.", words="words")
def contains_words(answer: AnswerText, words: list[str]) -> bool:
    """Tell whether every one of `words` is a word of the answer."""
    return set(map(_compared, words)) <= set(answer.words)


@_constraint_kind('Use the word "{word}" at least {count} times.', word="word", count="count")
def word_at_least(answer: AnswerText, word: str, count: int) -> bool:
    """Tell whether `count` or more of the answer's words are `word`."""
    return answer.words.count(_compared(word)) >= count


@_constraint_kind('Use the word "{word}" exactly {count} times.', word="word", count="count")
def word_exactly(answer: AnswerText, word: str, count: int) -> bool:
    """Tell whether `count` of the answer's words are `word`."""
    return answer.words.count(_compared(word)) == count


@_constraint_kind('Do not use the word "{word}".', word="word")
def avoids_word(answer: AnswerText, word: str) -> bool:
    """Tell whether `word` is not among the answer's words."""
    return _compared(word) not in answer.words


@_constraint_kind('Do not use the letter "{letter}".', letter="letter")
def avoids_letter(answer: AnswerText, letter: str) -> bool:
    """Tell whether `letter` stands nowhere in the answer, in upper or lower case, and no digit in its place."""
    return _compared(letter) not in answer.seen.casefold() and not has_digit_in_word(answer.seen)


@_constraint_kind('Begin with the words "{words}".', words="phrase")
def begins_with(answer: AnswerText, words: str) -> bool:
    """Tell whether the first words of the answer are those of `words`."""
    first = _compared_words(words)
    return answer.words[: len(first)] == first


@_constraint_kind('End with the words "{words}".', words="phrase")
def ends_with(answer: AnswerText, words: str) -> bool:
    """Tell whether the last words of the answer are those of `words`."""
    last = _compared_words(words)
    return answer.words[-len(last) :] == last


@_constraint_kind("Write everything in lower case.")
def lower_case(answer: AnswerText) -> bool:
    """Tell whether there is a letter, and none that has a lower case of its own."""
    return has_letter(answer.seen) and answer.seen.lower() == answer.seen


@_constraint_kind("Write everything in upper case.")
def upper_case(answer: AnswerText) -> bool:
    """Tell whether there is a letter, and none that has an upper case of its own."""
    return has_letter(answer.seen) and answer.seen.upper() == answer.seen


@_constraint_kind("Use no commas.")
def no_commas(answer: AnswerText) -> bool:
    """Tell whether the character `,` stands nowhere in the answer."""
    return "," not in answer.seen


@_constraint_kind('Begin each line with the letter "{letter}".', letter="letter")
def lines_begin_with(answer: AnswerText, letter: str) -> bool:
    """Tell whether every line's first letter is `letter`, in upper or lower case. A bullet's dash is no letter."""
    first_letters = {first_letter(line) for line in answer.lines}
    return first_letters == {_compared(letter)}


@_constraint_kind('Write one line for each letter of "{word}": the first letters of the lines spell it.', word="word")
def acrostic(answer: AnswerText, word: str) -> bool:
    """Tell whether the first letters of the lines are those of `word`, in order, in upper or lower case."""
    letters = [char for char in _compared(word) if char.isalpha()]
    return [first_letter(line) for line in answer.lines] == letters


@_constraint_kind("Use at most {count} words in each line.", count="count")
def line_words_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether no line has more than `count` words."""
    is_counted = answer.word_count is not None
    return is_counted and all(len(words_of(line)) <= count for line in answer.lines)


@_constraint_kind("Use no word of more than {count} letters.", count="count")
def word_letters_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether no word has more than `count` letters. Hyphens and apostrophes are no letters."""
    letter_counts = [sum(map(str.isalpha, word)) for word in answer.words]
    return all(letter_count <= count for letter_count in letter_counts)


@_constraint_kind("Put all words in alphabetical order.")
def words_alphabetical(answer: AnswerText) -> bool:
    """Tell whether the words are in the order of their letters' code points, without regard to case."""
    return all(left <= right for left, right in zip(answer.words, answer.words[1:]))


@_constraint_kind("Use no word twice.")
def no_repeated_words(answer: AnswerText) -> bool:
    """Tell whether no two words are the same."""
    return len(set(answer.words)) == len(answer.words)


@_constraint_kind("Put the whole answer in double quotes, and use no others.")
def quoted(answer: AnswerText) -> bool:
    """Tell whether the answer begins and ends with a double quote, and has no other."""
    is_enclosed = len(answer.seen) >= 2 and answer.seen[0] == '"' == answer.seen[-1]
    return is_enclosed and answer.seen.count('"') == 2


@_constraint_kind("Answer with one JSON object that has exactly the keys {fields}.", fields="fields")
def json_object(answer: AnswerText, fields: dict[str, str]) -> bool:
    """Tell whether the answer is one JSON object with these keys, each once, and values of these kinds.

    It may stand in one fenced block.
    """
    found = read_json(unfenced(answer.written))
    if type(found) is not dict or found.keys() != fields.keys():
        return False
    for key, kind in fields.items():
        _, is_of_kind = FIELDS[kind]
        if not is_of_kind(found[key]):
            return False
    return True


@dataclass(frozen=True)
class Constraint:
    """A kind of constraint with its values."""

    kind: ConstraintKind
    values: Mapping[str, object]

    def is_satisfied_by(self, answer: AnswerText) -> bool:
        return self.kind.check(answer, **self.values)

    def describe(self, sentence: str | None = None) -> str:
        """Return the sentence that states this in a prompt. sentence: another than the kind's, with the same names."""
        shown = {name: _shown(value) for name, value in self.values.items()}
        return (sentence or self.kind.sentence).format(**shown)


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
        is_valid, description = _VALUES[kind.values[key]]
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

"""The kinds of demands on a text: the sentences that state each in a prompt, and the check whether it is satisfied.

What words, lines, sentences and paragraphs are is what a reader sees (`reading.py`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from helpers.gallery.general.reading import (
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
from helpers.tasks.wording import Wordings

_CONSONANTS = re.compile(r"[b-df-hj-np-tv-xz0-9'.,:/-]+")
_ASCII = re.compile(r"[\t\n\x20-\x7e]*+")
MOST_COUNT = 100_000
#: A hyphen, or a dash in its place.
_BULLETS = ("- ", "\u2013 ", "\u2014 ")


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
VALUES = {
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

    wordings: sentences that state it in a prompt, with the values in braces; none for what every prompt states at its
    beginning and end (`instructions.OPENINGS`, `FORMATS`). check: f(answer, **values) -> whether it
    is satisfied. values: name -> type, a key of `VALUES`. is_guard: an answer that breaks it earns nothing, since such
    an answer can satisfy others by their letter alone.
    """

    name: str
    wordings: Wordings
    check: Callable[..., bool]
    values: Mapping[str, str]
    is_guard: bool


#: name -> kind
CONSTRAINT_KINDS: dict[str, ConstraintKind] = {}


def _constraint_kind(*seen: str, unseen: tuple[str, ...] = (), is_guard: bool = False, **values: str) -> Callable:
    """Make a kind of constraint of the check that this decorates. seen, unseen: as of `Wordings`."""

    def add(check):
        name = check.__name__
        CONSTRAINT_KINDS[name] = ConstraintKind(name, Wordings(seen, unseen), check, values, is_guard)
        return check

    return add


@_constraint_kind(is_guard=True, count="count")
def different_words(answer: AnswerText, count: int) -> bool:
    """Tell whether at least `count` words differ by more than case. Numerals, and runs of consonants, are none here."""
    return len({word for word in answer.words if not _CONSONANTS.fullmatch(word)}) >= count


@_constraint_kind(is_guard=True, count="count")
def characters_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether there are at most `count` characters of any kind, white space within the answer included."""
    return len(answer.written) <= count


@_constraint_kind(is_guard=True)
def plain_text(answer: AnswerText) -> bool:
    """Tell whether all characters are printable ASCII, tabs or line ends: none is invisible or looks like another."""
    return _ASCII.fullmatch(answer.written) is not None


@_constraint_kind(
    "Use exactly {count} words.",
    "Its length is exactly {count} words.",
    "It must have {count} words, no more and no fewer.",
    unseen=(
        "The number of words must be {count}.",
        "Make it {count} words long, exactly.",
    ),
    count="count",
)
def words_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of words is `count`."""
    return answer.word_count == count


@_constraint_kind(
    "Use at least {count} words.",
    "It must have {count} words or more.",
    "Its length is {count} words at least.",
    unseen=(
        "Do not use fewer than {count} words.",
        "The number of words must be {count} or higher.",
    ),
    count="count",
)
def words_at_least(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of words is `count` or more."""
    return answer.word_count is not None and answer.word_count >= count


@_constraint_kind(
    "Use at most {count} words.",
    "It must have {count} words or fewer.",
    "Its length is {count} words at most.",
    unseen=(
        "Do not use more than {count} words.",
        "The number of words must be {count} or lower.",
    ),
    count="count",
)
def words_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of words is `count` or less."""
    return answer.word_count is not None and answer.word_count <= count


@_constraint_kind(
    "Write exactly {count} lines.",
    "It must have {count} lines, no more and no fewer.",
    "Use exactly {count} lines.",
    unseen=(
        "The number of lines must be {count}.",
        "Break it into exactly {count} lines.",
    ),
    count="count",
)
def lines_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of lines that count is `count`."""
    return len(answer.lines) == count


@_constraint_kind(
    'Write exactly {count} bullet points, lines that begin with "- ".',
    'Use exactly {count} bullets, each a line that begins with "- ".',
    'Exactly {count} lines must begin with "- ", as bullets.',
    unseen=(
        'The number of bullets, lines with "- " in front, must be {count}.',
        'Put "- " in front of exactly {count} lines.',
    ),
    count="count",
)
def bullets_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of bullets is `count`. Other lines may stand between them."""
    bullets = [line for line in answer.lines if line.startswith(_BULLETS)]
    return len(bullets) == count


@_constraint_kind(
    'Write nothing but a numbered list of {count} lines: "1. ", "2. " and so on.',
    'Write {count} numbered lines, "1. ", "2. " and so on, and no other line.',
    'It is a numbered list of exactly {count} lines that begin with "1. ", "2. " and so on.',
    unseen=(
        'Number the lines "1. ", "2. " and so on; there are {count} lines, all numbered.',
        'Give a list of {count} lines, every line with its number in front: "1. ", "2. " and so on.',
    ),
    count="count",
)
def numbered_list(answer: AnswerText, count: int) -> bool:
    """Tell whether there are `count` lines, of which line n begins with n, a full stop and a space, and says more."""
    if len(answer.lines) != count:
        return False
    for number, line in enumerate(answer.lines, 1):
        start = f"{number}. "
        if not line.startswith(start) or not has_content(line.removeprefix(start)):
            return False
    return True


@_constraint_kind(
    "Write exactly {count} sentences.",
    "Use exactly {count} sentences.",
    "It must have {count} sentences, no more and no fewer.",
    unseen=(
        "The number of sentences must be {count}.",
        "Say it in exactly {count} sentences.",
    ),
    count="count",
)
def sentences_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of sentences is `count`."""
    return answer.sentence_count == count


@_constraint_kind(
    "Write exactly {count} paragraphs, with an empty line between them.",
    "Use exactly {count} paragraphs and put an empty line between them.",
    "It must have {count} paragraphs, which empty lines separate.",
    unseen=(
        "The number of paragraphs, with empty lines between them, must be {count}.",
        "Split it by empty lines into exactly {count} paragraphs.",
    ),
    count="count",
)
def paragraphs_exactly(answer: AnswerText, count: int) -> bool:
    """Tell whether the number of paragraphs is `count`."""
    return answer.paragraph_count == count


@_constraint_kind(words="words")
def contains_words(answer: AnswerText, words: list[str]) -> bool:
    """Tell whether every one of `words` is a word of the answer."""
    return set(map(_compared, words)) <= set(answer.words)


@_constraint_kind(
    'Use the word "{word}" at least {count} times.',
    'The word "{word}" must appear {count} times or more.',
    'Say "{word}" at least {count} times.',
    unseen=(
        'Do not use the word "{word}" fewer than {count} times.',
        'At least {count} of the words must be "{word}".',
    ),
    word="word",
    count="count",
)
def word_at_least(answer: AnswerText, word: str, count: int) -> bool:
    """Tell whether `count` or more of the answer's words are `word`."""
    return answer.words.count(_compared(word)) >= count


@_constraint_kind(
    'Use the word "{word}" exactly {count} times.',
    'The word "{word}" must appear {count} times, no more and no less.',
    'Say "{word}" exactly {count} times.',
    unseen=(
        'The number of times that you use the word "{word}" must be {count}.',
        'Exactly {count} of the words must be "{word}".',
    ),
    word="word",
    count="count",
)
def word_exactly(answer: AnswerText, word: str, count: int) -> bool:
    """Tell whether `count` of the answer's words are `word`."""
    return answer.words.count(_compared(word)) == count


@_constraint_kind(
    'Do not use the word "{word}".',
    'The word "{word}" must not appear.',
    'Never say "{word}".',
    unseen=(
        'Leave the word "{word}" out.',
        'Get by without the word "{word}".',
    ),
    word="word",
)
def avoids_word(answer: AnswerText, word: str) -> bool:
    """Tell whether `word` is not among the answer's words."""
    return _compared(word) not in answer.words


@_constraint_kind(
    'Do not use the letter "{letter}".',
    'The letter "{letter}" must not appear.',
    'Use no word with the letter "{letter}".',
    unseen=(
        'Leave out every "{letter}".',
        'Get by without the letter "{letter}".',
    ),
    letter="letter",
)
def avoids_letter(answer: AnswerText, letter: str) -> bool:
    """Tell whether `letter` stands nowhere in the answer, in upper or lower case, and no digit in its place."""
    return _compared(letter) not in answer.seen.casefold() and not has_digit_in_word(answer.seen)


@_constraint_kind(
    'Begin with the words "{words}".',
    'Its first words are "{words}".',
    'Start with "{words}".',
    unseen=(
        'The words "{words}" must come first.',
        'Let "{words}" be the beginning.',
    ),
    words="phrase",
)
def begins_with(answer: AnswerText, words: str) -> bool:
    """Tell whether the first words of the answer are those of `words`."""
    first = _compared_words(words)
    return answer.words[: len(first)] == first


@_constraint_kind(
    'End with the words "{words}".',
    'Its last words are "{words}".',
    'Finish with "{words}".',
    unseen=(
        'The words "{words}" must come last.',
        'Let "{words}" be the end.',
    ),
    words="phrase",
)
def ends_with(answer: AnswerText, words: str) -> bool:
    """Tell whether the last words of the answer are those of `words`."""
    last = _compared_words(words)
    return answer.words[-len(last) :] == last


@_constraint_kind(
    "Write everything in lower case.",
    "Use lower-case letters only.",
    "Do not use any capital letter.",
    unseen=(
        "No letter may be a capital.",
        "All letters must be small ones.",
    ),
)
def lower_case(answer: AnswerText) -> bool:
    """Tell whether there is a letter, and none that has a lower case of its own."""
    return has_letter(answer.seen) and answer.seen.lower() == answer.seen


@_constraint_kind(
    "Write everything in upper case.",
    "Use capital letters only.",
    "Do not use any lower-case letter.",
    unseen=(
        "Every letter must be a capital.",
        "No letter may be a small one.",
    ),
)
def upper_case(answer: AnswerText) -> bool:
    """Tell whether there is a letter, and none that has an upper case of its own."""
    return has_letter(answer.seen) and answer.seen.upper() == answer.seen


@_constraint_kind(
    "Use no commas.",
    "Do not use any comma.",
    "There must be no comma in it.",
    unseen=(
        "Leave out commas.",
        "Get by without commas.",
    ),
)
def no_commas(answer: AnswerText) -> bool:
    """Tell whether the character `,` stands nowhere in the answer."""
    return "," not in answer.seen


@_constraint_kind(
    'Begin each line with the letter "{letter}".',
    'Every line must start with the letter "{letter}".',
    'The first letter of each line is "{letter}".',
    unseen=(
        'Let "{letter}" be the first letter of every line.',
        'No line may begin with another letter than "{letter}".',
    ),
    letter="letter",
)
def lines_begin_with(answer: AnswerText, letter: str) -> bool:
    """Tell whether every line's first letter is `letter`, in upper or lower case. A bullet's dash is no letter."""
    first_letters = {first_letter(line) for line in answer.lines}
    return first_letters == {_compared(letter)}


@_constraint_kind(
    'Write one line for each letter of "{word}": the first letters of the lines spell it.',
    'The first letters of the lines, one line a letter, must spell "{word}".',
    'Spell "{word}" with the first letters of the lines, one line a letter.',
    unseen=(
        'Read downwards, the first letters of all lines must give "{word}".',
        'Write an acrostic: the lines begin with the letters of "{word}", one line each.',
    ),
    word="word",
)
def acrostic(answer: AnswerText, word: str) -> bool:
    """Tell whether the first letters of the lines are those of `word`, in order, in upper or lower case."""
    letters = [char for char in _compared(word) if char.isalpha()]
    return [first_letter(line) for line in answer.lines] == letters


@_constraint_kind(
    "Use at most {count} words in each line.",
    "No line may have more than {count} words.",
    "Each line must have {count} words or fewer.",
    unseen=(
        "Put at most {count} words on a line.",
        "Lines must be no longer than {count} words.",
    ),
    count="count",
)
def line_words_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether no line has more than `count` words."""
    is_counted = answer.word_count is not None
    return is_counted and all(len(words_of(line)) <= count for line in answer.lines)


@_constraint_kind(
    "Use no word of more than {count} letters.",
    "No word may have more than {count} letters.",
    "Each word must have {count} letters or fewer.",
    unseen=(
        "Use words of at most {count} letters.",
        "Words must be no longer than {count} letters.",
    ),
    count="count",
)
def word_letters_at_most(answer: AnswerText, count: int) -> bool:
    """Tell whether no word has more than `count` letters. Hyphens and apostrophes are no letters."""
    letter_counts = [sum(map(str.isalpha, word)) for word in answer.words]
    return all(letter_count <= count for letter_count in letter_counts)


@_constraint_kind(
    "Put all words in alphabetical order.",
    "The words must be in alphabetical order, from the first to the last.",
    "Sort all words alphabetically.",
    unseen=(
        "No word may come before its left neighbour in the alphabet.",
        "Arrange the words from A to Z.",
    ),
)
def words_alphabetical(answer: AnswerText) -> bool:
    """Tell whether the words are in the order of their letters' code points, without regard to case."""
    return all(left <= right for left, right in zip(answer.words, answer.words[1:]))


@_constraint_kind(
    "Use no word twice.",
    "No word may appear twice.",
    "Every word must be a different one.",
    unseen=(
        "Do not repeat any word.",
        "Each word may be used only once.",
    ),
)
def no_repeated_words(answer: AnswerText) -> bool:
    """Tell whether no two words are the same."""
    return len(set(answer.words)) == len(answer.words)


@_constraint_kind(
    "Put the whole answer in double quotes, and use no others.",
    "A double quote must stand at the beginning and at the end, and nowhere else.",
    "Enclose the whole answer in double quotes, with none inside.",
    unseen=(
        "Double quotes go around the whole answer, and nowhere else.",
        "Its first and last characters are double quotes; there are no others.",
    ),
)
def quoted(answer: AnswerText) -> bool:
    """Tell whether the answer begins and ends with a double quote, and has no other."""
    is_enclosed = len(answer.seen) >= 2 and answer.seen[0] == '"' == answer.seen[-1]
    return is_enclosed and answer.seen.count('"') == 2


@_constraint_kind(
    "Answer with one JSON object that has exactly the keys {fields}.",
    "It must be one JSON object with these keys and no others: {fields}.",
    "Write one JSON object and nothing else; its keys are {fields}.",
    unseen=(
        "Give JSON: a single object whose only keys are {fields}.",
        "Put it into one JSON object that has the keys {fields} and no more.",
    ),
    fields="fields",
)
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

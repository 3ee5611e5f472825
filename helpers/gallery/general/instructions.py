"""Prompts that combine verifiable instructions: their wordings, and values for which a right answer exists."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.gallery.general.constraints import CONSTRAINT_KINDS, Constraint
from helpers.gallery.general.writer import usable_nouns, write
from helpers.tasks.wording import Wordings, parse_wording_name

#: Every prompt asks for these, so that no text that repeats a word, and no text that fits every prompt, is right.
BASE = ("contains_words", "characters_at_most", "plain_text", "different_words")
#: Every prompt is longer than an answer may be, so that its echo is wrong, and every answer of the writer is shorter.
MOST_CHARACTERS = 220
#: The kinds of constraints that a prompt puts together, beside those of BASE. What stands together can be satisfied
#: together, and none follows from the others.
COMBINATIONS = (
    ("words_exactly", "lower_case"),
    ("words_at_most", "avoids_letter"),
    ("words_at_least", "sentences_exactly"),
    ("bullets_exactly", "upper_case"),
    ("numbered_list", "avoids_word"),
    ("lines_exactly", "lines_begin_with"),
    ("begins_with", "ends_with"),
    ("json_object", "words_at_most"),
    ("sentences_exactly", "avoids_letter", "no_commas"),
    ("words_exactly", "begins_with", "avoids_word"),
    ("bullets_exactly", "word_at_least", "lower_case"),
    ("numbered_list", "avoids_letter", "no_commas"),
    ("lines_exactly", "words_at_least", "upper_case"),
    ("json_object", "word_at_least", "lower_case"),
    ("lines_begin_with", "words_at_most", "no_commas"),
    ("sentences_exactly", "ends_with", "word_at_least"),
)
#: Those of the split "probe": four together, and at least one kind that is in no combination above.
PROBE_COMBINATIONS = (
    ("words_alphabetical", "lines_exactly", "lower_case", "no_commas"),
    ("no_repeated_words", "sentences_exactly", "words_at_most", "avoids_letter"),
    ("quoted", "sentences_exactly", "no_commas", "avoids_word"),
    ("paragraphs_exactly", "begins_with", "word_exactly", "avoids_word"),
    ("acrostic", "line_words_at_most", "no_commas", "lower_case"),
    ("word_exactly", "bullets_exactly", "line_words_at_most", "upper_case"),
    ("word_letters_at_most", "words_exactly", "quoted", "ends_with"),
    ("no_repeated_words", "numbered_list", "word_letters_at_most", "lower_case"),
    ("words_alphabetical", "paragraphs_exactly", "avoids_letter", "upper_case"),
    ("json_object", "no_repeated_words", "word_letters_at_most", "avoids_word"),
)

#: How a prompt begins; {words} are the two things that the text is about.
OPENINGS = Wordings(
    seen=(
        "Write something about {words}, in which both of these words appear.",
        "Write about {words}. Both words must be in what you write.",
        "I need a few words about {words}; use these two words themselves.",
    ),
    unseen=(
        "Compose something of your own in which the words {words} appear.",
        "Make up an answer on {words} that contains both of these words.",
    ),
)
#: How a prompt ends. It states the guards.
FORMATS = Wordings(
    seen=(
        "Answer with the text only. It must be plain ASCII, have at most {characters} characters, and use at least "
        "{different} different words.",
        "Give nothing but the text, in plain ASCII characters, {characters} of them at the most, with {different} "
        "different words or more.",
        "Reply with the text alone. It has {different} or more different words and {characters} or fewer characters, "
        "all plain ASCII.",
    ),
    unseen=(
        "Return the text and nothing else. Its limits: {different} different words at least, {characters} characters "
        "at most, plain ASCII only.",
        "Your reply is the text itself: no more than {characters} characters, all of them plain ASCII, and no fewer "
        "than {different} different words.",
    ),
)


def _combination_wordings(kinds: Sequence[str]) -> Wordings:
    """Put the sentences of the same place together, so that a combination has as many wordings as a kind."""
    parts = [OPENINGS, *(CONSTRAINT_KINDS[kind].wordings for kind in kinds), FORMATS]
    seen = zip(*(part.seen for part in parts), strict=True)
    unseen = zip(*(part.unseen for part in parts), strict=True)
    return Wordings(seen=tuple(map(" ".join, seen)), unseen=tuple(map(" ".join, unseen)))


#: combination, such as "words_exactly+lower_case" -> its wordings
WORDINGS = {"+".join(kinds): _combination_wordings(kinds) for kinds in COMBINATIONS}
PROBE_WORDINGS = {"+".join(kinds): _combination_wordings(kinds) for kinds in PROBE_COMBINATIONS}

#: Beginnings and ends of two words each. None holds a word of AVOIDED_WORDS, or a noun of the writer's.
BEGINNINGS = (
    "Last night", "Every morning", "Once again", "Years ago", "Some people", "My friend", "Today we", "Nobody knew",
    "Long before", "Our neighbor", "Each spring", "Perhaps you", "Late yesterday", "Two children", "Without warning",
)  # fmt: skip
ENDS = (
    "good night", "come back", "so far", "once more", "after all", "my friend", "at last", "well done", "far away",
    "no doubt", "for ever", "next year", "by now", "stay safe", "all day",
)  # fmt: skip
AVOIDED_WORDS = ("the", "and", "is", "of", "it", "was", "in", "to", "with", "that", "are", "on", "as", "they", "from")
AVOIDED_LETTERS = "aeioubcdghklmnprst"
ACROSTICS = ("bread", "table", "stone", "smile", "plan", "goat", "farm", "light", "model", "dance", "chair", "bold")
#: Letters with which at least ten nouns begin.
LINE_LETTERS = "bcfghlmpst"
#: Keys of JSON objects, and the kinds of their values.
TEXT_KEYS = ("title", "place", "story", "plot", "note", "scene")
OTHER_KEYS = (("year", "integer"), ("size", "number"), ("done", "boolean"), ("tags", "texts"), ("age", "integer"))


@dataclass(frozen=True)
class Instructions:
    """A prompt, the constraints that it states as the column `constraints` has them, and an answer that is right."""

    text: str
    constraints: str
    answer: str


def draw_instructions(rng: random.Random, wording: str) -> Instructions:
    """Draw a prompt in `wording`, a name such as "words_exactly+lower_case-0"."""
    combination, number = parse_wording_name(wording)
    asked = _draw_values(rng, combination.split("+"))
    stated = [_state(kind, asked, CONSTRAINT_KINDS[kind].wordings, number) for kind in asked if kind not in BASE]
    rng.shuffle(stated)
    opening = _state("contains_words", asked, OPENINGS, number)
    most = asked["characters_at_most"]["count"]
    different = asked["different_words"]["count"]
    limits = FORMATS.all[number].format(characters=most, different=different)
    text = " ".join([opening, *stated, limits])
    column = [{"kind": kind, **values} for kind, values in asked.items()]
    return Instructions(text, json.dumps(column), write(rng, asked))


def _state(kind: str, asked: dict[str, dict], wordings: Wordings, number: int) -> str:
    """Return the sentence that states a constraint, in the wording of that number."""
    constraint = Constraint(CONSTRAINT_KINDS[kind], asked[kind])
    return constraint.describe(wordings.all[number])


def _draw_values(rng: random.Random, kinds: Sequence[str]) -> dict[str, dict]:
    """Draw the values of `kinds` and of BASE. What limits the words is drawn before the words."""
    asked = {}
    for kind in kinds:
        asked[kind] = _DRAW[kind](rng) if kind in _DRAW else {}
    words = rng.sample(usable_nouns(asked), 2)
    for kind in ("word_at_least", "word_exactly"):
        if kind in asked:
            asked[kind] = {"word": words[0], "count": rng.randint(2, 3)}
    asked["contains_words"] = {"words": words}
    asked["characters_at_most"] = {"count": MOST_CHARACTERS}
    asked["plain_text"] = {}
    asked["different_words"] = {"count": rng.randint(8, 12)}
    return asked


def _count_between(least: int, most: int):
    return lambda rng: {"count": rng.randint(least, most)}


def _one_of(name: str, choices: Sequence[str]):
    return lambda rng: {name: rng.choice(choices)}


def _draw_fields(rng: random.Random) -> dict:
    """Draw one or two texts and one or two other values."""
    texts = [(key, "text") for key in rng.sample(TEXT_KEYS, rng.randint(1, 2))]
    others = rng.sample(OTHER_KEYS, rng.randint(1, 2))
    fields = texts + others
    rng.shuffle(fields)
    return {"fields": dict(fields)}


#: kind -> f(random generator) -> its values. The bounds fit together; the writer relies on them.
_DRAW = {
    "words_exactly": _count_between(16, 24),
    "words_at_least": _count_between(15, 22),
    "words_at_most": _count_between(18, 28),
    "lines_exactly": _count_between(3, 6),
    "bullets_exactly": _count_between(3, 6),
    "numbered_list": _count_between(3, 6),
    "sentences_exactly": _count_between(2, 5),
    "paragraphs_exactly": _count_between(2, 4),
    "avoids_word": _one_of("word", AVOIDED_WORDS),
    "avoids_letter": _one_of("letter", AVOIDED_LETTERS),
    "begins_with": _one_of("words", BEGINNINGS),
    "ends_with": _one_of("words", ENDS),
    "lines_begin_with": _one_of("letter", LINE_LETTERS),
    "acrostic": _one_of("word", ACROSTICS),
    "line_words_at_most": _count_between(5, 8),
    "word_letters_at_most": _count_between(6, 7),
    "json_object": _draw_fields,
}

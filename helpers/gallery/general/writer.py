"""The writer of texts that satisfy given constraints. They make no sense; that they exist shows that others do.

`write` knows how the kinds that `instructions.COMBINATIONS` puts together are satisfied, and checks none of them.
"""

import json
import random
from collections.abc import Mapping, Sequence

#: What texts are about, and of which the writer's texts consist. Plain lower-case nouns of three to seven letters.
NOUNS = tuple(
    """
    acorn alley amber anchor apple apron arrow atlas attic autumn bacon badge baker bamboo banjo barn basket beach
    beetle bench berry blanket boat bottle branch bread brick bridge brook broom bucket button cabin cable camel candle
    canyon carpet castle cedar chain chalk cheese cherry chimney circus clay cliff clock cloud coal coast cobweb coffee
    comet compass copper corner cotton cradle crane crow crystal cup curtain daisy dance desert diamond dinner dragon
    drum dust eagle earth east echo elbow engine evening fabric falcon farm feather fence ferry fiddle field fire flag
    flame flute forest fox frost garden gate ghost giant ginger glass globe glove goat grain grape grass
    guitar hammer harbor harvest hat hawk hedge helmet hill honey horse hotel ice igloo ink insect iron island ivory
    jacket jar jewel journey jungle kettle key kitchen kite kitten knight ladder lake lamp lantern leaf lemon letter
    library lily lion lizard lobster magnet maple marble market meadow melon mirror monkey moon moss mouse
    museum mustard napkin needle nest noodle north nutmeg oak oasis oat ocean olive onion orange orchard otter
    oven owl oyster paddle palace panda paper parrot pasture pebble pencil pepper piano picnic pigeon pillow pine
    pirate planet pocket pond potato puzzle quarry queen quilt rabbit radio rain ribbon rice river road robin rocket
    roof root rope rose saddle sail salad salt sand school shadow shell ship silver snow soap spider spoon
    stable star station statue stone storm street sugar summer sunset table teapot temple tent thunder tiger
    timber toast tower train tree tulip tunnel turtle uncle valley velvet village violin volcano wagon walnut
    water wheel whistle willow window winter wolf wool yard yarn yogurt zebra
    """.split()
)
#: How the lines of an answer without another number of lines are written.
LINES = 3


def write(rng: random.Random, asked: Mapping[str, Mapping]) -> str:
    """Return a text that satisfies `asked`: kind of constraint -> its values."""
    words = _draw_words(rng, asked)
    if "json_object" in asked:
        return _write_json(words, asked)
    rows = _rows_of(words, asked)
    lines = [_row_text(row, number, asked) for number, row in enumerate(rows, 1)]
    separator = _separator(asked)
    text = separator.join(lines)
    return f'"{text}"' if "quoted" in asked else text


def usable_nouns(asked: Mapping[str, Mapping]) -> list[str]:
    """Return the nouns that `asked` does not forbid."""
    nouns = list(NOUNS)
    if "avoids_letter" in asked:
        letter = asked["avoids_letter"]["letter"]
        nouns = [noun for noun in nouns if letter not in noun]
    if "word_letters_at_most" in asked:
        most = asked["word_letters_at_most"]["count"]
        nouns = [noun for noun in nouns if len(noun) <= most]
    return nouns


def row_count(asked: Mapping[str, Mapping]) -> int:
    """Return the number of lines, sentences or paragraphs of a text that satisfies `asked`."""
    for kind in ("lines_exactly", "bullets_exactly", "numbered_list", "sentences_exactly", "paragraphs_exactly"):
        if kind in asked:
            return asked[kind]["count"]
    if "acrostic" in asked:
        return len(asked["acrostic"]["word"])
    return LINES if {"lines_begin_with", "line_words_at_most"} & set(asked) else 1


def _draw_words(rng: random.Random, asked: Mapping[str, Mapping]) -> list[str]:
    """Draw the words, in order. The first words of lines whose first letters are asked for stand in front."""
    opening = asked.get("begins_with", {}).get("words", "").split()
    closing = asked.get("ends_with", {}).get("words", "").split()
    required = list(asked["contains_words"]["words"])
    for kind in ("word_at_least", "word_exactly"):
        if kind in asked:
            times = asked[kind]["count"]
            required += [asked[kind]["word"]] * (times - 1)  # it is one of the required words already
    starts = [letter for letter in _first_letters(asked) if letter]
    taken = {word.lower() for word in [*opening, *closing, *required]}
    fillers = [noun for noun in usable_nouns(asked) if noun not in taken]
    rng.shuffle(fillers)
    first_words = []
    for letter in starts:
        first_word = next(noun for noun in fillers if noun.startswith(letter))
        first_words.append(first_word)
        fillers.remove(first_word)
    fixed = len(opening) + len(closing) + len(required) + len(starts)
    missing_words = _word_count(rng, asked) - fixed
    missing_different = asked["different_words"]["count"] - len(taken) - len(starts)
    body = required + fillers[: max(missing_different, missing_words)]
    rng.shuffle(body)
    if "words_alphabetical" in asked:
        body.sort()
    return [*opening, *first_words, *body, *closing]


def _word_count(rng: random.Random, asked: Mapping[str, Mapping]) -> int:
    """Draw how many words to write; 0 where any number will do."""
    if "words_exactly" in asked:
        return asked["words_exactly"]["count"]
    if "words_at_least" in asked:
        return asked["words_at_least"]["count"] + rng.randint(0, 3)
    return 2 * row_count(asked)


def _first_letters(asked: Mapping[str, Mapping]) -> list[str]:
    """Return the first letter that each line must have; "" for any."""
    if "acrostic" in asked:
        return list(asked["acrostic"]["word"])
    letter = asked.get("lines_begin_with", {}).get("letter", "")
    return [letter] * row_count(asked)


def _rows_of(words: Sequence[str], asked: Mapping[str, Mapping]) -> list[list[str]]:
    """Share the words out to the lines, in order and as equally as possible."""
    count = row_count(asked)
    starts = [letter for letter in _first_letters(asked) if letter]
    first_words = words[: len(starts)]
    rest = words[len(starts) :]
    rows = _shares(rest, count)
    if not starts:
        return rows
    return [[first_word, *row] for first_word, row in zip(first_words, rows, strict=True)]


def _shares(words: Sequence[str], count: int) -> list[list[str]]:
    """Split words into `count` parts, in order and as equally as possible."""
    ends = [len(words) * number // count for number in range(count + 1)]
    return [list(words[start:end]) for start, end in zip(ends, ends[1:])]


def _row_text(row: Sequence[str], number: int, asked: Mapping[str, Mapping]) -> str:
    """Return the text of line `number`, from 1, or of a sentence or paragraph."""
    text = " ".join(row)
    text = text[0].upper() + text[1:]
    if "lower_case" in asked:
        text = text.lower()
    if "upper_case" in asked:
        text = text.upper()
    prefix = ""
    if "bullets_exactly" in asked:
        prefix = "- "
    if "numbered_list" in asked:
        prefix = f"{number}. "
    return f"{prefix}{text}."


def _separator(asked: Mapping[str, Mapping]) -> str:
    if "sentences_exactly" in asked:
        return " "
    return "\n\n" if "paragraphs_exactly" in asked else "\n"


def _write_json(words: Sequence[str], asked: Mapping[str, Mapping]) -> str:
    """Put the words into the object's texts; numbers and truth values are fixed."""
    fields = asked["json_object"]["fields"]
    texts = [key for key, kind in fields.items() if kind in ("text", "texts")]
    share_of = dict(zip(texts, _shares(words, len(texts)), strict=True))
    content = {}
    for key, kind in fields.items():
        if kind == "text":
            content[key] = " ".join(share_of[key])
        elif kind == "texts":
            content[key] = share_of[key]
        elif kind == "boolean":
            content[key] = True
        else:
            content[key] = 7
    return json.dumps(content)

"""A second reading of every kind of constraint, written from its definition and in another way than the product's.

Where the product splits, this matches or scans, and the other way round. It may be slow and need not resist attacks.
Both read what `seen_text` leaves of an answer, whose own tests say what that is.
"""

import json
import re
import unicodedata
from collections import Counter
from itertools import groupby

from helpers.gallery.general.reading import MOST_JOINED, MOST_LETTERS, AnswerText

BLANKS = r"[^\S\n]*"


def holds(kind, text, **values):
    """Whether an answer satisfies a constraint."""
    is_about_characters = kind in ("characters_at_most", "plain_text", "json_object")
    answer = AnswerText(text).written if is_about_characters else AnswerText(text).seen
    return CHECKERS[kind](answer, **values)


def is_letter(char):
    return unicodedata.category(char)[0] == "L"


def words_of(text):
    """Scan the characters: joiners wait until a letter or a digit follows."""
    words = []
    word = ""
    waiting = ""
    for char in text + "  ":
        if char.isalnum():
            goes_on = waiting in ("", "'", "-") or (waiting in (*".,:/",) and word[-1:] in DIGITS and char in DIGITS)
            if word and not goes_on:
                words.append(word)
                word = waiting = ""
            word += waiting + char if word else char
            waiting = ""
        elif word and char in "'-.,:/" and not waiting:
            waiting = char
        else:
            if word:
                words.append(word)
            word = waiting = ""
    kept = []
    for is_single, run in groupby(words, lambda word: len(word) == 1 and word.isalpha()):
        run = list(run)
        kept += [] if is_single and len(run) > 2 else run
    return [word.casefold() for word in kept]


DIGITS = set("0123456789")
CONSONANTS = set("bcdfghjklmnpqrstvwxz'-.,:/") | DIGITS


def is_countable(text):
    """Whether words are parted by blanks and quotes, as nearly everywhere."""
    for piece in text.replace('"', " ").split():
        letters = "".join(char if char == "'" or (char.isalnum() and not char.isdecimal()) else " " for char in piece)
        parts = [part.strip("'") for part in letters.split() if part.strip("'")]
        if len(parts) > MOST_JOINED or max(map(len, parts), default=0) > MOST_LETTERS:
            return False
    return True


def word_count(text):
    return len(words_of(text)) if is_countable(text) else float("nan")


def says_something(line):
    return re.search(r"[0-9]", line) is not None or len([char for char in line if char.isalpha()]) > 1


def lines_of(text):
    return [line for line in re.findall(r"^.*$", text, re.MULTILINE) if says_something(line)]


TITLE = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St)$")


def sentence_count(text):
    """Read the pieces between white space: one that ends like a sentence ends one, if a word came since the last."""
    has_capitals = any(char.isupper() for char in text)
    count = 0
    has_word = False
    for piece in re.finditer(r"\S+", text):
        has_word = has_word or re.search(r"[^\W\d_]", piece[0]) is not None
        ends = re.search(r"""([.!?]+)(["')\]]*)$""", piece[0])
        if not ends or TITLE.search(piece[0][: ends.start()]):
            continue
        following = [char for char in text[piece.end() :][:21] if char.isalnum() or char == "_"]
        is_quotation = ends[2][:1] in ('"', "'") and ends[2] and ends[1] != "."
        if following and following[0].islower() and (has_capitals or len(ends[1]) > 2 or is_quotation):
            continue
        count += has_word
        has_word = False
    return count + has_word


def first_letter(line):
    for char in line:
        if is_letter(char):
            return char.casefold()
    return None


def is_numbered(text, count):
    found = [re.match(rf"{BLANKS}0*?([1-9][0-9]*)\. (.*)", line) for line in lines_of(text)]
    if not all(found) or [match[1] for match in found] != [str(number) for number in range(1, count + 1)]:
        return False
    return all(says_something(match[2]) and match[0].lstrip()[0] != "0" for match in found)


def is_object(text, fields):
    """Read the pairs, so that a key that stands twice shows; mark numbers by what they look like."""
    fenced = re.fullmatch(r"[ \t]*(?:```|~~~)[^\n]*\n(.*)\n[ \t]*(?:```|~~~)[^\n]*", text, re.DOTALL)
    try:
        found = json.loads(
            fenced[1] if fenced else text,
            object_pairs_hook=lambda pairs: ("object", pairs),
            parse_int=lambda digits: ("integer",),
            parse_float=lambda digits: ("float",),
            parse_constant=lambda name: ("constant",),
        )
    except (ValueError, RecursionError):
        return False
    if not (isinstance(found, tuple) and found[0] == "object"):
        return False
    pairs = found[1]
    if sorted(key for key, _ in pairs) != sorted(fields):
        return False
    return all(is_field(fields[key], value) for key, value in pairs)


def is_field(kind, value):
    if kind == "texts":
        return isinstance(value, list) and value != [] and all(is_field("text", item) for item in value)
    if kind == "text":
        return isinstance(value, str) and re.search(r"[^\W_]", value) is not None
    if kind == "boolean":
        return value is True or value is False
    return value in ([("integer",)] if kind == "integer" else [("integer",), ("float",)])


CHECKERS = {
    "different_words": lambda text, count: len({word for word in words_of(text) if set(word) - CONSONANTS}) >= count,
    "characters_at_most": lambda text, count: not text[count:],
    "plain_text": lambda text: all(char in "\t\n" or 32 <= ord(char) < 127 for char in text),
    "words_exactly": lambda text, count: word_count(text) == count,
    "words_at_least": lambda text, count: word_count(text) >= count,
    "words_at_most": lambda text, count: word_count(text) <= count,
    "lines_exactly": lambda text, count: len(lines_of(text)) == count,
    "bullets_exactly": lambda text, count: (
        len([line for line in lines_of(text) if re.match(rf"{BLANKS}[-\u2013\u2014] ", line)]) == count
    ),
    "numbered_list": is_numbered,
    "sentences_exactly": lambda text, count: sentence_count(text) == count,
    "paragraphs_exactly": lambda text, count: (
        len([part for part in re.split(rf"\n(?:{BLANKS}\n)+", text) if says_something(part)]) == count
    ),
    "contains_words": lambda text, words: not {word.casefold() for word in words} - set(words_of(text)),
    "word_at_least": lambda text, word, count: Counter(words_of(text))[word.casefold()] >= count,
    "word_exactly": lambda text, word, count: Counter(words_of(text))[word.casefold()] == count,
    "avoids_word": lambda text, word: Counter(words_of(text))[word.casefold()] == 0,
    "avoids_letter": lambda text, letter: (
        not any(letter.casefold() in char.casefold() for char in text)
        and not re.search(r"[^\W\d_][0-9]+[^\W\d_]", text)
    ),
    "begins_with": lambda text, words: (
        " ".join(words_of(text) + [""]).startswith(" ".join(words_of(words) + [""])) and bool(words_of(text))
    ),
    "ends_with": lambda text, words: " ".join(["", *words_of(text)]).endswith(" ".join(["", *words_of(words)])),
    "lower_case": lambda text: any(map(str.isalpha, text)) and not any(char.lower() != char for char in text),
    "upper_case": lambda text: any(map(str.isalpha, text)) and not any(char.upper() != char for char in text),
    "no_commas": lambda text: len(text.split(",")) == 1,
    "lines_begin_with": lambda text, letter: {first_letter(line) for line in lines_of(text)} == {letter.casefold()},
    "acrostic": lambda text, word: [first_letter(line) for line in lines_of(text)] == [*word.casefold()],
    "line_words_at_most": lambda text, count: (
        is_countable(text) and max([len(words_of(line)) for line in lines_of(text)] + [0]) <= count
    ),
    "word_letters_at_most": lambda text, count: (
        max([sum(map(str.isalpha, word)) for word in words_of(text)] + [0]) <= count
    ),
    "words_alphabetical": lambda text: words_of(text) == sorted(words_of(text)),
    "no_repeated_words": lambda text: max(Counter(words_of(text)).values(), default=0) <= 1,
    "quoted": lambda text: re.fullmatch(r'"[^"]*"', text) is not None,
    "json_object": is_object,
}


def broken_by(text, column):
    """Return the places of the constraints in the column that a text breaks."""
    items = json.loads(column)
    broken = []
    for place, item in enumerate(items):
        values = {name: value for name, value in item.items() if name != "kind"}
        if not holds(item["kind"], text, **values):
            broken.append(place)
    return broken

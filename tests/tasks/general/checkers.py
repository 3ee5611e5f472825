"""A second reading of every kind of constraint, written from its definition and in another way than the product's.

Where the product splits, this matches or scans, and the other way round. It may be slow and need not resist attacks.
"""

import json
import re
import unicodedata
from collections import Counter

BLANKS = r"[^\S\n]*"


def answer_of(text):
    return re.sub(r"\A\s+|\s+\Z", "", re.sub("\r\n", "\n", text))


def is_letter(char):
    return unicodedata.category(char)[0] == "L"


def words_of(text):
    """Scan the characters: joiners wait until a letter follows."""
    words = []
    word = ""
    waiting = ""
    for char in text + " ":
        if is_letter(char):
            word += waiting + char if word else char
            waiting = ""
        elif char in ("'", "-", "\N{RIGHT SINGLE QUOTATION MARK}"):
            waiting += char
        else:
            if word:
                words.append(word.casefold())
            word = waiting = ""
    return words


def pattern_of(text):
    """Write L for a letter, J for what joins letters to a word, and a space for everything else."""
    pattern = ""
    for char in text:
        if is_letter(char):
            pattern += "L"
        else:
            pattern += "J" if char in "-'\u2019" else " "
    return pattern


def lines_of(text):
    return re.findall(r"^.*\S.*$", text, re.MULTILINE)


def sentence_count(text):
    """Read the pieces between white space: one that ends like a sentence ends one, if a letter came since the last."""
    count = 0
    has_word = False
    for piece in text.split():
        has_word = has_word or any(map(is_letter, piece))
        ends = re.search(r"""[.!?]["')\]]*$""", piece)
        if ends and has_word:
            count += 1
        if ends:
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
    return all(words_of(match[2]) and match[0].lstrip()[0] != "0" for match in found)


def is_object(text, fields):
    """Read the pairs, so that a key that stands twice shows; mark numbers by what they look like."""
    try:
        found = json.loads(
            text,
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
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if kind == "text":
        return isinstance(value, str)
    if kind == "boolean":
        return value is True or value is False
    return value in ([("integer",)] if kind == "integer" else [("integer",), ("float",)])


CHECKERS = {
    "different_words": lambda text, count: len(Counter(words_of(text))) >= count,
    "characters_at_most": lambda text, count: not text[count:],
    "plain_text": lambda text: all(char in "\t\n" or 32 <= ord(char) < 127 for char in text),
    "words_exactly": lambda text, count: len(words_of(text)) == count,
    "words_at_least": lambda text, count: len(words_of(text)) >= count,
    "words_at_most": lambda text, count: len(words_of(text)) <= count,
    "lines_exactly": lambda text, count: len(lines_of(text)) == count,
    "bullets_exactly": lambda text, count: len(re.findall(rf"^{BLANKS}- {BLANKS}\S", text, re.MULTILINE)) == count,
    "numbered_list": is_numbered,
    "sentences_exactly": lambda text, count: sentence_count(text) == count,
    "paragraphs_exactly": lambda text, count: (
        len([part for part in re.split(rf"\n(?:{BLANKS}\n)+", text) if part.strip()]) == count
    ),
    "contains_words": lambda text, words: not {word.casefold() for word in words} - set(words_of(text)),
    "word_at_least": lambda text, word, count: Counter(words_of(text))[word.casefold()] >= count,
    "word_exactly": lambda text, word, count: Counter(words_of(text))[word.casefold()] == count,
    "avoids_word": lambda text, word: Counter(words_of(text))[word.casefold()] == 0,
    "avoids_letter": lambda text, letter: not any(letter.casefold() in char.casefold() for char in text),
    "begins_with": lambda text, words: (
        " ".join(words_of(text) + [""]).startswith(" ".join(words_of(words) + [""])) and bool(words_of(text))
    ),
    "ends_with": lambda text, words: " ".join(["", *words_of(text)]).endswith(" ".join(["", *words_of(words)])),
    "lower_case": lambda text: bool(words_of(text)) and not any(char.lower() != char for char in text),
    "upper_case": lambda text: bool(words_of(text)) and not any(char.upper() != char for char in text),
    "no_commas": lambda text: len(text.split(",")) == 1,
    "lines_begin_with": lambda text, letter: {first_letter(line) for line in lines_of(text)} == {letter.casefold()},
    "acrostic": lambda text, word: [first_letter(line) for line in lines_of(text)] == [*word.casefold()],
    "line_words_at_most": lambda text, count: max([len(words_of(line)) for line in lines_of(text)] + [0]) <= count,
    "word_letters_at_most": lambda text, count: not re.search(rf"L(?:J*L){{{count}}}", pattern_of(text)),
    "words_alphabetical": lambda text: words_of(text) == sorted(words_of(text)),
    "no_repeated_words": lambda text: max(Counter(words_of(text)).values(), default=0) <= 1,
    "quoted": lambda text: re.fullmatch(r'"[^"]*"', text) is not None,
    "json_object": is_object,
}


def broken_by(text, column):
    """Return the places of the constraints in the column that a text breaks."""
    answer = answer_of(text)
    items = json.loads(column)
    broken = []
    for place, item in enumerate(items):
        values = {name: value for name, value in item.items() if name != "kind"}
        if not CHECKERS[item["kind"]](answer, **values):
            broken.append(place)
    return broken

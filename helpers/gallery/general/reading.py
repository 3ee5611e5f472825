r"""What a reader sees of an answer in prose: its words, lines, sentences and paragraphs. README.md states the rules.

All demands on a text count what this module returns, so that nothing which a reader does not see as a word is one. Each
step takes time linear in the text.
"""

import html
import json
import re
import unicodedata
from functools import cached_property

from helpers.rewards.hidden import HTML_COMMENT, LINK_DEFINITION, TAG, UNSEEN_ELEMENTS, hides

#: Letters of other alphabets that look like Latin ones, and those.
_LOOKALIKES = dict(
    zip(
        "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501"
        "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405"
        "\u03bf\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
        "aeopcyxijshdABEKMHOPCTXIJSoABEZHIKMNOPTYX",
    )
)
_MARKS = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2018\u2019\u201b\u02bc", "'"),
    **dict.fromkeys("\u2010\u2011", "-"),
    **dict.fromkeys("\u060c\u3001", ","),
}


MOST_REMEMBERED = 10_000  # characters


class _PlainCharacters(dict):
    """A table for `str.translate` that is filled as characters come up: the plain form of each, "" if invisible."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character) == "Cf":
            plain = ""
        else:
            plain = _LOOKALIKES.get(character) or _MARKS.get(character) or unicodedata.normalize("NFKC", character)
        if len(self) < MOST_REMEMBERED:
            self[code] = plain
        return plain


_PLAIN = _PlainCharacters()
#: What is struck out; without an end it runs to the end of the text.
_STRUCK_OUT = re.compile(r"~~.*?(?:~~|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\n]*\)")
#: Elements that part words. They end no line: a prompt asks for lines of plain text.
_BLOCKS = frozenset("blockquote br div h1 h2 h3 h4 h5 h6 hr li ol p pre section table tr ul".split())
#: A character by a number that no character has. Python refuses to read one of thousands of digits.
_HUGE_ENTITY = re.compile(r"&#[xX]?[0-9a-fA-F]{8,}+;?")
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,}).*$", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<=[^\W_])[*`]++|(?<![*`])[*`]++(?=[^\W_])")
#: A string in JSON, or what looks like one: without its end it runs to the end of the text, so the time is linear.
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
#: A string, or a number, which is a value in JSON and no word.
_JSON_TOKEN = re.compile(rf"(?P<string>{_JSON_STRING.pattern})|-?[0-9][0-9.eE+-]*", re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
#: An object that holds lists: no kind of value that a constraint asks for is deeper.
MOST_DEPTH = 2
_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_JSON_ESCAPED = {"b": " ", "f": " ", "n": "\n", "r": "\n", "t": " "}

#: Letters and digits of any alphabet; hyphens and apostrophes between them, and points in a numeral, belong to a word.
_WORD = re.compile(r"[^\W_]+(?:(?:['-]|(?<=[0-9])[.,:/](?=[0-9]))[^\W_]+)*+")
_LETTERS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*+")
_DIGIT_IN_WORD = re.compile(r"[^\W\d_][0-9]+[^\W\d_]")
_CHUNK = re.compile(r'[^\s"]+')
#: More letters than a word has, and more words than are joined without a blank, as in "state-of-the-art".
MOST_LETTERS = 17
MOST_JOINED = 4
#: As many single letters in a row are no words.
_SPELLED_OUT = 3
_ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Mt", "Jr", "Sr", "vs")
#: The ends of a sentence. Where a run of them begins is fixed, so the time is linear in the text.
_SENTENCE_END = re.compile(
    "".join(rf"(?<!\b{word})" for word in _ABBREVIATIONS)
    + r"""(?<![.!?])(?P<marks>[.!?]++)(?P<quote>["')\]]*+)(?=\s|\Z)"""
)
_NEXT_LETTER = re.compile(r"\W{0,20}+(\w?)")  # a bound keeps the time linear


def seen_text(text: str) -> str:
    """Return a text as a reader sees it, in plain characters.

    Comments, hidden and struck out parts, tags, link targets, fences and marks of emphasis are gone, and so are
    invisible characters. Quotes, apostrophes and hyphens are those of ASCII, and letters that only look like Latin ones
    are Latin. What hides a part by an element of HTML hides the rest of the text.
    """
    text = text.replace("\r\n", "\n").strip()
    text = unfenced(text)
    if isinstance(read_json(text), dict):
        text = _JSON_ESCAPE.sub(_unescaped, _JSON_TOKEN.sub(lambda found: found["string"] or " ", text))
    text = _STRUCK_OUT.sub("", HTML_COMMENT.sub("", _FENCE.sub("", text)))
    text = _LINK.sub(r"\1", LINK_DEFINITION.sub("", text))
    text = html.unescape(_HUGE_ENTITY.sub("", _without_tags(text)))
    return _EMPHASIS.sub("", plain_characters(text)).strip()


def plain_characters(text: str) -> str:
    """Return a text with the plain form of each character, and without invisible ones."""
    return text.translate(_PLAIN)


def _unescaped(escape: re.Match) -> str:
    code, character = escape.groups()
    return chr(int(code, 16)) if code else _JSON_ESCAPED.get(character, character)


def _without_tags(text: str) -> str:
    parts = []
    place = 0
    for tag in TAG.finditer(text):
        closing, name, attributes = tag.groups()
        name = name.lower()
        parts.append(text[place : tag.start()])
        place = tag.end()
        if not closing and (name in UNSEEN_ELEMENTS or hides(attributes)):
            place = len(text)
            break
        parts.append(" " if name in _BLOCKS else "")
    return "".join(parts) + text[place:]


def read_json(text: str) -> object:
    """Return what a JSON text holds, with 0 for every number; None for invalid JSON, or nested deeper than needed.

    Numbers are not computed, however long they are. NaN, infinities and keys that stand twice are not JSON here.
    """
    if _is_deeper_than(text, MOST_DEPTH):
        return None
    try:
        return json.loads(
            text,
            parse_int=lambda digits: 0,
            parse_float=lambda digits: 0.0,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object_of,
        )
    except ValueError:
        return None


def _is_deeper_than(text: str, most: int) -> bool:
    """Tell whether brackets are open within one another more than `most` deep, strings aside."""
    depth = 0
    for bracket in _BRACKET.finditer(_JSON_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > most:
            return True
    return False


def _refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def _object_of(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def unfenced(text: str) -> str:
    """Return a text without the fence of the one block that it is, such as JSON in a block of Markdown."""
    lines = text.strip().split("\n")
    is_block = len(lines) > 2 and _FENCE.fullmatch(lines[0]) and _FENCE.fullmatch(lines[-1])
    return "\n".join(lines[1:-1]).strip() if is_block else text


def words_of(text: str) -> list[str]:
    """Return the words of a plain text as they are written there. Letters that are spelled out are none."""
    words = []
    letters = []  # in a row
    for word in [*_WORD.findall(text), ""]:
        if len(word) == 1 and word.isalpha():
            letters.append(word)
            continue
        if len(letters) < _SPELLED_OUT:
            words += letters
        letters = []
        words.append(word)
    words.pop()
    return words


def has_letter(text: str) -> bool:
    """Tell whether a text holds a letter."""
    return any(map(str.isalpha, text))


def has_content(line: str) -> bool:
    """Tell whether a line, or another part of an answer, says something: it has a numeral, or two letters."""
    letter_count = 0
    for character in line:
        letter_count += character.isalpha()
        if character.isdigit() or letter_count == 2:
            return True
    return False


def has_digit_in_word(text: str) -> bool:
    """Tell whether a digit stands between the letters of a word, where it may be read as a letter: "vill4ge"."""
    return _DIGIT_IN_WORD.search(text) is not None


def first_letter(text: str) -> str:
    """Return the first letter of a text, without regard to case; "" where there is none."""
    return next(filter(str.isalpha, text), "").casefold()


class AnswerText:
    """An answer, and what a reader sees of it. Each is found when it is first needed.

    written: the answer as it was written, without the white space at its ends. seen: see `seen_text`.
    """

    def __init__(self, text: str):
        self.written = text.replace("\r\n", "\n").strip()

    @cached_property
    def seen(self) -> str:
        return seen_text(self.written)

    @cached_property
    def words(self) -> list[str]:
        """The words as compared, without regard to case."""
        return [word.casefold() for word in words_of(self.seen)]

    @cached_property
    def word_count(self) -> int | None:
        """The number of words; None where words are joined, so that readers would disagree on it."""
        for chunk in _CHUNK.findall(self.seen):
            parts = _LETTERS.findall(chunk)
            if len(parts) > MOST_JOINED or any(len(part) > MOST_LETTERS for part in parts):
                return None
        return len(self.words)

    @cached_property
    def lines(self) -> list[str]:
        """The lines that say something, without the white space at their ends."""
        return [line.strip() for line in self.seen.split("\n") if has_content(line)]

    @cached_property
    def paragraph_count(self) -> int:
        """The number of runs of lines with something in between that says nothing, or an empty line."""
        blocks = re.split(r"\n[^\S\n]*(?=\n)", self.seen)
        return sum(map(has_content, blocks))

    @cached_property
    def sentence_count(self) -> int:
        """The number of sentences with a letter. A last one needs no end.

        An ellipsis or a quotation's end before a small letter ends none, and nor does any mark where the text has
        capitals.
        """
        has_capitals = any(map(str.isupper, self.seen))
        count = 0
        begin = 0
        for end in _SENTENCE_END.finditer(self.seen):
            following = _NEXT_LETTER.match(self.seen, end.end())[1]
            is_quotation = end["quote"].startswith(('"', "'")) and end["marks"] != "."
            goes_on = following.islower() and (has_capitals or len(end["marks"]) > 2 or is_quotation)
            if not goes_on:
                count += bool(_LETTERS.search(self.seen, begin, end.start()))
                begin = end.end()
        return count + bool(_LETTERS.search(self.seen, begin))

r"""Does a problem ask for one thing? Its parts and its choices are found by their markers, such as (1), a) or \item.

Markers alone say little: equations, conditions and statements have them, too. So a part counts as a question only if it
asks, and short parts of which none asks are choices.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import count

NUMBERS = tuple("123456789")
LETTERS = tuple("abcdefgh")
CYRILLIC = tuple("\u0430\u0431\u0432\u0433\u0434")
#: The markers of each kind, in their order.
SEQUENCES = (
    NUMBERS,
    LETTERS,
    CYRILLIC,
    ("i", "ii", "iii", "iv"),
    ("I", "II", "III", "IV"),
    ("\u2160", "\u2161", "\u2162", "\u2163"),  # Roman numerals of one character
)
CHOICES = tuple("ABCDE")
#: A longer part is no choice.
MOST_OF_A_CHOICE = 40

#: A marker of a part. Exactly one of its groups holds the name.
_MARKER = re.compile(
    r"""
    (?:
        # (1), 1), a), (ii), behind a blank or a mark
        (?: (?<=\s) | (?<=^) | (?<=[.;:?!,]) )
        \(? ([1-9] | [a-h] | [\u0430-\u0434] | i{1,3} | iv | I{1,3} | IV | [\u2160-\u2163]) \)
        (?= [\s\\A-Z:,] )
    |   # 1. or a. at the beginning of a sentence, or behind "Part"
        (?: (?<=[.;:?!\n][ ]) | (?<=\n) | (?<=^) | (?<=[Pp]art[ ]) )
        ([1-9] | [a-h] | i{1,3} | iv) \. (?= \s+ [A-Z\\] )
    |   \b (?:[Pp]art|[Qq]uestion|[Pp]roblem) [ ] ([1-9a-hA-H]) [:.]
    |   \b [Qq] ([1-9]) [:.]
    )
    (?! \s* [+*/=<>^-] )  # "(1) + (2)" is a sum
    """,
    re.VERBOSE,
)
#: (A), A. or A) of a choice.
_CHOICE_MARKER = re.compile(r"(?:(?<=[\s}{,;.:?!~])|(?<=^))(?:\(([A-E])\)|([A-E])[.:)](?=[\s\\~}0-9-]))")

#: What asks: a question mark, a gap to be filled in, or a word that begins a demand.
_GAP = r"_{2,}|(?:\\_){2,}"
_ASKS = re.compile(
    rf"\?|{_GAP}|\\underline ?\{{"
    r"|\b(?:find|determine|calculate|compute|prove|show|what|how|solve|evaluate|which|give|state|write|express|"
    r"simplify|verify|draw|explain|justify|estimate)\b",
    re.IGNORECASE,
)
#: A demand for what the parts behind it name, as in "Find (1) the length, (2) the width".
_ASKS_AT_THE_END = re.compile(
    r"\b(?:find|determine|calculate|compute|prove|evaluate|give|state|what (?:is|are))[\s:,]*\Z", re.IGNORECASE
)
_EMPTY_GAP = re.compile(rf"{_GAP}|\\underline ?\{{(?:\\[a-z]+|[\s~{{}}])*\}}")
_END_OF_SENTENCE = re.compile(r"[.!?]\s+(?=[A-Z])")
_WORD = re.compile("[A-Za-z]{3}")

#: A drawing, whose commands look like demands.
_DRAWING = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
#: Other ways to write a marker -> the plain one.
_CIRCLED = {0x2460 + digit: f" ({digit + 1}) " for digit in range(9)}
_OTHER_MARKERS = (
    (re.compile(r"\\item ?\[([^\[\]]*)\]"), r" \1 "),
    (re.compile(r"\uff08([^\uff08\uff09]{1,4})\uff09"), r" (\1) "),  # fullwidth brackets
    (re.compile(r"(?<![A-Za-z])([A-E])[\u3001\uff0e]"), r" \1. "),  # a Chinese comma or full stop
)
_ITEM = re.compile(r"\\item\b")
_BLANK = re.compile(r"\\q?quad|~")
#: What sets a marker in another type.
_TYPE = re.compile(r"\\(?:textbf|textrm|textit|text|mathrm|mathbf|mathit|mathsf) ?\{([^{}]*)\}")


class Parts:
    """A problem with the markers in it."""

    def __init__(self, problem: str):
        self.text = _plain_markers(problem)
        self.markers = list(_MARKER.finditer(self.text))

    def ask_several(self) -> bool:
        """Tell whether several parts ask for something, or several gaps are to be filled in.

        Numbered equations, conditions and statements ask for nothing.
        """
        if len(_EMPTY_GAP.findall(self.text)) >= 2:
            return True
        for sequence in SEQUENCES:
            lead, parts = self._split(sequence)
            asking = sum(asks(part) for part in parts)
            if asking >= 2 or (len(parts) >= 2 and _ASKS_AT_THE_END.search(lead)):
                return True
        return False

    def are_choices(self) -> bool:
        """Tell whether the parts are choices: A, B and C with nothing asked behind them, or short ones."""
        choices = _in_order(_CHOICE_MARKER.finditer(self.text), CHOICES)
        if len(choices) >= 3 and not self._asks_behind(choices[-1].end()):
            return True
        for sequence in (LETTERS, CYRILLIC, NUMBERS):
            lead, parts = self._split(sequence)
            nothing_is_asked = not (any(map(asks, parts)) or _ASKS_AT_THE_END.search(lead))
            if len(parts) >= 3 and nothing_is_asked and all(_is_choice(part, sequence) for part in parts):
                return True
        return False

    def _split(self, sequence: Sequence[str]) -> tuple[str, list[str]]:
        """Return what stands before the first marker of a sequence, and the part behind each of them.

        There are no parts without the first two markers.
        """
        found = _in_order(self.markers, sequence)
        if len(found) < 2:
            return self.text, []
        ends = [marker.start() for marker in found[1:]] + [len(self.text)]
        parts = [self.text[marker.end() : end] for marker, end in zip(found, ends, strict=True)]
        return self.text[: found[0].start()], parts

    def _asks_behind(self, place: int) -> bool:
        """Tell whether anything is asked in a sentence that begins behind a place."""
        end = _END_OF_SENTENCE.search(self.text, place)
        return bool(end) and asks(self.text, end.end())


def asks(text: str, begin: int = 0) -> bool:
    """Tell whether a text asks for anything. begin: where it is read from."""
    return bool(_ASKS.search(text, begin))


def _plain_markers(problem: str) -> str:
    r"""Return a problem with its markers in plain characters, as those of `$\textbf{a)}$`, `**a)**` or `\item`."""
    plain = _DRAWING.sub(" ", problem).translate(_CIRCLED)
    for pattern, replacement in _OTHER_MARKERS:
        plain = pattern.sub(replacement, plain)
    numbers = count(1)
    plain = _ITEM.sub(lambda item: f" ({next(numbers)}) ", plain)
    plain = _TYPE.sub(r"\1", _BLANK.sub(" ", plain))
    return plain.replace("$", "").replace("**", "")


def _in_order(markers: Iterable[re.Match], sequence: Sequence[str]) -> list[re.Match]:
    """Return the first marker of a sequence, behind it the next one, and so on."""
    found = []
    for marker in markers:
        name = next(group for group in marker.groups() if group)
        expected = sequence[len(found) : len(found) + 1]
        is_expected = name in expected or (sequence is LETTERS and name.lower() in expected)  # "Part A"
        if is_expected:
            found.append(marker)
    return found


def _is_choice(part: str, sequence: Sequence[str]) -> bool:
    """Tell whether a part may be a choice: it is short, and a numbered one is a number and no statement."""
    if len(part) > MOST_OF_A_CHOICE:
        return False
    if sequence is not NUMBERS:
        return True
    has_digit = any(character.isdigit() for character in part)
    return has_digit and not _WORD.search(part)

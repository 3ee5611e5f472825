r"""Competition problems whose answer is one integer: what of each data set is one, and why the rest is not.

A pool for training may be small, so a row in doubt is left out. Answers are read as those of a model are: the dressing
that `plain_answer` takes off says nothing, and every other character counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from helpers.gallery.math.problems import FORMAT
from helpers.gallery.sources.questions import Question, Unusable, keep_questions
from helpers.rewards.answers import last_box, plain_answer
from helpers.rewards.numbers import MOST_DIGITS

# Reasons, in the order in which they are looked for.
SYNTHETIC = "synthetic"
OF_A_PROBE = "competition of a probe"
INVALID = "invalid"
NOTHING = "nothing to ask or to compare"
PROOF = "proof"
NEEDS_FIGURE = "needs a figure"
CHOICE = "multiple choice"
SEVERAL_QUESTIONS = "several questions"
SEVERAL_ANSWERS = "several answers"
UNIT = "unit"
NO_INTEGER = "no integer"
OTHER_LEVEL = "another level"

#: Competitions that are asked in evaluations, as texts in the names of sources.
COMPETITIONS_OF_PROBES = ("amc", "aime")
#: A shorter text is no problem.
LEAST_CHARACTERS = 20
#: The hardest levels of MATH.
LEVELS = ("Level 4", "Level 5")

_INTEGER_TEXT = r"[+-]? ?(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)|[0-9]+)"
_INTEGER = re.compile(_INTEGER_TEXT)
#: An integer with a currency before it or a unit behind it: a sign, a power of a short one, or words.
_WITH_UNIT = re.compile(
    rf"[+-]? ?\$*(?:[$\u20ac\u00a3\u00a5]) ?{_INTEGER_TEXT}\$*"
    rf"|{_INTEGER_TEXT} ?(?:%|\^? ?\{{? ?(?:\u00b0|\\circ) ?\}}? ?[CF]?|[\u20ac\u00a3\u00a5$]"
    r"|(?:[kcmd]?m|km/h|m/s|k?g|mg|m?l|L|h|s|ft|in|min|kW|W|J|N|V)(?: ?\^ ?\{?[0-9]\}?| ?[\u00b2\u00b3])?"
    r"|[A-Za-z]{2,}[.]?(?:[ /*-]+(?:[A-Za-z]+|[0-9]+)[.]?)*(?: ?\^ ?\{?[0-9]\}?)?)",
)
#: Words and signs between two values. A comma within a number is gone by then.
_SEPARATOR = re.compile(r"[,;\n]|\b(?:or|and)\b|\\(?:pm|mp|text ?\{ ?(?:or|and)|lor|land|cup)(?![a-z])|\u00b1")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_INTERVAL = re.compile(r"\[[^\[\]]*,[^\[\]]*[\])]|\([^()]*,[^()]*\]|\\infty|\u221e")
#: What may separate thousands, as a blank may not: two integers could stand there.
_THIN_BLANK = re.compile(r"\\[,;: ]|\u202f|\u2009")
#: A letter as the whole answer, or before it, as that of a choice.
_LETTER = re.compile(r"[A-H]|\(?[A-Ha-h]\)[ .:]*.*|[A-H][.:] ?.+", re.DOTALL)

#: A marker of a part, with no sign of arithmetic behind it: (1), 1), a), (ii), or 1. at the beginning of a sentence.
_MARKER = re.compile(
    r"(?:(?:(?<=\s)|(?<=^)|(?<=[.;:?!,]))\(?(?P<name>[1-9]|[a-h]|[\u0430-\u0434]|i{1,3}|iv|I{1,3}|IV|[\u2160-\u2163])\)(?=[\s\\A-Z:,])"
    r"|(?:(?<=[.;:?!\n] )|(?<=\n)|(?<=^)|(?<=[Pp]art ))(?P<sentence>[1-9]|[a-h]|i{1,3}|iv)\.(?=\s+[A-Z\\])"
    r"|\b(?:[Pp]art|[Qq]uestion|[Pp]roblem) (?P<named>[1-9a-hA-H])[:.]|\b[Qq](?P<asked>[1-9])[:.])"
    r"(?!\s*[+*/=<>^-])"
)
#: The markers of each kind, in their order.
_NUMBERS = "1 2 3 4 5 6 7 8 9".split()
_LETTERS = "a b c d e f g h".split()
_CYRILLIC = "\u0430 \u0431 \u0432 \u0433 \u0434".split()
_SEQUENCES = (
    _NUMBERS,
    _LETTERS,
    _CYRILLIC,
    "i ii iii iv".split(),
    "I II III IV".split(),
    "\u2160 \u2161 \u2162 \u2163".split(),
)
_CHOICE_MARKER = re.compile(r"(?:(?<=[\s}{,;.:?!~])|(?<=^))(?:\(([A-E])\)|([A-E])[.:)](?=[\s\\~}0-9-]))")
#: What sets a marker in another type.
_BLANK = re.compile(r"\\q?quad|~")
#: Other ways to write a marker -> the plain one.
_OTHER_MARKERS = (
    (re.compile(r"\\item ?\[([^\[\]]*)\]"), r" \1 "),
    (re.compile(r"\uff08([^\uff08\uff09]{1,4})\uff09"), r" (\1) "),
    (re.compile(r"(?<![A-Za-z])([A-E])[\u3001\uff0e]"), r" \1. "),
)
_ITEM = re.compile(r"\\item\b")
_SMALL = str.maketrans("ABCDEFGH", "abcdefgh")
_WORD = re.compile("[A-Za-z]{3}")
_END_OF_SENTENCE = re.compile(r"[.!?]\s+(?=[A-Z])")
_DRAWING = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
_CIRCLED = {0x2460 + digit: f" ({digit + 1}) " for digit in range(9)}
_TYPE = re.compile(r"\\(?:textbf|textrm|textit|text|mathrm|mathbf|mathit|mathsf) ?\{([^{}]*)\}")
_ASKS = re.compile(
    r"\?|_{2,}|(?:\\_){2,}|\\underline ?\{"
    r"|\b(?:find|determine|calculate|compute|prove|show|what|how|solve|evaluate|which|give|state|write|express|"
    r"simplify|verify|draw|explain|justify|estimate)\b",
    re.IGNORECASE,
)
#: A gap to be filled in.
_GAP = re.compile(r"_{2,}|(?:\\_){2,}|\\underline ?\{(?:\\[a-z]+|[\s~{}])*\}")
_ASKS_AT_THE_END = re.compile(
    r"\b(?:find|determine|calculate|compute|prove|evaluate|give|state|what (?:is|are))[\s:,]*\Z", re.IGNORECASE
)
_PROVES = re.compile(r"\W*(?:prove|show) that\b", re.IGNORECASE)
#: A picture that nobody will see. Many problems that mention a figure say in words what is in it.
_FIGURE = re.compile(r"!\[[^\]]*\]\(|\\includegraphics")
#: What a translator was told, and left in the problem.
_TRANSLATED = re.compile(r"\btranslate the (?:above )?text\b|\bthe above text into english\b", re.IGNORECASE)
#: As a truth value, and as a CSV file has it.
_NOT_SYNTHETIC = (False, None, "", "False", "false")
#: A longer answer is no integer of `MOST_DIGITS` digits.
_MOST_OF_AN_ANSWER = 400
#: A choice is short.
_MOST_OF_A_CHOICE = 40


def numinamath_question(values: Mapping) -> Question:
    """Return the question of a row of NuminaMath-1.5. Raises Unusable.

    values: problem, answer, question_type, problem_is_valid, solution_is_valid, source and synthetic, as the data set
    has them. Left out are rows whose problem a model wrote, whose competition is asked in an evaluation, that its
    authors call invalid, proofs and multiple choice, several questions in one, and all answers but a single integer.
    """
    source = values.get("source") or ""
    if values.get("synthetic") not in _NOT_SYNTHETIC:
        raise Unusable(SYNTHETIC)
    if any(competition in source.lower() for competition in COMPETITIONS_OF_PROBES):
        raise Unusable(OF_A_PROBE)
    if values.get("problem_is_valid") != "Yes" or values.get("solution_is_valid") != "Yes":
        raise Unusable(INVALID)
    problem = _text_of(values.get("problem"))
    answer = _text_of(values.get("answer"))
    if len(problem) < LEAST_CHARACTERS or answer in ("", "notfound"):
        raise Unusable(NOTHING)
    kind = values.get("question_type")
    asks_for_proof = _PROVES.match(problem) and not _ASKS.search(problem, _PROVES.match(problem).end())
    if kind == "proof" or answer.lower() == "proof" or asks_for_proof:
        raise Unusable(PROOF)
    if kind == "MCQ":
        raise Unusable(CHOICE)
    return _question(problem, answer)


def filter_numinamath(rows: Iterable[Mapping]) -> tuple[list[Question], dict[str, int]]:
    """Return the questions of rows of NuminaMath-1.5, in their order, and how many others there are by reason.

    rows: with the columns that `numinamath_question` reads. Each problem is kept once.
    """
    return keep_questions(rows, numinamath_question)


def dapo_question(values: Mapping) -> Question:
    """Return the question of a row of DAPO-Math. Raises Unusable. values: prompt, and solution, which is the answer."""
    return _question(_without_dapo_frame(_text_of(values.get("prompt"))), _text_of(values.get("solution")))


def math_question(values: Mapping) -> Question:
    r"""Return the question of a row of MATH, of level 4 or 5. Raises Unusable.

    values: problem, level, and solution, whose last `\boxed{}` holds the answer.
    """
    if values.get("level") not in LEVELS:
        raise Unusable(OTHER_LEVEL)
    answer = last_box(_text_of(values.get("solution")))
    return _question(_text_of(values.get("problem")), answer or "")


def answered_question(values: Mapping) -> Question:
    """Return the question of a row with problem and answer, as MATH-500, AIME and Apex have them. Raises Unusable."""
    return _question(_text_of(values.get("problem")), _text_of(values.get("answer")))


def gsm8k_question(values: Mapping) -> Question:
    """Return the question of a row of GSM8K. Raises Unusable. values: question, and answer, a working before ####."""
    _, mark, answer = _text_of(values.get("answer")).rpartition("####")
    return _question(_text_of(values.get("question")), answer.strip() if mark else "")


def _question(problem: str, answer: str) -> Question:
    """Return the question of a problem and its answer. Raises Unusable."""
    if not problem or not answer:
        raise Unusable(NOTHING)
    if _FIGURE.search(problem):
        raise Unusable(NEEDS_FIGURE)
    if _TRANSLATED.search(problem):
        raise Unusable(INVALID)
    text = _without_type(problem)
    markers = list(_MARKER.finditer(text))
    if _lists_choices(text, markers) or _names_choice(answer):
        raise Unusable(CHOICE)
    if _asks_several(text, markers):
        raise Unusable(SEVERAL_QUESTIONS)
    integer = read_integer(answer)
    return Question(problem, {"prompt": f"{problem} {FORMAT}", "answer": integer})


def read_integer(answer: str) -> str:
    r"""Return the integer that an answer is, in plain digits. Raises Unusable where it is anything else.

    `$1{,}234$`, `\boxed{1\,234}` and `1234.` are one integer. `(1,234)` is a pair. `x = 42`, `42.0`, `6 \cdot 7` and
    `42 \text{ cm}` are none: the answer of a model is compared as a number, and what else stands there would be lost.
    """
    if len(answer) > _MOST_OF_AN_ANSWER:
        raise Unusable(NO_INTEGER)
    plain = plain_answer(answer)
    with_brackets = plain_answer(answer, keeps_brackets=True)
    if _INTERVAL.search(with_brackets):
        raise Unusable(NO_INTEGER)
    is_bracketed = with_brackets[:1] in ("(", "[") or r"\{" in answer
    if is_bracketed and re.search("[, ]", with_brackets):
        raise Unusable(SEVERAL_ANSWERS)  # a pair such as (3,200) is no integer in the thousands
    has_plain_blank = " " in plain.lstrip("+- ") and not _THIN_BLANK.search(answer)
    if _INTEGER.fullmatch(plain) and not has_plain_blank:
        digits = re.sub("[^0-9]", "", plain)
        if len(digits) > MOST_DIGITS:
            raise Unusable(NO_INTEGER)
        return str(-int(digits) if "-" in plain else int(digits))
    if _SEPARATOR.search(_THOUSANDS.sub("", plain)):
        raise Unusable(SEVERAL_ANSWERS)
    if _WITH_UNIT.fullmatch(plain):
        raise Unusable(UNIT)
    raise Unusable(NO_INTEGER)


def _names_choice(answer: str) -> bool:
    """Tell whether an answer is a letter, or begins with one as `(B) 12` does."""
    forms = plain_answer(answer), plain_answer(answer, keeps_brackets=True)
    return any(_LETTER.fullmatch(form) for form in forms)


def _lists_choices(text: str, markers: Sequence[re.Match]) -> bool:
    """Tell whether a problem has lettered choices: A, B and C in their order, or short parts a, b and c.

    Behind the first choice nothing is asked. text: without type. markers: of its parts.
    """
    choices = _in_sequence(_CHOICE_MARKER.finditer(text), "ABCDE")
    if len(choices) >= 3 and not _asks_after(text, choices[-1].end()):
        return True
    for sequence in (_LETTERS, _CYRILLIC, _NUMBERS):
        lead, parts = _parts(text, markers, sequence)
        asks = any(_ASKS.search(part) for part in parts) or _ASKS_AT_THE_END.search(lead)
        if len(parts) >= 3 and not asks and all(_is_choice(part, sequence) for part in parts):
            return True
    return False


def _is_choice(part: str, sequence: Sequence[str]) -> bool:
    """Tell whether a part may be a choice: it is short, and a numbered one is a number and no statement."""
    if sequence is _NUMBERS:
        return len(part) <= _MOST_OF_A_CHOICE and bool(re.search("[0-9]", part)) and not _WORD.search(part)
    return len(part) <= _MOST_OF_A_CHOICE


def _asks_after(text: str, begin: int) -> bool:
    """Tell whether anything is asked in a sentence that begins behind a place."""
    end = _END_OF_SENTENCE.search(text, begin)
    return bool(end and _ASKS.search(text, end.end()))


def _asks_several(text: str, markers: Sequence[re.Match]) -> bool:
    """Tell whether a problem has several parts, numbered or lettered, that each ask for something.

    Numbered equations, conditions and statements ask for nothing. text: without type. markers: of its parts.
    """
    if len(_GAP.findall(text)) >= 2:
        return True
    for sequence in _SEQUENCES:
        lead, parts = _parts(text, markers, sequence)
        asking = sum(bool(_ASKS.search(part)) for part in parts)
        if asking >= 2 or (len(parts) >= 2 and _ASKS_AT_THE_END.search(lead)):
            return True
    return False


def _without_type(problem: str) -> str:
    r"""Return a problem with its markers in plain characters, as those of `$\textbf{a)}$`, `**a)**` or `\item`."""
    plain = _DRAWING.sub(" ", problem).translate(_CIRCLED)
    for pattern, replacement in _OTHER_MARKERS:
        plain = pattern.sub(replacement, plain)
    numbers = count(1)
    plain = _ITEM.sub(lambda item: f" ({next(numbers)}) ", plain)
    plain = _TYPE.sub(r"\1", _BLANK.sub(" ", plain))
    return plain.replace("$", "").replace("**", "")


def _parts(text: str, markers: Sequence[re.Match], sequence: Sequence[str]) -> tuple[str, list[str]]:
    """Return what stands before the first marker of a sequence, and the part behind each of them in its order.

    There are no parts without the first two markers.
    """
    found = _in_sequence(markers, sequence)
    if len(found) < 2:
        return text, []
    ends = [marker.start() for marker in found[1:]] + [len(text)]
    parts = [text[marker.end() : end] for marker, end in zip(found, ends, strict=True)]
    return text[: found[0].start()], parts


def _in_sequence(markers: Iterable[re.Match], sequence: Sequence[str]) -> list[re.Match]:
    """Return the first marker of a sequence, behind it the next one, and so on."""
    found = []
    for marker in markers:
        name = next(group for group in marker.groups() if group).translate(_SMALL)
        if len(found) < len(sequence) and name == sequence[len(found)].translate(_SMALL):
            found.append(marker)
    return found


#: Sentences that DAPO-Math puts around a problem, where a copy of it still has them.
_DAPO_FRAME = (
    re.compile(r"\ASolve the following math problem step by step\..*?\n\n", re.DOTALL),
    re.compile(r"\n\nRemember to put your answer on its own line.*\Z", re.DOTALL),
)


def _without_dapo_frame(prompt: str) -> str:
    for frame in _DAPO_FRAME:
        prompt = frame.sub("", prompt)
    return prompt.strip()


def _text_of(value: object) -> str:
    """Return a column's text without blanks around it; "" for a missing one, and for what is no text or integer."""
    if isinstance(value, str):
        return value.strip()
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_integer else ""

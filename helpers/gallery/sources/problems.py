r"""Competition problems whose answer is one integer: what of each data set is one, and why the rest is not.

A pool for training may be small, so a row in doubt is left out. Answers are read as those of a model are: the dressing
that `plain_answer` takes off says nothing, and every other character counts.
"""

import re
from collections.abc import Iterable, Mapping

from helpers.gallery.math.problems import FORMAT
from helpers.gallery.sources.parts import Parts, asks
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

#: An integer with or without a sign, in groups of three or not.
_INTEGER_TEXT = r"[+-]? ?(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)|[0-9]+)"
_INTEGER = re.compile(_INTEGER_TEXT)
_VERBOSE_INTEGER = _INTEGER_TEXT.replace(" ", "[ ]")
#: Units of one to four letters.
_SYMBOLS = "[kcmd]?m|km/h|m/s|k?g|mg|m?l|L|h|s|ft|in|min|kW|W|J|N|V"
#: An integer with a currency before it or a unit behind it: a sign, a power of a short one, or words.
_WITH_UNIT = re.compile(
    rf"""
    [+-]?[ ]? \$* [$\u20ac\u00a3\u00a5] [ ]? {_VERBOSE_INTEGER} \$*
    | {_VERBOSE_INTEGER} [ ]?
      (?:
          %
        | \^? [ ]? \{{? [ ]? (?:\u00b0|\\circ) [ ]? \}}? [ ]? [CF]?
        | [\u20ac\u00a3\u00a5$]
        | (?:{_SYMBOLS}) (?: [ ]? \^ [ ]? \{{?[0-9]\}}? | [ ]?[\u00b2\u00b3] )?
        | [A-Za-z]{{2,}}[.]? (?: [ /*-]+ (?:[A-Za-z]+|[0-9]+) [.]? )* (?: [ ]? \^ [ ]? \{{?[0-9]\}}? )?
      )
    """,
    re.VERBOSE,
)
#: Words and signs between two values. A comma within a number is gone by then.
_SEPARATOR = re.compile(r"[,;\n]|\b(?:or|and)\b|\\(?:pm|mp|text ?\{ ?(?:or|and)|lor|land|cup)(?![a-z])|\u00b1")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_INTERVAL = re.compile(r"\[[^\[\]]*,[^\[\]]*[\])]|\([^()]*,[^()]*\]|\\infty|\u221e")
#: What may separate thousands, as a blank may not: two integers could stand there.
_THIN_BLANK = re.compile(r"\\[,;: ]|\u202f|\u2009")
#: A letter as the whole answer, or before it, as that of a choice.
_LETTER = re.compile(r"[A-H]|\(?[A-Ha-h]\)[ .:]*.*|[A-H][.:] ?.+", re.DOTALL)

#: A demand for a proof.
_PROVES = re.compile(r"\W*(?:prove|show) that\b", re.IGNORECASE)
#: A picture that nobody will see. Many problems that mention a figure say in words what is in it.
_FIGURE = re.compile(r"!\[[^\]]*\]\(|\\includegraphics")
#: What a translator was told, and left in the problem.
_TRANSLATED = re.compile(r"\btranslate the (?:above )?text\b|\bthe above text into english\b", re.IGNORECASE)
#: As a truth value, and as a CSV file has it.
_NOT_SYNTHETIC = (False, None, "", "False", "false")
#: A longer answer is no integer of `MOST_DIGITS` digits.
_MOST_OF_AN_ANSWER = 400


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
    proof = _PROVES.match(problem)
    asks_for_proof = proof is not None and not asks(problem, proof.end())
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
    parts = Parts(problem)
    if parts.are_choices() or _names_choice(answer):
        raise Unusable(CHOICE)
    if parts.ask_several():
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

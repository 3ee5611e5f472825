"""Completions that no reward should pay: careless ones, hostile ones, and code given as an answer."""

import ast
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

#: The text of a probe for each row; None where the probe has nothing to say of that row.
Texts = list[str | None]

_INTEGER = re.compile(r"[+-]?[0-9]{1,15}")
_FENCE = "```"
#: Words of an answer that is no text.
MOST_WORDS = 5
#: The environment variable that names the file which the code creates. So the texts are the same on every machine.
CANARY_VARIABLE = "LINT_CANARY"


@dataclass(frozen=True)
class AnswerFormat:
    """The common form of all answers of a task: they begin with `opening` and end with `closing`."""

    opening: str
    closing: str

    def wrap(self, content: str) -> str:
        """Return an answer that says `content`."""
        return f"{self.opening}{content}{self.closing}"

    def content(self, answer: str) -> str:
        """Return what an answer says."""
        return answer[len(self.opening) : len(answer) - len(self.closing)]


def answer_format(answers: Sequence[str]) -> AnswerFormat:
    r"""Return the format that answers share, such as `\boxed{` and `}`. At least two of them must be different.

    A word or number that stands across the border belongs to the content, as in `\boxed{12}` and `\boxed{15}`.
    """
    opening = re.sub(r"\w+$", "", os.path.commonprefix(list(answers)))
    rests = [answer[len(opening) :] for answer in answers]
    backwards = os.path.commonprefix([rest[::-1] for rest in rests])
    closing = re.sub(r"^\w+", "", backwards[::-1])
    return AnswerFormat(opening, closing)


def plain_probes(prompts: Sequence[str], answers: Sequence[str], wrong: Sequence[Sequence[str]]) -> dict[str, Texts]:
    """Return name -> texts of the probes that hold no code.

    prompts, answers: of each row. wrong: for each row the answers of other rows that are not right for it.
    """
    shape = answer_format(answers)
    probes = {"empty": [""] * len(answers), "one space": [" "] * len(answers), "prompt echo": list(prompts)}
    probes["most frequent answer"] = _most_frequent(answers, wrong)
    probes["another row's answer"] = [others[0] if others else None for others in wrong]
    probes.update(_answer_lists(answers, wrong, shape))
    if shape.wrap(""):
        probes["format, nothing in it"] = [shape.wrap("")] * len(answers)
        probes["format, ? in it"] = [shape.wrap("?")] * len(answers)
    if all(_FENCE in answer for answer in answers):
        probes["empty code fence"] = [f"{_FENCE}python\n{_FENCE}"] * len(answers)
    contents = [shape.content(answer) for answer in answers]
    for name, write in (("sum to be worked out", _as_sum), ("product to be worked out", _as_product)):
        probes[name] = [
            shape.wrap(write(int(content))) if _INTEGER.fullmatch(content) else None for content in contents
        ]
    return _without_right_answers(probes, answers)


def _most_frequent(answers: Sequence[str], wrong: Sequence[Sequence[str]]) -> Texts:
    """Return one constant answer, on the rows where it is wrong."""
    ((constant, _),) = Counter(answers).most_common(1)
    return [constant if constant in others else None for others in wrong]


def _answer_lists(answers, wrong, shape: AnswerFormat) -> dict[str, Texts]:
    """Return lists of many answers, the right one among them.

    A right answer at the very end counts in many tasks, where the last one is the model's word. So it stands there
    only without its format, which no such rule covers.
    """
    probes = {"all answers, the right one first": [], "all answers, the right one inside": []}
    for answer, others in zip(answers, wrong, strict=True):
        first = "\n".join([answer, *others]) if others else None
        inside = "\n".join([*others[1:], answer, others[0]]) if len(others) > 1 else None
        probes["all answers, the right one first"].append(first)
        probes["all answers, the right one inside"].append(inside)
    if not shape.wrap(""):
        return probes
    probes["bare list, the right one first"] = []
    probes["bare list, the right one last"] = []
    for answer, others in zip(answers, wrong, strict=True):
        content = shape.content(answer)
        rest = [shape.content(other) for other in others]
        probes["bare list, the right one first"].append("\n".join([content, *rest]) if rest else None)
        probes["bare list, the right one last"].append("\n".join([*rest, content]) if rest else None)
    return probes


def _as_sum(number: int) -> str:
    return f"{number - 1}+1"


def _as_product(number: int) -> str:
    """Return such as "6*7"; a prime number and its negative are written as once themselves."""
    for factor in range(2, 1000):
        if abs(number) > factor and number % factor == 0:
            return f"{factor}*{number // factor}"
    return f"1*{number}"


def padded_answers(answers: Sequence[str]) -> Texts:
    """Return right answers with a paragraph of filler before each: what pay for length makes of them."""
    filler = "Let me think about this once more, to be sure of it. " * 20
    return [f"{filler}\n\n{answer}" for answer in answers]


def code_probes(answers: Sequence[str]) -> dict[str, Texts]:
    """Return name -> texts that create the file named by `CANARY_VARIABLE` where anything runs them.

    They are expressions and statements at once, so eval, exec and sympy's parser all run them. Some of them have the
    right answer as their value.
    """
    shape = answer_format(answers)
    trace = f"open(__import__('os').environ['{CANARY_VARIABLE}'], 'w').close()"
    os_names = (
        "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'].pop().__init__.__globals__"
    )
    walk = f"[g['mkdir'](g['environ']['{CANARY_VARIABLE}']) for g in [{os_names}]]"
    values = [_as_expression(shape.content(answer)) for answer in answers]
    valued = [None if value is None else f"[{trace}, {value}].pop()" for value in values]
    probes = {
        "code": [trace] * len(answers),
        "code with the answer as its value": valued,
        "code that needs no builtins": [walk] * len(answers),
    }
    if shape.wrap(""):
        probes["code in the format"] = [shape.wrap(trace)] * len(answers)
        probes["code with that value in the format"] = [None if code is None else shape.wrap(code) for code in valued]
        probes["code that needs no builtins in the format"] = [shape.wrap(walk)] * len(answers)
    if all(_FENCE in answer for answer in answers):
        probes["code in a fence"] = [f"{_FENCE}python\n{trace}\n{_FENCE}"] * len(answers)
    return probes


def _as_expression(content: str) -> str | None:
    """Return Python whose value is the answer: the answer itself where it is an expression, else a string.

    None for a text of many words: code that quotes all of it may be a right answer itself.
    """
    try:
        ast.parse(content, mode="eval")
    except (SyntaxError, ValueError):
        return repr(content) if len(content.split()) <= MOST_WORDS else None
    return content


def long_probes(answers: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Return name -> what a very long text begins with, repeats and ends with."""
    shape = answer_format(answers)
    probes = {
        "very long, words": ("", "so ", "."),
        "very long, digits": ("", "7", "."),
        "very long, blanks": ("", " ", "."),
        "very long, boxes left open": ("", "\\boxed{", ""),
    }
    if shape.wrap(""):
        probes["very long, digits in the format"] = (shape.opening, "7", shape.closing)
        probes["very long, format opened again and again"] = ("", shape.opening or shape.closing, "")
    return probes


def long_text(parts: tuple[str, str, str], length: int) -> str:
    """Return a text of about `length` characters."""
    head, unit, tail = parts
    return head + unit * (length // len(unit)) + tail


def _without_right_answers(probes: dict[str, Texts], answers: Sequence[str]) -> dict[str, Texts]:
    """Leave out what is, but for spaces around it, the right answer of its row after all."""
    checked = {}
    for name, texts in probes.items():
        checked[name] = [
            None if text is not None and text.strip() == answer.strip() else text
            for text, answer in zip(texts, answers, strict=True)
        ]
    return checked

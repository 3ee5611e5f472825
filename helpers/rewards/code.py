"""The program in a completion."""

import re
from typing import NamedTuple

from helpers.rewards.text import text_of

#: A line that may open or close a fenced block: its indentation, the fence, and what stands after it.
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})(.*)$", re.MULTILINE)
#: A line that begins a definition, of a function or a class, or of a variable.
_DEFINITION = re.compile(r"([ \t]*)(?:def|class)[ \t]+(\w+)|(\w+)[ \t]*=(?!=)")
#: The language in what stands behind a fence, as in `python title="x.py"` or `{.python}`.
_LANGUAGE = re.compile(r"[{. \t]*(\w*)")
_LANGUAGES = ("", "python", "python3", "py", "py3")


class _Block(NamedTuple):
    """A fenced block. language: the first word behind the fence, in lower case."""

    language: str
    text: str

    def defines(self, name: str | None, indented: bool = False) -> bool:
        """Whether a line defines `name`; None: any function or class.

        indented: also lines that do not begin at the margin. A variable counts only where the block says that it is
        Python, since the output of a program may look like one.
        """
        for line in self.text.split("\n"):
            definition = _DEFINITION.match(line)
            if definition is None or (definition[1] and not indented):
                continue
            _, function_or_class, variable = definition.groups()
            if function_or_class and name in (function_or_class, None):
                return True
            if self.language and variable and variable == name:
                return True
        return False


def extract_code(completion: str | list[dict], finish_reason: str = "stop", function: str | None = None) -> str | None:
    """Return the program in a completion, or None.

    completion: a message list, of which only the final channel counts, or a plain string. function: the name of the
    function that the program is to define; None: any.

    The program is the last fenced block of Python that defines the function, or the only such block where none does.
    There is none in a completion that was cut off, that leaves a block open, or where the block's lines are not the
    same for every reader.
    """
    blocks = _fenced_blocks(text_of(completion)) if finish_reason == "stop" else None
    python = [block for block in blocks or () if block.language in _LANGUAGES]
    defining = [block for block in python if block.defines(function)]
    if not defining:
        defining = [block for block in python if block.defines(function, indented=True)]
    if not defining and len(python) > 1:
        return None
    for block in reversed(defining or python):
        return block.text if _has_plain_lines(block.text) else None
    return None


def _fenced_blocks(text: str) -> list[_Block] | None:
    """Return the fenced blocks of a Markdown text, or None if one is left open. Takes time linear in the text.

    A block ends with a line of the fence's own character, as many of them or more, and at most three blanks deeper than
    its first line. A fence in a docstring, which stands deeper, is a part of the program.
    """
    text = text.replace("\r\n", "\n")
    blocks = []
    opening = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            if _opens(fence):
                opening = fence
        elif _closes(fence, opening):
            content = text[opening.end() + 1 : fence.start()]
            blocks.append(_Block(_language(opening), _without_indentation(content, len(opening[1]))))
            opening = None
    return blocks if opening is None else None


def _opens(fence):
    """Whether a fence can open a block: text between backticks on one line is no block."""
    return "`" not in fence[3] or fence[2][0] == "~"


def _closes(fence, opening):
    is_same = fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])
    is_deeper = len(fence[1]) > len(opening[1]) + 3
    return is_same and not is_deeper and not fence[3].strip()


def _language(opening):
    return _LANGUAGE.match(opening[3]).group(1).lower()


def _without_indentation(text, most):
    """Take up to `most` blanks from the beginning of each line, as a block in a list is indented."""
    if not most:
        return text
    lines = []
    for line in text.split("\n"):
        blanks = len(line) - len(line.lstrip(" \t"))
        lines.append(line[min(blanks, most) :])
    return "\n".join(lines)


def _has_plain_lines(text):
    """Whether nothing but newlines ends a line: other characters do for some readers, and Python is not one of them."""
    return text.splitlines() == text.split("\n")[:-1]

"""The program in a completion."""

import re
import symtable
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from helpers.rewards.arguments import text_of

#: A line that may open or close a fenced block: its indentation, the fence, and what stands after it.
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})(.*)$", re.MULTILINE)
#: A line that begins a definition, of a function or a class, or of a variable.
_DEFINITION = re.compile(r"([ \t]*)(?:def|class)[ \t]+(\w+)|(\w+)[ \t]*=(?!=)")
#: A line at the margin that imports something or sets a variable.
_IMPORT_OR_VARIABLE = re.compile(
    r"(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(?P<imported>.+)|(?P<variable>[^\W\d]\w*)[ \t]*(?::[^=\n]*)?=(?!=)"
)
#: A longer program is not parsed for the names that it needs: each of its words counts.
MOST_PARSED = 20_000
_WORD = re.compile(r"[^\W\d]\w*")
#: A fence in a block quote, and the mark of a quote at the beginning of a line.
_QUOTED_FENCE = re.compile(r"^[ \t]*> ?[ \t]*(?:`{3}|~{3})", re.MULTILINE)
_QUOTED_LINES = re.compile(r"(?:^[ \t]*>.*(?:\n|\Z))++", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]*>", re.MULTILINE)
_FIRST_BLANK = re.compile(r"^ ", re.MULTILINE)
#: A line of code directly behind the mark of a quote, where other quotes have a blank.
_AT_MARGIN = re.compile(r"^[^\s`~]", re.MULTILINE)
#: What stands behind a closing fence where the text goes on in its line: two words or more.
_SENTENCE = re.compile(r"[ \t]*[^\s`~]+[ \t]+[^\s`~]")
#: The language in what stands behind a fence, as in `python title="x.py"` or `{.python}`.
_LANGUAGE = re.compile(r"[{. \t]*(\w*)")
_LANGUAGES = ("", "python", "python3", "py", "py3", "ipython", "ipython3")


class _Block(NamedTuple):
    """A fenced block. language: the first word behind the fence, in lower case."""

    language: str
    text: str

    def defined_names(self) -> set[str]:
        """The functions and classes that lines at the margin define.

        Where the block says that it is Python, also the variables that they set and what they import: the output of a
        program may look like one.
        """
        names = self.defined_functions()
        if self.language:
            for line in self.text.split("\n"):
                found = _IMPORT_OR_VARIABLE.match(line)
                if found:
                    names.update(_WORD.findall(found["imported"] or found["variable"]))
        return names

    def defined_functions(self) -> set[str]:
        """The functions and classes that lines at the margin define."""
        definitions = filter(None, map(_DEFINITION.match, self.text.split("\n")))
        return {found[2] for found in definitions if found[2] and not found[1]}

    def defines(self, name: str | None, indented: bool = False) -> bool:
        """Tell whether a line defines `name`; None: any function or class.

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


def extract_code(
    completion: str | list[dict],
    finish_reason: str = "stop",
    function: str | None = None,
    runs_here: Callable[[str], bool] | None = None,
) -> str | None:
    """Return the program in a completion, or None.

    completion: a message list, of which only the final channel counts, or a plain string. function: the name of the
    function that the program is to define; None: any. runs_here: f(text of a block) -> whether what it needs is here;
    it is asked where several blocks define the function.

    The program is the last fenced block of Python that defines the function and runs here, or the last that defines it,
    or the only block of Python where none does; below the other blocks that define what it names. There is none in a
    completion that was cut off, that leaves a block open, or where the block's lines are not the same for every reader.
    """
    blocks = _fenced_blocks(text_of(completion)) if finish_reason == "stop" else None
    python = [block for block in blocks or () if block.language in _LANGUAGES]
    defining = [block for block in python if block.defines(function)]
    if not defining:
        defining = [block for block in python if block.defines(function, indented=True)]
    if not defining and len(python) > 1:
        return None
    if not python:
        return None
    chosen = (defining or python)[-1]
    if runs_here and len(defining) > 1:
        chosen = next((block for block in reversed(defining) if runs_here(block.text)), chosen)
    helpers = _helpers_of(chosen, python, function)
    text = "".join(block.text for block in [*helpers, chosen])
    return text if _has_plain_lines(text) else None


def _helpers_of(chosen: _Block, blocks: Sequence[_Block], function: str | None) -> list[_Block]:
    """Return the blocks that bind what `chosen` needs, and what those need in turn.

    Of a block behind it, which is mostly a demonstration, only functions and classes count that no block before it has.
    One that defines the function itself counts where no other has what is needed.
    """
    chosen_place = next(place for place, block in enumerate(blocks) if block is chosen)
    places_of = defaultdict(list)  # name -> the places of the blocks that bind it
    for place, block in enumerate(blocks):
        names = block.defined_names() if place < chosen_place else block.defined_functions()
        for name in names if block is not chosen else ():
            places_of[name].append(place)
    other_versions = set(places_of.pop(function, ()))
    taken = set()
    needed = _needed_names(chosen.text)
    found = set()
    while needed:
        name = needed.pop()
        if name in found:
            continue
        found.add(name)
        before = [place for place in places_of[name] if place < chosen_place]
        behind = [place for place in places_of[name] if place > chosen_place and place not in other_versions]
        for place in [place for place in before if place not in other_versions] or before or behind:
            if place not in taken:
                taken.add(place)
                needed |= _needed_names(blocks[place].text)
    return [blocks[place] for place in sorted(taken)]


def _needed_names(text: str) -> set[str]:
    """Return the names that a program looks up and does not bind itself; all its words where it cannot be parsed."""
    words = set(_WORD.findall(text))
    if len(text) > MOST_PARSED:
        return words
    try:
        with warnings.catch_warnings(action="ignore"):  # for an escape that is none, in a string
            table = symtable.symtable(text, "program", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return words
    bound = {symbol.get_name() for symbol in table.get_symbols() if not _is_only_used(symbol)}
    return _names_looked_up(table) - bound


def _is_only_used(symbol: symtable.Symbol) -> bool:
    return not (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())


def _names_looked_up(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a scope, and those inside it, look up at the top level."""
    is_top = table.get_type() == "module"
    names = {symbol.get_name() for symbol in table.get_symbols() if is_top or symbol.is_global()}
    return names.union(*map(_names_looked_up, table.get_children()))


def _fenced_blocks(text: str) -> list[_Block] | None:
    """Return the fenced blocks of a Markdown text, or None if one is left open. Takes time linear in the text.

    A block ends with a line of the fence's own character, as many of them or more, and at most three blanks deeper than
    its first line; an HTML comment or a sentence may follow. A fence in a docstring, which stands deeper, is a part of
    the program. Blocks inside an HTML comment do not count.
    """
    text = text.replace("\r\n", "\n")
    if _QUOTED_FENCE.search(text):
        text = _QUOTED_LINES.sub(_without_quote_marks, text)
    blocks = []
    opening = None
    is_hidden = False
    place = 0  # up to which comments have been looked for
    for fence in _FENCE.finditer(text):
        if opening is None:
            is_hidden = _ends_in_comment(text[place : fence.start()], is_hidden)
            place = fence.end()
            if not is_hidden and _opens(fence):
                opening = fence
        elif _closes(fence, opening):
            content = text[opening.end() + 1 : fence.start()]
            blocks.append(_Block(_language(opening), _without_indentation(content, len(opening[1]))))
            opening = None
            place = fence.end()
    return blocks if opening is None else None


def _ends_in_comment(text: str, begins_in_comment: bool) -> bool:
    """Tell whether an HTML comment, which no reader sees, is open at the end of a text."""
    last_begin = text.rfind("<!--")
    last_end = text.rfind("-->")
    return begins_in_comment if last_begin == last_end else last_begin > last_end


def _without_quote_marks(lines: re.Match) -> str:
    """Return the lines of a block quote without its marks, if a fence is among them."""
    if not _QUOTED_FENCE.search(lines[0]):
        return lines[0]
    text = _QUOTE.sub("", lines[0])
    return text if _AT_MARGIN.search(text) else _FIRST_BLANK.sub("", text)


def _opens(fence):
    """Tell whether a fence can open a block: text between backticks on one line is no block."""
    return "`" not in fence[3] or fence[2][0] == "~"


def _closes(fence, opening):
    is_same = fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])
    is_deeper = len(fence[1]) > len(opening[1]) + 3
    following = fence[3].strip()
    is_end = not following or following.startswith("<!--") or _SENTENCE.match(fence[3])
    return bool(is_same and not is_deeper and is_end)


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
    """Tell whether newlines alone end its lines: for some readers other characters do, and for Python they do not."""
    return text.splitlines() == text.split("\n")[:-1]

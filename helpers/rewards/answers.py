r"""The reader of final answers: finds the last `\boxed{}` of a text, and takes off what only dresses its content.

All graders read through it, so that an answer counts the same in each, however a model sets it. `README.md` beside this
file lists its rules, each with its reason. What a model wrote is never evaluated. Each step takes time linear in the
text.
"""

import re
from typing import NamedTuple

from helpers.rewards.arguments import text_of
from helpers.rewards.hidden import without_hidden

# A backslash takes the next character with it, so the braces in `\{` and `\}` are none.
_BOX_TOKEN = re.compile(
    r"(?P<box>\\boxed[ \t\n\r\f\v]*\{)"
    r"|(?P<unseen>\\(?:[bx]?cancel|sout|st|[hv]?phantom|textcolor[ ]?\{white\})[ \t]*\{)"  # struck out, or blank
    r"|\\."
    r"|(?P<open>\{)"
    r"|(?P<close>\})",
    re.DOTALL,
)
_UNSEEN_BOX = -1
#: From the end of one box to the content of the next, where both stand in one list: "either \boxed{8} or \boxed{9}".
_BETWEEN_LISTED_BOXES = re.compile(
    r"\}(?:[\s$,;./|*}&-]|\\[()\[\],;: \\]|\\q?quad|\\text ?\{|(?:and|or)\b)*+\\boxed\s*\{"
)
#: As many characters before the content of a box are read, to see whether it is negated.
_MOST_BEFORE_A_BOX = 40
_NEGATED_BOX = re.compile(r"(?:\bnot|n['\u2019]t|\bnever)[\s$*]+\\boxed\s*\{\Z")

#: LaTeX's comments. Like what follows, each runs to the end of the text where nothing closes it.
_COMMENT = re.compile(
    r"\\begin\{(?P<hidden>comment|verbatim)\}.*?(?:\\end\{(?P=hidden)\}|\Z)|\\iffalse\b.*?(?:\\fi\b|\Z)|^[ \t]*%[^\n]*",
    re.DOTALL | re.MULTILINE,
)
#: What else a reader of the text does not see as its words: code, and what is struck out. Tildes that nothing closes
#: are LaTeX's blanks.
_UNSEEN = re.compile(
    r"^[ \t]*(?P<fence>`{3,}+|~{3,}+)(?P<language>[^\n`]*)\n.*?(?:^[ \t]*(?P=fence)|\Z)"
    r"|\\verb\*?(?P<mark>[^\sA-Za-z*])[^\n]{0,200}?(?P=mark)"
    r"|(?P<span>`[^`\n]*`)"
    r"|~~[^~]*~~",
    re.DOTALL | re.MULTILINE,
)
#: A block in one of these languages holds text, which an answer may stand in.
_LANGUAGES_OF_TEXT = ("", "latex", "markdown", "math", "md", "plaintext", "tex", "text", "txt")
#: Code in a line may dress a box, as in `\boxed{42}`, and may not print one.
_DRESSED_BOX = re.compile(r"`[$ *]*\\boxed[ ]?\{[^}]")

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u1680\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00d7\u00b7\u22c5\u2217\u2219", "*"),
        **dict.fromkeys("\u2044\u2215", "/"),
        **dict.fromkeys("\u201c\u201d\u201e", '"'),
        **dict(zip("\uff0c\u3001\uff1a\uff1b\uff08\uff09", ",,:;()")),
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u2192\u21d2\u27f6\u27f9\u2794\u279c", "\u2192"),
        **dict.fromkeys("\r\u2028\u2029", "\n"),
    }
)
#: LaTeX's commands that set their argument in another type, and its frames.
_WRAPPERS = frozenset(
    "text textbf textit textmd textnormal textrm textsc textsf textsl texttt textup emph underline "
    "mathbf mathit mathnormal mathrm mathsf mathtt operatorname bm boldsymbol pmb ensuremath mbox hbox ce fbox".split()
)
#: Commands that set no character.
_SIZES = frozenset(
    "displaystyle textstyle scriptstyle bf it rm sc sf sl tt left right "
    "tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge "
    "big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr".split()
)
#: command -> the character that it stands for
_SYMBOLS = {
    **dict.fromkeys(("quad", "qquad", "enspace", "thinspace", "space"), " "),
    **dict.fromkeys(("times", "cdot", "ast"), "*"),
    **dict.fromkeys("to mapsto implies rightarrow longrightarrow Rightarrow Longrightarrow".split(), "\u2192"),
    **dict.fromkeys(("circ", "degree"), "\u00b0"),
    "div": "\u00f7",
    "newline": "\n",
    "hline": "",
    "bullet": "\u2022",
    **dict.fromkeys(("mid", "vert"), "|"),
    **dict.fromkeys(("dfrac", "tfrac"), r"\frac"),
}
#: character behind a backslash -> what the two stand for
_MARKS = {
    "\\": "\n",
    **dict.fromkeys(" ,;:\n", " "),
    **dict.fromkeys("!()[]", ""),
    **{mark: mark for mark in "$%&#_{}*"},
}
_LATEX_TOKEN = re.compile(
    r"\\(?:begin|end)[ ]?\{(?P<environment>array|aligned|align\*?|cases|gathered|split|tabular)\}(?:\{[lcr| ]*\})?"
    r"|(?P<color>\\color[ ]?\{(?!white)\w+\})|(?P<colored>\\textcolor[ ]?\{(?!white)\w+\}[ ]?\{)"
    r"|\\(?P<command>[A-Za-z]+)[ ]*(?P<brace>\{)?"
    r"|\\(?P<mark>.)"
    r"|(?P<open>\{)|(?P<close>\})"
    r"|(?P<tie>~+)"
    r"|[^\\{}~]+|.",
    re.DOTALL,
)
#: What is taken off at the ends of an answer. Other characters that look blank stay.
_ENDS = " \t\n\f\v"
_BLANKS = re.compile(r"[ \t\f\v]+")
#: What may stand around an answer, on both sides of it.
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_FRAMES = ("$$", "$", "**", "__", "*", "_", "`", '"', "'")
_MOST_LAYERS = 8


class Boxes(NamedTuple):
    r"""The boxes of a text. complete: where the content of each begins and ends; unclosed: how many never close.

    A box within a box is a part of the outer one's content.
    """

    complete: list[tuple[int, int]]
    unclosed: int


def find_boxes(text: str) -> Boxes:
    r"""Return the boxes of a text, in their order. `\{` and `\}` are no braces."""
    complete = []
    open_braces = []  # for each, where the content of its box begins; None: it opens no box; or `_UNSEEN_BOX`
    unseen_from = []
    for token in _BOX_TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "box":
            open_braces.append(token.end())
        elif kind == "unseen":
            open_braces.append(_UNSEEN_BOX)
            unseen_from.append(token.end())
        elif kind == "open":
            open_braces.append(None)
        elif kind == "close" and open_braces:
            begin = open_braces.pop()
            if begin == _UNSEEN_BOX:
                begin = unseen_from.pop()
                while complete and complete[-1][0] > begin:
                    complete.pop()
            elif begin is not None:
                while complete and complete[-1][0] > begin:
                    complete.pop()
                complete.append((begin, token.start()))
    unclosed = sum(begin not in (None, _UNSEEN_BOX) for begin in open_braces)
    return Boxes(complete, unclosed)


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{}` that a reader sees, or None.

    A box directly behind "not" does not count, and a list of boxes with different contents is no answer.
    """
    if "\\boxed" not in text:
        return None
    text = seen_part(text)
    boxes = [box for box in find_boxes(text).complete if not _is_negated(text, box[0])]
    if not boxes:
        return None
    begin, end = boxes[-1]
    content = text[begin:end]
    if len(boxes) > 1:
        begin_before, end_before = boxes[-2]
        is_listed = _BETWEEN_LISTED_BOXES.fullmatch(text, end_before, begin)
        if is_listed and plain_answer(text[begin_before:end_before]) != plain_answer(content):
            return None
    return content


def _is_negated(text: str, begin: int) -> bool:
    """Tell whether "not" stands directly before the box whose content begins there."""
    return _NEGATED_BOX.search(text, max(0, begin - _MOST_BEFORE_A_BOX), begin) is not None


def seen_part(text: str) -> str:
    """Return a text without comments, code and what is struck out or hidden."""
    return _UNSEEN.sub(_seen_code, _COMMENT.sub("", without_hidden(text)))


def _seen_code(unseen: re.Match) -> str:
    """Return what counts of code or of what is struck out."""
    if unseen["language"] is not None:
        return unseen[0] if unseen["language"].strip().lower() in _LANGUAGES_OF_TEXT else ""
    is_dressing = unseen["span"] and ("\\boxed" not in unseen["span"] or _DRESSED_BOX.match(unseen["span"]))
    if is_dressing or "\\boxed" not in unseen[0]:
        return unseen[0]
    return ""


def boxed_answer(completion: str | list[dict], finish_reason: str = "stop") -> str | None:
    r"""Return what stands in the last box of the final channel; None without one, and in a completion cut off."""
    return last_box(text_of(completion)) if finish_reason == "stop" else None


def plain_answer(content: str, keeps_brackets: bool = False) -> str:
    r"""Return an answer without its dressing: `12` for `\mathbf{12}.`, `$12$`, `**12**` and `{12}`.

    Blanks, dashes, signs of multiplication and division, quotes and arrows of all kinds become one of each. LaTeX's
    commands for blanks and type are taken off wherever they stand; dollars, stars, quotes, brackets and braces that
    enclose the whole, and a final full stop, are taken off at its ends. Runs of blanks become one.

    keeps_brackets: whether the innermost brackets around the whole stay, as those of a tuple, an interval or a set.
    """
    text = _without_latex(content.translate(_CHARACTERS).replace("{,}", ","))
    text = _BLANKS.sub(" ", text)
    for _ in range(_MOST_LAYERS):
        peeled = _without_one_layer(text.strip(_ENDS), keeps_brackets)
        if peeled == text:
            break
        text = peeled
    return text


def _without_latex(text: str) -> str:
    """Return a text with LaTeX's blanks, types and signs in plain characters. Other commands stay as they are.

    A text that leaves a brace open stays as it is.
    """
    parts = []
    is_wrapper = []  # of each open brace
    has_cells = False
    for token in _LATEX_TOKEN.finditer(text):
        kind = token.lastgroup
        if kind in ("command", "brace"):
            parts.append(_plain_command(token, is_wrapper))
        elif kind == "mark":
            parts.append(_MARKS.get(token["mark"], token[0]))
        elif kind == "environment":
            has_cells = True
            parts.append("\n")
        elif kind == "colored":
            is_wrapper.append(True)
        elif kind == "tie":
            parts.append(" " if token[0] == "~" else token[0])  # two of them strike out
        elif kind == "open":
            is_wrapper.append(False)
            parts.append("{")
        elif kind == "close":
            if not (is_wrapper and is_wrapper.pop()):
                parts.append("}")
        elif kind != "color":
            parts.append(token[0].replace("&", " ") if has_cells else token[0])
    return text if is_wrapper else "".join(parts)


def _plain_command(token: re.Match, is_wrapper: list[bool]) -> str:
    """Return what a command stands for. is_wrapper: takes up whether a brace behind it encloses a wrapper's text."""
    name, brace = token["command"], token["brace"]
    if brace:
        is_wrapper.append(name in _WRAPPERS)
        if name in _WRAPPERS:
            return ""
    if name in _SIZES:
        return brace or ""
    if name in _SYMBOLS:
        return _SYMBOLS[name] + (brace or "")
    return token[0]


def _without_one_layer(text: str, keeps_brackets: bool) -> str:
    """Return a text without what encloses it, or without a full stop at its end."""
    for frame in _FRAMES:
        width = len(frame)
        is_framed = len(text) > 2 * width and text.startswith(frame) and text.endswith(frame)
        if is_framed and frame not in text[width:-width]:
            return text[width:-width]
    if text.startswith("\\boxed{"):
        inner = text.removeprefix("\\boxed")
        if _closes_at_the_end(inner):
            return inner
    is_innermost = text[1:2] not in _PAIRS
    if text[:1] in _PAIRS and not (keeps_brackets and is_innermost) and _closes_at_the_end(text):
        return text[1:-1]
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1]
    return text


def _closes_at_the_end(text: str) -> bool:
    """Tell whether the bracket at the beginning of a text is closed by its last character."""
    opening, closing = text[0], _PAIRS[text[0]]
    depth = 0
    for place, character in enumerate(text):
        if character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                return place == len(text) - 1
    return False

"""Whether a program that this Python cannot parse is one that a newer Python can."""

import ast
import re
import sys

#: The head of a function or a class with type parameters, and a `type` statement: both are new in Python 3.12.
_TYPE_PARAMETERS = re.compile(
    r"^([ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+\w+)[ \t]*"
    r"\[[\w \t,:*=.|]*(?:[\[(][\w \t,.|]*[\])][\w \t,:*=.|]*)*\](?=[ \t]*[(:])",
    re.MULTILINE,
)
_TYPE_STATEMENT = re.compile(r"^([ \t]*)type[ \t]+(\w+)[ \t]*(?:\[[^\]\n]*\])?[ \t]*=", re.MULTILINE)
#: What older Pythons say of an f-string that Python 3.12 reads.
_NEW_IN_F_STRINGS = ("cannot include a backslash", "cannot include '#'")
#: As many lines with such an f-string are looked at.
_MOST_LINES = 20


def needs_newer_python(source: str) -> bool:
    """Tell whether a program parses once the forms that are new in Python 3.12 are taken out, and not with them.

    False from Python 3.12 on, and for a program that is wrong in any Python.
    """
    if sys.version_info >= (3, 12):
        return False
    older = _TYPE_STATEMENT.sub(r"\1\2 =", _TYPE_PARAMETERS.sub(r"\1", source))
    for _ in range(_MOST_LINES):
        try:
            ast.parse(older)
            return older != source
        except SyntaxError as error:
            if not _is_newer_f_string(error):
                return False
            lines = older.split("\n")
            line = lines[error.lineno - 1]
            blanks = line[: len(line) - len(line.lstrip())]
            lines[error.lineno - 1] = f"{blanks}pass"
            older = "\n".join(lines)
        except (ValueError, RecursionError, MemoryError, OverflowError):
            return False
    return False


def _is_newer_f_string(error: SyntaxError) -> bool:
    """Whether an f-string is one of Python 3.12: a backslash, a comment or the string's own quotes in its braces."""
    line = error.text or ""
    if "f-string" not in error.msg or not error.lineno:
        return False
    if any(words in error.msg for words in _NEW_IN_F_STRINGS):
        return True
    has_quotes_inside = max(line.count('"'), line.count("'")) >= 4
    return has_quotes_inside and line.count("{") == line.count("}") > 0

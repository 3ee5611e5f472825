import re

from helpers.tasks.matmul.names import FUNCTION


def nameless(program: str) -> str | None:
    """Return a program with the names of `matmul(A, B)` in place of its own; None where it defines no such function."""
    found = re.search(r"^def (\w+)\((\w+), (\w+)\):", program, re.M)
    if not found:
        return None
    names = dict(zip(found.groups(), (FUNCTION, "A", "B")))
    return re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), program)

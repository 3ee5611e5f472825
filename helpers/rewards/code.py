"""The program in a completion."""

import re

from helpers.rewards.text import text_of

#: Text that is one fenced block, with or without words around it.
FENCE = re.compile(r"```[ \t]*(?:python3?|py3?)?[ \t\r]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


def extract_code(completion: str | list[dict], finish_reason: str = "stop") -> str | None:
    """Return the program in a completion, or None.

    completion: a message list, of which only the final channel counts, or a plain string.
    There must be exactly one fenced block, closed, in a completion that was not cut off.
    """
    text = text_of(completion)
    if finish_reason != "stop" or text.count("```") != 2:
        return None
    match = FENCE.search(text)
    return match.group(1) if match else None

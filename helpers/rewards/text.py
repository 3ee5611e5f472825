"""The text of a completion, and how it ended."""

from collections.abc import Sequence


def text_of(completion: str | list[dict]) -> str:
    """Return the text of a completion as a reward function gets it: a plain string, or a message list.

    Of a message list only the last message's content counts, which is the final channel. No message, or one without
    content, is an empty text.
    """
    if isinstance(completion, str):
        return completion
    if not completion:
        return ""
    return completion[-1].get("content") or ""


def known_finish_reasons(finish_reasons: Sequence[str] | None, completions: Sequence) -> Sequence[str]:
    """Return one finish reason a completion; "stop" for all where the caller, such as TRL, passes none."""
    return finish_reasons or ["stop"] * len(completions)

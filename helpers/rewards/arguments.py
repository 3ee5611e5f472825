"""The door in front of every reward: what a trainer passes becomes rows of plain texts and values, or one sentence."""

from collections.abc import Mapping, Sequence, Set, Sized

from helpers.runtime import UserError

_A_COMPLETION = "a text, or a list of messages such as [{'role': 'assistant', 'content': '...'}]"


def rows_of(
    reward: str, completions: Sequence, finish_reasons: Sequence[str] | None = None, **columns: Sequence | None
) -> list[tuple]:
    """Return (text, finish reason, value of each column) of each completion.

    reward: its name, for messages. completions: plain strings or message lists (`text_of`). finish_reasons: None where
    the caller, such as TRL, passes none, which stands for "stop"; with any other reason an answer was cut off. columns:
    None for one that the data set lacks, which stands for None in every row.

    Raises UserError for what is no list, for lists of unequal lengths, and for a completion or a finish reason of
    another form.
    """
    count = len(checked_list(reward, "completions", completions))
    if finish_reasons is None:
        finish_reasons = ["stop"] * count
    lists = {"finish_reasons": finish_reasons, **columns}
    for name, values in lists.items():
        if values is None:
            lists[name] = [None] * count
        elif len(checked_list(reward, name, values)) != count:
            raise UserError(
                f"Reward '{reward}' got {len(values)} values of '{name}' for {count} completions: give one for each."
            )
    for reason in finish_reasons:
        if not isinstance(reason, str):
            raise UserError(f'Reward \'{reward}\' got the finish reason {shown(reason)}: give "stop" or "length".')
    texts = map(text_of, completions)
    values = [map(scalar, values) for values in lists.values()]
    return list(zip(texts, *values, strict=True))


def checked_list(reward: str, name: str, values: object) -> Sized:
    """Return a list of values. Raises UserError for a bare text, which would be taken apart, and what is no list."""
    is_list = hasattr(values, "__len__") and getattr(values, "ndim", 1) > 0
    if is_list and not isinstance(values, (str, bytes, bytearray, Mapping, Set)):
        return values
    raise UserError(
        f"Reward '{reward}' got {type(values).__name__} {shown(values)} for '{name}': give a list of values."
    )


def shown(value: object) -> str:
    """Return a value as a message shows it, in 60 characters at most."""
    try:
        return f"{value!r:.60}"
    except Exception:  # an integer of thousands of digits, lists within lists, a method of the caller's
        return "that cannot be shown"


def scalar(value: object) -> object:
    """Return Python's number for one of numpy or torch, and anything else as it is."""
    is_number = getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    return value.item() if is_number else value


def text_of(completion: str | Sequence[Mapping]) -> str:
    """Return the text of a completion as a reward function gets it: a plain string, or a message list.

    Of a message list only the content of the last message counts, which is the final channel; of content in parts, the
    texts. It is empty where the last message is not the assistant's, and without messages. Raises UserError for another
    form.
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, (list, tuple)) or not all(isinstance(message, Mapping) for message in completion):
        raise UserError(f"A completion is {type(completion).__name__} {shown(completion)}: give {_A_COMPLETION}.")
    if not completion or completion[-1].get("role", "assistant") != "assistant":
        return ""
    return content_text(completion[-1].get("content"))


def content_text(content: object) -> str:
    """Return the text of a message's content: a text, a list of parts, or None. Raises UserError for another form."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)) and all(isinstance(part, (str, Mapping)) for part in content):
        texts = [part if isinstance(part, str) else part.get("text") for part in content]
        return "".join(text for text in texts if isinstance(text, str))
    raise UserError(
        f"A message's content is {type(content).__name__} {shown(content)}: give a text or a list of parts."
    )

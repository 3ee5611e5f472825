"""What a completion says."""


def text_of(completion: str | list[dict]) -> str:
    """Return the text of a completion as a reward function gets it: a plain string, or a message list.

    Of a message list only the last message's content counts, which is the final channel.
    """
    if isinstance(completion, str):
        return completion
    return completion[-1]["content"] or ""

"""A penalty for completions that are too long or too short."""

from collections.abc import Mapping, Sequence

from helpers.rewards.arguments import checked_list, content_text, rows_of
from helpers.rewards.registry import Reward, register_reward
from helpers.runtime import UserError, is_whole_number

#: Characters of a token, where the tokens of a completion are not known: about what English text has.
CHARACTERS_PER_TOKEN = 4
#: The keys of a message that hold what the model wrote.
_PARTS = ("content", "thinking", "reasoning_content", "reasoning")
#: A shorter completion cannot say anything: 20 characters, with the tokens that open and close a message.
MIN_TOKENS = 5
#: Half of the shortest completion that a profile allows.
FREE_TOKENS = 100
#: The longest completion that a profile allows.
MAX_TOKENS = 4096


@register_reward(value_range=(-1.0, 0.0))
class LengthPenalty(Reward):
    """Take up to 1 from a long completion: 0 up to free_tokens, then linear to -1 at max_tokens and beyond.

    It takes as much from one that is too short: 0 from min_tokens on, and linear to -1 for an empty one.

    Length is that of the whole completion, thinking included, in tokens (`completion_ids`, which TRL and this
    project's trainer pass). Where nothing passes them it is the number of characters of all messages divided by 4.
    No length earns anything, so a wrong answer gets no more than 0.

    The defaults are a price for each token, 1 / 3996 beyond the first 100, and do not depend on the run: max_tokens is
    the longest completion that any profile allows. A profile of 200 tokens can lose 0.03 by it, one of 768 tokens 0.17
    and one of 4096 tokens 1, so that none is flat over lengths that it can reach. To have the whole range in a
    run, set max_tokens to its max_completion_length, and free_tokens to what a right answer needs.

    They are not relative to the longest completion of the batch: a completion would be paid for its neighbours'
    lengths, the same text would be paid differently in every step and in an evaluation, and the longest of a group
    would lose 1 even where all are short.
    """

    name = "length_penalty"

    def __init__(self, free_tokens: int = FREE_TOKENS, max_tokens: int = MAX_TOKENS, min_tokens: int = MIN_TOKENS):
        """Set the three lengths. Raises UserError unless 0 <= min_tokens <= free_tokens < max_tokens, all integers."""
        for option, value in (("free_tokens", free_tokens), ("max_tokens", max_tokens), ("min_tokens", min_tokens)):
            if not is_whole_number(value):
                raise UserError(f"length_penalty: {option} must be an integer; got {value!r:.80}.")
        if not 0 <= min_tokens <= free_tokens < max_tokens:
            raise UserError(
                "length_penalty: min_tokens must be from 0 to free_tokens, and free_tokens less than max_tokens; got "
                f"{min_tokens}, {free_tokens} and {max_tokens}."
            )
        self.min_tokens = min_tokens
        self.free_tokens = free_tokens
        self.max_tokens = max_tokens

    def __call__(
        self, prompts: Sequence, completions: Sequence, completion_ids: Sequence[Sequence[int]] | None = None, **_
    ) -> list[float]:
        rows_of(self.name, completions, completion_ids=completion_ids)
        if completion_ids is None:
            lengths = [_characters(completion) / CHARACTERS_PER_TOKEN for completion in completions]
        else:
            lengths = [len(checked_list(self.name, "completion_ids", token_ids)) for token_ids in completion_ids]
        return [self._penalty(length) for length in lengths]

    def _penalty(self, length: float) -> float:
        if length < self.min_tokens:
            return length / self.min_tokens - 1
        paid_for = min(length, self.max_tokens) - self.free_tokens
        if paid_for <= 0:
            return 0.0
        return -paid_for / (self.max_tokens - self.free_tokens)


def _characters(completion: str | Sequence[Mapping]) -> int:
    """Return the number of characters of a completion: a plain string, or messages with their thinking.

    Thinking is "thinking" here and in gpt-oss's template, and "reasoning_content" in those of other models.
    """
    if isinstance(completion, str):
        return len(completion)
    return sum(_length(message.get(part)) for message in completion for part in _PARTS)


def _length(content: object) -> int:
    """Return the number of characters of a text, or of the texts and the thinking in a list of parts."""
    text = content_text(content)  # raises for what is no content
    if isinstance(content, (list, tuple)):
        return sum(len(part) if isinstance(part, str) else _length_of_part(part) for part in content)
    return len(text)


def _length_of_part(part: Mapping) -> int:
    return sum(len(text) for text in (part.get("text"), part.get("thinking")) if isinstance(text, str))

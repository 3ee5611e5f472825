"""Harmony, gpt-oss's message format, rendered to tokens and parsed from tokens.

A completion reads

    <|channel|>analysis<|message|>thinking<|end|><|start|>assistant<|channel|>final<|message|>answer<|return|>

It is parsed on token ids: decoded without special tokens it would be the run-together
"analysisthinkingassistantfinalanswer".
"""

import re
from collections.abc import Mapping
from functools import cached_property

from helpers.runtime import UserError, at_start, did_you_mean

#: The released template prints today's date; a fixed one keeps prompts the same tomorrow.
DATE = "2025-08-05"

#: Of messages, as the released template knows them.
ROLES = ("system", "developer", "user", "assistant", "tool")
#: Characters of a wrong value that a message shows.
LONGEST_VALUE = 60


def check_prompt(prompt: object, name: str) -> None:
    """Raise UserError unless a prompt is a text or a list of messages, and asks something.

    name: of the prompt, for the error, such as "prompt 3".
    """
    if isinstance(prompt, str):
        texts = [prompt]
    elif isinstance(prompt, (list, tuple)):
        texts = [checked_content(message, f"{number} of {name}") for number, message in enumerate(prompt, 1)]
    else:
        raise UserError(
            f"{at_start(name)} is {_shown(prompt)}: give a text, or a list of messages with 'role' and 'content'."
        )
    if not any(text.strip() for text in texts):
        raise UserError(f"{at_start(name)} is empty: give it some text.")


def checked_content(message: object, place: str) -> str:
    """Return the text of a message. Raises UserError for what is no message. place: such as "1 of prompt 3"."""
    if not isinstance(message, Mapping):
        raise UserError(
            f"Message {place} is {_shown(message)}: give an object (a dict) with 'role' and 'content', "
            "or the prompt as one text instead of a list."
        )
    has_calls = bool(message.get("tool_calls"))  # they stand in the place of content
    given = [key for key, value in message.items() if value is not None]  # rows of a table have None for absent keys
    if "role" not in given or ("content" not in given and not has_calls):
        keys = ", ".join(map(repr, given))[:LONGEST_VALUE] or "none"
        raise UserError(f"Message {place} needs the keys 'role' and 'content', and has {keys}: rename or add them.")
    role = message["role"]
    if role not in ROLES:
        raise UserError(
            f"Message {place} has the role {_shown(role)}{did_you_mean(role, ROLES)}: "
            f"give it one of {', '.join(ROLES)}."
        )
    content = message.get("content")
    if content is None and has_calls:
        return ""
    if not isinstance(content, str):
        raise UserError(f"The content of message {place} is {_shown(content)}: give a text.")
    return content


def _shown(value: object) -> str:
    """Return a value in one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + " …"


class Harmony:
    """Renders prompts and parses completions for one tokenizer."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def _id(self, token):
        return self.tokenizer.convert_tokens_to_ids(token)

    @cached_property
    def stop_ids(self):
        """The tokens that end a completion. <|end|> is not one: it ends a message."""
        return [self._id(token) for token in ("<|return|>", "<|endoftext|>", "<|call|>")]

    def render(self, messages, **template_kwargs):
        """Token ids of the prompt, up to and including `<|start|>assistant`.

        messages: a list of {"role", "content"}, or a plain string, taken as one user message.
        template_kwargs: such as reasoning_effort="low".
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        text = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, **template_kwargs
        )
        text = re.sub(r"(?<=Current date: )\d{4}-\d\d-\d\d", DATE, text)
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def parse(self, token_ids):
        """`(final, thinking, finish_reason)` of a completion.

        final: text of the last final-channel message, "" without one. thinking: the analysis
        messages joined by newlines. finish_reason: "stop" if it ended by itself, else "length".
        """
        finish_reason = "stop" if token_ids and token_ids[-1] in self.stop_ids else "length"
        final, thinking = "", []
        for channel, body in self._messages(token_ids):
            text = self.tokenizer.decode(body, skip_special_tokens=True)
            if channel == "final":
                final = text
            elif channel == "analysis":
                thinking.append(text)
        return final, "\n".join(thinking), finish_reason

    def _messages(self, token_ids):
        """Yield `(channel name, body ids)`; a message without a channel has the name ""."""
        channel_id, message_id = self._id("<|channel|>"), self._id("<|message|>")
        ends = {*self.stop_ids, self._id("<|end|>"), self._id("<|start|>")}
        header, body = [], None
        for token in token_ids:
            if body is not None and token in ends:
                yield self._channel(header, channel_id), body
                header, body = [], None
            elif body is not None:
                body.append(token)
            elif token == message_id:
                body = []
            else:
                header.append(token)
        if body is not None:
            yield self._channel(header, channel_id), body

    def _channel(self, header, channel_id):
        if channel_id not in header:
            return ""
        name = header[header.index(channel_id) + 1 :]
        return self.tokenizer.decode(name).split("<|")[0].strip()

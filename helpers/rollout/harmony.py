"""Harmony, gpt-oss's message format, rendered to tokens and parsed from tokens.

A completion reads

    <|channel|>analysis<|message|>thinking<|end|><|start|>assistant<|channel|>final<|message|>answer<|return|>

It is parsed on token ids: decoded without special tokens it would be the run-together
"analysisthinkingassistantfinalanswer".
"""

import re
from functools import cached_property

#: The released template prints today's date; a fixed one keeps prompts the same tomorrow.
DATE = "2025-08-05"


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

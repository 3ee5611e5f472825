"""Columns of a user's data by their names: which one is the prompt, which one the answer, and what is put around it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import Formatter

from helpers.rewards.calling import arguments_without_logs
from helpers.rollout.completion import Completion
from helpers.rollout.harmony import checked_content
from helpers.runtime import UserError, at_start, did_you_mean
from helpers.tasks.data.files import SourceRow

#: Faults of single rows, which a run refuses and `prepare` leaves out.
EMPTY_PROMPT = "empty prompt"
NO_ANSWER = "no answer"
WRONG_MESSAGES = "wrong messages"
NO_PROMPT = "no prompt"
WRONG_PROMPT = "prompt of another kind"
ENDS_WITH_ANSWER = "prompt that ends with the assistant's message"
NO_UNICODE = "text that is no Unicode"

#: What a trainer passes to rewards beside the columns.
ARGUMENTS = ("trainer_state", *arguments_without_logs([{"prompt": ""}], [Completion.of_text("")]))
#: What a message may have beside its role and content; all else says nothing to a model.
MESSAGE_KEYS = ("name", "tool_calls", "thinking")
SYSTEM_ROLES = ("system", "developer")
_KINDS = {bool: "a truth value", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


class RowFault(UserError):
    """A fault of one row, beside which others may be right. reason: a name for all faults of this kind."""

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Columns:
    """Where a row of a user's data has its prompt and its answer.

    prompt: the column with the prompt, a text or a list of messages; a row of a task has it as `prompt`. answer: the
    column with the right answer; a row of a task has it as `answer`. Either takes the place of another column of that
    name. system_prompt: a system message in front of every prompt; a prompt that has one already is refused. template:
    the prompt with names of columns in braces, such as "Question: {question}", in place of the column `prompt`; empty
    braces stay, as those of a box.

    Raises UserError for a template that is none or shows the answer, and for one column as both prompt and answer.
    """

    prompt: str = "prompt"
    answer: str = "answer"
    system_prompt: str = ""
    template: str = ""

    def __post_init__(self):
        if self.prompt == self.answer and not self.template:
            raise UserError(f"'{self.prompt}' is to be the prompt and the answer: name two columns.")
        for _, name in self._parts:
            if name == self.answer:
                raise UserError(
                    f"The template names the column '{name}', which holds the right answers: leave it out, or name "
                    "another column as the answer."
                )

    def check(self, rows: Sequence[SourceRow], source: str, needs_answer: bool) -> None:
        """Raise UserError where none of the first rows of a source has a column that is asked for. source: its name."""
        known = {name: None for row in rows for name in row.values}
        wanted = [name for _, name in self._parts if name] if self.template else [self.prompt]
        if self._asks_answer(needs_answer):
            wanted.append(self.answer)
        for name in wanted:
            if name not in known:
                raise UserError(self._missing(name, known, at_start(rows[0].place), source))

    def apply(self, row: SourceRow, needs_answer: bool) -> dict:
        """Return a row of a task: `prompt` as messages, `answer` where there is one, and the other columns.

        needs_answer: whether a row must have an answer.

        Messages have their role, their content ("" where there are calls of tools alone), and what else of
        `MESSAGE_KEYS` is not None, in this order.

        Raises RowFault for a prompt that is missing or empty, that is neither a text nor a list of messages, or ends
        with the assistant's, for messages that `harmony.checked_content` refuses, an answer that is missing, and a text
        with half a surrogate pair. Raises UserError for a second system message, and for a column that cannot have its
        name.
        """
        values = row.values
        _check_unicode(values, row.place)
        prompt = self._prompt(values, row.place)
        renamed = {}
        for name, value in values.items():
            if name == self.answer:
                renamed["answer"] = value
            elif name == self.prompt and not self.template:
                renamed["prompt"] = prompt
            elif name not in ("prompt", "answer"):
                renamed[name] = value
        renamed["prompt"] = prompt  # at the end where no column has it
        _check_names(renamed, row.place)
        if self._asks_answer(needs_answer) and is_blank(renamed.get("answer")):
            raise RowFault(
                NO_ANSWER, f"{at_start(row.place)} has no '{self.answer}': give every row an answer, or leave it out."
            )
        return renamed

    def _asks_answer(self, needs_answer: bool) -> bool:
        """Tell whether every row must have an answer: also where its column was named."""
        return needs_answer or self.answer != Columns.answer

    @cached_property
    def _parts(self) -> list[tuple[str, str]]:
        """Return the template as pairs of a text and the name of the column behind it; "" where there is none."""
        pairs = []
        try:
            parsed = list(Formatter().parse(self.template))
        except ValueError as error:
            raise UserError(
                f"The template has a brace without its other half ({error}): write {{{{ and }}}} for braces that stay."
            ) from error
        for text, name, spec, conversion in parsed:
            if spec or conversion:
                raise UserError(f"The template has '{name}' with more than a name in its braces: write {{{name}}}.")
            stays = "{}" if name == "" else ""
            pairs.append((text + stays, name or ""))
        return pairs

    def _prompt(self, values: Mapping, place: str) -> list[dict]:
        if self.template:
            messages = [{"role": "user", "content": self._fill_template(values, place)}]
        else:
            if self.prompt not in values:
                raise RowFault(NO_PROMPT, self._missing(self.prompt, values, at_start(place), "this row"))
            messages = _messages_of(values[self.prompt], self.prompt, place)
        if not self.system_prompt:
            return messages
        if messages[0]["role"] in SYSTEM_ROLES:
            raise UserError(
                f"The prompt in {place} has a system message already: leave system_prompt empty, or take the message "
                "out of the data."
            )
        return [{"role": "system", "content": self.system_prompt}, *messages]

    def _fill_template(self, values: Mapping, place: str) -> str:
        filled = ""
        for text, name in self._parts:
            filled += text
            if not name:
                continue
            if name not in values:
                raise RowFault(NO_PROMPT, self._missing(name, values, at_start(place), "this row"))
            value = values[name]
            if is_blank(value):
                raise RowFault(
                    EMPTY_PROMPT, f"{at_start(place)} has an empty '{name}', which the template needs: give it a text."
                )
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise RowFault(
                    WRONG_PROMPT, f"'{name}' is {kind_of(value)} in {place}: the template takes texts and numbers."
                )
            filled += str(value)
        return filled

    def _missing(self, name: str, known: Collection[str], where: str, source: str) -> str:
        """Return what to say of a column that is missing. where: what lacks it. source: the name of its source."""
        hint = did_you_mean(name, [str(column) for column in known])
        header = " (the first line names them)" if source.lower().endswith((".csv", ".tsv")) else ""
        is_in_braces = any(name == named for _, named in self._parts)
        braces = f", or write {{{{{name}}}}} for braces that stay" if is_in_braces else ""
        return (
            f"{where} has no '{name}'{hint}: its columns are {describe_columns(known)}{header}; name the right one, or "
            f"add it{braces}."
        )


def is_blank(value: object) -> bool:
    """Tell whether a value is missing: None, NaN, a list of nothing, or a text of white space."""
    if isinstance(value, float) and math.isnan(value):
        return True
    if isinstance(value, (str, list, dict)):
        return not (value.strip() if isinstance(value, str) else value)
    return value is None


def kind_of(value: object) -> str:
    """Return the kind of a value in words, such as "a text"."""
    for python_type, kind in _KINDS.items():
        if isinstance(value, python_type):
            return kind
    return f"a {type(value).__name__}"


def describe_columns(names: Collection[str]) -> str:
    """Return the names of columns for a message."""
    return ", ".join(f"'{name}'" for name in names) or "none"


def _check_unicode(values: Mapping, place: str) -> None:
    """Raise RowFault for a text with half a surrogate pair, which JSON can have as an escape and no file as UTF-8."""
    for name, value in values.items():
        waiting = [name, value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str) and not _is_unicode(part):
                raise RowFault(
                    NO_UNICODE,
                    f"{at_start(place)} has half a surrogate pair in {name!r:.80}, which is no Unicode text: write the "
                    "whole character, or leave the row out.",
                )
            if isinstance(part, Mapping):
                waiting += [*part.keys(), *part.values()]
            elif isinstance(part, (list, tuple)):
                waiting += part


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_names(row: Mapping, place: str) -> None:
    """Raise UserError for a column whose name is no text, or that of another argument of rewards."""
    for name in row:
        if not isinstance(name, str):
            raise UserError(f"{at_start(place)} has the column {name!r:.80}: the name of a column is a text.")
        if name in ARGUMENTS:
            raise UserError(
                f"{at_start(place)} has the column '{name}', and rewards get something else of that name from the "
                "trainer: rename it."
            )


def _messages_of(prompt: object, column: str, place: str) -> list[dict]:
    """Return a prompt as messages. Raises RowFault as `Columns.apply`."""
    if is_blank(prompt):
        raise _empty_prompt(column, place)
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list):
        raise RowFault(
            WRONG_PROMPT, f"'{column}' is {kind_of(prompt)} in {place}: a prompt is a text or a list of messages."
        )
    asks = False
    for number, message in enumerate(prompt, 1):
        try:
            content = checked_content(message, f"{number} of the prompt in {place}")
        except UserError as error:
            raise RowFault(WRONG_MESSAGES, str(error)) from error
        asks = asks or (message["role"] not in SYSTEM_ROLES and not is_blank(content))
    if not asks:
        raise _empty_prompt(column, place)
    if prompt[-1]["role"] == "assistant":
        raise RowFault(
            ENDS_WITH_ANSWER,
            f"The prompt in {place} ends with a message of the assistant, which would be the answer: let it end with "
            "the user's, and put the answer into a column of its own.",
        )
    return [_plain_message(message) for message in prompt]


def _plain_message(message: dict) -> dict:
    """Return what a message says, always in the same order, since the id of a prompt depends on it."""
    said = {"role": message["role"], "content": message.get("content") or ""}
    for name in MESSAGE_KEYS:
        if message.get(name) is not None:
            said[name] = message[name]
    return said


def _empty_prompt(column: str, place: str) -> RowFault:
    return RowFault(
        EMPTY_PROMPT, f"{at_start(place)} has an empty '{column}': a prompt is a text or a list of messages; give one."
    )

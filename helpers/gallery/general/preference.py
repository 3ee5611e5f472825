"""Rewards by comparison, for what has no right answer, such as creative writing."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from helpers.rewards.arguments import content_text, rows_of, shown, text_of
from helpers.rewards.calling import describe_failure
from helpers.rewards.registry import Reward, register_reward
from helpers.runtime import UserError
from helpers.tasks.data.files import SourceRow
from helpers.tasks.data.sources import read_rows

#: A judge of two texts: 1 where the first is better, 0 where the second is, 0.5 where neither is.
Judge = Callable[[str, str, str], float | bool]
#: A conversation: (role, content) of each message.
_Conversation = tuple[tuple[str, str], ...]

_COLUMNS = ("prompt", "chosen", "rejected")
_VERDICTS = (0.0, 0.5, 1.0)
#: What counts as a letter or a symbol and shows nothing: Hangul's fillers, the empty Braille pattern.
_BLANKS = str.maketrans("", "", "\u115f\u1160\u3164\uffa0\u2800")


@register_reward(value_range=(0.0, 1.0))
class Preference(Reward):
    """Pay each completion the share of the batch's other completions of its prompt that it is preferred to.

    This is the weakest reward here: nothing proves a preference. A judge has tastes that have nothing to do with the
    task (length, flattery, lists, its own style, whatever stands first), a policy finds them sooner than it learns to
    write, and a judge that is a language model can be talked to by the text that it judges. The values are relative to
    the batch, too: their mean is 1/2 whether all completions are good or all are bad, so a curve of this reward does
    not show progress. Use it for writing that nothing else can grade; where an answer can be checked, check it. Compare
    the trained model with the base model by a judge that training did not use, or by people.

    Give one of two options.

    judge: f(prompt, first, second) -> 1.0 where the first text is better, 0.0 where the second is, 0.5 where neither
    is; or True and False. It gets texts: the prompt's, where it is one user message, else each message after its role.
    It is asked about each pair in both orders, and the mean of the two counts, so one that always prefers the first
    text pays 0.5. Equal texts are a draw that it is not asked about. For G completions of a prompt there are
    G (G - 1) calls.

    table: preferences that exist already, each with `prompt`, `chosen` and `rejected`: data as `sources.open_source`
    takes them, such as the path of a JSONL file or a list of such rows, or a mapping of these three columns. Texts are
    compared, spaces around them aside, where the table has the pair, and a completion without any such pair gets None.
    A pair that stands there several times counts as the mean. A text prompt is the same as one user message.

    A completion that was cut off, or has no visible character, loses against every other: it gets 0. With a table
    nobody wins by that, as a text that the table does not know would be paid for its neighbours. A completion that is
    alone with its prompt gets None.
    """

    name = "preference"

    def __init__(self, judge: Judge | None = None, table: str | Path | Mapping | Sequence[Mapping] | None = None):
        """Set where preferences come from. Raises UserError unless there is one source, and for an unreadable table."""
        if (judge is None) == (table is None):
            raise UserError(
                "preference takes one of two options: judge, a function, or table, pairwise preferences. To choose it "
                "by name, write my_preference = Preference(table=...) into a module of your own and choose "
                "module:my_preference."
            )
        if judge is not None and not callable(judge):
            raise UserError(f"preference: judge must be a function of (prompt, first, second); got {judge!r:.80}.")
        self.judge = judge
        self.table = None if table is None else _read_table(table)

    def __call__(
        self, prompts: Sequence, completions: Sequence, finish_reasons: Sequence[str] | None = None, **_
    ) -> list[float | None]:
        answers = []
        places_of = defaultdict(list)
        rows = rows_of(self.name, completions, finish_reasons, prompts=prompts)
        for place, (text, finish_reason, prompt) in enumerate(rows):
            counts = finish_reason == "stop" and _is_visible(text)
            answers.append(text.strip() if counts else "")
            places_of[_conversation(prompt)].append(place)
        values = [None] * len(answers)
        for conversation, places in places_of.items():
            rates = self._win_rates(conversation, [answers[place] for place in places])
            for place, rate in zip(places, rates, strict=True):
                values[place] = rate
        return values

    def _win_rates(self, conversation: _Conversation, texts: list[str]) -> list[float | None]:
        """Return the mean result of each text against the others. An empty text stands for a loser."""
        results = [[] for _ in texts]
        for second in range(len(texts)):
            for first in range(second):
                won, lost = self._compare(conversation, texts[first], texts[second])
                results[first].append(won)
                results[second].append(lost)
        rates = []
        for of_text in results:
            known = [result for result in of_text if result is not None]
            rates.append(sum(known) / len(known) if known else None)
        return rates

    def _compare(self, conversation: _Conversation, first: str, second: str) -> tuple[float | None, float | None]:
        """Return what each of two texts gets; None: not known."""
        if not first or not second:
            win = None if self.judge is None else 1.0
            return (win if first else 0.0, win if second else 0.0)
        if self.judge is None:
            result = self._look_up(conversation, first, second)
        elif first == second:
            result = 0.5
        else:
            prompt = _prompt_text(conversation)
            in_order = self._ask(prompt, first, second)
            in_reverse = self._ask(prompt, second, first)
            result = (in_order + 1 - in_reverse) / 2
        return (None, None) if result is None else (result, 1 - result)

    def _look_up(self, conversation: _Conversation, first: str, second: str) -> float | None:
        wins = self.table.get((conversation, first, second), 0)
        losses = self.table.get((conversation, second, first), 0)
        return wins / (wins + losses) if wins + losses else None

    def _ask(self, prompt: str, first: str, second: str) -> float:
        """Return the judge's 0, 0.5 or 1. Raises UserError if it raises or returns anything else."""
        try:
            verdict = self.judge(prompt, first, second)
        except UserError:
            raise
        except Exception as error:
            failure = describe_failure("The judge of reward 'preference'", error)
            raise UserError(f"{failure}: fix it and run this again.") from error
        number = verdict.item() if getattr(verdict, "ndim", None) == 0 else verdict  # numpy's and torch's numbers
        if isinstance(number, (bool, int, float)) and number in _VERDICTS:
            return float(number)
        raise UserError(
            f"The judge of reward 'preference' returned {verdict!r:.80}: return 1.0 where the first text is better, "
            "0.0 where the second is, and 0.5 where neither is."
        )


def _is_visible(text: str) -> bool:
    """Tell whether a text has a character that is seen: no blank of any kind, and no control or format character."""
    return any(unicodedata.category(character)[0] in "LNPS" for character in text.translate(_BLANKS))


def _conversation(prompt: str | Sequence[Mapping]) -> _Conversation:
    """Return the same value for the same prompt, which a text and a single user message with that text are."""
    if isinstance(prompt, str):
        return (("user", prompt.strip()),)
    if not isinstance(prompt, (list, tuple)) or not all(isinstance(message, Mapping) for message in prompt):
        raise UserError(f"preference: a prompt is {type(prompt).__name__} {shown(prompt)}: give a text or messages.")
    return tuple((str(message.get("role")), content_text(message.get("content")).strip()) for message in prompt)


def _prompt_text(conversation: _Conversation) -> str:
    """Return a prompt as a judge gets it."""
    if len(conversation) == 1 and conversation[0][0] == "user":
        return conversation[0][1]
    return "\n\n".join(f"{role}: {content}" for role, content in conversation)


def _read_table(table: str | Path | Mapping | Sequence[Mapping]) -> dict[tuple[_Conversation, str, str], int]:
    """Return (prompt, chosen, rejected) -> how many times that preference stands there."""
    counts = defaultdict(int)
    for found in _rows(table):
        row = found.values
        where = found.place
        try:
            conversation = _conversation(row["prompt"])
            chosen, rejected = text_of(row["chosen"]).strip(), text_of(row["rejected"]).strip()
        except (KeyError, TypeError, UserError) as error:
            raise UserError(
                f"preference's table: {where} is not a preference: give it prompt, chosen and rejected, each a text or "
                "a list of messages."
            ) from error
        if chosen == rejected:
            raise UserError(f"preference's table: {where} prefers a text to itself: take it out.")
        counts[conversation, chosen, rejected] += 1
    if not counts:
        raise UserError("preference's table is empty: give it preferences with prompt, chosen and rejected.")
    return dict(counts)


def _rows(table: str | Path | Mapping | Sequence[Mapping]) -> Iterator[SourceRow]:
    """Return the rows of a table."""
    is_dataset = hasattr(table, "column_names")  # a DatasetDict is a mapping, too
    if isinstance(table, Mapping) and not is_dataset:
        columns = [table.get(name) for name in _COLUMNS]
        lengths = {len(column) if isinstance(column, (list, tuple)) else None for column in columns}
        if None in lengths or len(lengths) > 1:
            raise UserError("preference's table must have lists prompt, chosen and rejected of the same length.")
        table = [dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
    try:
        yield from read_rows(table)
    except UserError as error:
        raise UserError(f"preference's table: {error}") from error

"""Every reward, called with arguments that callers get wrong: `python -m tests.rewards.hostile_arguments`.

The right answer of a sample stands in the completion, so that whatever reads past the mistake would pay it. A reward
returns its values where the arguments still have one meaning, and else raises UserError with one sentence.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from helpers.display import text_table
from helpers.rewards.registry import get_reward
from helpers.runtime import UserError
from helpers.tasks import list_rewards
from tests.rewards.sample_columns import SAMPLES

DEEP = "[" * 100_000
#: What stands in place of the columns of a data set.
COLUMN = {
    "columns of None": None,
    "columns of []": [],
    "columns of one value too many": lambda values: [*values, values[0]],
    "columns as a text": "42",
    "columns as bytes": b"42",
    "columns as a dict": {"a": 1},
    "columns as a number": 42,
    "columns as a set": {1, 2},
    "None in the columns": [None, None],
    "NaN in the columns": [float("nan")] * 2,
    "lists in the columns": [["42"]] * 2,
    "dicts in the columns": [{"a": "42"}] * 2,
    "bytes in the columns": [b"42"] * 2,
    "True in the columns": [True] * 2,
    "objects in the columns": [object()] * 2,
    "empty texts in the columns": [""] * 2,
    "deep JSON in the columns": [DEEP] * 2,
    "a lone surrogate in the columns": ["\ud800"] * 2,
    "numbers beyond all floats in the columns": [10**400] * 2,
    "numbers of thousands of digits in the columns": [10**5000] * 2,
    "arrays in the columns": [np.array([1, 2])] * 2,
    "an array without a length as a column": np.array(42),
}
#: What stands in place of the completions, from the right answer's text.
COMPLETIONS = {
    "completions as a text": lambda text: text[:2],
    "completions as bytes": lambda text: b"ab",
    "completions as a dict": lambda text: {"a": text, "b": text},
    "completions as None": lambda text: None,
    "a completion of None": lambda text: [None, None],
    "a completion of bytes": lambda text: [text.encode()] * 2,
    "a completion of a number": lambda text: [42, 42],
    "a completion as a dict": lambda text: [{"role": "assistant", "content": text}] * 2,
    "a completion as a list of texts": lambda text: [[text]] * 2,
    "a message without content": lambda text: [[{"role": "assistant"}]] * 2,
    "content of bytes": lambda text: [[{"role": "assistant", "content": text.encode()}]] * 2,
    "content of a number": lambda text: [[{"role": "assistant", "content": 42}]] * 2,
    "parts without text": lambda text: [[{"role": "assistant", "content": [{"type": "image"}]}]] * 2,
    "parts of numbers": lambda text: [[{"role": "assistant", "content": [1, 2]}]] * 2,
    "the user's message last": lambda text: [[{"role": "user", "content": text}]] * 2,
    "a tool's message last": lambda text: (
        [[{"role": "assistant", "content": "I look."}, {"role": "tool", "content": text}]] * 2
    ),
    "the answer in the thinking": lambda text: [[{"role": "assistant", "content": "", "thinking": text}]] * 2,
}
FINISH_REASONS = {
    "finish_reasons of []": [],
    "finish_reasons as a text": "stop",
    "one finish reason too few": ["stop"],
    "finish reasons of None": [None, None],
    "finish reasons of True": [True, True],
    "finish reasons of lists": [["stop"], ["stop"]],
    "an unknown finish reason": ["abort", "abort"],
    "an array without a length as finish reasons": np.array("stop"),
}
#: Arguments with one meaning: the same answer in another form, which pays what the plain one does.
SAME = {
    "finish_reasons of None": {"finish_reasons": None},
    "an array of finish reasons": {"finish_reasons": np.array(["stop", "stop"])},
    "a tuple of completions": {"completions": tuple},
    "content in parts": {
        "completions": lambda texts: [
            [{"role": "assistant", "content": [{"type": "text", "text": text[:3]}, {"type": "text", "text": text[3:]}]}]
            for text in texts
        ]
    },
    "a message before the answer": {
        "completions": lambda texts: [
            [{"role": "tool", "content": "42"}, {"role": "assistant", "content": text}] for text in texts
        ]
    },
}


@dataclass(frozen=True)
class Case:
    """One call. pays: it has the meaning of the plain call; else nothing may be paid for it."""

    name: str
    arguments: dict
    pays: bool


def plain_arguments(sample) -> dict:
    """The sample's right answer twice, with its row."""
    text = sample.right or "A plain answer of some words."
    row = {"prompts": "What is 6 times 7?", **sample.row}
    ids = [[7] * 50, [7] * 50]
    return {"completions": [text, text], "completion_ids": ids, **{name: [value, value] for name, value in row.items()}}


#: Columns that a reward reads, beside those of its sample.
ALSO_READ = {"length_penalty": "completion_ids", "preference": "prompts"}


def cases(reward, sample) -> Iterator[Case]:
    plain = plain_arguments(sample)
    text = plain["completions"][0]
    for name, wrong in COLUMN.items():
        for column in [*sample.row, *filter(None, [ALSO_READ.get(reward)])]:
            changed = wrong(plain[column]) if callable(wrong) else wrong
            yield Case(f"{column}: {name}", {**plain, column: changed}, pays=False)
    for name, make in COMPLETIONS.items():
        yield Case(name, {**plain, "completions": make(text)}, pays=False)
    for name, reasons in FINISH_REASONS.items():
        yield Case(name, {**plain, "finish_reasons": reasons}, pays=False)
    for name, changes in SAME.items():
        changed = {key: value(plain[key]) if callable(value) else value for key, value in changes.items()}
        yield Case(name, {**plain, **changed}, pays=True)


def outcome(reward: Callable, arguments: dict) -> list | str:
    """The values, or the sentence of a UserError. Whatever else is raised comes through."""
    try:
        return reward(**arguments)
    except UserError as error:
        return str(error)


def main():
    specs = [spec for spec in list_rewards() if spec.origin[0].startswith("helpers.")]
    rows = []
    for spec in specs:
        sample = SAMPLES[spec.name]
        reward = get_reward(spec.name, **sample.options)
        counts = {"values": 0, "sentence": 0, "traceback": 0}
        for case in cases(spec.name, sample):
            try:
                found = outcome(reward, case.arguments)
            except Exception:
                counts["traceback"] += 1
            else:
                counts["sentence" if isinstance(found, str) else "values"] += 1
        rows.append((spec.name, sum(counts.values()), *counts.values()))
        if hasattr(reward, "close"):
            reward.close()
    print(text_table(rows, header=("reward", "calls", "values", "one sentence", "traceback")))


if __name__ == "__main__":
    main()

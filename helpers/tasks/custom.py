"""Your own task: a data set, and rewards written for TRL."""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from helpers.rewards.failure import describe_failure
from helpers.rollout.completion import Completion
from helpers.runtime import UserError, did_you_mean, first_line
from helpers.tasks.drawing import prompt_id
from helpers.tasks.split import check_split, is_heldout
from helpers.tasks.task import CORRECT, UNJUDGED, Grade, Row, Task

#: The share of the prompts that training never sees; half of it chooses temperatures, the other half decides.
HELDOUT_SHARE = 0.25


class CustomTask(Task):
    """Train and evaluate on your own prompts.

    data: the path of a JSONL file (one object a line) or a `datasets.Dataset`. Each row has `prompt`, a text or a list
    of messages; other columns go to the rewards, and a column that a row lacks is None there. A column `cluster` names
    rows that are alike, such as the wordings of one question; without it each prompt stands for itself. A column `id`
    is replaced.
    rewards: reward functions in TRL's signature, f(prompts, completions, **columns) -> list[float or None], each with
    weight 1. completions are message lists, as TRL has them for conversational data.
    grade: f(row, text) -> bool or `Grade`, where text is the final channel. Default: an answer is correct if the sum of
    its rewards is above 0.
    name: for messages and checkpoints.

    A hash of each prompt's text decides whether training sees it: three quarters are for training, an eighth chooses
    each model's temperature, an eighth decides. Raises UserError for data that cannot be read, for one prompt with two
    sets of columns, and for an empty split.
    """

    def __init__(
        self,
        data,
        rewards: Callable | Sequence[Callable],
        grade: Callable[[Row, str], bool | Grade] | None = None,
        name: str = "custom",
    ):
        self.name = name
        self.reward_funcs = list(rewards) if isinstance(rewards, (list, tuple)) else [rewards]
        self.reward_weights = [1.0] * len(self.reward_funcs)
        self._grade = grade
        rows = _read_jsonl(data) if isinstance(data, (str, Path)) else data.to_list()
        self._rows_by_split = self._split(rows)

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Return at most `size` rows of the split, in an order that depends on the seed."""
        from datasets import Dataset

        check_split(split)
        if size < 1:
            raise UserError(f"size must be at least 1; got {size}.")
        rows = list(self._rows_by_split[split])
        random.Random(f"{self.name} {split} {seed}").shuffle(rows)
        return Dataset.from_list(rows[:size])

    def grade(self, rows: Sequence[Row], completions: Sequence[Completion]) -> list[Grade]:
        if self._grade is None:
            return self._grade_by_rewards(rows, completions)
        return [self._grade_one(row, completion) for row, completion in zip(rows, completions, strict=True)]

    def _grade_one(self, row: Row, completion: Completion) -> Grade:
        try:
            found = self._grade(row, completion.text)
        except Exception as error:
            raise UserError(f"{describe_failure('The grade function', error)}: fix it and run this again.") from error
        if isinstance(found, Grade):
            return found
        return _right_or_wrong(bool(found), float(found), "not accepted by the task's grade function")

    def _grade_by_rewards(self, rows: Sequence[Row], completions: Sequence[Completion]) -> list[Grade]:
        arguments = {
            "prompts": [row["prompt"] for row in rows],
            "completions": [completion.message for completion in completions],
            "completion_ids": [list(completion.token_ids) for completion in completions],
            "finish_reasons": [completion.finish_reason for completion in completions],
            # What a reward logs is for the trainer, which has called it with the same completions.
            "log_metric": _ignore,
            "log_extra": _ignore,
        }
        for name in rows[0]:
            if name != "prompt":
                arguments[name] = [row[name] for row in rows]
        columns = [self._values_of(function, arguments) for function in self.reward_funcs]
        return [_grade_of_rewards(values) for values in zip(*columns, strict=True)]

    def _values_of(self, function: Callable, arguments: dict) -> list[float | None]:
        try:
            return function(**arguments)
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            failure = describe_failure(f"Reward '{name}'", error)
            raise UserError(
                f"{failure}, called to grade answers: fix it, or give CustomTask a grade function, and run this again."
            ) from error

    def _split(self, rows: Sequence[Row]) -> dict[str, list[Row]]:
        """Give every row its id, cluster and split. A prompt that stands there twice is taken once."""
        columns = {name: None for row in rows for name in row}
        by_split = {"train": [], "monitor": [], "confirm": []}
        seen = {}
        for number, row in enumerate(rows, 1):
            row = _with_id({**columns, **row}, number, self.name)
            if row["id"] not in seen:
                seen[row["id"]] = row
                by_split[_split_of(row)].append(row)
            elif seen[row["id"]] != row:
                raise UserError(
                    f"Row {number} has the prompt of an earlier row, and other columns: leave one of them out."
                )
        for split, found in by_split.items():
            if not found:
                raise UserError(
                    f"Of {len(seen)} different prompts none falls into the split '{split}': give the task more prompts "
                    "(some hundreds, to tell two models apart)."
                )
        return by_split


def _ignore(name: str, value: object) -> None:
    """Take the place of the trainer's log functions."""


def _read_jsonl(path: str | Path) -> list[Row]:
    rows = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path} ({first_line(error)}): give the path of a JSONL file.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"Line {number} of {path} is not JSON ({error}): write one object a line.") from error
        if not isinstance(row, dict):
            raise UserError(f"Line {number} of {path} is not an object: write one object a line, with a 'prompt'.")
        rows.append(row)
    return rows


def _with_id(row: Row, number: int, name: str) -> Row:
    """Return the row with its prompt as messages, an id, and a cluster."""
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    is_conversation = isinstance(prompt, list) and all(isinstance(message, dict) for message in prompt)
    if not prompt or not is_conversation:
        hint = did_you_mean("prompt", row)
        raise UserError(f"Row {number} has no 'prompt'{hint}: each row needs one, a text or a list of messages.")
    identity = prompt_id(name, json.dumps(prompt))
    cluster = identity if row.get("cluster") is None else str(row["cluster"])
    return {**row, "prompt": prompt, "id": identity, "cluster": cluster}


def _split_of(row: Row) -> str:
    """Decide by the prompt alone, so that every prompt keeps its split when the data grow."""
    identity = row["id"]
    if not is_heldout(identity, HELDOUT_SHARE):
        return "train"
    second_byte = hashlib.sha256(identity.encode()).digest()[1]
    return "monitor" if second_byte % 2 else "confirm"


def _right_or_wrong(is_right: bool, score: float, reason: str) -> Grade:
    if is_right:
        return Grade(score, True, CORRECT)
    return Grade(score, False, "wrong", reason)


def _grade_of_rewards(values: Sequence[float | None]) -> Grade:
    known = [float(value) for value in values if value is not None]
    if not known:
        return Grade(0.0, False, UNJUDGED, "every reward is None")
    return _right_or_wrong(sum(known) > 0, sum(known), "its rewards are not above 0")

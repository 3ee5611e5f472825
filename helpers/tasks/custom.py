"""Your own task: a data set, and rewards written for TRL."""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from helpers.rewards.calling import arguments_without_logs, call_reward, describe_failure, name_of, reward_values
from helpers.rollout.completion import Completion
from helpers.runtime import UserError, did_you_mean, read_jsonl
from helpers.tasks.drawing import prompt_id, text_digest
from helpers.tasks.split import SPLITS, check_split, split_of
from helpers.tasks.task import CORRECT, Grade, Rewards, Row, Task


class CustomTask(Task):
    """Train and evaluate on your own prompts.

    data: the path of a JSONL file (one object a line), a `datasets.Dataset`, or a list of dicts. Each row has `prompt`,
    a text or a list of messages; other columns go to the rewards, and a column that a row lacks is None there. A column
    `cluster` names rows that are alike, such as the wordings of one question: they stay in one split. Without it each
    prompt stands for itself. A column `id` is replaced.
    rewards: reward functions in TRL's signature, f(prompts, completions, **columns) -> list[float or None].
    completions are message lists, as TRL has them for conversational data.
    grade: f(row, text) -> bool or `Grade`, where text is the final channel. Default: an answer is correct if the
    weighted sum of its rewards is above 0. Such rewards are called in an evaluation, too, where there is no trainer
    and so no `trainer_state`.
    reference_answer: f(row) -> a right answer as the final channel would have it, for the lint and the dry run.
    reward_weights: one a reward; default: all 1. outcomes: of the grades; needed only for a `grade` with others.
    name: for messages and checkpoints.

    A hash of each prompt's text, or of its cluster, decides whether training sees it: three quarters are for training,
    an eighth chooses each model's temperature, an eighth decides. Raises UserError for data that cannot be read, for
    one prompt with two sets of columns, and for an empty split.
    """

    watch_copies = False  # right answers may be short

    def __init__(
        self,
        data,
        rewards: Callable | Sequence[Callable],
        grade: Callable[[Row, str], bool | Grade] | None = None,
        *,
        reference_answer: Callable[[Row], str] | None = None,
        reward_weights: Sequence[float] | None = None,
        outcomes: tuple[str, ...] = (CORRECT, "wrong"),
        name: str = "custom",
    ):
        self.name = name
        self.outcomes = outcomes
        self.reward_funcs = list(rewards) if isinstance(rewards, (list, tuple)) else [rewards]
        self.reward_weights = [1.0] * len(self.reward_funcs) if reward_weights is None else list(reward_weights)
        if len(self.reward_weights) != len(self.reward_funcs):
            raise UserError(f"{len(self.reward_weights)} reward_weights for {len(self.reward_funcs)} rewards.")
        self._grade = grade
        self._reference_answer = reference_answer
        self._rows_by_split = self._split(_read(data))

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Return at most `size` rows of the split, in an order that depends on the seed."""
        from datasets import Dataset

        check_split(split)
        if size < 1:
            raise UserError(f"size must be at least 1; got {size}.")
        rows = list(self._rows_by_split[split])
        random.Random(f"{split} {seed}").shuffle(rows)
        return Dataset.from_list(rows[:size])

    def reference_answer(self, row: Row) -> str | None:
        return None if self._reference_answer is None else self._reference_answer(row)

    def is_heldout(self, row: Row) -> bool:
        return split_of("cluster", row["cluster"]) != "train"

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        if self._grade is not None:
            return [self._grade_one(row, completion) for row, completion in zip(rows, completions, strict=True)]
        if rewards is None:
            rewards = self._call_rewards(rows, completions)
        return [self._grade_of_rewards(values) for values in rewards]

    def _grade_one(self, row: Row, completion: Completion) -> Grade:
        try:
            found = self._grade(row, completion.text)
        except Exception as error:
            raise UserError(f"{describe_failure('The grade function', error)}: fix it and run this again.") from error
        if isinstance(found, Grade):
            return found
        if not isinstance(found, bool):
            raise UserError(f"The grade function returned {found!r:.80}: return True, False or a Grade.")
        return _right_or_wrong(found, float(found), "not accepted by the task's grade function")

    def _call_rewards(self, rows: Sequence[Row], completions: Sequence[Completion]) -> Rewards:
        """Call the rewards as the trainer does, but for what only a trainer has."""
        columns = []
        for function in self.reward_funcs:
            arguments = arguments_without_logs(rows, completions)
            columns.append(_values_of(function, arguments, len(rows)))
        return list(zip(*columns, strict=True))

    def _grade_of_rewards(self, values: Sequence[float | None]) -> Grade:
        paid = [
            weight * value
            for weight, value in zip(self.reward_weights, values, strict=True)
            if value is not None and not math.isnan(value)
        ]
        if not paid:
            return _right_or_wrong(False, 0.0, "every reward is None")
        return _right_or_wrong(sum(paid) > 0, sum(paid), "its rewards are not above 0")

    def _split(self, rows: Sequence[Row]) -> dict[str, list[Row]]:
        """Give every row its id, cluster and split. A prompt that stands there twice is taken once."""
        columns = {name: None for row in rows for name in row}
        by_split = {split: [] for split in SPLITS}
        seen = {}
        for number, row in enumerate(rows, 1):
            row = _with_id({**columns, **row}, number, self.name)
            if row["id"] not in seen:
                seen[row["id"]] = row
                by_split[split_of("cluster", row["cluster"])].append(row)
            elif seen[row["id"]] != row:
                raise UserError(
                    f"Row {number} has the prompt of an earlier row, and other columns: leave one of them out."
                )
        for split, found in by_split.items():
            if not found:
                clusters = len({row["cluster"] for row in seen.values()})
                raise UserError(
                    f"Of {len(seen)} different prompts in {clusters} clusters none falls into the split '{split}': "
                    "give the task more of them (some hundreds of prompts, to tell two models apart)."
                )
        return by_split


def _values_of(function: Callable, arguments: dict, count: int) -> Sequence[float | None]:
    """Call a reward. Raises UserError if it raises or leaves answers out."""
    name = name_of(function)
    try:
        returned = call_reward(function, **arguments)
    except UserError:
        raise
    except Exception as error:
        failure = describe_failure(f"Reward '{name}'", error)
        raise UserError(
            f"{failure}, called to grade answers: fix it, or give CustomTask a grade function, and run this again."
        ) from error
    return reward_values(name, returned, count)


def _read(data) -> list[Row]:
    """Return the rows of a JSONL file, a data set, or a list."""
    if isinstance(data, (str, Path)):
        return [row for _, row in read_jsonl(data)]
    rows = data.to_list() if hasattr(data, "to_list") else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(
            f"CustomTask takes the path of a JSONL file, a datasets.Dataset or a list of dicts; got a "
            f"{type(data).__name__}."
        )
    return rows


def _with_id(row: Row, number: int, name: str) -> Row:
    """Return the row with its prompt as messages, an id, and a cluster."""
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    is_conversation = isinstance(prompt, list) and all(isinstance(message, dict) for message in prompt)
    if not prompt or not is_conversation:
        hint = did_you_mean("prompt", [column for column in row if column != "prompt"])
        raise UserError(f"Row {number} has no 'prompt'{hint}: each row needs one, a text or a list of messages.")
    text = json.dumps(prompt)
    cluster = text_digest(text) if row.get("cluster") is None else str(row["cluster"])
    return {**row, "prompt": prompt, "id": prompt_id(name, text), "cluster": cluster}


def _right_or_wrong(is_right: bool, score: float, reason: str) -> Grade:
    if is_right:
        return Grade(score, True, CORRECT)
    return Grade(score, False, "wrong", reason)

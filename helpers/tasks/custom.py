"""Your own task: a data set, and rewards written for TRL."""

import math
import random
from collections.abc import Callable, Iterable, Sequence

from helpers.rewards.calling import arguments_without_logs, call_reward, describe_failure, name_of, reward_values
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.data.columns import Columns, is_blank
from helpers.tasks.data.rows import Demands, KeptRows, keep_rows
from helpers.tasks.data.sources import open_source
from helpers.tasks.split import PROBE, check_split, split_of
from helpers.tasks.task import CORRECT, Grade, Rewards, Row, Task

#: The column that names the set to which a row of the probe belongs, such as "AIME 2024".
SET = "set"


class CustomTask(Task):
    """Train and evaluate on your own prompts.

    data: the path of a file (.jsonl, .json, .csv, .tsv, .parquet) or of a folder that `save_to_disk` wrote, an id of
    the hub, a `datasets.Dataset` or `DatasetDict`, or a list of dicts; see `sources.open_source`. Each row has
    `prompt`, a text or a list of messages; other columns go to the rewards, and a column that a row lacks is None
    there. A column `cluster` names rows that are alike, such as the wordings of one question: they stay in one split.
    Without it each prompt stands for itself. A column `id` is replaced; two prompts with one id are a
    fault. A column `split`, or the parts of a `DatasetDict`, say train, validation (monitor), test (confirm) or probe.
    A probe is optional and decides nothing: it shows what was learned beyond the prompts that were trained. A column
    `set` of texts names the set to which each of its rows belongs, and comes first in the task's `breakdowns`.
    rewards: reward functions in TRL's signature, f(prompts, completions, **columns) -> list[float or None].
    completions are message lists, as TRL has them for conversational data.
    grade: f(row, text) -> bool or `Grade`, where text is the final channel. Default: an answer is correct if the
    weighted sum of its rewards is above 0. Such rewards are called in an evaluation, too, where there is no trainer
    and so no `trainer_state`.
    reference_answer: f(row) -> a right answer as the final channel would have it, for the lint and the dry run.
    Default: the row's `answer`, alone or in a box, if it counts as correct.
    reward_weights: one a reward; default: all 1. outcomes: of the grades; needed only for a `grade` with others.
    columns: which columns of the data are the prompt and the answer, where they have other names, and what is put
    around a prompt.
    name: for messages and checkpoints.

    Where the data name no splits, a hash of each prompt's text, or of its cluster, decides whether training sees it:
    three quarters are for training, an eighth chooses each model's temperature, an eighth decides. Raises UserError for
    data that cannot be read, as `rows.keep_rows` does, for one prompt with two sets of columns, for an empty split, and
    for a column `set` beside a probe that holds no texts.
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
        columns: Columns | None = None,
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
        if isinstance(data, KeptRows):
            self.kept = data
        else:
            self.kept = keep_rows(open_source(data), columns or Columns(), Demands(name))
        self.splits = tuple(self.kept.positions)
        self.breakdowns = self._breakdowns_with_set(self.breakdowns)

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Return at most `size` rows of the split, in an order that depends on the seed."""
        check_split(split, self.splits)
        if size < 1:
            raise UserError(f"size must be at least 1; got {size}.")
        positions = list(self.kept.positions[split])
        random.Random(f"{split} {seed}").shuffle(positions)
        return self.kept.data.select(positions[:size])

    def _breakdowns_with_set(self, others: Iterable[str]) -> tuple[str, ...]:
        """Return columns for `breakdowns`, before them `set` where it names the sets of a probe."""
        if PROBE not in self.splits or SET not in self.kept.data.column_names:
            return tuple(others)
        kind = str(self.kept.data.features.arrow_schema.field(SET).type)
        if kind == "null":  # no row has a value
            return tuple(others)
        if kind != "string":
            raise UserError(
                f"Column '{SET}' of {self.kept.source.name} names the sets of the probe and holds no texts: write its "
                "values as texts, or rename the column."
            )
        return (SET, *(column for column in others if column != SET))

    def reference_answer(self, row: Row) -> str | None:
        if self._reference_answer is not None:
            return self._reference_answer(row)
        answer = row.get("answer")
        if is_blank(answer) or not isinstance(answer, (str, int, float)):
            return None
        for text in (str(answer), rf"\boxed{{{answer}}}"):
            if self._is_right(row, text):
                return text
        return None

    def _is_right(self, row: Row, text: str) -> bool:
        """Tell whether a text counts as a right answer. One that a reward cannot judge does not."""
        try:
            (grade,) = self.grade([row], [Completion.of_text(text)])
        except UserError:
            return False
        return grade.correct

    def is_heldout(self, row: Row) -> bool:
        if self.kept.names_splits:
            return row["split"] != "train"
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
        return right_or_wrong(found, float(found), "not accepted by the task's grade function")

    def _call_rewards(self, rows: Sequence[Row], completions: Sequence[Completion]) -> Rewards:
        """Call the rewards as the trainer does, but for what only a trainer has."""
        columns = []
        for function in self.reward_funcs:
            arguments = arguments_without_logs(rows, completions)
            columns.append(values_of(function, arguments, len(rows)))
        return list(zip(*columns, strict=True))

    def _grade_of_rewards(self, values: Sequence[float | None]) -> Grade:
        paid = [
            weight * value
            for weight, value in zip(self.reward_weights, values, strict=True)
            if value is not None and not math.isnan(value)
        ]
        if not paid:
            return right_or_wrong(False, 0.0, "every reward is None")
        return right_or_wrong(sum(paid) > 0, sum(paid), "its rewards are not above 0")


def values_of(function: Callable, arguments: dict, count: int) -> Sequence[float | None]:
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


def right_or_wrong(is_right: bool, score: float, reason: str) -> Grade:
    """Return the grade of an answer. reason: why it is wrong, where it is."""
    if is_right:
        return Grade(score, True, CORRECT)
    return Grade(score, False, "wrong", reason)

"""A user's rows under the rewards and the grader of a task that is there already."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

from helpers.rewards.calling import arguments_without_logs, call_reward, name_of
from helpers.rewards.registry import columns_of, get_reward
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.custom import SET, CustomTask, right_or_wrong, values_of
from helpers.tasks.data.columns import ARGUMENTS, Columns, describe_columns, is_blank
from helpers.tasks.data.files import BATCH, SourceRow
from helpers.tasks.data.rows import Demands, keep_rows
from helpers.tasks.data.sources import each_row, open_source
from helpers.tasks.task import Grade, Rewards, Row, Task, Value

#: The reward of data with answers and no task: the text in the last box, or the whole text.
DEFAULT_REWARD = "exact_match"
NAME = "custom"
#: Rows by which data are taken to have answers.
FIRST_ROWS = 100


class DataTask(CustomTask):
    """Train and evaluate on rows of your own, judged as another task judges its rows.

    data: as for `CustomTask`. columns: where the rows have prompt and answer. base: the task whose rewards and grader
    judge; None: `exact_match` does, where the rows have answers. reward_funcs, reward_weights: what pays, in place of
    the rewards of the base; without a base and without answers they grade, too: their weighted sum is above 0.
    drop_faulty: leave rows with faults out and count them in `kept.dropped`, as `prepare` does; else the first fault is
    raised.

    Raises UserError as `rows.keep_rows`, for a column that the rewards or the grader read and the data lack, for an
    answer that the rewards cannot read, and where nothing says which answers are right.
    """

    def __init__(
        self,
        data: object,
        columns: Columns | None = None,
        base: Task | None = None,
        reward_funcs: Sequence[Callable] | None = None,
        *,
        reward_weights: Sequence[float] | None = None,
        drop_faulty: bool = False,
    ):
        columns = columns or Columns()
        source = open_source(data)
        self.base = base
        # A base judges by itself, and a JSON list is read as a whole each time.
        first = [] if base is not None else list(islice(source.rows(), FIRST_ROWS))
        self._judges = self._judges_of(base, has_answers(first, columns))
        if first and not self._judges and not reward_funcs:
            found = describe_columns(first[0].values)
            raise UserError(
                f"Nothing says what is right: {source.name} has the columns {found} and no '{columns.answer}'; name "
                "the column with the answers, or choose rewards of yours."
            )
        if reward_funcs is None:
            reward_funcs = self._judges
            reward_weights = base.reward_weights if base is not None else None
        name = NAME if base is None else base.name
        needs = {}
        for function in (*self._judges, *reward_funcs):
            for column in columns_of(name_of(function)):
                needs.setdefault(column, name_of(function))
        demands = Demands(
            name=name,
            needs_answer="answer" in needs,
            needs=needs,
            filled=_optional_columns(self._judges),
            faults_of=partial(_faults_of, self._judges) if self._judges else None,
            exact_answers=True,
            drop_faulty=drop_faulty,
        )
        kept = keep_rows(source, columns, demands)
        super().__init__(kept, list(reward_funcs), reward_weights=reward_weights, name=name)
        if base is not None:
            self._take_over(base)

    @staticmethod
    def _judges_of(base: Task | None, are_answered: bool) -> list[Callable]:
        """Return the rewards that tell right from wrong, as far as they are the project's."""
        if base is not None:
            return list(base.reward_funcs)
        return [get_reward(DEFAULT_REWARD)] if are_answered else []

    def _take_over(self, base: Task) -> None:
        """Be as the base in all that depends on its grades."""
        self.outcomes = base.outcomes
        self.alarms = base.alarms
        self.measures = base.measures
        self.watch_copies = base.watch_copies
        self.options = base.options
        known = [column for column in base.breakdowns if column in self.kept.data.column_names]
        self.breakdowns = self._breakdowns_with_set(known)
        row = self.dataset("train", 1)[0]
        try:
            base.grade([row], [Completion.of_text("")])
        except KeyError as error:
            raise UserError(
                f"The grader of task '{base.name}' reads the column '{error.args[0]}', and {self.kept.source.name} has "
                f"none of that name: add it, or choose another task."
            ) from error

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        if self.base is not None:
            is_of_base = self.reward_funcs == list(self.base.reward_funcs)
            return self.base.grade(rows, completions, rewards if is_of_base else None)
        if not self._judges:
            return super().grade(rows, completions, rewards)
        (judge,) = self._judges
        values = values_of(judge, arguments_without_logs(rows, completions), len(rows))
        return [right_or_wrong(value > 0, value, "another text than the answer") for value in values]

    def reference_answer(self, row: Row) -> str | None:
        """Return the base's answer to a row, or its `answer`, where it counts as correct."""
        if self.base is None:
            return super().reference_answer(row)
        if is_blank(row.get("answer")):
            return None
        try:
            answer = self.base.reference_answer(row)
        except KeyError:  # it is made of columns that these rows lack
            return None
        return answer if answer is not None and self._is_right(row, answer) else None

    def settings(self) -> dict[str, Value]:
        """Return what a checkpoint must name: the settings of the base, the data, and a digest of the rows."""
        of_base = {"task": self.name} if self.base is None else self.base.settings()
        return {**of_base, "data": self.kept.source.name, "rows": self.kept.digest[:16]}

    def behaviours(self, prompts: Sequence, completions: Sequence, **columns) -> list[str | None]:
        describing = super() if self.base is None else self.base
        return describing.behaviours(prompts, completions, **columns)

    def describe_group(self, column: str, value: Value) -> str:
        """Return the text of a value. A cluster or a set of these rows is none of the base's."""
        if self.base is None or column in ("cluster", SET):
            return str(value)
        return self.base.describe_group(column, value)

    def close(self) -> None:
        if self.base is not None:
            self.base.close()


def has_answers(rows: Iterable[SourceRow], columns: Columns) -> bool:
    """Tell whether any of the first rows of some data has an answer."""
    return any(columns.answer in row.values for row in rows)


def _optional_columns(functions: Sequence[Callable]) -> list[str]:
    """Return the columns that rewards read where a data set has them."""
    found = {}
    for function in functions:
        for name, parameter in inspect.signature(function).parameters.items():
            has_default = parameter.default is not parameter.empty
            if has_default and name not in ARGUMENTS:
                found[name] = None
    return list(found)


def check_answers(function: Callable, task: CustomTask) -> None:
    """Raise UserError for the first row of a task's data whose columns a reward refuses to read."""
    kept = each_row(task.kept.data)
    while rows := list(islice(kept, BATCH)):
        for row, fault in zip(rows, _faults_of([function], rows), strict=True):
            if fault:
                text = row["prompt"][-1]["content"]
                raise UserError(f"The row of {task.kept.source.name} with the prompt {text!r:.60}: {fault}")


def _faults_of(functions: Sequence[Callable], rows: Sequence[Row]) -> list[str]:
    """Return for each row what the rewards cannot read of it, or ""."""
    if not rows or not _fault_of(functions, rows):
        return [""] * len(rows)
    return [_fault_of(functions, [row]) for row in rows]


def _fault_of(functions: Sequence[Callable], rows: Sequence[Row]) -> str:
    """Return the message of a reward that refuses the columns of some rows, else ""."""
    arguments = arguments_without_logs(rows, [Completion.of_text("")] * len(rows))
    for function in functions:
        try:
            call_reward(function, **arguments)
        except UserError as error:
            return str(error)
        except (TypeError, KeyError) as error:
            return f"reward '{name_of(function)}' cannot read this row ({type(error).__name__}: {error})"
    return ""

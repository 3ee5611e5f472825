"""What a task is: prompts, rewards and grades. The rest of this project knows a task by this interface alone."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helpers.rewards.text import text_of
from helpers.rollout.completion import Completion

Row = dict
Value = str | float | bool

#: Outcomes that mean the same in every task.
CORRECT = "correct"
#: The answer broke a rule of the task, whether or not it is right. The trainer's monitor counts these by reason.
REFUSED = "refused"
#: The grader itself failed, which says nothing of the answer.
UNJUDGED = "unjudged"


@dataclass(frozen=True)
class Grade:
    """What one answer turned out to be.

    score: how good it is; 1 for a correct answer where a task has no finer scale. correct: whether it counts as
    solved. outcome: one of the task's `outcomes`, or UNJUDGED. reason: one sentence fit to be shown, empty if correct.
    tags: further facts by name. The trainer's monitor counts tags that are True; evaluation compares those that the
    task lists as its `measures`.
    """

    score: float
    correct: bool
    outcome: str
    reason: str = ""
    tags: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """A positive number that a task takes of its correct answers, such as a speed.

    tag: its name in `Grade.tags`. label: for plots and tables. resolution: two values whose ratio differs from 1 by
    less than this cannot be told apart.
    """

    tag: str
    label: str
    resolution: float = 0.0


class Task(ABC):
    """Something to be learned: where prompts come from, what pays, and what counts as solved.

    name: for settings and messages. outcomes: labels of grades, best first, in the order in which tables show them.
    reward_funcs: reward functions in TRL's signature. reward_weights: one a function; 0 for what is only logged.
    alarms: tag -> what is wrong where a grade has that tag; the trainer's monitor warns. measures: numbers to compare.
    breakdowns: columns of the data set by which an evaluation shows its gains.
    """

    name: str
    outcomes: tuple[str, ...] = (CORRECT, "wrong")
    reward_funcs: Sequence[Callable]
    reward_weights: Sequence[float]
    alarms: dict[str, str] = {}
    measures: tuple[Measure, ...] = ()
    breakdowns: tuple[str, ...] = ("cluster",)

    @abstractmethod
    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Return a `datasets.Dataset` of at most `size` rows.

        split: "train" for reinforcement learning; "monitor" for what is chosen during and after it; "confirm" for the
        final evaluation. No prompt is in two splits. Columns: prompt (a list of messages), id (the same prompt has the
        same id everywhere), cluster (rows that are alike, for clustered errors), and what rewards and grades need.
        """

    @abstractmethod
    def grade(self, rows: Sequence[Row], completions: Sequence[Completion]) -> list[Grade]:
        """Return one grade a completion. rows: the row of the data set that each completion answers."""

    def settings(self) -> dict[str, Value]:
        """Return what a checkpoint or adapter must name of this task; a resumed run must have the same."""
        return {"task": self.name}

    def behaviours(self, prompts: Sequence, completions: Sequence, **columns) -> list[str | None]:
        """Describe what each answer amounts to, right or wrong; equal texts for answers that amount to the same.

        The control "majority" pays for it. Default: the answer's text. None: not known.
        """
        return [text_of(completion).strip() for completion in completions]

    def describe_group(self, column: str, value: Value) -> str:
        """Return the text that a table shows for `value` of a column in `breakdowns`."""
        return str(value)

    def close(self) -> None:  # noqa: B027  (most tasks hold nothing)
        """Release what the task holds, such as processes."""

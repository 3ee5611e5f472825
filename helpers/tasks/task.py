"""What a task is: prompts, rewards and grades. The rest of this project knows a task by this interface alone."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from helpers.profiles import Profile
from helpers.rewards.arguments import text_of
from helpers.rollout.completion import Completion
from helpers.tasks.split import SPLITS, is_heldout

Row = dict
Value = str | float | bool
#: For each completion, what each of the task's reward functions gave it.
Rewards = Sequence[Sequence[float | None]]

#: Outcomes that mean the same in every task.
CORRECT = "correct"
#: The answer broke a rule of the task, whether or not it is right. The trainer's monitor counts these by reason.
REFUSED = "refused"
#: The grader itself failed, which says nothing of the answer.
UNJUDGED = "unjudged"


@dataclass(frozen=True)
class Grade:
    """The judgement of one answer.

    score: how good it is; 1 for a correct answer where a task has no finer scale. correct: whether it counts as
    solved. outcome: one of the task's `outcomes`, or UNJUDGED. reason: one sentence fit to be shown, empty if correct.
    tags: further facts by name. The trainer's monitor counts those that are True or False; evaluation compares those
    that the task lists as its `measures`.
    """

    score: float
    correct: bool
    outcome: str
    reason: str = ""
    tags: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self):
        """Turn numpy's numbers into Python's, which checkpoints and records can hold."""
        tags = {name: plain_number(value) for name, value in self.tags.items()}
        for name, value in (("score", float(self.score)), ("correct", bool(self.correct)), ("tags", tags)):
            object.__setattr__(self, name, value)


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
    alarms: tag -> what is wrong where that tag of a grade is True; the trainer's monitor warns. watch_copies: whether
    many equal answers are a sign of a mode collapse, which they are not where right answers are short. measures:
    numbers to compare. breakdowns: columns of the data set by which an evaluation shows its gains. splits: that
    `dataset` knows; "probe" is one of them where the task has kinds of problems that are in no other split. options:
    option of its class -> one sentence on it, for those that a run may set by TASK_OPTIONS.

    To write one, implement `dataset` and `grade`; `generated.GeneratedTask` helps where prompts are generated, and
    `custom.CustomTask` reads them.
    """

    name: str
    outcomes: tuple[str, ...] = (CORRECT, "wrong")
    reward_funcs: Sequence[Callable]
    reward_weights: Sequence[float]
    alarms: dict[str, str] = {}
    watch_copies: bool = True
    measures: tuple[Measure, ...] = ()
    breakdowns: tuple[str, ...] = ("cluster",)
    splits: tuple[str, ...] = SPLITS
    options: Mapping[str, str] = {}

    @classmethod
    def options_for(cls, profile: Profile) -> dict[str, Value]:
        """Return the options that suit the model of a profile, where they are not the defaults."""
        return {}

    @abstractmethod
    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Return a `datasets.Dataset` of at most `size` rows.

        split: "train" for reinforcement learning; "monitor" for what is chosen during and after it; "confirm" for the
        final evaluation; "probe", where the task has it, for new kinds of problems. No prompt is in two splits.
        Columns: prompt (a list of messages), id (the same prompt has the same id everywhere), cluster (rows that are
        alike, for clustered errors), and what rewards and grades need.
        """

    @abstractmethod
    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        """Return one grade a completion.

        rows: the row of the data set that each completion answers. rewards: what the task's reward functions gave, if
        they have been called already.
        """

    def is_heldout(self, row: Row) -> bool:
        """Tell whether training must not see this row."""
        return is_heldout(row["prompt"][-1]["content"])

    def reference_answer(self, row: Row) -> str | None:
        """Return a right answer to a row, as the final channel would have it; None: the task knows none.

        The lint compares what other texts are paid with what this one is paid.
        """
        return None

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


def plain_number(value: object) -> object:
    """Return Python's number for one of numpy's or torch's, and anything else as it is."""
    return value.item() if hasattr(value, "item") else value

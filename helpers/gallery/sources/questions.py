"""What a row of a data set becomes: a question of a task, or a reason why it is none."""

from typing import NamedTuple

from helpers.tasks.task import Row


class Unusable(Exception):
    """A row that cannot become a question. reason: a name for all rows of this kind."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class Question(NamedTuple):
    """A question of a task.

    problem: what is asked, without the sentences that every prompt of its set has, to compare with other problems.
    row: of the task, with prompt, answer and what its rewards read.
    """

    problem: str
    row: Row

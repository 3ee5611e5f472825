"""What a row of a data set becomes: a question of a task, or a reason why it is none."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from helpers.gallery.sources.overlap import normalized
from helpers.tasks.data.columns import NO_UNICODE
from helpers.tasks.task import Row

#: Why a row is left out that has the problem of an earlier question.
DUPLICATE = "duplicate"


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


def keep_questions(
    rows: Iterable[Mapping], question: Callable[[Mapping], Question]
) -> tuple[list[Question], dict[str, int]]:
    """Return the questions of some rows, in their order, and how many of the other rows were left out for which reason.

    question: f(a row) -> `Question`; it raises `Unusable`. Of rows with one problem, in whatever way it is written
    (`overlap.normalized`), the first that is a question is kept.
    """
    questions = []
    dropped = Counter()
    seen = set()
    for row in rows:
        try:
            found = question(row)
            _check_unicode(found)
        except Unusable as unusable:
            dropped[unusable.reason] += 1
            continue
        problem = normalized(found.problem)
        if problem in seen:
            dropped[DUPLICATE] += 1
            continue
        seen.add(problem)
        questions.append(found)
    return questions, dict(dropped)


def describe_dropped(dropped: Mapping[str, int]) -> str:
    """Return how many rows were left out for which reason, in words; "" where none was."""
    return ", ".join(f"{count} {reason}" for reason, count in dropped.items())


def _check_unicode(question: Question) -> None:
    """Raise Unusable for a text with half a surrogate pair, which JSON can have as an escape and no file as UTF-8."""
    for text in (question.problem, *question.row.values()):
        try:
            str(text).encode()
        except UnicodeEncodeError as error:
            raise Unusable(NO_UNICODE) from error

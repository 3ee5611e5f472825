"""Calls a task's grader and checks what it returns, so that a mistake in it shows at once and in one sentence."""

from collections.abc import Sequence
from numbers import Real

from helpers.rewards.calling import describe_failure
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.task import UNJUDGED, Grade, Rewards, Row, Task


def grade_answers(
    task: Task, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
) -> list[Grade]:
    """Return one grade a completion. Arguments as for `Task.grade`.

    Raises UserError for a grader that raises, leaves answers out, or returns what its task does not declare.
    """
    grader = f"The grader of task '{task.name}'"
    try:
        grades = task.grade(rows, completions, rewards)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{describe_failure(grader, error)}: fix it and run this again.") from error
    if not isinstance(grades, list) or len(grades) != len(completions):
        returned = f"{len(grades)} grades" if isinstance(grades, list) else f"a {type(grades).__name__}"
        raise UserError(f"{grader} returned {returned}: return a list of {len(completions)}, one for each completion.")
    for grade in grades:
        _check(grader, task, grade)
    return grades


def _check(grader: str, task: Task, grade: Grade) -> None:
    if not isinstance(grade, Grade):
        raise UserError(f"{grader} returned {grade!r:.80}: return a Grade for each completion.")
    if grade.outcome not in (*task.outcomes, UNJUDGED):
        raise UserError(
            f"{grader} returned the outcome '{grade.outcome}', and the task has {', '.join(task.outcomes)}: add it to "
            "the task's outcomes."
        )
    for measure in task.measures:
        value = grade.tags.get(measure.tag)
        if grade.correct and not (isinstance(value, Real) and value > 0):
            raise UserError(
                f"{grader} gave a correct answer {measure.tag} = {value!r}: a measure is a positive number on every "
                "correct answer."
            )

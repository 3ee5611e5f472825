"""The lint for rewards, on a task's own rows and reference answers."""

from collections.abc import Callable, Sequence

from helpers.lint.rewards import LintReport, lint_rewards
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.grading import grade_answers
from helpers.tasks.task import Row, Task


def describe_lint(task: Task, rows: Sequence[Row], reward_funcs: Sequence[Callable], weights: Sequence[float]) -> str:
    """Return what the lint finds, or one sentence where the task knows no reference answers to compare with."""
    rows = list(rows)
    if all(task.reference_answer(row) is None for row in rows):
        return f"Not linted: task '{task.name}' knows no reference answers to compare with."
    return str(lint_task(task, rows, reward_funcs, weights))


def lint_task(
    task: Task,
    rows: Sequence[Row],
    reward_funcs: Callable | Sequence[Callable] | None = None,
    weights: Sequence[float] | None = None,
) -> LintReport:
    """Ask what a task's rewards pay to completions that deserve nothing; see `helpers.lint.rewards.lint_rewards`.

    rows: of the task's data set. reward_funcs, weights: instead of the task's own. The task's grader says which
    answers of other rows are right for a row, too.

    Raises UserError for a task that knows no reference answers.
    """
    rows = list(rows)
    if not rows:
        raise UserError("There are no rows to try the rewards on: give the lint eight or more of the task's data set.")
    answers = [task.reference_answer(row) for row in rows]
    if all(answer is None for answer in answers):
        raise UserError(
            f"Task '{task.name}' knows no reference answers, and the lint compares with them: implement "
            "reference_answer(row)."
        )
    if reward_funcs is None:
        reward_funcs = task.reward_funcs
        weights = task.reward_weights if weights is None else weights

    def is_right(asked_rows: Sequence[Row], texts: Sequence[str]) -> list[bool]:
        grades = grade_answers(task, asked_rows, [Completion.of_text(text) for text in texts])
        return [grade.correct for grade in grades]

    return lint_rewards(reward_funcs, rows, answers, weights, is_right=is_right)

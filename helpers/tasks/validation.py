"""Checks a task's data before a run: splits, reference answers, digests."""

from collections.abc import Sequence

from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.frozen import frozen_digests, split_digests
from helpers.tasks.grading import grade_answers
from helpers.tasks.task import Row, Task

ROWS = 64  # of each split
ANSWERS = 16  # of each split that are graded


def validate_data(task: Task) -> list[str]:
    """Check the rows of every split; return sentences on what was found.

    Raises UserError for a prompt that is in two splits, for a row of "train" that is held out and one of the others
    that is not, and for a reference answer that the task does not grade as correct.
    """
    rows_of = {split: task.dataset(split, ROWS).to_list() for split in task.splits}
    _check_splits(task, rows_of)
    counts = ", ".join(f"{split} {len(rows)}" for split, rows in rows_of.items())
    found = [f"No prompt is in two splits ({counts} looked at)."]
    graded_rows = [row for rows in rows_of.values() for row in rows[:ANSWERS]]
    found.append(_check_reference_answers(task, graded_rows))
    found.append(_compare_digests(task))
    return found


def _check_splits(task: Task, rows_of: dict[str, list[Row]]) -> None:
    split_of = {}
    for split, rows in rows_of.items():
        for row in rows:
            earlier = split_of.setdefault(row["id"], split)
            if earlier != split:
                raise UserError(
                    f"Task '{task.name}' has prompt {row['id']} in '{earlier}' and in '{split}': let `dataset` give "
                    "each prompt to one split."
                )
            if task.is_heldout(row) == (split == "train"):
                where = "held out from training" if split == "train" else "not held out from training"
                raise UserError(
                    f"Task '{task.name}': prompt {row['id']} of split '{split}' is {where}: make `dataset` and "
                    "`is_heldout` agree."
                )


def _check_reference_answers(task: Task, rows: Sequence[Row]) -> str:
    answers = [task.reference_answer(row) for row in rows]
    known = [(row, answer) for row, answer in zip(rows, answers, strict=True) if answer is not None]
    if not known:
        return "The task gives no reference answers, so its grades were not tried on any."
    rows_with_answer = [row for row, _ in known]
    completions = [Completion.of_text(answer) for _, answer in known]
    grades = grade_answers(task, rows_with_answer, completions)
    for row, grade in zip(rows_with_answer, grades, strict=True):
        if not grade.correct:
            raise UserError(
                f"Task '{task.name}' does not accept its own answer to prompt {row['id']}: {grade.outcome}, "
                f"{grade.reason}. Correct its reference_answer, or its grade."
            )
    return f"{len(known)} reference answers are graded as correct."


def _compare_digests(task: Task) -> str:
    frozen = frozen_digests(task)
    if frozen is None:
        return "No digests were frozen for this task with these options, so the rows are compared with none."
    changed = [split for split, digest in split_digests(task).items() if frozen.get(split) != digest]
    if changed:
        raise UserError(
            f"Task '{task.name}': the rows of {', '.join(changed)} are not those that were frozen. Take the project's "
            "own files, or, after a change that is meant, run python -m helpers.tasks.frozen."
        )
    return "The rows have the digests that were frozen."

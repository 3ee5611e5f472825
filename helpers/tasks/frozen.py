"""Digests of the generated data sets: a change that alters a prompt or an answer is noticed.

`frozen.json` holds the SHA-256 of the first rows of each split, for each task with its default options, and with those
that a large model gets. `python -m helpers.tasks.frozen` writes it anew, after a change that is meant.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from helpers.runtime import write_whole
from helpers.tasks.task import Row, Task

FROZEN = Path(__file__).with_name("frozen.json")
ROWS = 256
SEED = 0
#: Settings that change no row.
NOT_OF_DATA = ("task", "sandbox")


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256 of rows, in hexadecimal digits. The order of the columns does not matter."""
    lines = [json.dumps(row, sort_keys=True, ensure_ascii=True) for row in rows]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def split_digests(task: Task) -> dict[str, str]:
    """Return split -> digest of the rows that are frozen."""
    return {split: rows_digest(task.dataset(split, ROWS, SEED).to_list()) for split in task.splits}


def data_name(task: Task) -> str:
    """Return the name of a task's data, with the options that they depend on, such as "math depth=2"."""
    options = [f"{name}={value}" for name, value in task.settings().items() if name not in NOT_OF_DATA]
    return " ".join([task.name, *options])


def frozen_digests(task: Task) -> dict[str, str] | None:
    """Return split -> the digest that was frozen; None for data that are not."""
    return json.loads(FROZEN.read_text()).get(data_name(task))


def freeze(tasks: Sequence[Task]) -> None:
    """Write the digests of these tasks."""
    digests = {data_name(task): split_digests(task) for task in tasks}
    write_whole(FROZEN, json.dumps(digests, indent=2) + "\n")


def main() -> None:
    from helpers.profiles import named_profile
    from helpers.tasks import get_task, list_tasks
    from helpers.tasks.choosing import choose_task

    large = named_profile("t4")
    tasks = [*map(get_task, list_tasks()), *(choose_task(name, large) for name in list_tasks())]
    by_data = {}
    for task in tasks:
        by_data.setdefault(data_name(task), task)
    freeze(list(by_data.values()))
    print(f"Wrote {FROZEN.name}: {', '.join(by_data)}.")


if __name__ == "__main__":
    main()

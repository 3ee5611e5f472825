"""Digests of the generated data sets: a change that alters a prompt or an answer is noticed.

`frozen.json` holds, for each task with its default options and each of its splits, the SHA-256 of the first rows.
`python -m helpers.tasks.frozen` writes it anew, after a change that is meant.
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


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256 of rows, in hexadecimal digits. The order of the columns does not matter."""
    lines = [json.dumps(row, sort_keys=True, ensure_ascii=True) for row in rows]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def split_digests(task: Task) -> dict[str, str]:
    """Return split -> digest of the rows that are frozen."""
    return {split: rows_digest(task.dataset(split, ROWS, SEED).to_list()) for split in task.splits}


def frozen_digests(name: str) -> dict[str, str] | None:
    """Return split -> the digest that was frozen; None for a task that is not."""
    return json.loads(FROZEN.read_text()).get(name)


def freeze(tasks: Sequence[Task]) -> None:
    """Write the digests of these tasks."""
    digests = {task.name: split_digests(task) for task in tasks}
    write_whole(FROZEN, json.dumps(digests, indent=2) + "\n")


def main() -> None:
    from helpers.tasks import get_task, list_tasks

    freeze([get_task(name) for name in list_tasks()])
    print(f"Wrote {FROZEN.name}: {', '.join(list_tasks())}.")


if __name__ == "__main__":
    main()

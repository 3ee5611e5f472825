"""Data sets drawn from a generator of rows; nothing is downloaded."""

import hashlib
import random
from collections.abc import Callable, Sequence

from helpers.runtime import UserError
from helpers.tasks.split import belongs_to

MOST_MISSES = 2000  # draws in a row that bring nothing new, after which there is little left

DrawRow = Callable[[random.Random, str, str], dict]


def draw_dataset(name: str, wordings: Sequence[str], draw_row: DrawRow, split: str, size: int, seed: int):
    """Draw a `datasets.Dataset` of `size` different prompts of the task `name`.

    wordings: their names; they take turns, so they are equally frequent. draw_row: f(random generator, name of the
    wording, split) -> row. Raises UserError for a size below 1, or more prompts than there are.
    """
    from datasets import Dataset

    if size < 1:
        raise UserError(f"size must be at least 1; got {size}.")
    rng = random.Random(f"{name} {split} {seed}")
    rows = {}
    misses = 0
    while len(rows) < size:
        wording = wordings[len(rows) % len(wordings)]
        row = draw_row(rng, wording, split)
        text = row["prompt"][0]["content"]
        if row["id"] in rows or not belongs_to(text, split):
            misses += 1
        else:
            misses = 0
            rows[row["id"]] = row
        if misses > MOST_MISSES:
            raise UserError(f"{name} has hardly more than {len(rows)} {split} prompts: ask for fewer than {size}.")
    return Dataset.from_list(list(rows.values()))


def make_row(task: str, text: str, answer: str, cluster: str) -> dict:
    """Return a row of the data set with one user message. The id is a hash of the text."""
    return {
        "prompt": [{"role": "user", "content": text}],
        "answer": answer,
        "task": task,
        "cluster": cluster,
        "id": prompt_id(task, text),
    }


def prompt_id(task: str, text: str) -> str:
    """Return the name by which a prompt is known everywhere, such as "matmul-0f3a..."."""
    return f"{task}-{text_digest(text)}"


def text_digest(text: str) -> str:
    """Return twelve hexadecimal digits that name a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]

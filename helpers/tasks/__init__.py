"""Prompts, answers and data sets, drawn from generators; nothing is downloaded."""

import hashlib
import random
from itertools import count

from helpers.runtime import UserError, did_you_mean
from helpers.tasks.math import draw_problem
from helpers.tasks.matmul import WISHES, draw_prompt
from helpers.tasks.programs import STYLES, draw_program
from helpers.tasks.split import is_heldout

TASKS = ("matmul", "math")
SPLITS = ("train", "heldout")
MOST_MISSES = 2000  # draws in a row that bring nothing new, after which there is little left


def load_task(name, split="train", size=1000, seed=0):
    """A `datasets.Dataset` of `size` different prompts.

    name: "matmul" or "math". split: "train" or "heldout"; no text is in both.

    Columns: prompt (one user message), answer (str: a correct program, or the integer),
    task, id (a hash of the text: the same prompt has the same id everywhere), cluster (the wording
    or problem family, for clustered errors).
    """
    from datasets import Dataset

    if name not in TASKS:
        raise UserError(f"There is no task '{name}'{did_you_mean(name, TASKS)}: choose {' or '.join(TASKS)}.")
    if split not in SPLITS:
        raise UserError(f"There is no split '{split}': choose {' or '.join(SPLITS)}.")
    if size < 1:
        raise UserError(f"size must be at least 1; got {size}.")
    rng, rows, misses = random.Random(f"{name} {split} {seed}"), {}, 0
    draw = _matmul_row if name == "matmul" else _math_row
    while len(rows) < size:
        text, answer, cluster = draw(rng, split == "heldout")
        misses += 1
        if misses > MOST_MISSES:
            raise UserError(f"{name} has hardly more than {len(rows)} {split} prompts: ask for fewer than {size}.")
        if is_heldout(text) == (split == "heldout") and text not in rows:
            misses = 0
            item = {"prompt": [{"role": "user", "content": text}], "answer": answer, "task": name, "cluster": cluster}
            rows[text] = {**item, "id": f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"}
    return Dataset.from_list(list(rows.values()))


def _matmul_row(rng, heldout):
    text, cluster, wish = draw_prompt(rng)
    for attempt in count():
        # a style with few variants may have none on this side of the split: then any style serves
        styles = WISHES[wish] if WISHES[wish] and attempt < 50 else tuple(STYLES)
        program = draw_program(rng, style=rng.choice(styles)).source
        if is_heldout(program) == heldout:
            return text, program, cluster


def _math_row(rng, heldout):
    text, family, _, answer = draw_problem(rng)
    return text, str(answer), family


__all__ = ["load_task"]

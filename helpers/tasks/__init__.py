"""Prompts, answers and data sets, drawn from generators; nothing is downloaded."""

import hashlib
import random
from itertools import count

from helpers.runtime import UserError, did_you_mean
from helpers.tasks.math.problems import FAMILIES, draw_problem
from helpers.tasks.matmul.programs import STYLES, draw_program
from helpers.tasks.matmul.prompts import CONTRACTS, WISHES, Prompt, draw_prompt
from helpers.tasks.split import SPLITS, belongs_to
from helpers.tasks.wording import wording_names

TASKS = ("matmul", "math")
MOST_MISSES = 2000  # draws in a row that bring nothing new, after which there is little left


def load_task(name: str, split: str = "train", size: int = 1000, seed: int = 0):
    """Draw a `datasets.Dataset` of `size` different prompts.

    name: "matmul" or "math". split: "train" for reinforcement learning; "monitor" for what is chosen during and after
    it, with other texts in the same wordings; "confirm" for the final evaluation, with other texts in wordings that no
    other split has. No text is in two splits. The wordings of a split take turns, so they are equally frequent.

    Columns: prompt (one user message), answer (str: a correct program, or the integer), task, id (a hash of the
    text: the same prompt has the same id everywhere), cluster (the wording, for clustered errors) and, for matmul,
    contract (a name in `helpers.tasks.matmul.contracts.CONTRACTS`: how the operands and the result are given).
    """
    from datasets import Dataset

    if name not in TASKS:
        raise UserError(f"There is no task '{name}'{did_you_mean(name, TASKS)}: choose {' or '.join(TASKS)}.")
    if split not in SPLITS:
        raise UserError(f"There is no split '{split}'{did_you_mean(split, SPLITS)}: choose {', '.join(SPLITS)}.")
    if size < 1:
        raise UserError(f"size must be at least 1; got {size}.")
    rng = random.Random(f"{name} {split} {seed}")
    wordings = wording_names(CONTRACTS if name == "matmul" else _math_wordings(), split)
    draw_row = _matmul_row if name == "matmul" else _math_row
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


def _row(task: str, text: str, answer: str, wording: str) -> dict:
    return {
        "prompt": [{"role": "user", "content": text}],
        "answer": answer,
        "task": task,
        "cluster": wording,
        "id": f"{task}-{hashlib.sha256(text.encode()).hexdigest()[:12]}",
    }


def _matmul_row(rng: random.Random, wording: str, split: str) -> dict:
    prompt = draw_prompt(rng, wording)
    program = _answer(rng, prompt, split)
    return {**_row("matmul", prompt.text, program, wording), "contract": prompt.contract}


def _answer(rng: random.Random, prompt: Prompt, split: str) -> str:
    """A correct program that is on the same side of the split as the prompt."""
    for attempt in count():
        # A style with few variants may have none on this side of the split; then any style will do.
        wished = WISHES[prompt.wish] if attempt < 50 else None
        style = rng.choice(wished or tuple(STYLES))
        program = draw_program(rng, contract=prompt.contract, style=style).source
        if belongs_to(program, split):
            return program


def _math_wordings():
    return {name: family.wordings for name, family in FAMILIES.items()}


def _math_row(rng: random.Random, wording: str, split: str) -> dict:
    problem = draw_problem(rng, wording)
    return _row("math", problem.text, str(problem.answer), wording)


__all__ = ["load_task"]

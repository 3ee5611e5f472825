"""Mistakes that users make with `make run`, and the words of the answer. How long each takes:

python -m tests.run.mistakes
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from helpers.runtime import ROOT

#: Within so many seconds, on two cores, an answer is there.
SECONDS = 10

SUMS = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(60)]


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@dataclass(frozen=True)
class Mistake:
    """Arguments of `make run`, the files that they name, and words of the one sentence that answers."""

    arguments: tuple[str, ...]
    words: str
    files: dict[str, str] = field(default_factory=dict)


MINE = "def mine(prompts, completions, solution, **_):\n    return [1.0] * len(completions)\n"
WRONG_KEYS = [{"prompt": [{"from": "user", "value": f"What is {n}?"}], "answer": "1"} for n in range(60)]
MIXED = [*SUMS, {"prompt": "What is 1 + 0?", "answer": 1}]
TWO_ANSWERS = [*SUMS, {"prompt": "What is 1 + 1?", "answer": "3"}]
MISTAKES = {
    "an unknown recipe": Mistake(("RECIPE=dappo",), "did you mean 'dapo'"),
    "a reward that the task cannot feed": Mistake(("TASK=code", "REWARDS=math_answer"), "'math_answer'"),
    "a reward that lacks a column": Mistake(("REWARDS=mine:mine",), "'solution'", {"mine.py": MINE}),
    "a column of texts and numbers": Mistake(("DATA=sums.jsonl",), "line 61", {"sums.jsonl": lines(MIXED)}),
    "messages with other keys": Mistake(("DATA=chat.jsonl",), "role", {"chat.jsonl": lines(WRONG_KEYS)}),
    "an empty file": Mistake(("DATA=none.jsonl",), "none.jsonl", {"none.jsonl": ""}),
    "a file that is not there": Mistake(("DATA=sum.jsonl",), "did you mean 'sums.jsonl'", {"sums.jsonl": lines(SUMS)}),
    "a file of another kind": Mistake(("DATA=sums.xlsx",), ".xlsx", {"sums.xlsx": "x"}),
    "a broken line": Mistake(("DATA=sums.jsonl",), "Line 61", {"sums.jsonl": lines(SUMS) + '{"prompt": "What'}),
    "an unknown column": Mistake(("DATA=sums.jsonl", "PROMPT=promt"), "'promt'", {"sums.jsonl": lines(SUMS)}),
    "a template with an unknown column": Mistake(
        ("DATA=sums.jsonl", "TEMPLATE={qestion}"), "qestion", {"sums.jsonl": lines(SUMS)}
    ),
    "one prompt with two answers": Mistake(("DATA=sums.jsonl",), "Line 61", {"sums.jsonl": lines(TWO_ANSWERS)}),
    "a file of settings that is no TOML": Mistake(("CONFIG=run.toml",), "is not TOML", {"run.toml": "task = math"}),
    "an unknown setting in a file": Mistake(("CONFIG=run.toml",), "did you mean 'task'", {"run.toml": "tsk = 'math'"}),
    "a number that is none": Mistake(("LEARNING_RATE=1e-5x",), "learning_rate must be a number"),
    "groups of one": Mistake(("GROUP_SIZE=1",), "num_generations must be a whole number from 2 on"),
    "a batch that groups do not fill": Mistake(("BATCH=30",), "num_generations must divide"),
    "a setting that would change the sampler": Mistake(("TOP_P=0.9",), "top_p=0.9 is not supported"),
    "no epochs": Mistake(("EPOCHS=0",), "num_train_epochs must be a number above 0"),
    "a model that is not there": Mistake(("MODEL=./nowhere",), "There is no model in './nowhere'"),
    "a folder that is a file": Mistake(("RUN_DIR=taken",), "taken", {"taken": "x"}),
    "a task in a file that is not there": Mistake(("TASK=mine:task",), "'mine:task'"),
}


def main() -> int:
    """Time the answer to each mistake, as a command of its own. Return 1 if one takes longer than SECONDS."""
    slowest = 0.0
    for name, mistake in MISTAKES.items():
        with tempfile.TemporaryDirectory() as folder:
            for file, content in mistake.files.items():
                (Path(folder) / file).write_text(content)
            command = [sys.executable, "-m", "helpers.run", *mistake.arguments]
            started = time.monotonic()
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
            seconds = time.monotonic() - started
        is_answered = run.returncode == 1 and mistake.words in run.stderr and run.stderr.count("\n") == 1
        print(f"{seconds:5.1f} s  {name}: {'' if is_answered else 'NOT ANSWERED '}{run.stderr.strip()}")
        slowest = max(slowest, seconds if is_answered else float("inf"))
    print(f"the slowest took {slowest:.1f} s")
    return int(slowest > SECONDS)


if __name__ == "__main__":
    sys.exit(main())

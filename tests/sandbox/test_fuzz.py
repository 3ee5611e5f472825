"""Completions that nobody wrote: whatever stands in them, four numbers come out and nothing is left behind."""

import gc
import math
import random

import pytest

from helpers import MatmulTask
from tests.process import children, descriptors, status
from tests.sandbox.suite import load_exploits, load_honest

PIECES = [
    "```", "```python\n", "```py\n", "\n```\n", "~~~", "````", "<|channel|>final<|message|>", "<|return|>", "matmul",
    "def matmul(A, B):", "\n    ", "\t", "\0", "\udc80", "\u2028", "\u202e", "\ufeff", "é", "𝒎", "(" * 300, "9" * 5000,
    "[" * 99 + "]" * 99, "#", "'", '"""', "\\", "lambda: ", "return ", "import ", "=" * 50, "\r", "\x0c", "-" * 2000,
    "if 1:\n" * 30, "%s", "{}",
]  # fmt: skip
BATCH = 250


def completions(count, seed):
    """Programs and texts of the suite, cut, spliced, doubled and sprinkled; some are bare noise."""
    draw = random.Random(seed)
    bombs = "BIH"  # a second each: they are judged elsewhere
    texts = [e.completion for e in load_exploits() if e.kind not in ("dos", "mem") and e.group not in bombs]
    texts += [f"Here it is:\n```python\n{source}\n```\n" for source in load_honest().values()]
    for _ in range(count):
        text = draw.choice(texts)
        for _ in range(draw.choice((1, 1, 2, 4, 8))):
            a, b = sorted(draw.randrange(len(text) + 1) for _ in range(2))
            way = draw.randrange(6)
            if way == 0:
                text = text[:a] + text[b:]
            elif way == 1:
                text = text[:a] + draw.choice(PIECES) + text[a:]
            elif way == 2:
                text = text[:b] + text[a:b] + text[b:]
            elif way == 3:
                text = text[:a] + draw.choice(texts)[a:]
            elif way == 4:
                text = text[:a] + chr(draw.choice((draw.randrange(128), draw.randrange(0x110000)))) + text[a + 1 :]
            else:
                text = "".join(draw.choice(PIECES) for _ in range(draw.randrange(40)))
        yield text[:50_000]


def fuzz(task, count, seed):
    """Run `count` of them through the four rewards; returns how many were code, and how many correct."""
    source, code, correct = completions(count, seed), 0, 0
    for start in range(0, count, BATCH):
        batch = [next(source) for _ in range(min(BATCH, count - start))]
        messages = [[{"role": "assistant", "content": text, "thinking": ""}] for text in batch]
        columns = [reward(prompts=[None] * len(batch), completions=messages) for reward in task.reward_funcs]
        assert all(len(column) == len(batch) and all(map(math.isfinite, column)) for column in columns)
        assert all(len(v.reason) <= 200 and v.reason.isprintable() for v in task.verdicts(messages))
        code += sum(program is not None for program in task.programs(messages))
        correct += int(sum(columns[2]))
    return code, correct


@pytest.mark.parametrize("count", [750, pytest.param(100_000, marks=pytest.mark.slow)])
def test_fuzzed_completions(count):
    """0 exceptions, memory flat, no process or descriptor left."""
    task = MatmulTask()
    fuzz(task, BATCH, seed=0)  # starts the sandbox
    gc.collect()
    before = set(children()), descriptors(), status("VmRSS")
    code, correct = fuzz(task, count, seed=1)
    gc.collect()
    assert code > 0.15 * count and correct > 0.005 * count, "the fuzz no longer reaches the sandbox"
    assert set(children()) == before[0] and descriptors() == before[1]
    assert status("VmRSS") - before[2] < 40 * 2**20
    task.close()

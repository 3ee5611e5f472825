"""What each registered reward is tried with in test_every_reward.py: its options, and a row with the columns it needs.

Whoever registers a reward adds a line to SAMPLES.
"""

from dataclasses import dataclass, field


def longer(prompt: str, first: str, second: str) -> float:
    """Judge for the reward "preference": prefer the longer text."""
    if len(first) == len(second):
        return 0.5
    return float(len(first) > len(second))


@dataclass(frozen=True)
class Sample:
    """How to try a reward.

    options: for `get_reward`. row: name -> value of the columns that the reward needs, `prompt` among them if the
    prompt matters. right: a right answer to the row, where the reward pays for correctness.
    """

    options: dict[str, object] = field(default_factory=dict)
    row: dict[str, object] = field(default_factory=dict)
    right: str | None = None


SQUARE = "```python\ndef solve(n):\n    return n * n\n```"
PRODUCT = """```python
def matmul(A, B):
    columns = list(zip(*B))
    return [[sum(a * b for a, b in zip(row, column)) for column in columns] for row in A]
```"""
SAMPLES: dict[str, Sample] = {
    "code_correctness": Sample(row={"tests": '{"cases": [[3], [-4]], "results": [9, 16]}'}, right=SQUARE),
    "correctness_check": Sample(row={"contract": "rows"}, right=PRODUCT),
    "countdown": Sample(row={"numbers": "[2, 3, 7]", "target": 42}, right=r"\boxed{2 * 3 * 7}"),
    "exact_match": Sample(row={"answer": "Paris"}, right=r"\boxed{Paris}"),
    "function_works": Sample(row={"contract": "rows"}),
    "instruction_constraints": Sample(
        row={"constraints": '[{"kind": "words_exactly", "count": 7}]'}, right="one two three four five six seven"
    ),
    "knights_and_knaves": Sample(
        row={"solution": '{"Ann": "knight", "Ben": "knave"}'}, right=r"\boxed{Ann: knight, Ben: knave}"
    ),
    "length_penalty": Sample({"max_tokens": 1000}),
    "math_answer": Sample(row={"answer": "42", "unit": "cm"}, right=r"\boxed{42}"),
    "math_format": Sample(row={"unit": "cm"}),
    "math_number": Sample(row={"answer": "3.14", "unit": None}, right=r"\boxed{3.1416}"),
    "no_cheating": Sample(row={"contract": "rows"}),
    "preference": Sample({"judge": longer}),
    "speed_check": Sample(row={"contract": "rows"}),
    "step_order": Sample(
        row={"steps": '{"A": "cook", "B": "shop"}', "rules": '[["B", "before", "A"]]'}, right=r"\boxed{B, A}"
    ),
}

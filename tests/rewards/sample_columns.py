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


SAMPLES: dict[str, Sample] = {
    "length_penalty": Sample({"max_tokens": 1000}),
    "math_answer": Sample(row={"answer": "42"}, right=r"\boxed{42}"),
    "preference": Sample({"judge": longer}),
}

"""What holds for every registered reward. A new one is tried as soon as sample_columns.py says with what."""

import math
import time

import pytest

from helpers.rewards.calling import name_of
from helpers.rewards.registry import get_reward, list_presets, reward_preset
from helpers.tasks import list_rewards
from tests.rewards.sample_columns import SAMPLES

#: Those of this project: a test's own may be registered, too, while it runs.
SPECS = [spec for spec in list_rewards() if spec.origin[0].startswith("helpers.")]

PLAIN = ["", " \n", "x", "No.", r"\boxed{41}", "42 or 43 or 44"]
HOSTILE = {
    "a million letters": "a" * 1_000_000,
    "a million brackets": "[({" * 333_333,
    "a million open boxes": r"\boxed{" * 140_000,
    "a million digits": r"\boxed{" + "9" * 1_000_000 + "}",
    "a million lines": "a\n" * 500_000,
    "a power tower": r"\boxed{9**9**9**9**9}",
    "NUL": "\0" * 1000 + r"\boxed{1" + "\0}",
    "bidi": "\u202e}24{dexob\\ \u2066\u200b",
    "lone surrogates": "\ud800\udfff" * 100,
    "code": "```python\nimport os\nos._exit(3)\n```",
    "an expression": r"\boxed{__import__('os')._exit(3)}",
    "a format string": "{0.__class__.__init__.__globals__} %s %(x)s",
}
SECONDS = 20


def columns_of(sample, count, unknown=True):
    """Return the columns of `count` equal rows, and some that no reward knows."""
    row = {"prompt": "What is 6 times 7?", **sample.row}
    columns = {("prompts" if name == "prompt" else name): [value] * count for name, value in row.items()}
    if unknown:
        columns |= {"a_column_that_no_reward_knows": [None] * count, "trainer_state": None}
    return columns


def check_values(spec, values, count):
    assert isinstance(values, list) and len(values) == count
    low, high = spec.value_range
    for value in values:
        if value is not None:
            assert isinstance(value, (int, float)) and math.isfinite(value)
            assert low <= value <= high, f"{spec.name} paid {value}, out of {spec.value_range}"


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.name)
def case(request):
    """A reward's description, its sample, and the reward. Ended after the tests, where it holds processes."""
    spec = request.param
    if spec.name not in SAMPLES:
        pytest.fail(f"tests/rewards/sample_columns.py has no sample for '{spec.name}': add one to SAMPLES.")
    sample = SAMPLES[spec.name]
    assert set(spec.needs) <= set(sample.row), f"The sample for '{spec.name}' lacks a column that it needs."
    reward = get_reward(spec.name, **sample.options)
    yield spec, sample, reward
    if hasattr(reward, "close"):
        reward.close()


def test_there_are_some():
    """Without it a registry that lost its rewards would pass all tests of this file."""
    names = [spec.name for spec in SPECS]
    assert {"length_penalty", "preference"} <= set(names)
    assert len(set(names)) == len(names)


def test_name_and_docstring(case):
    """What `list_rewards` shows, and logs."""
    spec, _, reward = case
    assert name_of(reward) == spec.name
    assert len(spec.summary) > 10 and "\n" not in spec.summary
    assert spec.summary.endswith((".", ":")), f"The first line of {spec.name}'s docstring is no sentence."


def test_plain_texts(case):
    """As text and as messages, which get the same; with all that a trainer passes, and with TRL's columns only."""
    spec, sample, reward = case
    texts = [*PLAIN, sample.right] if sample.right else PLAIN
    count = len(texts)
    messages = [[{"role": "assistant", "content": text, "thinking": ""}] for text in texts]
    values = reward(completions=texts, **columns_of(sample, count))
    check_values(spec, values, count)
    assert reward(completions=messages, **columns_of(sample, count, unknown=False)) == values
    ids = {"completion_ids": [[7] * len(text) for text in texts], "logprobs": [[-1.0] * len(text) for text in texts]}
    stopped = reward(completions=messages, **columns_of(sample, count), **ids, finish_reasons=["stop"] * count)
    check_values(spec, stopped, count)
    cut_off = reward(completions=messages, **columns_of(sample, count), **ids, finish_reasons=["length"] * count)
    check_values(spec, cut_off, count)
    if spec.pays_correctness:
        best = max(value for value in values if value is not None)
        assert values[-1] == best, f"{spec.name} does not pay the right answer of its sample the most."
        assert stopped[-1] > cut_off[-1], f"{spec.name} pays an answer that was cut off."
        assert values[-1] > values[0], f"{spec.name} pays an empty answer as much as a right one."


def test_hostile_texts(case):
    """They raise nothing, take linear time, and earn no more than an empty answer where answers are right or wrong."""
    spec, sample, reward = case
    texts = ["", *HOSTILE.values()]
    started = time.monotonic()
    values = reward(completions=texts, **columns_of(sample, len(texts)))
    assert time.monotonic() - started < SECONDS
    check_values(spec, values, len(texts))
    if spec.pays_correctness:
        paid = {name: value for name, value in zip(HOSTILE, values[1:]) if value is not None and value > values[0]}
        assert not paid, f"{spec.name} pays hostile texts more than an empty one: {paid}"


def test_no_completions(case):
    spec, sample, reward = case
    assert reward(completions=[], **columns_of(sample, 0)) == []


@pytest.mark.parametrize("name", sorted(list_presets()))
def test_presets(name):
    """Each can be made, and its rewards have samples."""
    functions, weights = reward_preset(name)
    assert len(functions) == len(weights)
    assert {name_of(function) for function in functions} <= set(SAMPLES)

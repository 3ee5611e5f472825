"""The door in front of every reward: mistakes in its arguments pay nothing and raise one sentence."""

import pytest

from helpers.rewards.arguments import content_text, rows_of, text_of
from helpers.rewards.registry import get_reward
from helpers.runtime import UserError
from helpers.tasks import list_rewards
from tests.rewards.hostile_arguments import cases, outcome, plain_arguments
from tests.rewards.sample_columns import SAMPLES

SPECS = [spec for spec in list_rewards() if spec.origin[0].startswith("helpers.")]
#: Columns with one meaning all the same: a missing unit is none, and a task's own requirement stands for a missing one.
NONE_IS_FINE = (
    "unit: columns of None",
    "unit: None in",
    "unit: NaN in",
    "unit: empty texts",
    "contract: columns of None",
)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_wrong_arguments_pay_nothing_and_raise_one_sentence(spec):
    sample = SAMPLES[spec.name]
    reward = get_reward(spec.name, **sample.options)
    plain = plain_arguments(sample)
    right = reward(**plain)
    empty = reward(**{**plain, "completions": ["", ""]})
    found = list(cases(spec.name, sample))
    assert len(found) >= 40
    for case in found:
        values = outcome(reward, case.arguments)
        if isinstance(values, str):
            assert not case.pays, (case.name, values)
            assert "\n" not in values and len(values) < 600 and values.endswith("."), (case.name, values)
        elif case.pays or case.name.startswith(NONE_IS_FINE):
            assert values == right, case.name
        else:
            most = empty if spec.pays_correctness else right
            assert all(value is None or value <= bound for value, bound in zip(values, most)), (case.name, values)
    if hasattr(reward, "close"):
        reward.close()


def test_rows():
    message = [{"role": "assistant", "content": "b"}]
    rows = rows_of("f", ["a", message], ["stop", "length"], answer=(1, 2), unit=None)
    assert rows == [("a", "stop", 1, None), ("b", "length", 2, None)]
    assert rows_of("f", []) == []
    with pytest.raises(UserError, match="^Reward 'f' got 1 values of 'answer' for 2 completions: give one for each.$"):
        rows_of("f", ["a", "b"], answer=[1])
    with pytest.raises(UserError, match="^Reward 'f' got str 'ab' for 'completions': give a list"):
        rows_of("f", "ab")


def test_the_text_of_a_completion():
    """Of several messages the last counts, if the assistant wrote it."""
    answer = {"role": "assistant", "content": "42"}
    assert text_of("42") == text_of([answer]) == text_of([{"role": "user", "content": "?"}, answer]) == "42"
    assert text_of([{"content": "42"}]) == "42"
    assert text_of([answer, {"role": "tool", "content": "43"}]) == text_of([]) == text_of([{"role": "assistant"}]) == ""
    parts = [{"type": "text", "text": "4"}, {"type": "image", "image": object()}, "2"]
    assert content_text(parts) == "42"
    for wrong in (b"42", ["42"], {"role": "assistant"}, None, 42):
        with pytest.raises(UserError, match="^A completion is .*: give a text, or a list of messages"):
            text_of(wrong)

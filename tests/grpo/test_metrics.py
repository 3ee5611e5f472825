"""What is logged of a generation: a batch whose values are known by hand, and what has no value."""

import json
import math

import pytest
import torch

from helpers.grpo.advantages import group_advantages
from helpers.grpo.batch import Generation, completions_in_loss, into_groups
from helpers.grpo.metrics import HISTOGRAM_EDGES, json_row, rollout_metrics
from helpers.grpo.metrics_file import MetricsFile, read_metrics
from helpers.rollout.completion import Completion

NONE = math.nan  # as the rewards' tensor has it


def completion(length, finish_reason="stop", prompt=3):
    tokens = [0] * length
    return Completion([0] * prompt, tokens, [0.0] * length, "text", "", finish_reason)


#: Two groups of four: lengths 1 to 8, of which 4 and 8 were cut off.
COMPLETIONS = [completion(length, "length" if length in (4, 8) else "stop") for length in range(1, 9)]
#: Two rewards of each. The first group varies in the first of them, the second group is equal in both.
REWARDS = [[0.0, 1.0], [1.0, 1.0], [2.0, NONE], [NONE, NONE], [1.0, 3.0], [1.0, 3.0], [1.0, 3.0], [1.0, 3.0]]


def metrics(completions=COMPLETIONS, rewards=REWARDS, weights=(1.0, 0.5), advantages=None, **more):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    names = ["f", "g"][: rewards.shape[1]]
    advantages = torch.zeros(len(completions)) if advantages is None else torch.tensor(advantages)
    generation = Generation(into_groups(["one", "two"], completions), rewards, advantages)
    return rollout_metrics(generation, names, weights, **more)


def sample_std(values):
    """The standard deviation with n - 1, written out."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_tokens", 8 * 3 + 36),
        ("completions/mean_length", 4.5),
        ("completions/min_length", 1),
        ("completions/max_length", 8),
        ("completions/clipped_ratio", 2 / 8),
        ("completions/mean_terminated_length", (1 + 2 + 3 + 5 + 6 + 7) / 6),
        ("completions/min_terminated_length", 1),
        ("completions/max_terminated_length", 7),
        ("rewards/f/mean", 7 / 7),
        ("rewards/f/std", sample_std([0, 1, 2, 1, 1, 1, 1])),
        ("rewards/g/mean", (2 * 1 + 4 * 3) / 6),
        ("rewards/g/std", sample_std([1, 1, 3, 3, 3, 3])),
        ("reward", (0.5 + 1.5 + 2 + 4 * 2.5) / 7),
        ("reward_std", sample_std([0.5, 1.5, 2.0, 2.5, 2.5, 2.5, 2.5])),
        ("frac_reward_zero_std", 1 / 2),
        ("completions/masked_ratio", 0.0),
        ("completions/nonfinite_reward_ratio", 0.0),
    ],
)
def test_values_of_a_batch_by_hand(name, value):
    """Users compare these names with runs of TRL, so each must mean what it means there."""
    assert metrics()[name] == pytest.approx(value, abs=1e-12)


def test_tokens_are_counted_over_the_run():
    """TRL's num_tokens grows with the run, so that curves over tokens can be drawn."""
    assert metrics(tokens_before=1000)["num_tokens"] == 1000 + 60


def test_lengths_where_none_terminated():
    """TRL logs 0 there; a mean of nothing would be NaN."""
    found = metrics([completion(5, "length")] * 8)
    for kind in ("mean", "min", "max"):
        assert found[f"completions/{kind}_terminated_length"] == 0
    assert found["completions/clipped_ratio"] == 1 and found["completions/mean_length"] == 5


def test_what_was_not_judged_has_no_value():
    """A NaN in metrics.jsonl is no JSON, and readers in other languages refuse the whole file."""
    found = metrics(rewards=[[NONE, 1.0]] + [[NONE, NONE]] * 7)
    assert found["rewards/f/mean"] is None and found["rewards/f/std"] is None
    assert found["rewards/g/mean"] == 1 and found["rewards/g/std"] is None, "one value has no deviation"
    assert found["reward"] == 0.5 and found["reward_std"] is None
    nothing = metrics(rewards=[[NONE, NONE]] * 8)
    assert nothing["reward"] is None and nothing["reward_std"] is None
    assert nothing["frac_reward_zero_std"] == 1
    json.dumps(nothing, allow_nan=False)


def test_rewards_without_weight_are_logged_and_not_paid():
    """With all weights 0 there is no reward, and the log still says what the functions gave."""
    found = metrics(weights=(0.0, 0.0))
    assert found["reward"] is None and found["rewards/f/mean"] == 1


def test_masked_completions_count_in_everything_but_the_loss():
    """Lengths and rewards of only some of the completions could not be compared with TRL's."""
    masked, plain = metrics(mask_truncated=True), metrics()
    assert masked.pop("completions/masked_ratio") == 2 / 8 and plain.pop("completions/masked_ratio") == 0
    assert masked == plain
    assert completions_in_loss(COMPLETIONS, True) == [True, True, True, False] * 2
    assert completions_in_loss(COMPLETIONS, False) == [True] * 8


def test_advantages_that_move_the_policy():
    """A step whose only advantages are masked looked like any other, and taught nothing."""
    rewards = torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 1], dtype=torch.float64)
    advantages = group_advantages(rewards.view(2, 4)).flatten().tolist()
    assert metrics(advantages=advantages)["advantages/nonzero_ratio"] == 4 / 8
    assert metrics(advantages=advantages, mask_truncated=True)["advantages/nonzero_ratio"] == 3 / 8


def test_histogram_of_advantages():
    """Zeros in the middle bin, and what lies beyond the ends in the outermost ones, so that none is lost."""
    found = metrics(advantages=[0.0, 0.0, -0.26, 0.26, -4.2, 4.2, -100.0, 100.0])["advantages/histogram"]
    edges, counts = found["edges"], found["counts"]
    middles = [(low + high) / 2 for low, high in zip(edges, edges[1:])]
    filled = {middle: count for middle, count in zip(middles, counts) if count}
    assert filled == {-4.0: 2, -0.5: 1, 0.0: 2, 0.5: 1, 4.0: 2}
    assert tuple(edges) == HISTOGRAM_EDGES and len(counts) == len(edges) - 1


def test_an_evaluation_has_no_advantages():
    """Nothing is learnt from its completions; all else is measured as in training."""
    generation = Generation(into_groups(["one", "two"], COMPLETIONS), torch.tensor(REWARDS, dtype=torch.float64))
    found = rollout_metrics(generation, ["f", "g"], (1.0, 0.5))
    assert found == {name: value for name, value in metrics().items() if not name.startswith("advantages/")}


def test_a_sum_beyond_all_numbers_is_counted():
    """Finite rewards times large weights are infinite, or NaN where they cancel; NaN is taken for "not judged"."""
    rewards = [[1e308, 0.0], [1e308, -1e308]] + [[0.0, 0.0]] * 6
    found = metrics(rewards=rewards, weights=(10.0, 10.0))
    assert found["completions/nonfinite_reward_ratio"] == 2 / 8
    assert found["reward"] is None
    json.dumps(found, allow_nan=False)


def test_metrics_file_is_strict_json(tmp_path):
    """A user's log_metric may give NaN, and one such line made the file unreadable outside Python."""
    row = {"step": 1, "mine": math.nan, "far": math.inf, "parts": {"a": [1.5, math.nan]}, "name": "x", "none": None}
    MetricsFile(tmp_path / "metrics.jsonl").append(row)
    text = (tmp_path / "metrics.jsonl").read_text()

    def refuse(token):
        raise AssertionError(f"{token} is no JSON")

    read = json.loads(text, parse_constant=refuse)
    del read["checksum"]
    assert read == {"step": 1, "mine": None, "far": None, "parts": {"a": [1.5, None]}, "name": "x", "none": None}
    assert read_metrics(tmp_path / "metrics.jsonl") == [json_row(row)]

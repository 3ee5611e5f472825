"""Which prompts a generation uses, and what a checkpoint keeps of one."""

import json
from collections import Counter

import torch

from helpers.grpo import batch
from helpers.rollout.completion import Completion
from helpers.tasks import Grade


def check_epochs():
    drawn = [row for number in range(6) for row in batch.prompt_indices(number, 5, 10, seed=3)]
    epochs = [drawn[start : start + 10] for start in (0, 10, 20)]
    for epoch in epochs:
        assert Counter(epoch) == Counter(range(10))
        assert epoch != list(range(10))
    assert epochs[0] != epochs[1] != epochs[2]


def test_each_prompt_once_an_epoch_in_a_new_order():
    """With 5 prompts a generation and 10 rows, two generations are an epoch; none may be left out or come twice."""
    check_epochs()


def check_seeds():
    first, second = (batch.prompt_indices(0, 20, 20, seed) for seed in (1, 2))
    assert first != second
    assert batch.prompt_indices(0, 20, 20, 1) == first


def test_the_seed_decides_the_order():
    """Three runs with three seeds must not see the prompts in one order."""
    check_seeds()


def check_small_data_sets():
    assert Counter(batch.prompt_indices(0, 7, 3, seed=0)) in (
        Counter({0: 3, 1: 2, 2: 2}),
        Counter({0: 2, 1: 3, 2: 2}),
        Counter({0: 2, 1: 2, 2: 3}),
    )
    assert batch.prompt_indices(5, 2, 1, seed=0) == [0, 0]


def test_fewer_rows_than_prompts_in_a_generation():
    """A generation then spans epochs."""
    check_small_data_sets()


def check_round_trip():
    generation = batch.Generation(
        groups=[batch.Group("one", [Completion([1, 2], [3], [-0.5], "text", "thought", "stop")])],
        rewards=torch.tensor([[0.1, float("nan")]], dtype=torch.float64),
        advantages=torch.tensor([0.1]),
        metrics={"reward": 0.1},
        extras={"note": ["a"]},
        grades=[Grade(1.0, True, "correct")],
    )
    again = batch.Generation.from_dict(json.loads(json.dumps(generation.to_dict())))
    assert torch.equal(again.rewards.nan_to_num(-1.0), generation.rewards.nan_to_num(-1.0))
    for name, value in vars(generation).items():
        assert name in ("rewards", "advantages") or vars(again)[name] == value, name
    assert torch.equal(again.advantages, generation.advantages)


def test_a_generation_survives_json():
    """A resumed step on rewards that were rounded would not end in the bytes of the uninterrupted one."""
    check_round_trip()

"""Rewards that are written with `async def`, as TRL allows them, in training and in grades."""

import asyncio

import pytest

from helpers import CustomTask, RolloutEngine, SamplingParams, UserError, read_metrics
from tests.grpo.small import adapter, same, toy_reward, trainer_in
from tests.tasks.test_custom import ROWS


async def waiting(prompts, completions, trainer_state=None, **columns):
    await asyncio.sleep(0.001)
    return toy_reward(prompts, completions, **columns)


def test_training_is_that_of_the_plain_function(tmp_path, prompts):
    plain = trainer_in(tmp_path / "plain", prompts, max_steps=1)
    plain.train()
    trainer = trainer_in(tmp_path / "async", prompts, reward=waiting, max_steps=1)
    trainer.train()
    assert same(adapter(trainer), adapter(plain))
    found, wanted = (read_metrics(tmp_path / name / "metrics.jsonl")[0] for name in ("async", "plain"))
    assert found["rewards/waiting/mean"] == wanted["rewards/toy_reward/mean"]


async def endless(prompts, completions, **_):
    await asyncio.sleep(600)


async def failing(prompts, completions, **_):
    raise KeyError("x")


async def short(prompts, completions, **_):
    return [1.0]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (endless, "Reward 'endless' gave no answer within reward_timeout=0.2 seconds"),
        (failing, r"Reward 'failing' raised KeyError: 'x' \(test_async_rewards.py, line \d+\)"),
        (short, "Reward 'short' returned 1 values: return a list of 8"),
    ],
)
def test_what_goes_wrong_is_one_sentence(tmp_path, prompts, reward, words):
    with pytest.raises(UserError, match=words):
        trainer_in(tmp_path, prompts, reward=reward, reward_timeout=0.2).train()


def test_grades(loaded):
    """An evaluation of one's own task calls the rewards, too."""
    task = CustomTask(ROWS, waiting)
    rows = task.dataset("train", 2)
    engine = RolloutEngine(*loaded, max_batch_size=2, max_length=512)
    completions = engine.generate(rows["prompt"], SamplingParams(max_new_tokens=4, seed=0))
    grades = task.grade(rows.to_list(), completions)
    messages = [completion.message for completion in completions]
    assert [grade.score for grade in grades] == toy_reward(None, messages)

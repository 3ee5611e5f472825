"""Evaluations during training, and dry runs."""

import json

import pytest

from helpers import GRPOConfig, UserError, dry_run, read_metrics
from helpers.grpo import recipe
from helpers.grpo.recipes import RECIPES
from helpers.profiles import PROFILES
from tests.grpo.small import adapter, constant_reward, same, small_recipe, timeless, toy_reward, trainer_in


def test_evaluation_on_a_schedule_changes_nothing_else(tmp_path, prompts):
    """The same weights with and without it, and the same held-out completions for the same weights."""
    plain = trainer_in(tmp_path / "plain", prompts)
    plain.train()
    settings = {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 2, "max_steps": 4}
    watched = trainer_in(tmp_path / "watched", prompts, eval_dataset=prompts.select([10, 11]), **settings)
    watched.train()
    rows = read_metrics(tmp_path / "watched" / "evaluations.jsonl")
    assert [row["step"] for row in rows] == [2, 4]
    assert {"eval_reward", "eval_completions/mean_length", "eval_runtime"} <= set(rows[0])
    of_plain = timeless(read_metrics(tmp_path / "plain" / "metrics.jsonl"))
    assert timeless(read_metrics(tmp_path / "watched" / "metrics.jsonl"))[:3] == of_plain
    again = watched.evaluate()
    assert again["eval_reward"] == rows[1]["eval_reward"]


def test_an_evaluation_that_was_interrupted_is_done_after_the_resume(tmp_path, prompts):
    """Its step is done and saved, so no later step would have asked for it."""
    settings = {
        "eval_strategy": "steps",
        "eval_steps": 1,
        "max_steps": 2,
        "eval_dataset": prompts.select([11]),
        "metric_for_best_model": "eval_reward",
    }
    cut = trainer_in(tmp_path, prompts, **settings)

    def interrupted():
        raise KeyboardInterrupt

    cut._evaluate = interrupted
    assert cut.train().global_step == 1
    trainer_in(tmp_path, prompts, **settings).train(resume_from_checkpoint=True)
    assert [row["step"] for row in read_metrics(tmp_path / "evaluations.jsonl")] == [1, 2]
    assert json.loads((tmp_path / "best_checkpoint.json").read_text())["checkpoints"] == 2


def test_a_backup_holds_the_evaluations(tmp_path, prompts):
    """On a new machine the curve of the held-out prompts would have begun in the middle of the run."""
    settings = {
        "eval_strategy": "steps",
        "eval_steps": 1,
        "eval_dataset": prompts.select([11]),
        "backup_dir": str(tmp_path / "drive"),
    }
    trainer_in(tmp_path / "here", prompts, max_steps=2, **settings).train()
    trainer_in(tmp_path / "there", prompts, max_steps=3, **settings).train(resume_from_checkpoint=True)
    assert [row["step"] for row in read_metrics(tmp_path / "there" / "evaluations.jsonl")] == [1, 2, 3]


def test_evaluation_without_prompts_is_one_sentence(tmp_path, prompts):
    with pytest.raises(UserError, match="eval_strategy='steps' needs an eval_dataset"):
        trainer_in(tmp_path, prompts, eval_strategy="steps")
    with pytest.raises(UserError, match="give GRPOTrainer an eval_dataset"):
        trainer_in(tmp_path, prompts).evaluate()


def test_a_dry_run_leaves_nothing_behind(tmp_path, prompts, capsys):
    """Nothing written, no weight and no moment of the optimizer changed: the run after it is the run without it."""
    plain = trainer_in(tmp_path / "plain", prompts)
    plain.train()
    tried = trainer_in(tmp_path / "tried", prompts)
    before = adapter(tried)
    assert dry_run(tried) is None
    assert same(before, adapter(tried)) and not (tmp_path / "tried").exists()
    printed = capsys.readouterr().out
    assert (
        "3 optimizer steps of 8 completions" in printed
        and "toy_reward" in printed
        and "One step:" in printed
        and "sampler and trainer" in printed
    )
    tried.train()
    assert same(adapter(tried), adapter(plain))


def test_a_dry_run_finds_a_gradient_that_is_not_finite(tmp_path, prompts):
    """And leaves the weights as they were."""
    trainer = trainer_in(tmp_path, prompts)
    before = adapter(trainer)
    backward = trainer.backward

    def broken(generation):
        statistics = backward(generation)
        trainer.weights[0].grad[0] = float("nan")
        return statistics

    trainer.backward = broken
    with pytest.raises(UserError, match="The gradient is nan, so no step was taken"):
        dry_run(trainer)
    assert same(before, adapter(trainer))


def test_a_dry_run_finds_a_reward_that_breaks_on_an_empty_answer(tmp_path, prompts):
    """The first empty answer may come hours after the start."""

    def first_character(prompts, completions, **_):
        return [float(ord(c[0]["content"][0])) for c in completions]

    trainer = trainer_in(tmp_path, prompts, reward=first_character)
    with pytest.raises(UserError, match="'first_character' raised IndexError"):
        dry_run(trainer)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_a_step(tmp_path, prompts, name):
    """Names of settings that no config has would show on the first evening."""
    settings = small_recipe(name, max_steps=2, learning_rate=1e-3)
    trainer = trainer_in(tmp_path, prompts, reward=toy_reward, **settings)
    trainer.train()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert len(rows) == 2 and all(row["grad_norm"] is not None for row in rows)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_goes_with_every_profile(name):
    """A recipe and a profile that both choose a number of generations once ended in a TypeError."""
    for profile in PROFILES.values():
        config = GRPOConfig.for_profile(profile, "run", **recipe(name))
        assert config.generation_batch_size % config.num_generations == 0


def test_unknown_recipes_are_one_sentence():
    with pytest.raises(UserError, match="There is no recipe 'dapoo' .did you mean 'dapo'"):
        recipe("dapoo")


def test_a_constant_reward_gives_no_gradient_with_any_recipe(tmp_path, prompts):
    """But for the KL term of "grpo", which is 0 at the first step."""
    for name in RECIPES:
        settings = small_recipe(name, max_completion_length=12)
        trainer = trainer_in(tmp_path / name, prompts, reward=constant_reward, **settings)
        trainer.backward(trainer.generate(0))
        assert not any(weight.grad.any() for weight in trainer.weights)

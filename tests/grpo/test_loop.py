"""The page that shows the algorithm is what the trainer does: the same gradients and steps for every recipe."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from helpers.grpo import RECIPES, loop
from helpers.grpo import trainer as trainer_module
from tests.grpo.small import adapter, small_recipe, toy_reward, trainer_in

#: Of a gradient: the page has the old log-probabilities of a first step from a forward pass of their own.
TOLERANCE = 1e-6


def settings_of(name):
    """A small recipe's, with completions most of which end: recipes leave out those that are cut off."""
    return small_recipe(name, learning_rate=1e-3, optim="adamw_torch", max_steps=2, max_completion_length=200)


def gradient(weights):
    return torch.cat([weight.grad.flatten() for weight in weights])


def distance(found, wanted):
    """The norm of the difference, as a share of the norm."""
    assert wanted.norm() > 0
    return float((found - wanted).norm() / wanted.norm())


def largest_distance(folder, prompts, **settings):
    """Take all steps with the page and with the trainer on two equal models; return by how much the gradients differ
    at most. Each step of the trainer is then given to the page's model, so that what differs does not add up."""
    by_page = trainer_in(folder / "page", prompts, **settings)  # only its model, weights and engine are used
    by_trainer = trainer_in(folder / "trainer", prompts, **settings)
    args = by_trainer.args
    found = []
    for step in range(args.max_steps):
        if step % args.steps_on_a_generation == 0:
            ours = loop.generate(by_page.engine, by_page.model, [toy_reward], prompts, args, step)
            theirs = by_trainer.generate(step)
            assert [one.token_ids for one in ours.completions] == [one.token_ids for one in theirs.completions]
        by_page.optimizer.zero_grad()
        by_page.model.train()
        loop.add_gradient(by_page.model, loop.update_batch(ours, step, args), args)
        statistics = by_trainer.backward(theirs)
        found.append(distance(gradient(by_page.weights), gradient(by_trainer.weights)))
        by_trainer.step(statistics)
        with torch.no_grad():
            for weight, moved in zip(by_page.weights, by_trainer.weights, strict=True):
                weight.copy_(moved)
    return max(found)


@pytest.mark.parametrize("name", RECIPES)
def test_gradients_are_the_trainers(tmp_path, prompts, name):
    """A page that does something else explains nothing."""
    assert largest_distance(tmp_path, prompts, **settings_of(name)) < TOLERANCE


def test_several_steps_on_a_generation(tmp_path, prompts):
    settings = {"steps_per_generation": 4, "num_iterations": 2, "max_steps": 4, "optim": "adamw_torch", "beta": 0.1}
    assert largest_distance(tmp_path, prompts, **settings) < TOLERANCE


@contextmanager
def faulty(monkeypatch, module, name, change):
    """Let a module call another function by this name."""
    with monkeypatch.context() as patch:
        patch.setattr(module, name, change(getattr(module, name)))
        yield


@pytest.mark.parametrize("module", [loop, trainer_module], ids=["page", "trainer"])
def test_a_fault_in_either_is_noticed(tmp_path, prompts, monkeypatch, module):
    """A comparison of a thing with itself would notice none."""

    def without_correction(micro_batch_loss):
        def changed(model, rows, args, scale):
            rows.sampler_BT.copy_(rows.sampler_BT + 0.1)
            return micro_batch_loss(model, rows, args, scale)

        return changed

    with faulty(monkeypatch, module, "micro_batch_loss", without_correction):
        assert largest_distance(tmp_path, prompts, max_steps=1) > 1e-2


def test_the_whole_run(tmp_path, prompts):
    """Drawing, rewards, clipping, optimizer and schedule: three steps end in the trainer's adapter.

    Three quarters of a pass over 8 of 12 prompts, 2 a step: both count the steps for themselves.
    """
    prompts = prompts.select(range(8))
    settings = {
        "max_steps": None,
        "num_train_epochs": 0.75,
        "optim": "adamw_torch",
        "lr_scheduler_type": "linear",
        "max_grad_norm": 0.5,
    }
    trained = trainer_in(tmp_path / "trainer", prompts, **settings)
    trained.train()
    simply = trainer_in(tmp_path / "page", prompts, **settings)
    tokenizer = simply.engine.harmony.tokenizer
    args = replace(simply.args, max_steps=None)
    rewards = list(loop.train_simply(simply.model, tokenizer, [toy_reward], prompts, args))
    assert len(rewards) == trained.state.global_step == 3
    assert rewards == [row["reward"] for row in trained.history]
    for name, weight in adapter(simply).items():
        # where a gradient is nearly 0, AdamW makes a full step of its rounding
        assert (weight - adapter(trained)[name]).abs().max() < 2e-3, name
        assert distance(weight, adapter(trained)[name]) < 1e-3, name

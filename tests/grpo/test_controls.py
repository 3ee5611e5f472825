from types import SimpleNamespace

import pytest
import torch

from helpers import UserError
from helpers.grpo.advantages import group_advantages
from helpers.grpo.controls import CONTROLS, apply_control
from tests.grpo.small import adapter, same, toy_reward, trainer_in, weighted_logprob


def first(completions, **_):
    return list(completions)


def second(completions, **_):
    return [None if value == 3 else 10.0 * value for value in completions]


def call(functions, step):
    state = SimpleNamespace(global_step=step)
    return [function(completions=[0, 1, 2, 3, 4, 5, 6, 7], trainer_state=state) for function in functions]


def test_shuffled_rewards_are_the_same_values_of_one_other_completion():
    """An order for each function of its own would have made a sum that no completion ever had."""
    functions, settings = apply_control("shuffle", [first, second], seed=1)
    a, b = call(functions, step=0)
    assert sorted(a) == list(range(8)) and a != list(range(8)) and settings == {}
    assert b == second(a)
    assert call(functions, step=0) == [a, b] and call(functions, step=1)[0] != a
    other, _ = apply_control("shuffle", [first], seed=2)
    assert call(other, step=0)[0] != a


def test_flipped_rewards():
    functions, settings = apply_control("flip", [second])
    assert call(functions, 0)[0] == [0, -10, -20, None, -40, -50, -60, -70] and settings == {}


def test_no_control_changes_nothing_and_unknown_ones_are_refused():
    assert apply_control("", [first, second]) == ([first, second], {})
    with pytest.raises(UserError, match=r"no control 'flipp' \(did you mean 'flip'\?\): choose shuffle"):
        apply_control("flipp", [first])


@pytest.mark.parametrize("name", CONTROLS)
def test_a_run_is_not_resumed_as_a_control(tmp_path, prompts, name):
    """Half of it would have been trained on other rewards."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    functions, settings = apply_control(name, [toy_reward])
    with pytest.raises(UserError, match="was written with (reward_funcs|learning_rate)="):
        trainer_in(tmp_path, prompts, reward=functions, **settings).train(resume_from_checkpoint=True)


def test_freeze_leaves_every_byte(tmp_path, prompts):
    functions, settings = apply_control("freeze", [toy_reward])
    trainer = trainer_in(tmp_path, prompts, reward=functions, max_steps=2, **settings)
    before = adapter(trainer)
    trainer.train()
    assert same(adapter(trainer), before)


@pytest.mark.parametrize(("name", "uphill"), [("", True), ("flip", False)])
def test_a_flipped_step_goes_the_other_way(tmp_path, prompts, name, uphill):
    """What the true reward prefers becomes likelier, or less likely under flipped rewards."""
    functions, settings = apply_control(name, [toy_reward])
    trainer = trainer_in(tmp_path, prompts, reward=functions, **settings)
    generation = trainer.generate(0)
    true = torch.tensor(toy_reward(None, [c.message for c in generation.completions]))
    preference = group_advantages(true, 4)

    before = weighted_logprob(trainer, generation.completions, preference)
    trainer.step(trainer.backward(generation))
    assert (weighted_logprob(trainer, generation.completions, preference) > before) == uphill

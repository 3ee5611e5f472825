import functools
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


def alike(completions, **_):
    """Behaviours: even texts do the same, the others each do something else."""
    return ["even" if value % 2 == 0 else str(value) for value in completions]


def call(functions, step):
    state = SimpleNamespace(global_step=step)
    return [function(completions=[0, 1, 2, 3, 4, 5, 6, 7], trainer_state=state) for function in functions]


def test_shuffled_rewards_are_the_same_values_of_one_other_completion():
    """An order for each function of its own would have made a sum that no completion ever had."""
    functions, weights, settings = apply_control("shuffle", [first, second], seed=1)
    a, b = call(functions, step=0)
    assert sorted(a) == list(range(8)) and a != list(range(8)) and settings == {} and weights == [1.0, 1.0]
    assert b == second(a)
    assert call(functions, step=0) == [a, b] and call(functions, step=1)[0] != a
    other, *_ = apply_control("shuffle", [first], seed=2)
    assert call(other, step=0)[0] != a


def test_flipped_rewards():
    functions, weights, settings = apply_control("flip", [second])
    assert call(functions, 0)[0] == [0, -10, -20, None, -40, -50, -60, -70] and settings == {} and weights == [1.0]


def test_no_control_changes_nothing_and_unknown_ones_are_refused():
    assert apply_control("", [first, second]) == ([first, second], [1.0, 1.0], {})
    with pytest.raises(UserError, match=r"no control 'flipp' \(did you mean 'flip'\?\): choose shuffle"):
        apply_control("flipp", [first])


@pytest.mark.parametrize("name", CONTROLS)
def test_a_run_is_not_resumed_as_a_control(tmp_path, prompts, name):
    """Half of it would have been trained on other rewards."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    functions, weights, settings = apply_control(name, [toy_reward], behaviours=alike)
    with pytest.raises(UserError, match="was written with (reward_funcs|reward_weights|learning_rate)="):
        trainer_in(tmp_path, prompts, reward=functions, reward_weights=tuple(weights), **settings).train(
            resume_from_checkpoint=True
        )


def test_freeze_leaves_every_byte(tmp_path, prompts):
    functions, _, settings = apply_control("freeze", [toy_reward])
    trainer = trainer_in(tmp_path, prompts, reward=functions, max_steps=2, **settings)
    before = adapter(trainer)
    trainer.train()
    assert same(adapter(trainer), before)


@pytest.mark.parametrize(("name", "uphill"), [("", True), ("flip", False)])
def test_a_flipped_step_goes_the_other_way(tmp_path, prompts, name, uphill):
    """What the true reward prefers becomes likelier, or less likely under flipped rewards."""
    functions, _, settings = apply_control(name, [toy_reward])
    trainer = trainer_in(tmp_path, prompts, reward=functions, **settings)
    generation = trainer.generate(0)
    true = torch.tensor(toy_reward(None, [c.message for c in generation.completions]))
    preference = group_advantages(true.view(-1, 4)).flatten()

    before = weighted_logprob(trainer, generation.completions, preference)
    trainer.step(trainer.backward(generation))
    assert (weighted_logprob(trainer, generation.completions, preference) > before) == uphill


def test_certainty_pays_the_models_own_probability_and_no_task():
    """A control that were paid by the task's reward would "win" by the lesson that it should be without."""

    def forbidden(**_):
        raise AssertionError("the task was asked")

    functions, weights, settings = apply_control("certainty", [forbidden, second])
    assert weights == [1.0, 0.0, 0.0] and settings == {} and functions[1:] == [forbidden, second]
    paid = functions[0](prompts=[None] * 2, completions=["right", "wrong"], logprobs=[[-1.0, -2.5], [-0.5]])
    assert paid == [-3.5, -0.5] and functions[0].__name__ == "certainty"


def test_the_certainty_of_a_step_is_the_samplers_own(tmp_path, prompts):
    """It is the log-probability of the completion that was drawn, and only that reward moves the weights."""
    functions, weights, _ = apply_control("certainty", [toy_reward])
    trainer = trainer_in(tmp_path, prompts, reward=functions, reward_weights=tuple(weights), max_steps=1)
    generation = trainer.generate(0)
    paid = torch.tensor([sum(completion.logprobs) for completion in generation.completions], dtype=torch.float64)
    torch.testing.assert_close(generation.rewards[:, 0], paid)
    torch.testing.assert_close(generation.advantages, group_advantages(paid.view(-1, 4)).flatten())
    assert not torch.equal(generation.rewards[:, 1], paid)  # the task's reward is logged beside it


def test_majority_pays_agreement_within_the_group():
    """Two groups of four: the share of the other three that do the same, right or wrong."""
    functions, weights, _ = apply_control("majority", [second], behaviours=alike)
    assert weights == [1.0, 0.0]
    paid = functions[0](prompts=["a"] * 4 + ["b"] * 4, completions=[0, 2, 4, 1, 1, 1, 3, 6])
    assert paid == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0, 1 / 3, 1 / 3, 0, 0])
    unknown, *_ = apply_control("majority", [], behaviours=lambda **_: [None, "x", "x"])
    assert unknown[0](prompts=["a"] * 3, completions=[0, 1, 2]) == [None, 0.5, 0.5]
    with pytest.raises(UserError, match="give apply_control a function `behaviours`"):
        apply_control("majority", [second])


async def slowly(completions, **_):
    return second(completions)


def test_controls_of_async_rewards_and_partials():
    """TRL takes both, so a control must, too."""
    functions, *_ = apply_control("flip", [slowly, functools.partial(second)])
    assert call(functions, 0) == [[0, -10, -20, None, -40, -50, -60, -70]] * 2
    assert [function.__name__ for function in functions] == ["slowly_flipped", "second_flipped"]
    shuffled, *_ = apply_control("shuffle", [slowly, second], seed=1)
    a, b = call(shuffled, 0)
    assert a == b != second(range(8))

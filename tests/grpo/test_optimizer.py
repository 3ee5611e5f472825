"""The learning rates of a run, known before anything is loaded."""

import math

import pytest

from helpers import GRPOConfig, UserError
from helpers.grpo.optimizer import learning_rates
from tests.grpo.small import trainer_in

STEPS = 20
WARMUP = 5


def rise(step):
    return step / WARMUP


def linear(share):
    return 1 - share


def cosine(share):
    return 0.5 * (1 + math.cos(math.pi * share))


def cosine_with_floor(share):
    return 0.1 + 0.9 * cosine(share)


def constant(share):
    return 1.0


@pytest.mark.parametrize(
    ("schedule", "fall", "settings"),
    [
        ("constant_with_warmup", constant, {}),
        ("linear", linear, {}),
        ("cosine", cosine, {}),
        ("cosine_with_min_lr", cosine_with_floor, {"lr_scheduler_kwargs": {"min_lr_rate": 0.1}}),
        ("cosine_with_min_lr", cosine_with_floor, {"lr_scheduler_kwargs": {"min_lr": 2e-4}}),
    ],
)
def test_rates_are_the_closed_form(schedule, fall, settings):
    """A linear warm-up from 0, then the fall over the rest of the run; the last step is one before its end."""
    args = GRPOConfig(
        lr_scheduler_type=schedule, learning_rate=2e-3, max_steps=STEPS, warmup_ratio=WARMUP / STEPS, **settings
    )
    wanted = [rise(step) if step < WARMUP else fall((step - WARMUP) / (STEPS - WARMUP)) for step in range(STEPS)]
    assert learning_rates(args) == pytest.approx([2e-3 * rate for rate in wanted], abs=1e-12)


def test_constant_rates():
    assert learning_rates(GRPOConfig(lr_scheduler_type="constant", learning_rate=1e-4, max_steps=3)) == [1e-4] * 3
    assert learning_rates(GRPOConfig(learning_rate=0, max_steps=2)) == [0, 0], "a control learns nothing"


def test_rates_are_those_that_the_trainer_logs(tmp_path, prompts):
    """A curve of another program would promise what the run does not do."""
    settings = {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 1}
    trainer = trainer_in(tmp_path, prompts, max_steps=None, num_train_epochs=0.5, **settings)
    trainer.train()
    logged = [row["learning_rate"] for row in trainer.history]
    assert len(logged) == 3, "12 prompts, 2 a step"
    assert learning_rates(trainer.args) == logged and logged[1] == 1e-3


def test_rates_need_a_number_of_steps():
    """It was a TypeError about None."""
    args = GRPOConfig(num_train_epochs=1, warmup_ratio=0.1)
    with pytest.raises(
        UserError, match="The number of steps follows from the number of prompts: call args.for_prompts"
    ):
        learning_rates(args)
    assert len(learning_rates(args.for_prompts(40))) == 40


def test_options_that_the_schedule_lacks():
    args = GRPOConfig(lr_scheduler_type="cosine", lr_scheduler_kwargs={"min_lr_rate": 0.1})
    with pytest.raises(UserError, match="do not fit lr_scheduler_type='cosine'"):
        learning_rates(args)

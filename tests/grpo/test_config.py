import pytest

from helpers import GRPOConfig, UserError
from helpers.profiles import PROFILES


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss_type": "grpo"}, "loss_type must be one of dapo, dr_grpo"),
        ({"num_generations": 1}, "at least 2"),
        (
            {"num_generations": 3, "per_device_train_batch_size": 8},
            "3 does not: take 2, 4, 8, or change",
        ),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"temperature": 0}, "temperature must be positive"),
    ],
)
def test_settings_that_cannot_work_are_one_sentence(tmp_path, settings, words):
    with pytest.raises(UserError, match=words):
        GRPOConfig(str(tmp_path), **settings)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_makes_a_config(name):
    profile = PROFILES[name]
    config = GRPOConfig.for_profile(profile, "runs/x", max_steps=None, num_generations=None, seed=3)
    assert (config.max_steps, config.num_generations, config.seed) == (profile.max_steps, profile.num_generations, 3)
    assert config.generation_batch_size == profile.generation_batch_size

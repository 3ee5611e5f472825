"""CONFIG of the notebooks, and the run that follows from it."""

import json

import pytest

from helpers import UserError, open_run
from helpers.run import for_notebook, parameters_of, read_pairs
from helpers.run_config import DEFAULTS, known_settings, read_config


def test_settings_reach_the_training(tmp_path):
    run = open_run({"learning_rate": 1e-4, "num_generations": 4}, "tiny", seed=3, run_dir=tmp_path, max_steps=5)
    config = run.config
    assert (config.learning_rate, config.num_generations, config.seed, config.max_steps) == (1e-4, 4, 3, 5)
    assert config.output_dir == str(tmp_path / "grpo")
    shown = str(run)
    assert "learning_rate                0.0001" in shown and "function_works" in shown
    assert "epsilon" not in shown, "only what differs from the defaults is shown"


def test_a_file_is_as_good_as_a_dictionary(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"control": "shuffle"}))
    assert open_run(str(path), "tiny", run_dir=tmp_path)["control"] == "shuffle"
    assert read_config({"control": "shuffle"}) == read_config(path)


def test_a_control_stands_above_the_config_and_the_config_above_a_recipe(tmp_path):
    settings = {"recipe": "dapo", "loss_type": "grpo", "learning_rate": 0.5, "control": "freeze"}
    config = open_run(settings, "tiny", run_dir=tmp_path).config
    assert config.loss_type == "grpo" and config.learning_rate == 0.0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"learning_rat": 1}, "did you mean 'learning_rate'"),
        ({"contrl": ""}, "did you mean 'control'"),
        ({"seed": 1}, "the notebook's own parameters decide it"),
        ({"control": "shufle"}, "did you mean 'shuffle'"),
        ({"baseline": "rft", "control": "flip"}, "leave BASELINE or CONTROL empty"),
        ({"items": 1}, "items must be a whole number from 2 on"),
        ({"dry_run": "yes"}, "dry_run must be True or False"),
        ({"num_generations": 7}, "7 does not"),
        ({"sweep": "smal"}, "did you mean 'small'"),
        ("nowhere.json", "CONFIG must be a dictionary or the path of a JSON file"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_made(tmp_path, config, words):
    with pytest.raises(UserError, match=words) as caught:
        open_run(config, "tiny", run_dir=tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_capitals_of_make_run_become_parameters_and_config(tmp_path):
    given = read_pairs(["MAX_STEPS=5", "CONTROL=flip", "LEARNING_RATE=1e-3", "ITEMS=40", "DRY_RUN=1"])
    assert given == {"MAX_STEPS": 5, "CONTROL": "flip", "LEARNING_RATE": 1e-3, "ITEMS": 40, "DRY_RUN": True}
    taken = for_notebook("04_grpo", given)
    assert taken["MAX_STEPS"] == 5
    assert taken["CONFIG"] == {"control": "flip", "learning_rate": 1e-3, "items": 40, "dry_run": True}
    assert for_notebook("01_load", given) == {}
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"control": "shuffle", "sweep": "small"}))
    merged = for_notebook("05_evaluate", read_pairs([f"CONFIG={path}", "CONTROL=freeze"]))
    assert merged["CONFIG"] == {"control": "freeze", "sweep": "small"}


def test_no_setting_shadows_a_parameter():
    """`make run` could not tell which of the two is meant."""
    for name in ("01_load", "02_attention", "03_rewards", "04_grpo", "05_evaluate"):
        own = {parameter.lower() for parameter in parameters_of(name)} - {"sandbox"}
        assert not own & set(known_settings())
    assert set(DEFAULTS) <= set(known_settings())

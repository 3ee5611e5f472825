"""How settings are given, and which class has them."""

import json
from dataclasses import fields

import pytest

from helpers import UserError
from helpers.grpo.config import GRPOConfig
from helpers.grpo.trl_settings import known_names
from helpers.profiles import Profile
from helpers.run.lists import settings_list
from helpers.run.notebooks import NOTEBOOKS, parameters_of
from helpers.run.settings import ALIASES, TABLE, RunSettings, canonical_name, parse_value, read_config, sort_settings


def test_every_field_is_a_setting():
    """A field that is added must be given, listed and checked without another list being changed."""
    for its_field in fields(GRPOConfig):
        assert its_field.name in TABLE or its_field.name in ("output_dir", "reward_weights")
    for its_field in fields(RunSettings):
        assert TABLE[its_field.name][0] is RunSettings
    for name in ("model", "lora_r", "lora_alpha", "lora_targets", "generation_batch_size", "reasoning_effort"):
        assert TABLE[name][0] is Profile
    assert TABLE["learning_rate"][0] is GRPOConfig, "the profile's is a default"


def test_the_list_has_every_setting_and_every_other_name():
    listed = settings_list()
    for name in TABLE:
        assert f"\n  {name.upper()}" in listed
    for alias, name in ALIASES.items():
        assert alias.upper() in listed or name not in TABLE
    assert "MISSING" not in listed and max(map(len, listed.splitlines())) <= 120


def test_an_alias_stands_for_a_setting():
    """One that stands for nothing, or hides a setting, would be found by a user."""
    for alias, name in ALIASES.items():
        assert (name in TABLE or name in known_names()) and alias not in TABLE


def test_settings_go_to_the_class_that_has_them():
    given = sort_settings(
        {"TASK": "math", "lora_r": 4, "learning-rate": 1e-4, "--grpo-temp": 0.8, "LOGGING_FIRST_STEP": True}
    )
    assert given.run == {"task": "math"}
    assert given.profile == {"lora_r": 4}
    assert given.grpo == {"learning_rate": 1e-4, "temperature": 0.8}
    assert len(given.notes) == 1 and "logging_first_step" in given.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("learning_rate", "5e-7", 5e-7),
        ("max_steps", "1e2", 100),
        ("max_steps", "None", None),
        ("max_steps", "ten", "ten"),
        ("dry_run", "1", True),
        ("dry_run", "no", "no"),
        ("lora_targets", "attention, experts", ["attention", "experts"]),
        ("chat_template_kwargs", '{"reasoning_effort": "high"}', {"reasoning_effort": "high"}),
        ("lr_scheduler_kwargs", "{'min_lr_rate': 0.1}", {"min_lr_rate": 0.1}),
        ("scale_rewards", "False", False),
        ("scale_rewards", "batch", "batch"),
        ("template", "What is {a}? 1 + 1", "What is {a}? 1 + 1"),
        ("data", "1", "1"),
        ("max_grad_norm", "inf", "inf"),
        ("top_k", "0", 0),
    ],
)
def test_the_field_decides_what_a_text_means(name, text, value):
    parsed = parse_value(name, text)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"LEARNING_RAT": 1}, "There is no setting 'LEARNING_RAT' (did you mean 'LEARNING_RATE'?)"),
        ({"learning_rat": 1}, "(did you mean 'learning_rate'?)"),
        ({"learning_rate": "high"}, "learning_rate must be a number from 0 on; got 'high'"),
        ({"dry_run": "yes"}, "dry_run must be True or False; got 'yes'"),
        ({"items": 1}, "items must be a whole number from 2 on; got 1"),
        ({"lora_r": 0}, "lora_r must be a whole number from 1 on; got 0"),
        ({"lora_targets": ["atention"]}, "(did you mean 'attention'?)"),
        ({"control": "shufle"}, "(did you mean 'shuffle'?)"),
        ({"recipe": "dappo"}, "(did you mean 'dapo'?)"),
        ({"sweep": "smal"}, "(did you mean 'small'?)"),
        ({"max_tokens": 5, "MAX_COMPLETION_LENGTH": 6}, "max_completion_length is given twice, as 5 and as 6"),
        ({"lora_targets": [["q_proj"]]}, "lora_targets holds"),
        ({1: 2}, "There is no setting '1'"),
        ({"reward_weights": [1]}, "rewards = 'math_answer,math_format=0.1'"),
        ({"top_p": 0.9}, "top_p=0.9 is not supported"),
        ({"full_finetune": True}, "only an adapter is trained"),
    ],
)
def test_a_mistake_is_one_sentence(given, words):
    with pytest.raises(UserError) as caught:
        sort_settings(given)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_names_of_other_projects_bring_their_values():
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    given = sort_settings(
        {"target_modules": modules, "offload_embedding": True, "use_gradient_checkpointing": "unsloth"}
    )
    assert given.profile == {"lora_targets": ("attention", "experts"), "embedding": "host"}
    assert given.grpo == {"gradient_checkpointing": True}


def test_a_file_is_as_good_as_a_dictionary(tmp_path):
    """The same settings as TOML, with a byte-order mark as Windows' editors write it, and as JSON."""
    toml = tmp_path / "run.toml"
    toml.write_bytes("\ufefftask = 'math'\r\nlearning_rate = 1e-5\r\n".encode())
    as_json = tmp_path / "run.json"
    as_json.write_text(json.dumps({"task": "math", "learning_rate": 1e-5}))
    assert read_config(toml) == read_config(str(as_json)) == {"task": "math", "learning_rate": 1e-5}
    assert read_config("") == {}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("nowhere.toml", None, "Cannot read CONFIG"),
        ("run.yaml", "a: 1", "ends in .toml or .json"),
        ("run.toml", "task = math", "is not TOML"),
        ("run.json", "{", "is not JSON"),
        ("run.json", "[1]", "must hold an object"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=words) as caught:
        read_config(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_no_setting_shadows_a_parameter():
    """Every parameter of the five notebooks but CONFIG is a setting, of the name that its capitals say."""
    for notebook in NOTEBOOKS:
        for parameter in parameters_of(notebook):
            assert parameter == "CONFIG" or canonical_name(parameter) == parameter.lower()

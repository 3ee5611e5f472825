"""A run: what follows from its settings, and what is refused before anything is loaded."""

import json

import pytest

from helpers import UserError, open_run, parameters_in
from helpers.run.opening import make_run
from helpers.runtime import ROOT

HUB = ROOT / "tests" / "gallery" / "sources" / "hub"


def test_settings_reach_the_training(tmp_path):
    run = open_run({"lr": 1e-4, "group_size": 4, "seed": 3, "run_dir": tmp_path / "run", "max_steps": 5})
    config = run.config
    assert (config.learning_rate, config.num_generations, config.seed, config.max_steps) == (1e-4, 4, 3, 5)
    assert config.output_dir == str(tmp_path / "run" / "grpo")
    shown = str(run)
    assert "learning_rate                0.0001" in shown and "function_works" in shown
    assert "epsilon" not in shown, "only what differs from the defaults is shown"
    run.save_settings()
    saved = tmp_path / "run" / "settings.json"
    values = json.loads(saved.read_text())
    assert values["learning_rate"] == 1e-4 and values["lora_r"] == 8 and values["task"] == "matmul"
    assert open_run(saved).config == config, "it is a CONFIG, too"


def test_settings_reach_the_model(tmp_path):
    run = open_run({"lora_r": 4, "lora_targets": ["attention"], "batch": 32, "run_dir": str(tmp_path)})
    assert (run.profile.lora_r, list(run.profile.lora_targets)) == (4, ["attention"])
    assert run.config.generation_batch_size == 32
    assert run.config.memory_plan(run.profile).batch == 32


def test_a_value_that_is_the_default_of_trl_is_given_all_the_same():
    """The profile's or the recipe's would stand in its place without a word."""
    variables = {"TASK": "matmul", "RECIPE": "grpo", "BETA": 0.0, "LEARNING_RATE": 1e-6, "LR_SCHEDULER_TYPE": "linear"}
    config = make_run(parameters_in(variables)).config
    assert (config.beta, config.learning_rate, config.lr_scheduler_type) == (0.0, 1e-6, "linear")


def test_none_is_a_value_where_it_has_a_meaning():
    config = make_run({"save_total_limit": None, "no_signal_steps": "None", "max_grad_norm": None}).config
    assert (config.save_total_limit, config.no_signal_steps, config.max_grad_norm) == (None, None, None)


def test_a_setting_takes_the_place_of_its_rival_in_a_recipe():
    config = make_run({"recipe": "guide", "warmup_steps": 3}).config
    assert (config.warmup_steps, config.warmup_ratio) == (3, 0.0)
    assert make_run({"recipe": "guide", "lr_scheduler_type": "constant"}).config.warmup_count == 0


def test_a_batch_that_other_settings_contradict_is_refused():
    for rival in ({"gradient_accumulation_steps": 4}, {"per_device_train_batch_size": 64}, {"recipe": "math_pipeline"}):
        with pytest.raises(UserError, match="generation_batch_size|must be a multiple of"):
            _ = make_run({"batch": 32, **rival}).config


def test_a_small_batch_is_that_small():
    """The profile's micro-batch is larger than it, and must not decide."""
    assert make_run({"batch": 8}).config.step_batch_size == 8


def test_epochs_become_steps_of_this_data():
    """One pass over 40 prompts in groups of 8, 64 completions a generation: five generations."""
    config = make_run({"num_train_epochs": 1, "train_prompts": 40}).config
    assert config.max_steps == 5
    assert make_run({"num_train_epochs": 1, "max_steps": 7}).config.max_steps == 7


def test_a_control_stands_above_the_settings_and_these_above_a_recipe():
    settings = {"recipe": "dapo", "loss_type": "grpo", "learning_rate": 0.5, "control": "freeze"}
    config = make_run(settings).config
    assert config.loss_type == "grpo" and config.learning_rate == 0.0
    assert config.epsilon_high == 0.28, "the recipe's"


def test_a_recipe_of_a_document_runs_on_every_profile(tmp_path):
    for name, group, lr in (("math_pipeline", 8, 5e-7), ("opensloth", 4, 5e-6), ("guide", 8, 5e-5)):
        config = make_run({"recipe": name, "task": "math"}).config
        assert (config.num_generations, config.learning_rate) == (group, lr)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rat": 1}, "did you mean 'learning_rate'"),
        ({"baseline": "rft", "control": "flip"}, "give baseline or control"),
        ({"num_generations": 7}, "7 does not"),
        ({"profile": "t5"}, "no profile 't5'"),
        ({"task": "maths"}, "did you mean 'math'"),
        ({"task": "math", "rewards": "code_correctness"}, "Reward 'code_correctness' reads the column 'tests'"),
        ({"epsilon": 1.0}, "epsilon must be below 1"),
        ("nowhere.json", "Cannot read CONFIG"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_made(tmp_path, settings, words):
    if isinstance(settings, dict):
        settings = {"run_dir": str(tmp_path / "run"), **settings}
    with pytest.raises(UserError, match=words) as caught:
        open_run(settings)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_a_notebook_gives_its_parameters_and_its_config():
    variables = {"PROFILE": "tiny", "TASK": "math", "SEED": 7, "MAX_STEPS": None, "CONFIG": {"lr": 1e-3}, "TAG": "v1"}
    variables |= {"run_dir": "a variable of the notebook, and no parameter", "LORA_R": 2}
    expected = {"task": "math", "seed": 7, "learning_rate": 1e-3, "lora_r": 2}
    assert parameters_in(variables) == expected, "defaults are left out, and names that are no settings"


def test_config_stands_above_a_parameter_with_its_default(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("task = 'math'\nmax_steps = 3")
    assert parameters_in({"TASK": "matmul", "MAX_STEPS": None, "CONFIG": str(path)}) == {"task": "math", "max_steps": 3}
    with pytest.raises(UserError, match="CONFIG says task = 'math', and the parameter TASK is 'code'"):
        parameters_in({"TASK": "code", "CONFIG": str(path)})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"source": "numinamth"}, "There is no data set 'numinamth' (did you mean 'numinamath'?)"),
        ({"source": "gsm8k", "data": "sums.csv"}, "DATA and SOURCE both say what is asked"),
        ({"source": "gsm8k", "template": "{question}"}, "TEMPLATE has no effect"),
        ({"source": "gsm8k", "task": "code"}, "judged by task 'math' and not by 'code': set TASK=math."),
        ({"source": "gsm8k", "sources_dir": "no/such/folder"}, "There is no folder 'no/such/folder'"),
    ],
)
def test_what_is_wrong_with_a_source_is_said_in_one_sentence(settings, said, tmp_path):
    with pytest.raises(UserError) as error:
        open_run({"run_dir": str(tmp_path / "run"), **settings})
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_source_is_prepared_once_in_the_folder_of_its_run(tmp_path, capsys):
    """The notebooks of a run, and a run that is resumed, must have the same rows; other rows are refused."""
    settings = {"source": "gsm8k", "sources_dir": str(HUB), "run_dir": str(tmp_path), "system_prompt": "Be brief."}
    first = open_run(settings)
    assert "gsm8k: 70 of 70 rows are questions" in capsys.readouterr().out
    again = open_run({**settings, "sources_dir": "", "seed": 7})  # no copy, no hub: nothing is read again
    assert capsys.readouterr().out == ""
    assert again.task.settings() == first.task.settings()
    assert first.task.dataset("train", 1)[0]["prompt"][0] == {"role": "system", "content": "Be brief."}
    with pytest.raises(UserError, match="prepared with source gsm8k, pool None, and this run asks for source gsm8k"):
        open_run({**settings, "train_prompts": 20})
    report = tmp_path / "data" / "report.json"
    report.write_text(report.read_text().replace('"rows_sha256": "', '"rows_sha256": "0'))
    with pytest.raises(UserError, match="not those that were prepared"):
        open_run(settings)

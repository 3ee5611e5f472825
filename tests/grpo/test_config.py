import copy
import inspect
import math
import pickle
import subprocess
import sys
import warnings
from dataclasses import MISSING, fields, replace
from functools import partial

import pytest
from transformers import DefaultFlowCallback, EarlyStoppingCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils.notebook import NotebookProgressCallback

from helpers import GRPOConfig, UserError
from helpers.grpo.config import translate_settings
from helpers.grpo.recipes import recipe
from helpers.grpo.trl_settings import ALIASES, NEUTRAL, OTHER_NAMES, RENAMED, WITHOUT_EFFECT, known_names
from helpers.profiles import PROFILES
from helpers.run.settings import RunSettings
from helpers.runtime import ROOT

#: What TRL 1.16's GRPOConfig adds to transformers' TrainingArguments or sets anew, with its defaults.
TRL = {
    "learning_rate": 1e-06, "model_init_kwargs": None, "trust_remote_code": False, "router_aux_loss_coef": None,
    "disable_dropout": False, "cast_lm_head_to_fp32": False, "remove_unused_columns": False, "num_generations": 8,
    "num_generations_eval": None, "max_completion_length": 512, "ds3_gather_for_generation": True,
    "shuffle_dataset": True, "pad_to_multiple_of": "auto", "generation_batch_size": None,
    "steps_per_generation": None, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None,
    "generation_kwargs": None, "chat_template_kwargs": None, "repetition_penalty": 1.0, "cache_implementation": None,
    "use_vllm": False, "vllm_mode": "colocate", "vllm_model_impl": "vllm", "vllm_enable_sleep_mode": False,
    "vllm_structured_outputs_regex": None, "vllm_server_base_url": None, "vllm_server_host": "0.0.0.0",
    "vllm_server_port": 8000, "vllm_server_timeout": 240.0, "vllm_group_port": 51216,
    "vllm_gpu_memory_utilization": 0.3, "vllm_max_model_length": None, "vllm_tensor_parallel_size": 1, "beta": 0.0,
    "num_iterations": 1, "epsilon": 0.2, "delta": None, "epsilon_high": None, "sapo_temperature_neg": 1.05,
    "sapo_temperature_pos": 1.0, "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0,
    "vespo_lambda_neg": 2.0, "importance_sampling_level": "token", "reward_weights": None,
    "multi_objective_aggregation": "sum_then_normalize", "scale_rewards": "group", "loss_type": "dapo",
    "mask_truncated_completions": False, "sync_ref_model": False, "ref_model_mixup_alpha": 0.6,
    "ref_model_sync_steps": 512, "top_entropy_quantile": 1.0, "entropy_coef": 0.0, "use_adaptive_entropy": False,
    "entropy_coef_min": 0.0, "entropy_coef_max": 1.0, "entropy_coef_delta": 0.005, "entropy_target": 0.2,
    "max_tool_calling_iterations": None, "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None, "off_policy_mask_threshold": None, "use_bias_correction_kl": True,
    "log_completions": False, "log_multimodal": True, "num_completions_to_print": None, "log_unique_prompts": False,
    "log_completions_hub_repo": None, "use_transformers_continuous_batching": False,
    "transformers_continuous_batching_config": None, "use_transformers_paged": False,
    "vllm_importance_sampling_cap": None, "logging_steps": 10, "gradient_checkpointing": True, "bf16": None,
    "lr_scheduler_kwargs": None, "use_liger_kernel": False, "torch_empty_cache_steps": None,
}  # fmt: skip

#: TRL's defaults that are not ours: the docstring of the class names each of them.
OTHER_DEFAULTS = {
    "max_steps", "num_train_epochs", "save_steps", "save_total_limit", "logging_steps", "optim", "router_aux_loss_coef",
    "importance_sampling_mode",
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss_type": "gspo"}, "loss_type must be one of grpo, bnpo, dapo, dr_grpo, cispo, sapo; got 'gspo'"),
        ({"num_generations": 1}, "num_generations must be a whole number from 2 on; got 1"),
        (
            {"num_generations": 3, "per_device_train_batch_size": 8},
            "3 does not: take 2, 4, 8, or change",
        ),
        ({"max_steps": 0}, "max_steps must be a whole number from 1 on; got 0"),
        ({"max_steps": 2.5}, "max_steps must be a whole number from 1 on; got 2.5"),
        ({"max_steps": "30"}, "max_steps must be a whole number from 1 on; got '30'"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size must be a whole number from 1 on; got 0"),
        ({"gradient_accumulation_steps": -1}, "gradient_accumulation_steps must be a whole number from 1 on"),
        ({"save_total_limit": 0}, "save_total_limit must be a whole number from 1 on; got 0"),
        ({"max_steps": True}, "max_steps must be a whole number from 1 on; got True"),
        ({"seed": 1.5}, "seed must be a whole number from 0 on; got 1.5"),
        ({"epsilon": -0.1}, "epsilon must be a number from 0 on; got -0.1"),
        ({"epsilon": 1.0}, "epsilon must be below 1"),
        ({"temperature": float("nan")}, "temperature must be a number above 0; got nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number from 0 on; got inf"),
        ({"learning_rate": "1e-5"}, "learning_rate must be a number from 0 on; got '1e-5'"),
        ({"max_minutes": 0}, "max_minutes must be a number above 0; got 0"),
        ({"beta": None}, "beta must be a number from 0 on; got None"),
        ({"delta": 1.1}, "delta=1.1 must be above 1 \\+ epsilon_high, here 1.2"),
        ({"loss_type": "cispo"}, "caps the ratio at epsilon_high, and it is None"),
        ({"loss_type": "cispo", "epsilon_high": 0.28}, "give a cap of at least 1"),
        ({"importance_sampling_level": "tokens"}, "did you mean 'token'"),
        ({"importance_sampling_clip_min": 4.0}, "importance_sampling_clip_min=4.0 must be below"),
        ({"mask_truncated_completions": "yes"}, "mask_truncated_completions must be True or False; got 'yes'"),
        ({"reward_weights": [1.0, float("nan")]}, "reward_weights must be a list of finite numbers"),
        ({"warmup_ratio": 0.1}, "'constant' has no warm-up"),
        ({"lr_scheduler_kwargs": {"min_lr_rate": 0.1}}, "'constant' has no options"),
        ({"learning_rate": 10**400}, "learning_rate must be a number from 0 on; got 1000"),
        ({"reward_weights": (True,)}, "reward_weights must be a list of finite numbers"),
        ({"backup_dir": 7}, "backup_dir must be a path; got 7"),
        ({"chat_template_kwargs": "low"}, "chat_template_kwargs must be a dictionary; got 'low'"),
        ({"loss_type": "cispo", "epsilon_high": 5.0, "delta": 7.0}, "delta limits the clip, and loss_type='cispo'"),
        ({"loss_type": "sapo", "epsilon_high": 0.3}, "loss_type='sapo' has no clip: leave epsilon_high out"),
        ({"eval_steps": 3}, "eval_steps has no effect without eval_strategy='steps'"),
        ({"load_best_model_at_end": True}, "load_best_model_at_end needs metric_for_best_model"),
        ({"metric_for_best_model": "eval_reward"}, "needs evaluations: set eval_strategy='steps'"),
        (
            {"metric_for_best_model": "reward", "eval_strategy": "steps", "eval_steps": 3, "save_steps": 2},
            "eval_steps=3 must be a multiple of save_steps=2",
        ),
        ({"warmup_ratio": 0.1, "warmup_steps": 3}, "warmup_steps or warmup_ratio, not both"),
        ({"lr_scheduler_type": "linear", "warmup_steps": 101}, "warmup_steps=101 is more than max_steps=100"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "needs its floor"),
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 2}, "must be a multiple of gradient_accumulation"),
        ({"warmup_steps": -1}, "warmup_steps must be a number from 0 on; got -1"),
        ({"warmup_steps": 0.1}, "'constant' has no warm-up"),
        ({"logging_steps": 0}, "logging_steps must be a whole number from 1 on; got 0"),
        ({"save_strategy": "epochs"}, r"got 'epochs' \(did you mean 'epoch'\?\)"),
        (
            {"save_strategy": "no", "metric_for_best_model": "reward"},
            "metric_for_best_model='reward' needs save_strategy='steps', as the best checkpoint is one of those that "
            "save_steps makes.$",
        ),
        (
            {"save_strategy": "epoch", "metric_for_best_model": "eval_reward", "eval_strategy": "steps"},
            "metric_for_best_model='eval_reward' needs save_strategy='steps'",
        ),
        ({"use_cpu": "yes"}, "use_cpu must be True or False; got 'yes'"),
        ({"router_aux_loss_coef": -1}, "router_aux_loss_coef must be a number from 0 on; got -1"),
        ({"temperature": 0}, "temperature must be a number above 0; got 0"),
    ],
)
def test_settings_that_cannot_work_are_one_sentence(tmp_path, settings, words):
    with pytest.raises(UserError, match=words):
        GRPOConfig(str(tmp_path), **{"lr_scheduler_type": "constant", **settings})


def test_no_clipping_of_the_gradient():
    """Both are TRL's spelling of it. A norm of 0 would have stopped all learning."""
    for value in (0, 0.0, None):
        assert not GRPOConfig("x", max_grad_norm=value).max_grad_norm


def test_the_batches_of_a_run():
    """Rollout steps and optimizer steps are often taken for each other."""
    config = GRPOConfig(
        "x", max_steps=24, per_device_train_batch_size=4, gradient_accumulation_steps=2, num_generations=4,
        steps_per_generation=6, num_iterations=2, warmup_ratio=0.25, learning_rate=1e-4,
    )  # fmt: skip
    assert (config.step_batch_size, config.generation_batch_size) == (8, 24)
    assert (config.parts_per_generation, config.steps_on_a_generation) == (3, 6)
    assert config.describe_run(12) == (
        "24 optimizer steps of 8 completions, on 4 generations of 24 (6 prompts x 4): 2.00 epochs of 12 prompts. "
        "Learning rate 0.0001, linear, after a warm-up of 6 steps."
    )


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_makes_a_config(name):
    profile = PROFILES[name]
    config = GRPOConfig.for_profile(profile, "runs/x", max_steps=None, num_generations=None, seed=3)
    assert (config.max_steps, config.num_generations, config.seed) == (profile.max_steps, profile.num_generations, 3)
    assert config.generation_batch_size == profile.generation_batch_size


def trl_defaults():
    """name -> default of TRL 1.16's GRPOConfig on the transformers that is installed."""
    inherited = {field.name: field.default for field in fields(TrainingArguments) if field.name != "output_dir"}
    return {name: value for name, value in {**inherited, **TRL}.items() if value is not MISSING}


def test_defaults_are_those_of_trl_where_the_class_does_not_say_otherwise():
    """A script that leaves a setting out must get the same run, or a sentence in the documentation."""
    own = GRPOConfig("out").to_dict()
    theirs = {RENAMED.get(name, name): value for name, value in trl_defaults().items()}
    different = {name for name, value in own.items() if name in theirs and value != theirs[name]}
    assert different == OTHER_DEFAULTS
    assert all(name in GRPOConfig.__doc__ for name in OTHER_DEFAULTS | {"router_aux_loss_coef", "bf16"})
    assert own.keys() - theirs.keys() == {
        "output_dir", "max_prompt_length", "max_minutes", "reward_timeout", "router_replay", "backup_dir",
        "no_signal_steps", "warmup_ratio",
    }  # fmt: skip


def test_every_setting_of_trl_is_known():
    """What a TRL script may hold is ours, neutral at some value, or without effect; never "no such setting"."""
    own = {field.name for field in fields(GRPOConfig)}
    assert trl_defaults().keys() <= own | known_names()


def test_settings_of_vllm_that_this_engine_has_too_are_taken_over():
    """They were accepted, and the run did something else."""
    config = GRPOConfig(
        "out", vllm_importance_sampling_correction=False, vllm_importance_sampling_mode="sequence_mask",
        vllm_importance_sampling_clip_max=1.5,
    )  # fmt: skip
    assert not config.importance_sampling_correction and config.importance_sampling_mode == "sequence_mask"
    assert config.importance_sampling_clip_max == 1.5


@pytest.mark.parametrize("name", sorted(trl_defaults().keys() - OTHER_DEFAULTS - {"vllm_importance_sampling_mode"}))
def test_trl_defaults_are_accepted(name):
    """Scripts write defaults down: `beta=0.0` once ended in a bare TypeError."""
    value = trl_defaults()[name]
    assert GRPOConfig("out", **{name: value}) == GRPOConfig("out")


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_values_change_nothing_and_others_are_one_sentence(name):
    accepted, why = NEUTRAL[name]
    for value in accepted:
        assert GRPOConfig("out", **{name: value}) == GRPOConfig("out")
    with pytest.raises(UserError) as raised:
        GRPOConfig("out", **{name: "something else"})
    sentence = str(raised.value)
    assert sentence.startswith(f"{name}='something else' is not supported, as {why}: leave {name} out")
    assert sentence.endswith(".") and sentence.count(". ") == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"top_p": 0.9},
            "top_p=0.9 is not supported, as tokens are drawn from the whole distribution, the one whose gradient is "
            "taken: leave top_p out or set it to 1.0.",
        ),
        (
            {"rollout_batch_size": 16},
            "rollout_batch_size=16 is not supported, as a generation has per_device_train_batch_size * "
            "steps_per_generation completions, num_generations a prompt: leave rollout_batch_size out.",
        ),
        (
            {"max_new_token": 5},
            "GRPOConfig has no setting 'max_new_token' (did you mean 'max_new_tokens', which is max_completion_length "
            "here?): help(GRPOConfig) lists those it has.",
        ),
        (
            {"learning_rat": 1},
            "GRPOConfig has no setting 'learning_rat' (did you mean 'learning_rate'?): "
            "help(GRPOConfig) lists those it has.",
        ),
        (
            {"logging_step": 1},
            "GRPOConfig has no setting 'logging_step' (did you mean 'logging_steps'?): "
            "help(GRPOConfig) lists those it has.",
        ),
        ({"zzz": 1}, "GRPOConfig has no setting 'zzz': help(GRPOConfig) lists those it has."),
        (
            {"loss_type": "luspo"},
            "loss_type must be one of grpo, bnpo, dapo, dr_grpo, cispo, sapo; got 'luspo', which TRL has and this "
            "version does not offer.",
        ),
        (
            {"loss_type": "vespo"},
            "loss_type must be one of grpo, bnpo, dapo, dr_grpo, cispo, sapo; got 'vespo', which TRL has and this "
            "version does not offer.",
        ),
        (
            {"save_strategy": "best"},
            "save_strategy must be one of steps, epoch, no; got 'best': metric_for_best_model keeps the best "
            "checkpoint.",
        ),
    ],
)
def test_refusals_in_full(settings, sentence):
    with pytest.raises(UserError) as raised:
        GRPOConfig("out", **settings)
    assert str(raised.value) == sentence


def test_an_unknown_setting_gets_the_nearest_name():
    """A dataclass would answer with a bare TypeError."""
    for make in (GRPOConfig, partial(GRPOConfig.for_profile, PROFILES["tiny"])):
        with pytest.raises(UserError, match=r"no setting 'learning_rat' \(did you mean 'learning_rate'\?\)"):
            make("out", learning_rat=1.0)


def test_sizes_of_a_generation_in_trls_words():
    batch = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    config = GRPOConfig("out", **batch, generation_batch_size=16, steps_per_generation=4)
    assert config.generation_batch_size == GRPOConfig("out", **batch).generation_batch_size == 16
    assert GRPOConfig("out", **batch, generation_batch_size=16) == GRPOConfig("out", **batch)
    for other in ({"generation_batch_size": 64}, {"steps_per_generation": 16}):
        assert GRPOConfig("out", **batch, **other).generation_batch_size == 64
    assert GRPOConfig("x", generation_batch_size=32).steps_per_generation == 4
    with pytest.raises(UserError, match="generation_batch_size=32 is not supported, as it is per_device"):
        GRPOConfig("out", **batch, generation_batch_size=32, steps_per_generation=4)
    with pytest.raises(UserError, match="generation_batch_size=12 must be a multiple of per_device"):
        GRPOConfig("out", generation_batch_size=12)
    for size in (0, 8.0, "16", True):
        with pytest.raises(UserError, match=f"generation_batch_size must be a whole number from 1 on; got {size!r}"):
            GRPOConfig("out", generation_batch_size=size)
    with pytest.raises(UserError, match="per_device_train_batch_size must be a whole number from 1 on; got '8'"):
        GRPOConfig("out", generation_batch_size=16, per_device_train_batch_size="8")


@pytest.mark.parametrize(
    "settings", [{"per_device_train_batch_size": 0}, {"max_completion_length": "5"}, {"max_prompt_length": 2.5}]
)
def test_a_wrong_setting_of_a_profile_is_one_sentence(settings):
    """The profile's plan divided by it before it was looked at."""
    (name,) = settings
    for profile in ("tiny", "t4"):
        with pytest.raises(UserError, match=f"{name} must be a whole number from 1 on"):
            GRPOConfig.for_profile(PROFILES[profile], "out", **settings)


def test_only_the_folder_is_positional():
    """The order of fifty settings is nothing to rely on."""
    with pytest.raises(TypeError):
        GRPOConfig("out", 30)


def test_the_guides_own_line_is_taken():
    """It was refused, with a hint at the wrong setting."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = GRPOConfig(
            temperature=1.0, top_p=1.0, top_k=0, num_generations=2, learning_rate=5e-5, weight_decay=0.01,
            warmup_ratio=0.1, lr_scheduler_type="linear", optim="adamw_8bit", per_device_train_batch_size=1,
            gradient_accumulation_steps=4, max_steps=100, logging_steps=1, output_dir="outputs", reward_model=None,
            max_new_tokens=512,
        )  # fmt: skip
    assert (config.max_completion_length, config.num_generations, config.step_batch_size) == (512, 2, 4)


#: Two values of settings that a number of their type does not fit.
EXAMPLES = {"gradient_checkpointing": (True, False), "use_cpu": (True, False),
            "warmup_ratio": (0.25, 0.5), "epsilon": (0.25, 0.5),
            "importance_sampling_correction": (True, False), "num_generations": (4, 8),
            "importance_sampling_mode": ("token_mask", "sequence_mask"), "num_generations_eval": (4, 8),
            "importance_sampling_clip_min": (0.5, 1), "importance_sampling_clip_max": (2, 4)}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_another_name_is_the_setting(name):
    """An alias of a name that no field has would be refused as unknown, by a message about another name."""
    own_name = OTHER_NAMES[name]
    first, second = EXAMPLES.get(own_name, (8, 16))
    base = {"lr_scheduler_type": "linear", "steps_per_generation": 16}
    for make in (GRPOConfig, partial(GRPOConfig.for_profile, PROFILES["tiny"])):
        assert make("out", **base, **{name: second}) == make("out", **base, **{own_name: second})
        assert make("out", **base, **{name: first, own_name: first}) == make("out", **base, **{own_name: first})
        assert make("out", **base, **{name: None}) == make("out", **base), "None stands for the default"
        with pytest.raises(UserError) as raised:
            make("out", **base, **{own_name: first, name: second})
        both = f"{own_name}={first!r} and {name}={second!r}"
        assert str(raised.value) == f"{both} are the same setting, {own_name} in GRPOConfig: give one of them."


def test_two_other_names_of_one_setting():
    with pytest.raises(UserError, match="max_new_tokens=5 and grpo_max_tokens=6 are the same setting, max_completion"):
        GRPOConfig("out", max_new_tokens=5, grpo_max_tokens=6)
    assert GRPOConfig("out", max_new_tokens=5, grpo_max_tokens=5).max_completion_length == 5


def test_spellings_of_unsloth():
    assert GRPOConfig("out", use_gradient_checkpointing="unsloth").gradient_checkpointing is True
    assert GRPOConfig("out", use_gradient_checkpointing=False).gradient_checkpointing is False
    config = GRPOConfig("out", load_in_4bit=True, lora_dropout=0, bias="none")
    assert config == GRPOConfig("out")


@pytest.mark.parametrize(
    ("settings", "sentences"),
    [
        (
            {"logging_first_step": True},
            ["logging_first_step=True has no effect here: every step is written to metrics.jsonl."],
        ),
        (
            {"gpus": "0,1", "beta": 0.1, "max_seq_length": 768, "report_to": "none"},
            [
                "gpus='0,1' has no effect here: training runs on one device.",
                "max_seq_length=768 has no effect here: max_prompt_length and max_completion_length bound the lengths.",
            ],
        ),
        ({"logging_steps": 1, "gpus": 0, "devices": [0], "use_tmux": False}, []),
    ],
)
def test_what_has_no_effect_is_said_once(settings, sentences):
    """Who asks for two GPUs and gets one should know; who writes defaults down should not be told about each."""
    _, notes = translate_settings(settings)
    assert notes == sentences
    for make in (GRPOConfig, partial(GRPOConfig.for_profile, PROFILES["tiny"])):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            config = make("out", **settings)
            pickle.loads(pickle.dumps(replace(config, seed=1)))
        assert [str(warning.message) for warning in caught] == ([" ".join(sentences)] if sentences else [])
        assert all(warning.category is UserWarning and warning.filename == __file__ for warning in caught)


def test_nothing_is_said_of_trls_defaults():
    """A script that writes all of them down would be told about ninety settings."""
    defaults = trl_defaults()
    for names in WITHOUT_EFFECT.values():
        for name, value in names.items():
            assert defaults.get(name, value) == value, name


def test_settings_are_translated_without_a_run():
    """The command line asks before it has a folder: only what was given comes back, by our names, checked."""
    own, notes = translate_settings({"lr": 1e-5, "vllm_mode": "server", "group_size": 4, "top_p": 1.0, "max_steps": -1})
    assert own == {"learning_rate": 1e-5, "num_generations": 4}
    assert notes == ["vllm_mode='server' has no effect here: vLLM is not used."]
    assert translate_settings({}) == ({}, [])
    for wrong, words in (({"lr": "high"}, "learning_rate must be"), ({"top_k": 5}, "top_k=5"), ({"zzz": 1}, "'zzz'")):
        with pytest.raises(UserError, match=words):
            translate_settings(wrong)


def test_a_setting_has_one_name_here():
    """A name in two tables would be translated or left out by the order of the code."""
    own = {field.name for field in fields(GRPOConfig)}
    assert not RENAMED.keys() & ALIASES.keys() and set(OTHER_NAMES.values()) <= own
    tables = [own, set(OTHER_NAMES), set(NEUTRAL), {name for names in WITHOUT_EFFECT.values() for name in names}]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))
    assert known_names() == set(names) - own | {"generation_batch_size"}


@pytest.mark.parametrize("number", [-1, None])
def test_the_length_of_a_run(number):
    """TRL's -1 stands for no number, and a number of steps counts above epochs."""
    assert GRPOConfig("out", max_steps=number).max_steps == GRPOConfig("out").max_steps == 100
    assert GRPOConfig("out", max_steps=7, num_train_epochs=3.0).for_prompts(1000).max_steps == 7
    open_end = GRPOConfig("out", max_steps=number, num_train_epochs=3.0)
    assert open_end.max_steps is None and open_end.for_prompts(50).max_steps == 150
    assert open_end.describe_run(50) == open_end.for_prompts(50).describe_run(50)
    for profile in (PROFILES["tiny"], PROFILES["t4"]):
        make = partial(GRPOConfig.for_profile, profile, "out", max_steps=number)
        assert make().max_steps == profile.max_steps and make(epochs=2).max_steps is None


@pytest.mark.parametrize(
    ("epochs", "prompts", "batches", "steps"),
    [
        (1, 3200, {"steps_per_generation": 16}, 3200),  # 2 prompts a generation of 2 steps
        (1, 12, {}, 12),
        (1, 5, {"steps_per_generation": 16}, 6),  # 3 generations: the last prompt has one of the next pass beside it
        (0.5, 5, {"num_iterations": 2}, 6),
        (0.07, 100, {}, 7),  # in binary 0.07 * 100 is above 7
        (0.001, 100, {}, 1),
        (0.001, 100, {"num_iterations": 3}, 3),
    ],
)
def test_epochs_in_steps(epochs, prompts, batches, steps):
    """A pass that ends within a generation takes the whole of it, with all its optimizer steps."""
    if "steps_per_generation" in batches:
        batches = batches | {"gradient_accumulation_steps": 8, "per_device_train_batch_size": 1}
    config = GRPOConfig("out", num_train_epochs=epochs, warmup_ratio=0.1, **batches).for_prompts(prompts)
    assert config.max_steps == steps and config.warmup_count == math.ceil(0.1 * steps)
    assert config.for_prompts(10**6) == config, "it is settled"


def test_a_resumed_run_has_the_steps_of_its_epochs():
    """A schedule spans them all: with other prompts or epochs, a checkpoint of the run would go on with other rates."""
    config = GRPOConfig("out", num_train_epochs=1)
    same_number = replace(config, num_train_epochs=2)
    shared = config.for_prompts(60).settings_of_the_run()
    assert shared["max_steps"] == 60 and same_number.for_prompts(30).settings_of_the_run() == shared
    assert config.for_prompts(61).settings_of_the_run() != shared
    constant = replace(config, lr_scheduler_type="constant")
    assert constant.for_prompts(60).settings_of_the_run() == constant.for_prompts(61).settings_of_the_run()


@pytest.mark.parametrize("profile", ["tiny", "t4"])
def test_the_recipe_of_the_pipeline(profile):
    """Its own figures: 3,200 prompts in 200 rollouts of 16, 1,600 updates of 16 completions, 80 steps of warm-up."""
    config = GRPOConfig.for_profile(PROFILES[profile], "out", **recipe("math_pipeline")).for_prompts(3200)
    assert (config.max_steps, config.warmup_count, config.step_batch_size) == (1600, 80, 16)
    assert (config.generation_batch_size, config.num_generations, config.steps_on_a_generation) == (128, 8, 8)
    assert "on 200 generations of 128 (16 prompts x 8): 1.00 epochs of 3200 prompts" in config.describe_run(3200)
    shorter = GRPOConfig.for_profile(PROFILES[profile], "out", **recipe("math_pipeline", max_steps=8))
    assert shorter.max_steps == 8


@pytest.mark.parametrize("profile", ["tiny", "t4"])
def test_the_recipe_of_opensloth(profile):
    config = GRPOConfig.for_profile(PROFILES[profile], "out", **recipe("opensloth"))
    assert (config.generation_batch_size, config.num_generations, config.steps_on_a_generation) == (4, 4, 1)
    assert (config.max_completion_length, config.learning_rate) == (256, 5e-6)


def test_the_size_of_a_generation_under_a_profile():
    """The profile's micro-batch counts, not the default of the class."""
    t4 = PROFILES["t4"]
    config = GRPOConfig.for_profile(t4, "out", generation_batch_size=24)
    assert config.generation_batch_size == config.step_batch_size == 24
    config = GRPOConfig.for_profile(
        t4, "out", generation_batch_size=24, per_device_train_batch_size=2, gradient_accumulation_steps=4
    )
    assert (config.generation_batch_size, config.step_batch_size) == (24, 8)
    with pytest.raises(UserError, match="generation_batch_size must be a whole number from 1 on; got '24'"):
        GRPOConfig.for_profile(t4, "out", generation_batch_size="24")


def test_settings_are_checked_without_the_weight_of_models():
    """The command line answers a wrong setting with this module alone: transformers and PEFT take seconds to import."""
    code = (
        "import sys, helpers.grpo.config, helpers.grpo.recipes, helpers.grpo.optimizer;"
        "print(sorted({'transformers', 'peft', 'datasets', 'pyarrow'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_every_field_says_what_it_means():
    """`help(GRPOConfig)` and `GRPOConfig?` are what a reader has; a setting without a line there is a secret."""
    for field in fields(GRPOConfig):
        about = field.metadata["setting"]
        assert about.help.endswith(".") and f"        {field.name} (default {field.default!r}): " in GRPOConfig.__doc__
    assert list(inspect.signature(GRPOConfig).parameters) == [field.name for field in fields(GRPOConfig)]


#: What a resumed run may have otherwise: nothing here changes what a step computes by more than rounding.
MAY_DIFFER = {
    "output_dir", "max_minutes", "save_steps", "save_total_limit", "reward_timeout", "gradient_checkpointing",
    "max_prompt_length", "gradient_accumulation_steps", "steps_per_generation", "backup_dir", "metric_for_best_model",
    "greater_is_better", "load_best_model_at_end", "eval_strategy", "eval_steps", "num_generations_eval",
    "no_signal_steps", "optim", "num_train_epochs", "logging_steps", "save_strategy", "use_cpu",
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, {"per_device_train_batch_size"}),
        ({"loss_type": "bnpo"}, set()),  # its weights are those of a micro-batch
        ({"lr_scheduler_type": "constant"}, {"per_device_train_batch_size", "max_steps"}),
    ],
)
def test_what_a_resumed_run_may_change(settings, more):
    """One setting too few, and a run cannot be made longer; one too many, and it goes on as another run."""
    config = GRPOConfig("out", **settings)
    shared = config.settings_of_the_run()
    assert config.to_dict().keys() - shared.keys() == MAY_DIFFER | more
    assert shared.keys() - config.to_dict().keys() == {"step_batch_size", "generation_batch_size"}


@pytest.mark.parametrize(("given", "kept"), [(True, "group"), (False, "none"), ("batch", "batch")])
def test_scale_rewards_in_trls_older_spelling(given, kept):
    assert GRPOConfig("out", scale_rewards=given).scale_rewards == kept


def test_it_is_an_ordinary_frozen_dataclass():
    """Settings of TRL are not kept; the rest compares, copies, replaces and reads back as before."""
    config = GRPOConfig("out", max_steps=5, beta=0.0, vllm_mode="colocate", report_to="none")
    assert list(config.to_dict()) == [field.name for field in fields(GRPOConfig)] == list(vars(config))
    assert GRPOConfig(**config.to_dict()) == config == pickle.loads(pickle.dumps(config)) == copy.deepcopy(config)
    assert replace(config, max_steps=6) == GRPOConfig("out", max_steps=6)
    with pytest.raises(UserError, match="max_steps must be a whole number"):
        replace(config, max_steps=0)
    assert copy.copy(config) == config


@pytest.mark.parametrize("settings", [GRPOConfig("out"), PROFILES["tiny"], RunSettings()])
def test_an_assignment_says_what_to_do_instead(settings):
    """TRL's config can be assigned to, and a bare FrozenInstanceError names no way on."""
    with pytest.raises(UserError) as raised:
        settings.learning_rate = 1
    assert str(raised.value) == (
        f"{type(settings).__name__} cannot be changed after it is made: make another, "
        "dataclasses.replace(config, learning_rate=...)."
    )


@pytest.mark.parametrize("max_steps", [2, 10, 100, 600, 1000])
@pytest.mark.parametrize("warmup", [0, 0.03, 0.07, 0.29, 0.5, 0.99, 1, 1.0, 2, 2.5])
def test_the_warm_up_has_the_steps_that_transformers_gives_it(tmp_path, warmup, max_steps):
    """A share was refused, or rounded to the nearest number. In binary fractions 0.07 of 100 steps are 8."""
    theirs = TrainingArguments(str(tmp_path), warmup_steps=warmup).get_warmup_steps(max_steps)
    assert GRPOConfig("out", max_steps=max_steps, warmup_steps=warmup).warmup_count == theirs
    if warmup < 1:
        assert GRPOConfig("out", max_steps=max_steps, warmup_ratio=warmup).warmup_count == theirs


def test_a_warm_up_by_share_of_a_run_whose_length_follows_from_the_prompts():
    """There is no number of steps yet when the settings are checked."""
    config = GRPOConfig("out", num_train_epochs=1, warmup_steps=0.07)
    assert config.for_prompts(100).warmup_count == 8


def steps_that_save(config, prompts, steps):
    """Return the steps of a run, counted from 1, after which a checkpoint is due."""
    return [step for step in range(1, steps + 1) if config.is_save_due(step, prompts)]


@pytest.mark.parametrize(
    ("settings", "prompts", "saved"),
    [
        ({"save_steps": 5}, 3, [5, 10]),
        ({"save_strategy": "steps"}, 3, list(range(1, 13))),
        ({"save_strategy": "no"}, 1, []),
        ({"save_strategy": "epoch"}, 4, [4, 8, 12]),  # a prompt a step
        ({"save_strategy": "epoch", "per_device_train_batch_size": 16}, 5, [3, 5, 8, 10]),  # two prompts a step
        ({"save_strategy": "epoch", "per_device_train_batch_size": 16}, 1, list(range(1, 13))),  # two passes a step
        ({"save_strategy": "epoch", "num_iterations": 3}, 2, [6, 12]),  # a prompt a generation of three steps
        ({"save_strategy": "epoch", "steps_per_generation": 2, "num_iterations": 2}, 3, [8, 12]),
        ({"save_strategy": "epoch", "save_steps": 1}, 100, []),
    ],
)
def test_when_a_checkpoint_is_due(settings, prompts, saved):
    """A pass may end within a generation, and its checkpoint is due once, after all steps on that generation."""
    assert steps_that_save(GRPOConfig("out", **settings), prompts, steps=12) == saved


def test_an_epoch_is_saved_where_the_run_of_one_epoch_ends():
    """Both count whole generations: with another rounding the last pass would go unsaved, or be cut short."""
    batches = {"per_device_train_batch_size": 24, "num_iterations": 2}
    config = GRPOConfig("out", num_train_epochs=3, max_steps=-1, save_strategy="epoch", **batches).for_prompts(10)
    assert steps_that_save(config, prompts=10, steps=config.max_steps) == [8, 14, 20]
    assert config.max_steps == 20


def test_the_models_own_coefficient_can_be_asked_for():
    """TRL's None was refused, and a profile would take it for a setting that was left out."""
    for make in (GRPOConfig, partial(GRPOConfig.for_profile, PROFILES["tiny"])):
        assert make("out", router_aux_loss_coef=None).router_aux_loss_coef is None
        assert make("out").router_aux_loss_coef == 0
        assert make("out", router_aux_loss_coef=0.5).router_aux_loss_coef == 0.5


@pytest.mark.parametrize(
    ("metric", "given", "resolved"),
    [(None, None, None), ("reward", None, True), ("eval_loss", None, False), ("reward", False, False)],
)
def test_whether_more_is_better_is_resolved(metric, given, resolved):
    """EarlyStoppingCallback takes None for False, and stopped a run whose reward rose."""
    evaluation = {"eval_strategy": "steps"} if metric else {}
    config = GRPOConfig("out", metric_for_best_model=metric, greater_is_better=given, **evaluation)
    assert config.greater_is_better is resolved
    assert replace(config, seed=1).greater_is_better is resolved


def test_callbacks_of_transformers_read_what_they_need():
    """The default flow stopped with an AttributeError about logging_first_step."""
    args = GRPOConfig("out", max_steps=4, eval_strategy="steps", eval_steps=2, save_steps=2, logging_steps=2)
    state = TrainerState(max_steps=4, num_train_epochs=1)
    state.compute_steps(args, args.max_steps)
    flow = DefaultFlowCallback()
    asked = []
    for step in range(1, 5):
        state.global_step = step
        control = flow.on_step_end(args, state, TrainerControl())
        asked.append((control.should_log, control.should_evaluate, control.should_save))
    flow.on_epoch_end(args, state, TrainerControl())
    assert asked == [(False,) * 3, (True,) * 3] * 2


@pytest.mark.parametrize("strategy", ["no", "steps"])
def test_the_table_of_transformers_tells_whether_there_are_evaluations(strategy):
    """Our texts must compare as its enumeration does, or a run would have a column too few or too many."""
    shown = NotebookProgressCallback()
    shown.on_train_begin(GRPOConfig("out", eval_strategy=strategy), TrainerState(max_steps=4), TrainerControl())
    (columns,) = shown.training_tracker.inner_table
    assert ("Validation Loss" in columns) == (strategy == "steps")


def test_early_stopping_of_transformers_follows_a_rising_reward():
    """Its operator was chosen by None, so that every better reward counted as a worse one."""
    args = GRPOConfig("out", eval_strategy="steps", metric_for_best_model="eval_reward", load_best_model_at_end=True)
    stopping = EarlyStoppingCallback(early_stopping_patience=1)
    stopping.on_train_begin(args, TrainerState(), TrainerControl())
    state = TrainerState(best_metric=0.5)
    control = TrainerControl()
    stopping.on_evaluate(args, state, control, metrics={"eval_reward": 0.6})
    assert not control.should_training_stop
    stopping.on_evaluate(args, state, control, metrics={"eval_reward": 0.4})
    assert control.should_training_stop


def test_the_cpu_can_be_insisted_on():
    """Both names were refused where they ask for the CPU, though many runs are on it."""
    assert GRPOConfig("out", use_cpu=True).use_cpu and GRPOConfig("out", no_cuda=True).use_cpu
    assert not GRPOConfig("out", no_cuda=False).use_cpu and not GRPOConfig("out").use_cpu


def test_a_trl_script_may_leave_the_folder_out():
    """TRL's default folder, and not a TypeError about an argument that the script never had."""
    assert GRPOConfig(beta=0.0).output_dir == "trainer_output"


def test_a_micro_batch_of_ones_own_keeps_the_completions_of_a_step():
    """Half of the settings by the plan and half by hand gave steps of 4 completions, or none at all."""
    t4 = PROFILES["t4"]
    for rows in (1, 2, 4, 8):
        config = GRPOConfig.for_profile(t4, "out", per_device_train_batch_size=rows)
        assert (config.per_device_train_batch_size, config.generation_batch_size) == (rows, 8)
    assert GRPOConfig.for_profile(t4, "out").generation_batch_size == 8
    assert GRPOConfig.for_profile(t4, "out", per_device_train_batch_size=16).generation_batch_size == 16

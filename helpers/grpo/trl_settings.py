"""Settings of other programs: which of ours they are, and which values of the others change nothing here.

Most names are those of `GRPOConfig` in TRL 1.16, of `TrainingArguments` in transformers 5.23, which it extends, and of
a few older versions that scripts still use. The others are those of Unsloth, OpenSloth (commit 33c0dbe) and OpenRLHF
0.9, which write-ups of GRPO on gpt-oss use.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from helpers.runtime import UserError, check_whole, did_you_mean

#: Settings of TRL, or of older versions of it or transformers, that have another name here.
RENAMED = {
    "activation_checkpointing": "gradient_checkpointing",
    "vllm_importance_sampling_correction": "importance_sampling_correction",
    "vllm_importance_sampling_mode": "importance_sampling_mode",
    "vllm_importance_sampling_clip_max": "importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min": "importance_sampling_clip_min",
    "no_cuda": "use_cpu",
}

#: Settings of Unsloth, OpenSloth and OpenRLHF, and short names, that have another name here.
ALIASES = {
    # lengths and sampling
    "max_new_tokens": "max_completion_length",
    "max_tokens": "max_completion_length",
    "grpo_max_tokens": "max_completion_length",
    "generate_max_len": "max_completion_length",
    "prompt_max_len": "max_prompt_length",
    "max_prompt": "max_prompt_length",
    "temp": "temperature",
    "grpo_temp": "temperature",
    # groups and batches
    "group_size": "num_generations",
    "grpo_group_size": "num_generations",
    "n_samples_per_prompt": "num_generations",
    "eval_n_samples_per_prompt": "num_generations_eval",
    "batch_size": "per_device_train_batch_size",
    "micro_train_batch_size": "per_device_train_batch_size",
    "max_epochs": "num_iterations",  # OpenRLHF: times that each rollout is gone through
    # length of the run, and the optimizer
    "num_episodes": "num_train_epochs",
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "actor_learning_rate": "learning_rate",
    "warmup": "warmup_ratio",
    "lr_warmup_ratio": "warmup_ratio",
    "use_gradient_checkpointing": "gradient_checkpointing",
    # loss
    "kl": "beta",
    "kl_coef": "beta",
    "init_kl_coef": "beta",
    "eps_clip": "epsilon",
    # checkpoints
    "save_interval": "save_steps",
    "max_ckpt_num": "save_total_limit",
}

#: All names that mean a setting of ours -> its name. None as their value stands for our default.
OTHER_NAMES = RENAMED | ALIASES

#: Setting -> the values that ask for what this trainer does anyway, and why it does nothing else.
NEUTRAL = {
    # loss
    "sync_ref_model": ((False,), "the reference is the model without its adapter"),
    "multi_objective_aggregation": (("sum_then_normalize",), "the weighted rewards are added before they are compared"),
    "top_entropy_quantile": ((1.0,), "every token of a completion counts in the loss"),
    "entropy_coef": ((0.0,), "this version has no entropy bonus"),
    "use_adaptive_entropy": ((False,), "this version has no entropy bonus"),
    "off_policy_mask_threshold": ((None,), "no completion is left out for being off-policy"),
    "label_smoothing_factor": ((0.0,), "the loss has no labels"),
    "entropy_loss_coef": ((0.0, None), "this version has no entropy bonus"),
    "advantage_estimator": ((), "it is chosen by loss_type and scale_rewards"),
    "reward_model": ((None,), "rewards are functions, which the trainer gets as reward_funcs"),
    # generation
    "top_p": ((1.0,), "tokens are drawn from the whole distribution, the one whose gradient is taken"),
    "top_k": ((0, None), "tokens are drawn from the whole distribution, the one whose gradient is taken"),
    "min_p": ((None, 0.0), "tokens are drawn from the whole distribution, the one whose gradient is taken"),
    "repetition_penalty": ((1.0,), "tokens are drawn from the model's own distribution, the one that is trained"),
    "generation_kwargs": ((None, {}), "only temperature and max_completion_length can be chosen"),
    "stop_sequences": ((None, []), "a completion ends where the model ends it"),
    "cache_implementation": ((None,), "the rollout engine chooses its cache"),
    "vllm_importance_sampling_cap": ((None,), "it is called importance_sampling_clip_max"),
    "use_vllm": ((False,), "the trained weights write the completions themselves"),
    "use_transformers_continuous_batching": ((False,), "the rollout engine makes its batches"),
    "use_transformers_paged": ((False,), "the rollout engine makes its batches"),
    "shuffle_dataset": ((True,), "prompts are taken in an order that seed decides"),
    "train_sampling_strategy": (("random",), "prompts are taken in an order that seed decides"),
    "prompt_length_percentile": ((None, 1.0), "no prompt is left out for its length"),
    "group_by_length": ((False,), "prompts are taken in an order that seed decides"),
    "data_seed": ((None,), "seed decides the order of the prompts, too"),
    "remove_unused_columns": ((False,), "reward functions get every column"),
    # model and precision
    "model_init_kwargs": ((None, {}), "load_model makes the model"),
    "trust_remote_code": ((False,), "load_model makes the model"),
    "load_in_4bit": ((True,), "the profile decides how weights are stored"),
    "load_in_8bit": ((False,), "the profile decides how weights are stored"),
    "full_finetune": ((False,), "only an adapter is trained"),
    "full_finetuning": ((False,), "only an adapter is trained"),
    "lora_dropout": ((0.0, None), "the adapter has no dropout"),
    "bias": (("none",), "the adapter has no biases"),
    "param_dtype": ((None,), "load_model decides the dtype, by the profile"),
    "cast_lm_head_to_fp32": ((False,), "load_model decides the dtype of every weight"),
    "bf16": ((None, False), "load_model decides the dtype, by the profile"),
    "fp16": ((None, False), "load_model decides the dtype, by the profile"),
    "tf32": ((None, False), "the trainer does not switch TF32 on"),
    "use_liger_kernel": ((False,), "the project brings its own kernels"),
    "use_liger_loss": ((False, None), "the project brings its own kernels"),
    "liger_kernel_config": ((None,), "the project brings its own kernels"),
    "torch_compile": ((False,), "the model is not compiled"),
    "torch_compile_backend": ((None,), "the model is not compiled"),
    "torch_compile_mode": ((None,), "the model is not compiled"),
    "gradient_checkpointing_kwargs": ((None, {}, {"use_reentrant": False}), "layers are recomputed in one way"),
    "activation_checkpointing_kwargs": ((None, {}, {"use_reentrant": False}), "layers are recomputed in one way"),
    "neftune_noise_alpha": ((None,), "no noise is added to embeddings"),
    # optimizer and length of the run
    "optim_args": ((None,), "AdamW runs with PyTorch's defaults"),
    "optim_target_modules": ((None,), "one optimizer moves every weight of the adapter"),
    "adam_beta1": ((0.9,), "AdamW runs with PyTorch's defaults"),
    "adam_beta2": ((0.999,), "AdamW runs with PyTorch's defaults"),
    "adam_epsilon": ((1e-8,), "AdamW runs with PyTorch's defaults"),
    "train_batch_size": (
        (),
        "an optimizer step has per_device_train_batch_size * gradient_accumulation_steps completions",
    ),
    "rollout_batch_size": (
        (),
        "a generation has per_device_train_batch_size * steps_per_generation completions, num_generations a prompt",
    ),
    "auto_find_batch_size": ((False,), "memory_plan tells which batch fits"),
    "torch_empty_cache_steps": ((None,), "the cache of CUDA memory is emptied where memory runs out"),
    "full_determinism": ((False,), "this version does not switch PyTorch to deterministic kernels"),
    # one device
    "deepspeed": ((None,), "this version trains on one device"),
    "fsdp": ((None, False, "", []), "this version trains on one device"),
    "fsdp_config": ((None,), "this version trains on one device"),
    "parallelism_config": ((None,), "this version trains on one device"),
    "local_rank": ((-1, 0), "this version trains on one device"),
    # logs, evaluation, checkpoints
    "method": (("grpo",), "this trainer has no other method"),
    "training_type": (("grpo",), "this trainer has no other method"),
    "logging_strategy": (("steps",), "every step is written to metrics.jsonl"),
    "report_to": (
        ("none", None, [], ["none"], "tensorboard", ["tensorboard"]),
        "metrics go to metrics.jsonl, to TensorBoard's files where it is installed, and to callbacks",
    ),
    "log_completions": ((True, False), "the completions of every generation are written to files"),
    "log_completions_hub_repo": ((None,), "nothing is sent to the hub"),
    "include_num_input_tokens_seen": (("no", False), "the tokens of a run are logged as num_tokens"),
    "include_tokens_per_second": ((False,), "metrics hold seconds and lengths, no rates"),
    "debug": (("", []), "there is no debug mode"),
    "skip_memory_metrics": ((True,), "memory is logged as memory/peak_GiB, on a GPU"),
    "do_eval": ((False,), "evaluations follow eval_strategy and eval_steps"),
    "evaluation_strategy": (("no",), "it is called eval_strategy"),
    "eval_on_start": ((False,), "evaluations follow eval_strategy and eval_steps"),
    "eval_temperature": ((1.0, None), "evaluations during training draw as the training does"),
    "do_predict": ((False,), "evaluations follow eval_strategy and eval_steps"),
    "save_only_model": ((False,), "a checkpoint holds all that a run needs to go on"),
    "enable_jit_checkpoint": ((False,), "checkpoints are written between steps"),
    "overwrite_output_dir": ((False,), "a run never overwrites another"),
    "resume_from_checkpoint": ((None, False), "it is an argument of GRPOTrainer.train"),
    "ignore_data_skip": ((False,), "a resumed run goes on with the prompts that come next"),
    "restore_callback_states_from_checkpoint": ((False,), "callbacks are not part of a checkpoint"),
    "push_to_hub": ((False,), "nothing is sent to the hub"),
}

#: Why a setting changes nothing here, whatever its value -> such settings, each with the value of which nothing need be
#: said: TRL's default, or what is done here anyway. None where every value asks for something.
WITHOUT_EFFECT = {
    "vLLM is not used": {
        "vllm_mode": "colocate", "vllm_model_impl": "vllm", "vllm_enable_sleep_mode": False,
        "vllm_structured_outputs_regex": None, "vllm_guided_decoding_regex": None, "vllm_server_base_url": None,
        "vllm_server_host": "0.0.0.0", "vllm_server_port": 8000, "vllm_server_timeout": 240.0,
        "vllm_group_port": 51216, "vllm_gpu_memory_utilization": 0.3, "vllm_max_model_length": None,
        "vllm_tensor_parallel_size": 1, "vllm_num_engines": None, "vllm_sync_with_ray": False,
        "include_stop_str_in_output": None, "transformers_continuous_batching_config": None,
    },
    "it belongs to a loss or a term of the loss that is not offered": {
        "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0,
        "ref_model_mixup_alpha": 0.6, "ref_model_sync_steps": 512, "entropy_coef_min": 0.0, "entropy_coef_max": 1.0,
        "entropy_coef_delta": 0.005, "entropy_target": 0.2,
    },
    "models have no dropout, padding changes no result, and there are no tools": {
        "disable_dropout": False, "pad_to_multiple_of": "auto", "use_cache": False, "max_tool_calling_iterations": None,
        "sequence_packing": False,
    },
    "max_prompt_length and max_completion_length bound the lengths": {"max_seq_length": None, "max_len": None},
    "seed decides the first weights of the adapter, too": {"random_state": None},
    "prompts are rendered by the model's own template": {
        "use_custom_chat_template": False, "apply_chat_template": True,
    },
    "the rollout engine makes its batches": {"micro_rollout_batch_size": None},
    "training runs on one device": {
        "gpus": 0, "devices": [0], "use_tmux": False, "tmux_session": None, "tmux_auto_kill": False,
        "zero_stage": None, "actor_num_nodes": None, "actor_num_gpus_per_node": None, "ref_num_nodes": None,
        "ref_num_gpus_per_node": None, "colocate_actor_ref": False,
        "ddp_find_unused_parameters": None, "ddp_bucket_cap_mb": None, "ddp_broadcast_buffers": None,
        "ddp_static_graph": None, "ddp_backend": None, "ddp_timeout": 1800, "ds3_gather_for_generation": True,
        "average_tokens_across_devices": True, "save_on_each_node": False, "accelerator_config": None,
        "log_on_each_node": True,
    },
    "layers are recomputed in one way": {"gradient_checkpointing_use_reentrant": False},
    "there is no data loader": {
        "dataloader_drop_last": False, "dataloader_num_workers": 0, "dataloader_pin_memory": True,
        "dataloader_persistent_workers": False, "dataloader_prefetch_factor": None,
        "dataloader_multiprocessing_context": None, "dataloader_in_order": True, "length_column_name": "length",
        "label_names": None, "dataset_num_proc": None,
    },
    "an evaluation during training draws completions and grades them": {
        "eval_delay": 0, "per_device_eval_batch_size": 8, "eval_accumulation_steps": None,
        "eval_do_concat_batches": True, "eval_use_gather_object": False, "prediction_loss_only": False,
        "include_for_metrics": None, "batch_eval_metrics": False, "bf16_full_eval": False, "fp16_full_eval": False,
    },
    "evaluations follow eval_strategy and eval_steps": {"eval_interval": None},
    "every step is written to metrics.jsonl": {"logging_first_step": False},
    "the completions of every generation are written to files": {
        "print_sample_every": None, "num_completions_to_print": None, "log_unique_prompts": False,
        "wandb_log_unique_prompts": None, "log_multimodal": True,
    },
    "it belongs to a log, a tracker or a hub that is not used": {
        "logging_dir": None, "logging_nan_inf_filter": True, "log_level": "passive", "log_level_replica": "warning",
        "disable_tqdm": None, "run_name": None, "project": "huggingface", "trackio_space_id": None,
        "trackio_bucket_id": None, "trackio_static_space_id": None, "hub_token": None, "hub_private_repo": None,
        "hub_model_id": None, "hub_strategy": "every_save", "hub_always_push": False, "hub_revision": None,
    },
    "checkpoints and adapters go to output_dir": {"save_path": None, "ckpt_path": None},
    "a checkpoint holds the adapter and all that a run needs to go on": {
        "save_hf_ckpt": None, "disable_ds_ckpt": None, "save_safetensors": True,
    },
    "GRPOTrainer.train trains": {"do_train": False},
    "nothing is asked before a run": {"yes": True},
}  # fmt: skip
#: Setting without effect -> why.
_WHY_WITHOUT_EFFECT = {name: why for why, names in WITHOUT_EFFECT.items() for name in names}


def known_names() -> set[str]:
    """Return the names of other programs' settings that are known, those that are refused included."""
    return {"generation_batch_size", *OTHER_NAMES, *NEUTRAL, *_WHY_WITHOUT_EFFECT}


def rename_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by our names, where we have such a setting, with their values in our spelling.

    Those whose value stands for the default are left out. Raises UserError for a setting that is given twice with
    different values.
    """
    renamed = {}
    given_as = {}
    for name, value in settings.items():
        if _stands_for_default(name, value):
            continue
        own_name = OTHER_NAMES.get(name, name)
        value = _in_our_spelling(own_name, value)
        if own_name in renamed and renamed[own_name] != value:
            first = given_as[own_name]
            raise UserError(
                f"{first}={settings[first]!r} and {name}={settings[name]!r} are the same setting, {own_name} in "
                "GRPOConfig: give one of them."
            )
        renamed[own_name] = value
        given_as[own_name] = name
    return renamed


def _stands_for_default(name: str, value: Any) -> bool:
    """Tell whether a value says no more than a setting that is left out."""
    if name == "max_steps":
        return value in (-1, None)  # -1 is TRL's
    return name in OTHER_NAMES and value is None


def _in_our_spelling(name: str, value: Any) -> Any:
    """Return the value of one of our settings, in our spelling where TRL or Unsloth has another."""
    if name == "scale_rewards" and isinstance(value, bool):
        return "group" if value else "none"
    if name == "gradient_checkpointing" and value == "unsloth":
        return True
    return value


def check_foreign_settings(settings: Mapping[str, Any], own: Collection[str]) -> list[str]:
    """Return a sentence about each setting that has no effect here, where its value asks for one.

    settings: of other programs, by names that are none of ours. own: the names of our settings. Raises UserError for
    the first value that asks for something else than this trainer does, and for an unknown name.
    """
    notes = []
    for name, value in settings.items():
        if name in _WHY_WITHOUT_EFFECT:
            why = _WHY_WITHOUT_EFFECT[name]
            if value != WITHOUT_EFFECT[why][name]:
                notes.append(f"{name}={value!r} has no effect here: {why}.")
        elif name in NEUTRAL:
            _check_neutral(name, value)
        else:
            refuse_name(name, own)
    return notes


def _check_neutral(name: str, value: Any) -> None:
    """Raise UserError where a value asks for something else than this trainer does."""
    accepted, why = NEUTRAL[name]
    if value not in accepted:
        otherwise = f" or set it to {accepted[0]!r}" if accepted else ""
        raise UserError(f"{name}={value!r} is not supported, as {why}: leave {name} out{otherwise}.")


def refuse_name(name: str, own: Collection[str]) -> None:
    """Raise UserError for a name that nobody has. own: the names of our settings."""
    known = [*own, *sorted(known_names())]
    close = did_you_mean(name, known)
    nearest = get_close_matches(name.lower(), known, n=1)
    if nearest and nearest[0] in OTHER_NAMES:
        close = f" (did you mean '{nearest[0]}', which is {OTHER_NAMES[nearest[0]]} here?)"
    raise UserError(f"GRPOConfig has no setting '{name}'{close}: help(GRPOConfig) lists those it has.")


def take_generation_batch_size(batch: int, own: dict[str, Any], defaults: type) -> dict[str, Any]:
    """Return our settings with the steps_per_generation that a generation_batch_size of TRL asks for.

    own: our settings as given, which are checked. defaults: the class whose defaults stand in for those that lack.
    Raises UserError for a size that is no multiple of the micro-batch, or that contradicts steps_per_generation.
    """
    check_whole("generation_batch_size", batch, 1)
    rows = own.get("per_device_train_batch_size", defaults.per_device_train_batch_size)
    accumulated = own.get("gradient_accumulation_steps", defaults.gradient_accumulation_steps)
    steps = own.get("steps_per_generation")
    if steps is None:
        if batch % rows:
            raise UserError(f"generation_batch_size={batch} must be a multiple of per_device_train_batch_size={rows}.")
        makes_the_default = batch == rows * accumulated
        return own | {"steps_per_generation": None if makes_the_default else batch // rows}
    if batch != rows * steps:
        raise UserError(
            f"generation_batch_size={batch} is not supported, as it is per_device_train_batch_size * "
            f"steps_per_generation: leave generation_batch_size out or set it to {rows * steps}."
        )
    return own

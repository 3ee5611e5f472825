"""The settings of a TRL script that this trainer does not have: which values of them change nothing here.

The names are those of `GRPOConfig` in TRL 1.16, of `TrainingArguments` in transformers 5.23, which it extends, and of a
few older versions that scripts still use.
"""

from collections.abc import Collection, Mapping

from helpers.runtime import UserError, check_whole, did_you_mean

#: Settings of TRL that have another name here. None stands for our default.
RENAMED = {
    "activation_checkpointing": "gradient_checkpointing",
    "vllm_importance_sampling_correction": "importance_sampling_correction",
    "vllm_importance_sampling_mode": "importance_sampling_mode",
    "vllm_importance_sampling_clip_max": "importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min": "importance_sampling_clip_min",
}

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
    # generation
    "top_p": ((1.0,), "tokens are drawn from the whole distribution, the one whose gradient is taken"),
    "top_k": ((0, None), "tokens are drawn from the whole distribution, the one whose gradient is taken"),
    "min_p": ((None, 0.0), "tokens are drawn from the whole distribution, the one whose gradient is taken"),
    "repetition_penalty": ((1.0,), "tokens are drawn from the model's own distribution, the one that is trained"),
    "generation_kwargs": ((None, {}), "only temperature and max_completion_length can be chosen"),
    "cache_implementation": ((None,), "the rollout engine chooses its cache"),
    "vllm_importance_sampling_cap": ((None,), "it is called importance_sampling_clip_max"),
    "use_vllm": ((False,), "the trained weights write the completions themselves"),
    "use_transformers_continuous_batching": ((False,), "the rollout engine makes its batches"),
    "use_transformers_paged": ((False,), "the rollout engine makes its batches"),
    "shuffle_dataset": ((True,), "prompts are taken in an order that seed decides"),
    "train_sampling_strategy": (("random",), "prompts are taken in an order that seed decides"),
    "group_by_length": ((False,), "prompts are taken in an order that seed decides"),
    "data_seed": ((None,), "seed decides the order of the prompts, too"),
    "remove_unused_columns": ((False,), "reward functions get every column"),
    # model and precision
    "model_init_kwargs": ((None, {}), "load_model makes the model"),
    "trust_remote_code": ((False,), "load_model makes the model"),
    "cast_lm_head_to_fp32": ((False,), "load_model decides the dtype of every weight"),
    "bf16": ((None, False), "load_model decides the dtype, by the profile"),
    "fp16": ((None, False), "load_model decides the dtype, by the profile"),
    "tf32": ((None, False), "the trainer does not switch TF32 on"),
    "use_cpu": ((False,), "the profile decides the device"),
    "no_cuda": ((False,), "the profile decides the device"),
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
    "num_train_epochs": ((), "the length of a run is given in steps, which is max_steps"),
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
    "logging_strategy": (("steps",), "every step is logged"),
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
    "do_predict": ((False,), "evaluations follow eval_strategy and eval_steps"),
    "save_strategy": (("steps",), "checkpoints are written every save_steps steps"),
    "save_only_model": ((False,), "a checkpoint holds all that a run needs to go on"),
    "enable_jit_checkpoint": ((False,), "checkpoints are written between steps"),
    "overwrite_output_dir": ((False,), "a run never overwrites another"),
    "resume_from_checkpoint": ((None, False), "it is an argument of GRPOTrainer.train"),
    "ignore_data_skip": ((False,), "a resumed run goes on with the prompts that come next"),
    "restore_callback_states_from_checkpoint": ((False,), "callbacks are not part of a checkpoint"),
    "push_to_hub": ((False,), "nothing is sent to the hub"),
}

#: Why a setting changes nothing here, whatever its value -> such settings.
WITHOUT_EFFECT = {
    "vLLM is not used": (
        "vllm_mode", "vllm_model_impl", "vllm_enable_sleep_mode", "vllm_structured_outputs_regex",
        "vllm_guided_decoding_regex", "vllm_server_base_url", "vllm_server_host", "vllm_server_port",
        "vllm_server_timeout", "vllm_group_port", "vllm_gpu_memory_utilization", "vllm_max_model_length",
        "vllm_tensor_parallel_size",
        "transformers_continuous_batching_config",
    ),
    "it belongs to a loss or a term of the loss that is not offered": (
        "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg",
        "vespo_lambda_neg", "ref_model_mixup_alpha", "ref_model_sync_steps",
        "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target",
    ),
    "models have no dropout, padding changes no result, and there are no tools": (
        "disable_dropout", "pad_to_multiple_of", "use_cache", "max_tool_calling_iterations",
    ),
    "training runs on one device": (
        "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph", "ddp_backend",
        "ddp_timeout", "ds3_gather_for_generation", "average_tokens_across_devices", "save_on_each_node",
        "accelerator_config",
        "log_on_each_node",
    ),
    "there is no data loader": (
        "dataloader_drop_last", "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers",
        "dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataloader_in_order", "length_column_name",
        "label_names",
    ),
    "an evaluation during training draws completions and grades them": (
        "eval_delay", "per_device_eval_batch_size", "eval_accumulation_steps",
        "eval_do_concat_batches", "eval_use_gather_object", "prediction_loss_only", "include_for_metrics",
        "batch_eval_metrics", "bf16_full_eval", "fp16_full_eval", 
    ),
    "every step is logged": ("logging_steps", "logging_first_step"),
    "it belongs to a log, a tracker or a hub that is not used": (
        "logging_dir", "logging_nan_inf_filter", "log_level", "log_level_replica",
        "log_multimodal", "log_unique_prompts", "wandb_log_unique_prompts", "num_completions_to_print", "disable_tqdm",
        "run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "hub_token",
        "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push", "hub_revision",
    ),
    "GRPOTrainer.train trains, and adapters are always safetensors": ("do_train", "save_safetensors"),
}  # fmt: skip


def check_trl_settings(settings: Mapping, own: Collection[str], has_max_steps: bool) -> None:
    """Raise UserError for the first of `settings` that asks for something else than this trainer does.

    own: the settings that the trainer has; they are known names. has_max_steps: whether the script gives the length of
    the run in steps, which in TRL, too, makes num_train_epochs meaningless.
    """
    without_effect = {name for names in WITHOUT_EFFECT.values() for name in names}
    if has_max_steps:
        without_effect.add("num_train_epochs")
    for name, value in settings.items():
        if name in without_effect:
            continue
        if name not in NEUTRAL:
            refuse_name(name, own)
        accepted, why = NEUTRAL[name]
        if value not in accepted:
            otherwise = f" or set it to {accepted[0]!r}" if accepted else ""
            raise UserError(f"{name}={value!r} is not supported, as {why}: leave {name} out{otherwise}.")


def refuse_name(name: str, own: Collection[str]) -> None:
    """Raise UserError for a name that is none of our `own` settings: it is TRL's, or nobody's."""
    without_effect = [known for names in WITHOUT_EFFECT.values() for known in names]
    of_trl = [*NEUTRAL, *without_effect, *RENAMED, "generation_batch_size"]
    if name in of_trl:
        raise UserError(
            f"'{name}' is a setting of TRL that GRPOConfig does not have: GRPOConfig.from_trl(...) takes the settings "
            "of a TRL script."
        )
    close = did_you_mean(name, [*own, *of_trl])
    raise UserError(f"GRPOConfig has no setting '{name}'{close}: help(GRPOConfig) lists those it has.")


def steps_that_make(batch: int, config: type, settings: Mapping) -> int | None:
    """Return the steps_per_generation that a generation_batch_size of TRL asks for; None: the default makes it.

    config: the class whose defaults stand in for what `settings`, which are checked, lack.
    """
    rows = settings.get("per_device_train_batch_size", config.per_device_train_batch_size)
    accumulated = settings.get("gradient_accumulation_steps", config.gradient_accumulation_steps)
    check_whole("generation_batch_size", batch, 1)
    if batch % rows:
        raise UserError(f"generation_batch_size={batch} must be a multiple of per_device_train_batch_size={rows}.")
    steps = batch // rows
    return None if steps == accumulated else steps

"""Reinforcement learning on gpt-oss, on hardware you have: what the notebooks import.

Importing this package loads nothing heavy; each name below is fetched when first used.
"""

import logging
import os
from importlib import import_module

__version__ = "0.1.0"

# bitsandbytes reports at import that an optional kernel for 4-bit products on the CPU is not there.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

# Caches that grow leave gaps in the GPU's memory; segments that can grow leave none. torch reads this when it first
# allocates on the GPU, under this name from 2.11 on, which is the oldest version here; 2.9 ignores it under this name,
# and up to 2.11 torch warns of the older name. What the user has set under either stands.
if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

#: public name -> module that defines it
_EXPORTS = {
    "AttentionMask": "helpers.kernels.masks",
    "sink_attention": "helpers.kernels.attention",
    "load_model": "helpers.model.load",
    "add_lora": "helpers.model.lora",
    "export_adapter": "helpers.model.export",
    "merge_adapter": "helpers.model.export",
    "trainable_parameters": "helpers.model.lora",
    "weights_digest": "helpers.model.lora",
    "memory_plan": "helpers.model.memory",
    "largest_batch": "helpers.model.memory",
    "attention_problem": "helpers.model.attention",
    "set_attention": "helpers.model.attention",
    "layer_inputs": "helpers.model.probe",
    "probe_layers": "helpers.model.probe",
    "synthetic_inputs": "helpers.model.probe",
    "Harmony": "helpers.rollout.harmony",
    "RolloutEngine": "helpers.rollout.engine",
    "SamplingParams": "helpers.rollout.sampling",
    "speed_report": "helpers.benchmark",
    "Sandbox": "helpers.sandbox",
    "Reward": "helpers.rewards",
    "get_reward": "helpers.tasks",
    "lint_rewards": "helpers.lint",
    "list_presets": "helpers.tasks",
    "list_rewards": "helpers.tasks",
    "register_preset": "helpers.tasks",
    "register_reward": "helpers.tasks",
    "reward_preset": "helpers.tasks",
    "CustomTask": "helpers.tasks",
    "Grade": "helpers.tasks",
    "MatmulTask": "helpers.tasks.matmul.task",
    "Task": "helpers.tasks",
    "get_task": "helpers.tasks",
    "list_tasks": "helpers.tasks",
    "MatmulJudge": "helpers.tasks.matmul.judge",
    "evaluate": "helpers.evaluation",
    "find_fork": "helpers.evaluation",
    "compare": "helpers.evaluation",
    "sample_records": "helpers.evaluation",
    "load_records": "helpers.evaluation",
    "save_records": "helpers.evaluation",
    "GRPOConfig": "helpers.grpo",
    "GRPOTrainer": "helpers.grpo",
    "apply_control": "helpers.grpo",
    "dry_run": "helpers.grpo",
    "read_metrics": "helpers.grpo",
    "TokenWatch": "helpers.grpo",
    "next_token_probabilities": "helpers.grpo",
    "LiveView": "helpers.display",
    "answer_cards": "helpers.display",
    "plot_dumbbells": "helpers.display",
    "plot_forest": "helpers.display",
    "plot_lines": "helpers.display",
    "plot_masks": "helpers.display",
    "plot_payments": "helpers.display",
    "plot_probability": "helpers.display",
    "plot_temperatures": "helpers.display",
    "plot_training": "helpers.display",
    "sink_bars": "helpers.display",
    "sketch": "helpers.display",
    "slider": "helpers.display",
    "stacked_bar": "helpers.display",
    "table": "helpers.display",
    "token_bars": "helpers.display",
    "text_table": "helpers.display",
    "end_early": "helpers.run.training",
    "load_trained": "helpers.run.training",
    "open_run": "helpers.run.opening",
    "parameters_in": "helpers.run.opening",
    "preflight": "helpers.run.preflight",
    "UserError": "helpers.runtime",
    "get_profile": "helpers.profiles",
    "hardware": "helpers.environment",
    "install": "helpers.environment",
    "recover_folder": "helpers.runtime",
    "run_folder": "helpers.runtime",
    "versions": "helpers.environment",
    "write_whole": "helpers.runtime",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name):
    if name not in _EXPORTS:
        raise AttributeError(f"module 'helpers' has no attribute '{name}'")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__():
    return [*globals(), *__all__]

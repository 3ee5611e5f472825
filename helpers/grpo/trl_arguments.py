"""Arguments of TRL's `GRPOTrainer`: which of them have a meaning here, and what to do in place of the others."""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from torch import nn

from helpers.model.lora import TARGETS, add_lora
from helpers.runtime import UserError, did_you_mean

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel

#: Arguments that TRL's trainer has and this one has not -> what to do in their place.
NOT_OFFERED = {
    "tokenizer": "pass it as processing_class",
    "reward_processing_classes": (
        "rewards are functions here, so leave it out; a function may call a reward model with a tokenizer of its own"
    ),
    "optimizers": "the trainer makes its own: choose optim, learning_rate and lr_scheduler_type in GRPOConfig",
    "quantization_config": "the profile decides how weights are stored: load the model with load_model(profile=...)",
    "tools": "this version has no tool calls",
    "rollout_func": "pass an object with a method generate as engine, such as a RolloutEngine",
    "environment_factory": "this version has no environments",
    "ref_model": "the reference is the model without its adapter: set beta in GRPOConfig",
    "compute_metrics": "a reward function may call log_metric",
    "data_collator": "rows go to the reward functions as they are",
    "model_init": "load_model makes the model",
    "preprocess_logits_for_metrics": "a reward function may call log_metric",
}
#: Names of linear layers in other models' configurations that mean the experts of gpt-oss.
EXPERT_NAMES = {"experts", "gate_proj", "up_proj", "down_proj", "gate_up_proj"}
#: Fields of a `LoraConfig` that are translated, or that say nothing about the adapter.
READ_FIELDS = {
    "r", "lora_alpha", "target_modules", "target_parameters", "task_type", "peft_type", "peft_version", "auto_mapping",
    "base_model_name_or_path", "revision", "inference_mode", "runtime_config",
}  # fmt: skip


def refuse_arguments(others: dict, known: Sequence[str]) -> None:
    """Raise UserError for the first argument that the trainer does not have. None is what TRL has without it.

    known: the names of its arguments.
    """
    for name, value in others.items():
        if name not in NOT_OFFERED:
            close = did_you_mean(name, [*known, *NOT_OFFERED])
            raise UserError(f"GRPOTrainer has no argument '{name}'{close}: settings belong into GRPOConfig.")
        is_left_out = value is None or value == (None, None)
        if not is_left_out:
            raise UserError(f"GRPOTrainer has no argument {name}: {NOT_OFFERED[name]}.")


def apply_peft_config(model: nn.Module, config: "LoraConfig", seed: int) -> "PeftModel":
    """Return the model with the adapter that a `LoraConfig` of PEFT asks for, made by `add_lora`.

    seed: of the random matrices. Raises UserError for a configuration that asks for something else.
    """
    from peft import LoraConfig

    if not isinstance(config, LoraConfig):
        raise UserError(f"peft_config must be a peft.LoraConfig; got a {type(config).__name__}.")
    plain = LoraConfig()
    for its_field in fields(config):
        name = its_field.name
        value = getattr(config, name)
        if name not in READ_FIELDS and value != getattr(plain, name):
            raise UserError(f"peft_config has {name}={value!r}, which this version does not offer: leave it out.")
    return add_lora(model, r=config.r, alpha=config.lora_alpha, targets=_targets_of(config), seed=seed)


def _targets_of(config: "LoraConfig") -> tuple[str, ...]:
    """Return the targets of `add_lora` that a configuration stands for: all of them where it names none."""
    if config.target_modules is None and not config.target_parameters:
        return tuple(TARGETS)
    modules = config.target_modules or ()
    if modules == "all-linear":
        modules = TARGETS["attention"]  # the experts of gpt-oss are no linear layers for PEFT
    elif isinstance(modules, str):
        raise UserError(f"peft_config has target_modules={modules!r}: give a list of names, or 'all-linear'.")
    modules = set(modules)
    parameters = set(config.target_parameters or ())
    attention = set(TARGETS["attention"])
    unknown = modules - attention - EXPERT_NAMES
    unknown |= {name for name in parameters if "experts" not in name}
    if unknown:
        names = ", ".join([*TARGETS["attention"], *sorted(EXPERT_NAMES)])
        raise UserError(f"peft_config targets '{min(unknown)}', which cannot be adapted here: choose among {names}.")
    missing = attention - modules
    if missing and missing != attention:
        raise UserError(
            f"peft_config targets some of the attention projections, which are adapted together here: add "
            f"{', '.join(sorted(missing))} to target_modules, or leave all four out."
        )
    targets = []
    if not missing:
        targets.append("attention")
    if modules & EXPERT_NAMES or parameters:
        targets.append("experts")
    return tuple(targets)

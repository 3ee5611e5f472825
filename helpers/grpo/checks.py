"""What a trainer checks of its arguments, before hours of training lead to it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from peft import PeftModel
from torch import nn

from helpers.grpo.callbacks import EVENTS
from helpers.grpo.config import GRPOConfig
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.harmony import check_prompt
from helpers.runtime import UserError

if TYPE_CHECKING:
    from datasets import Dataset

#: More tokens than a chat template adds to a prompt.
TEMPLATE_TOKENS = 256


#: What a data set that is none may be -> how to make one of it.
INTO_DATASET = {
    list: "datasets.Dataset.from_list(rows)",
    tuple: "datasets.Dataset.from_list(list(rows))",
    dict: "datasets.Dataset.from_dict(columns), or choose one of its splits",
    str: "datasets.load_dataset(name, split='train')",
    type(None): "datasets.Dataset.from_list(rows)",
}


def check_model(model: object) -> None:
    """Raise UserError unless a model is loaded. Its adapter is checked by `check_adapter`."""
    if isinstance(model, nn.Module):
        return
    if isinstance(model, str):
        raise UserError(
            f"GRPOTrainer got the name {model!r} in place of a model: load it with "
            f"model, tokenizer = load_model({model!r}) and pass the model."
        )
    raise UserError(f"GRPOTrainer got a {type(model).__name__} in place of a model: pass what load_model returns.")


def check_config(args: object) -> None:
    """Raise UserError for settings of another trainer."""
    if not isinstance(args, GRPOConfig):
        raise UserError(
            f"args is a {type(args).__module__}.{type(args).__name__}: pass a GRPOConfig from helpers, which takes the "
            "settings of TRL's under the same names."
        )


def check_adapter(model: nn.Module) -> None:
    """Raise UserError unless a model has an adapter to train."""
    if not isinstance(model, PeftModel):
        raise UserError(
            "The model has no adapter to train: pass add_lora(model, r=8, alpha=16), or give GRPOTrainer a "
            "peft_config=LoraConfig(...)."
        )
    if not any(weight.requires_grad for weight in model.parameters()):
        raise UserError("No weight of the model can be trained: pass a model with a fresh adapter, from add_lora.")


def check_device(model: nn.Module, args: GRPOConfig) -> None:
    """Raise UserError where use_cpu asks for the CPU and the model is elsewhere."""
    device = next(model.parameters()).device
    if args.use_cpu and device.type != "cpu":
        raise UserError(f"use_cpu=True, and the model is on {device}: load it with load_model(profile='tiny').")


def check_dataset(name: str, dataset: "Dataset") -> None:
    """Raise UserError unless a data set can be trained on."""
    if not all(hasattr(dataset, method) for method in ("column_names", "select", "__len__")):
        kinds = [kind for kind in INTO_DATASET if isinstance(dataset, kind)]
        how = INTO_DATASET[kinds[0]] if kinds else "datasets.Dataset.from_list(list(rows))"
        raise UserError(f"{name} is a {type(dataset).__name__}: make it a Dataset, {how}.")
    if not len(dataset) or "prompt" not in dataset.column_names:
        raise UserError(f"{name} needs at least one row and a column 'prompt'.")


def check_reward_funcs(functions: object) -> list[Callable]:
    """Return reward functions as a list. Raises UserError unless there is one, and each can be called."""
    functions = list(functions) if isinstance(functions, (list, tuple)) else [functions]
    if not functions:
        raise UserError("reward_funcs is empty: give at least one function f(prompts, completions, **columns).")
    for function in functions:
        if isinstance(function, str):
            raise UserError(
                f"reward_funcs holds the text {function!r}: pass a function. get_reward(name) gives one of ours, and a "
                "reward model is called in a function of yours."
            )
        if isinstance(function, nn.Module) or not callable(function):
            raise UserError(
                f"reward_funcs holds a {type(function).__name__}: pass a function f(prompts, completions, **columns) "
                "that returns a number for each completion."
            )
    return functions


def check_tokenizer(tokenizer: object, engine: object) -> None:
    """Raise UserError unless there is an engine, or a tokenizer to make one with."""
    if engine is None and not hasattr(tokenizer, "apply_chat_template"):
        raise UserError(
            f"processing_class is a {type(tokenizer).__name__}: pass the tokenizer that load_model returned, or leave "
            "it out."
        )


def check_callbacks(callbacks: Sequence | None) -> list:
    """Return callbacks as a list. Raises UserError for one that is a class, or has nothing to call."""
    if callbacks is None:
        return []
    if not isinstance(callbacks, (list, tuple)):
        raise UserError(f"callbacks must be a list of objects; got a {type(callbacks).__name__}.")
    for callback in callbacks:
        if isinstance(callback, type):
            name = callback.__name__
            raise UserError(f"callbacks holds the class {name}: pass an object of it, {name}().")
        if not any(hasattr(callback, event) for event in EVENTS):
            raise UserError(
                f"A callback, a {type(callback).__name__}, has none of the methods {', '.join(EVENTS)}: it would never "
                "be called."
            )
    return list(callbacks)


def dataset_digests(dataset: "Dataset") -> dict[str, str]:
    """Return what tells a data set from others, as settings: "prompts", and "answers" for all of its other columns."""
    others = {name: dataset[name][:] for name in sorted(dataset.column_names) if name != "prompt"}
    return {"prompts": _digest(dataset["prompt"][:]), "answers": _digest(others)}


def _digest(values: object) -> str:
    """Return a short digest of plain values. Of others, such as images, the kind counts alone."""
    text = json.dumps(values, default=lambda value: type(value).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_rewards(names: Sequence[str], weights: Sequence[float] | None) -> None:
    """Raise UserError unless rewards can be told apart in the logs and each has a weight."""
    if len(set(names)) < len(names):
        raise UserError(f"Two rewards have one name in {list(names)}: give each function a __name__ of its own.")
    if weights is not None and len(weights) != len(names):
        raise UserError(f"{len(weights)} reward_weights for {len(names)} reward functions.")


def check_prompts(name: str, dataset: "Dataset", engine: RolloutEngine, args: GRPOConfig) -> None:
    """Raise UserError for a prompt that is none, and for one that is too long.

    A token takes at least one byte, so only prompts of many bytes are rendered.
    """
    room = engine.max_length - args.max_completion_length
    for number, prompt in enumerate(dataset["prompt"], 1):
        check_prompt(prompt, f"the prompt of row {number} of {name}")
        if len(json.dumps(prompt)) < room - TEMPLATE_TOKENS:
            continue
        length = engine.prompt_length(prompt)
        if length > room:
            raise UserError(
                f"The prompt of row {number} of {name} has {length} tokens and there is room for {room}: "
                "shorten it, leave it out, or raise max_prompt_length."
            )

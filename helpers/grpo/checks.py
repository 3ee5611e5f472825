"""What a trainer checks of its arguments, before hours of training lead to it."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helpers.grpo.config import GRPOConfig
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.harmony import check_prompt
from helpers.runtime import UserError

if TYPE_CHECKING:
    from datasets import Dataset

#: More tokens than a chat template adds to a prompt.
TEMPLATE_TOKENS = 256


def check_dataset(name: str, dataset: "Dataset") -> None:
    """Raise UserError unless a data set can be trained on."""
    if not len(dataset) or "prompt" not in dataset.column_names:
        raise UserError(f"{name} needs at least one row and a column 'prompt'.")


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

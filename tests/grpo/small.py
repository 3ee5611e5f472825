"""A run of seconds: the embedded model, eight short completions a step, a reward without a clock."""

import hashlib

import torch

from helpers import GRPOConfig, GRPOTrainer, add_lora, load_model
from helpers.grpo import recipe
from helpers.grpo.logprobs import policy_logprobs


def toy_reward(prompts, completions, **_):
    """A fixed pseudo-random number for each text: deterministic, and different within groups."""
    return [hashlib.sha256(c[0]["content"].encode() + c[0]["thinking"].encode()).digest()[0] / 255 for c in completions]


def constant_reward(prompts, completions, **_):
    return [0.1] * len(completions)


def trainer_in(
    folder,
    prompts,
    reward=toy_reward,
    dense="fp32",
    callbacks=None,
    task=None,
    eval_dataset=None,
    path=None,
    **settings,
):
    torch.manual_seed(0)
    model, tokenizer = load_model(path, profile="tiny", dense=dense)
    model = add_lora(model, r=4, alpha=8)
    defaults = {
        "max_steps": 3,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "num_generations": 4,
        "no_signal_steps": None,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_completion_length": 24,
    }
    config = GRPOConfig(str(folder), **{**defaults, **settings})
    return GRPOTrainer(
        model, reward, config, prompts, tokenizer, callbacks=callbacks, task=task, eval_dataset=eval_dataset
    )


def small_recipe(name, **changes):
    """A recipe's settings, without what only makes a run longer or larger."""
    sizes = {
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": None,
        "max_completion_length": 24,
    }
    return recipe(name, **{**sizes, **changes})


def adapter(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters() if weight.requires_grad}


def same(a, b):
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


def timeless(rows):
    return [{key: value for key, value in row.items() if "time" not in key} for row in rows]


def weighted_logprob(trainer, completions, weights):
    """Sum over completions of weight times log-probability under the model as it is now: what a step should raise."""
    with torch.no_grad():
        logprobs, _, mask = policy_logprobs(trainer.model, completions)
    return float((logprobs * mask * weights[:, None]).sum())

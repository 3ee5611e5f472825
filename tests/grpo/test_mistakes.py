"""Likely mistakes in the arguments of the trainer: each is one sentence that says what to do, before any work."""

import subprocess
import sys
from functools import partial

import datasets
import pytest
import torch
from peft import LoraConfig
from torch import nn

from helpers import GRPOConfig, GRPOTrainer, UserError, add_lora, get_task, load_model
from helpers.grpo.advantages import combine_rewards, equal_groups, group_advantages, reward_magnitudes
from helpers.rewards.calling import source_digest
from tests.grpo.small import toy_reward, trainer_in

SHORT = {"max_completion_length": 8, "num_generations": 4, "max_steps": 1}


@pytest.fixture(scope="module")
def loaded():
    return load_model(profile="tiny")


@pytest.fixture(scope="module")
def adapted():
    model, tokenizer = load_model(profile="tiny")
    return add_lora(model, r=4, alpha=8), tokenizer


def refused(words, *positional, **arguments):
    with pytest.raises(UserError) as caught:
        GRPOTrainer(*positional, **arguments)
    message = str(caught.value)
    assert words in message and "\n" not in message, message


def test_a_model_without_an_adapter(loaded, prompts):
    """It was "list index out of range"."""
    refused("has no adapter to train: pass add_lora(", loaded[0], toy_reward, GRPOConfig(), prompts, loaded[1])


def test_an_adapter_that_is_frozen(prompts, tmp_path):
    """One that `load_model(adapter=...)` put on is not trainable."""
    model, tokenizer = load_model(profile="tiny")
    model = add_lora(model, r=4, alpha=8).requires_grad_(False)
    refused("No weight of the model can be trained", model, toy_reward, GRPOConfig(), prompts, tokenizer)


@pytest.mark.parametrize(("model", "words"), [("openai/gpt-oss-20b", "load_model('openai/gpt-oss-20b')"), (3, "a int")])
def test_a_name_in_place_of_a_model(model, words, prompts):
    """TRL takes a name; here the profile decides how a model is loaded."""
    refused(words, model, toy_reward, GRPOConfig(), prompts)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([], "reward_funcs is empty"),
        ("my/reward-model", "holds the text 'my/reward-model': pass a function"),
        ([toy_reward, nn.Linear(1, 1)], "holds a Linear: pass a function"),
        (None, "holds a NoneType: pass a function"),
    ],
)
def test_rewards_that_cannot_be_called(adapted, prompts, functions, words):
    """An empty list was an error of torch about stacking nothing, after the first generation was drawn."""
    refused(words, adapted[0], functions, GRPOConfig(), prompts, adapted[1])


ROWS = [{"prompt": "What is 1 + 1?"}]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (ROWS, "is a list: make it a Dataset, datasets.Dataset.from_list(rows)"),
        ({"prompt": ["a"]}, "is a dict: make it a Dataset, datasets.Dataset.from_dict(columns)"),
        (datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS)), "or choose one of its splits"),
        (datasets.Dataset.from_list(ROWS).to_iterable_dataset(), "datasets.Dataset.from_list(list(rows))"),
        ((row for row in ROWS), "is a generator: make it a Dataset"),
        ("gsm8k", "datasets.load_dataset(name, split='train')"),
        (None, "train_dataset is a NoneType"),
        (datasets.Dataset.from_list([{"question": "a"}]), "a column 'prompt'"),
    ],
)
def test_data_that_are_no_data_set(adapted, data, words):
    """`'list' object has no attribute 'column_names'`."""
    refused(words, adapted[0], toy_reward, GRPOConfig(), data, adapted[1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tokenizer": object()}, "no argument tokenizer: pass it as processing_class"),
        ({"reward_processing_classes": [object()]}, "rewards are functions here"),
        ({"optimizers": (object(), None)}, "choose optim, learning_rate"),
        ({"tools": [print]}, "no tool calls"),
        ({"learning_rate": 1.0}, "settings belong into GRPOConfig"),
        ({"procesing_class": 1}, "did you mean 'processing_class'"),
    ],
)
def test_arguments_of_trl_that_have_no_meaning_here(adapted, prompts, arguments, words):
    """A TypeError names the argument and not what to do."""
    refused(words, adapted[0], toy_reward, GRPOConfig(), prompts, **arguments)


def test_trls_defaults_of_such_arguments_say_nothing(adapted, prompts, tmp_path):
    args = GRPOConfig(str(tmp_path))
    GRPOTrainer(adapted[0], toy_reward, args, prompts, optimizers=(None, None), reward_processing_classes=None)


@pytest.mark.parametrize("args", [{"learning_rate": 1.0}, "run"])
def test_settings_of_another_kind(adapted, prompts, args):
    refused("pass a GRPOConfig from helpers", adapted[0], toy_reward, args, prompts)


def test_use_cpu_on_another_device(prompts):
    """use_cpu=True was refused even where the model was on the CPU."""
    model, tokenizer = load_model(profile="tiny", dense="fp32")
    model = add_lora(model, r=4, alpha=8).to("meta")
    refused("use_cpu=True, and the model is on meta", model, toy_reward, GRPOConfig(use_cpu=True), prompts, tokenizer)


def test_a_name_in_place_of_a_tokenizer(adapted, prompts):
    refused("processing_class is a str: pass the tokenizer", adapted[0], toy_reward, GRPOConfig(), prompts, "gpt-oss")


def test_the_tokenizer_is_found_beside_the_model(adapted, prompts, tmp_path):
    """TRL's quick start passes none."""
    trainer = GRPOTrainer(adapted[0], toy_reward, GRPOConfig(str(tmp_path), use_cpu=True, **SHORT), prompts)
    assert trainer.processing_class.get_vocab() == adapted[1].get_vocab()
    assert trainer.generate(0).completions


PEFT = {
    "attention and experts": ({}, ("self_attn", "experts")),
    "all-linear": ({"target_modules": "all-linear"}, ("self_attn",)),
    "the guides' list": (
        {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]},
        ("self_attn", "experts"),
    ),
    "parameters": ({"target_parameters": ["7.mlp.experts.gate_up_proj"]}, ("experts",)),
}


@pytest.mark.parametrize("name", PEFT)
def test_a_peft_config_makes_the_adapter(prompts, tmp_path, name):
    """TRL's trainer takes one, and the scripts of guides give one."""
    settings, parts = PEFT[name]
    model, tokenizer = load_model(profile="tiny")
    config = LoraConfig(r=2, lora_alpha=6, task_type="CAUSAL_LM", **settings)
    args = GRPOConfig(str(tmp_path), seed=3, **SHORT)
    trainer = GRPOTrainer(model, toy_reward, args, prompts, tokenizer, peft_config=config)
    names = [name for name, weight in trainer.model.named_parameters() if weight.requires_grad]
    assert [part for part in ("self_attn", "experts") if any(part in name for name in names)] == list(parts)
    assert trainer.model.active_peft_config.r == 2 and trainer.model.active_peft_config.lora_alpha == 6
    targets = tuple({"self_attn": "attention", "experts": "experts"}[part] for part in parts)
    by_hand = add_lora(load_model(profile="tiny")[0], r=2, alpha=6, targets=targets, seed=3)
    expected = [weight for weight in by_hand.parameters() if weight.requires_grad]
    assert all(torch.equal(a, b) for a, b in zip(trainer.weights, expected, strict=True))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (LoraConfig(lora_dropout=0.1), "lora_dropout=0.1, which this version does not offer"),
        (LoraConfig(use_dora=True), "use_dora=True"),
        (LoraConfig(target_modules=["q_proj", "v_proj"]), "add k_proj, o_proj to target_modules"),
        (LoraConfig(target_modules=["router"]), "targets 'router', which cannot be adapted here"),
        (LoraConfig(target_modules=".*proj"), "give a list of names, or 'all-linear'"),
        ({"r": 8}, "must be a peft.LoraConfig; got a dict"),
    ],
)
def test_a_peft_config_that_asks_for_something_else(loaded, prompts, config, words):
    """An adapter without the dropout that was asked for would be another experiment."""
    refused(words, loaded[0], toy_reward, GRPOConfig(), prompts, loaded[1], peft_config=config)


def test_an_adapter_and_a_peft_config(adapted, prompts):
    refused("has an adapter already", adapted[0], toy_reward, GRPOConfig(), prompts, peft_config=LoraConfig())


def test_the_models_own_balancing_coefficient(tmp_path, prompts):
    """None means it in TRL, and 0 does not."""
    trainer = trainer_in(tmp_path, prompts, router_aux_loss_coef=None, **SHORT)
    assert trainer.args.router_aux_loss_coef == trainer.model.config.router_aux_loss_coef == 0.9
    assert trainer.settings()["router_aux_loss_coef"] == 0.9


# Rewards that cancel


def advantages(rewards, weights=None):
    """Of one group."""
    rewards_BR = torch.tensor(rewards, dtype=torch.float64)
    totals_B, magnitudes_B = combine_rewards(rewards_BR, weights), reward_magnitudes(rewards_BR, weights)
    return group_advantages(totals_B[None], magnitudes_GN=magnitudes_B[None])[0]


def test_rewards_that_cancel_are_equal():
    """0.1 + 0.2 - 0.3 is 5.6e-17, which AdamW made a full step of."""
    assert not advantages([[0.1, 0.2, -0.3], [0.0, 0.0, 0.0], [0.3, 0.0, -0.3]]).any()
    assert not advantages([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0]], weights=[1.0, 1.0, -1.0]).any()
    assert not advantages([[1000.3, -1000.2], [0.1, 0.0]]).any()


def test_small_differences_count():
    """Rewards of 1e-6 that differ are no rounding, and nor is a tenth beside terms of a thousand."""
    assert advantages([[1e-6, 0.0], [0.0, 0.0]]).any()
    assert advantages([[1000.3, -1000.2], [0.2, 0.0]]).any()
    assert equal_groups(torch.tensor([[0.1, 0.1]])).all() and not equal_groups(torch.tensor([[0.1, 0.2]])).any()


# NaN


def test_a_nan_is_counted_and_none_is_not(tmp_path, prompts):
    """NaN became None in silence, so a reward that computed 0 / 0 for half of the answers was never found."""

    def some(prompts, completions, **_):
        return [float("nan"), None, *toy_reward(prompts, completions)[2:]]

    trainer = trainer_in(tmp_path, prompts, reward=some, **SHORT)
    step = next(trainer.steps())
    assert step.metrics["completions/nan_reward_ratio"] == 1 / 8
    assert any("12% of the completions got NaN" in sign for sign in step.metrics["monitor/signs"])


def test_a_run_ends_where_every_reward_is_nan(tmp_path, prompts):
    """There is nothing to go on for; one number among them is something."""

    def all_nan(prompts, completions, trainer_state, **_):
        good = toy_reward(prompts, completions)
        count = {0: 0, 1: len(good) - 1}.get(trainer_state.global_step, len(good))
        return [*[float("nan")] * count, *good[count:]]

    trainer = trainer_in(tmp_path, prompts, reward=all_nan, **{**SHORT, "max_steps": 5})
    with pytest.raises(UserError, match="Every completion got NaN .* Training stopped after step 3, which is saved"):
        trainer.train()


# The source of a reward


def one(prompts, completions, **_):
    return [1.0] * len(completions)


class Callable:
    def __init__(self, pay=1.0):
        self.pay = pay

    def __call__(self, prompts, completions, **_):
        return [self.pay] * len(completions)


def paying(pay):
    def reward(prompts, completions, **_):
        return [pay] * len(completions)

    return reward


#: Code without a source, whose text holds an address and the order of a set.
COMPILED = "def f(x): return [(lambda: y)() for y in {'a', 'b', 'c'}]"


def test_the_source_of_a_reward():
    """A reward of the same name pays something else after an edit, and a resumed run mixed the two in silence."""
    other = "def one(prompts, completions, **_):\n    return [{}] * len(completions)\n"
    halves, thirds = {}, {}
    exec(other.format("0.5"), halves)
    exec(other.format("0.3"), thirds)
    found = [source_digest(function) for function in (one, Callable(), halves["one"], thirds["one"])]
    assert len(set(found)) == 4
    assert source_digest(one) == found[0] and source_digest(Callable()) == found[1]
    made = [paying(1), paying(2), Callable(2.0), partial(one, t=1), partial(one, t=2), *get_task("math").reward_funcs]
    made += [*get_task("matmul").reward_funcs, Callable(1.0).__call__, Callable(2.0).__call__]
    assert len({*found, *map(source_digest, made)}) == len(found) + len(made)
    assert source_digest(paying(2)) == source_digest(made[1])


def test_the_source_of_a_reward_is_the_same_in_every_process():
    """Each resume said that the reward had changed, as the text of compiled code holds addresses."""
    program = f"from helpers.rewards.calling import source_digest\nexec({COMPILED!r})\nprint(source_digest(f))"
    told = {subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout for _ in range(2)}
    assert len(told) == 1 and len(told.pop().strip()) == 16

"""A whole update beside TRL's: the gradient of every LoRA matrix, attention and experts, on the embedded model.

TRL trains stock transformers under stock PEFT, with the adapter that `export_adapter` writes. Its rollout returns our
completions and its reward function our rewards; its own code scores, compares, cuts and differentiates.
"""

import pytest
import torch

trl = pytest.importorskip("trl", reason="TRL is not installed here: make test-trl sets up an environment with it.")

from datasets import Dataset  # noqa: E402
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import GptOssForCausalLM  # noqa: E402

from helpers import export_adapter, get_task  # noqa: E402
from helpers.profiles import PROFILES  # noqa: E402
from tests.benchmarks.models import embedded_tokenizer  # noqa: E402
from tests.grpo.small import trainer_in  # noqa: E402

SIZES = {
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 100,
}
COUNT = SIZES["per_device_train_batch_size"] * SIZES["gradient_accumulation_steps"]


@pytest.fixture(scope="module")
def prompts():
    return get_task("matmul").dataset("train", 12)


def in_stock_layout(trainer, values, folder):
    """name -> tensor as stock PEFT keeps an adapter, of one tensor for each trained weight."""
    kept = [weight.detach().clone() for weight in trainer.weights]
    for weight, value in zip(trainer.weights, values, strict=True):
        weight.data.copy_(value)
    export_adapter(trainer.model, folder)
    for weight, value in zip(trainer.weights, kept):
        weight.data.copy_(value)
    return load_file(folder / "adapter_model.safetensors")


def move(weights, seed, size):
    """Add noise to every weight."""
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        weight.data.add_(size * torch.randn(weight.shape, generator=generator))


class TrlUpdate:
    """TRL's trainer with the same adapter, fed with one of our generations."""

    def __init__(self, trainer, generation, folder, uses_sampler, **settings):
        self.generation = generation
        self.folder = folder
        self.exports = 0
        model = GptOssForCausalLM.from_pretrained(
            PROFILES["tiny"].model, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
        )
        export_adapter(trainer.model, folder / "adapter")
        lora = LoraConfig.from_pretrained(folder / "adapter")
        lora.inference_mode = False
        config = trl.GRPOConfig(
            str(folder / "trl"), **SIZES, **settings, num_iterations=2, use_cpu=True, bf16=False, report_to="none",
            router_aux_loss_coef=0.0, gradient_checkpointing=False,
        )  # fmt: skip
        self.trainer = trl.GRPOTrainer(
            model,
            self.reward,
            config,
            Dataset.from_dict({"prompt": ["a"] * COUNT}),
            processing_class=embedded_tokenizer(),
            peft_config=lora,
            rollout_func=self.rollout,
        )
        if uses_sampler:  # what TRL does where vLLM draws
            self.trainer.use_vllm = True
            self.trainer._last_loaded_step = self.trainer.state.global_step
        self.trainer.model.train()
        self.trainer.current_gradient_accumulation_steps = SIZES["gradient_accumulation_steps"]

    def reward(self, completions, **_):
        return self.generation.rewards[:, 0].tolist()

    def rollout(self, prompts, trainer):
        completions = self.generation.completions
        return {
            "prompt_ids": [completion.prompt_ids for completion in completions],
            "completion_ids": [completion.token_ids for completion in completions],
            "logprobs": [completion.logprobs for completion in completions],
        }

    def take_weights(self, trainer):
        """Take over the adapter of our trainer."""
        self.exports += 1
        weights = in_stock_layout(trainer, trainer.weights, self.folder / f"weights-{self.exports}")
        found = set_peft_model_state_dict(self.trainer.model, weights)
        assert not found.unexpected_keys

    def take_generation(self):
        """Score the completions under the weights as they are; returns the first micro-batch."""
        self.trainer._step = 0
        return self.trainer._prepare_inputs([{"prompt": "a"}] * COUNT)

    def gradient(self, first):
        """name -> gradient, and the loss, of the optimizer step that starts with this micro-batch."""
        trainer = self.trainer
        batches = [first]
        for trainer._step in range(1, SIZES["gradient_accumulation_steps"]):
            batches.append(trainer._prepare_inputs([{"prompt": "a"}] * COUNT))
        total = 0.0
        for batch in batches:
            loss = trainer._compute_loss(trainer.model, batch)
            loss.backward()
            total += loss.item()
        gradients = {name: weight.grad for name, weight in trainer.model.named_parameters() if weight.requires_grad}
        return total, get_peft_model_state_dict(trainer.model, state_dict=gradients)


def compare(folder, prompts, uses_sampler=False, **settings):
    """Compare loss, advantages and gradients of a second step on a generation, which has ratios other than 1."""
    correction = {"importance_sampling_correction": uses_sampler, "importance_sampling_mode": "token_truncate"}
    trainer = trainer_in(folder / "ours", prompts, **SIZES, **settings, **correction, num_iterations=2)
    move(trainer.weights, 0, 0.02)
    generation = trainer.generate(0)
    assert {completion.finish_reason for completion in generation.completions} == {"stop", "length"}
    if uses_sampler:
        for completion in generation.completions:
            completion.logprobs = [value - 0.2 * (n % 3) for n, value in enumerate(completion.logprobs)]
    trl_settings = dict(settings)
    if uses_sampler:
        trl_settings["vllm_importance_sampling_mode"] = "token_truncate"
    theirs = TrlUpdate(trainer, generation, folder, uses_sampler, **trl_settings)
    theirs.take_weights(trainer)
    first = theirs.take_generation()
    trainer.backward(generation)  # notes the old log-probabilities

    move(trainer.weights, 1, 0.1)
    theirs.take_weights(trainer)
    trainer.state.global_step += 1
    metrics = trainer.backward(generation).metrics()
    assert metrics["ratio/min"] < 0.9 and metrics["ratio/max"] != 1, "the weights have hardly moved"
    ours = in_stock_layout(trainer, [weight.grad for weight in trainer.weights], folder / "gradients")
    loss, gradients = theirs.gradient(first)

    by_trl = sorted(theirs.trainer._logs["advantages"])
    assert sorted(generation.advantages.tolist()) == pytest.approx(by_trl, rel=1e-4, abs=1e-5)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-5)
    assert set(ours) == set(gradients)
    flat = torch.cat([ours[name].flatten() for name in sorted(ours)])
    wanted = torch.cat([gradients[name].flatten() for name in sorted(ours)])
    assert wanted.norm() > 0
    assert (flat - wanted).norm() < 5e-5 * wanted.norm()


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "dapo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "scale_rewards": "none"},
        {"loss_type": "dr_grpo", "scale_rewards": "batch", "epsilon_high": 0.28, "delta": 1.5},
        {"loss_type": "cispo", "epsilon_high": 1.2},
        {"loss_type": "sapo"},
        {"loss_type": "dapo", "beta": 0.04},
        {"loss_type": "dapo", "beta": 0.04, "use_bias_correction_kl": False},
        {"loss_type": "grpo", "mask_truncated_completions": True},
    ],
    ids=str,
)
def test_gradients_of_the_adapter(tmp_path, prompts, settings):
    """All between the completions and the optimizer, kernels, padding and position ids included, as in TRL."""
    compare(tmp_path, prompts, **settings)


def test_gradients_with_importance_weights(tmp_path, prompts):
    """A sampler that differs from the trainer, as TRL corrects it where vLLM draws."""
    compare(tmp_path, prompts, uses_sampler=True, loss_type="dapo")

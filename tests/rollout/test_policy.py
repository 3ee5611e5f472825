"""The sampler is the policy that the trainer scores: its weights, its adapters, and every log-probability."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict

from helpers import RolloutEngine, SamplingParams, add_lora, load_model, weights_digest
from helpers.grpo.logprobs import policy_logprobs
from helpers.model.lora import register_layers
from helpers.profiles import PROFILES
from helpers.rollout.backends import captured

T4 = {"dtype": "float16", "experts": "mxfp4", "dense": "fp16", "embedding": "host"}
# of fp32 in a log-probability: over 5,000 tokens 1e-5 at most, with an adapter and at temperature 0.6 up to 3.6e-5
ROUNDING = 4e-5
BF16 = {"dtype": "bfloat16", "experts": "mxfp4", "dense": "bf16"}


@torch.no_grad()
def train_like(model, size=0.1, seed=0):
    """Give every B random values, as training does: with B = 0 an adapter that is left out goes unseen."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name or "lora_" in name and "_B." in name:
            weight.add_(torch.randn(weight.shape, generator=generator) * size)
    return model


def load(targets=("attention", "experts"), **changes):
    """The embedded model, by default in fp32, adapted unless `targets` is empty; and its tokenizer."""
    changes = {"dense": "fp32", **changes}
    model, tokenizer = load_model(profile=replace(PROFILES["tiny"], **changes))
    torch.manual_seed(0)
    if targets:
        model = train_like(add_lora(model, r=8, alpha=16, targets=targets))
    return model, tokenizer


def engine_over(model, tokenizer, **settings):
    return RolloutEngine(model, tokenizer, **{"max_batch_size": 8, "max_length": 1024, **settings})


def answers(completions):
    return [completion.token_ids for completion in completions]


def differences(model, completions, temperature=1.0):
    """|the sampler's log-probability - the trainer's| of every token."""
    with torch.no_grad():
        logprobs, entropy, mask = policy_logprobs(model, completions, temperature)
    assert mask.sum(1).tolist() == [len(completion.token_ids) for completion in completions]
    assert (entropy[mask > 0] >= -1e-6).all()
    sampled = torch.nn.utils.rnn.pad_sequence([torch.tensor(c.logprobs) for c in completions], batch_first=True)
    assert logprobs.shape == sampled.shape
    return (logprobs - sampled).abs()[mask > 0]


@torch.no_grad()
def errors(model, completions, temperature=1.0):
    """|the sampler's log-probability - that of the model's last hidden states| of every token, the rest in float64."""
    causal_lm = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = causal_lm.lm_head.weight.double()
    found = []
    for completion in completions:
        ids = torch.tensor([completion.prompt_ids + completion.token_ids])
        hidden = causal_lm.model(input_ids=ids).last_hidden_state[0, len(completion.prompt_ids) - 1 : -1]
        exact = (hidden.double() @ head.T / temperature).log_softmax(-1)
        exact = exact.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        found.append((exact - torch.tensor(completion.logprobs)).abs())
    return torch.cat(found)


@pytest.mark.parametrize("backend", ["captured", "transformers"])
@pytest.mark.parametrize(("dense", "temperature"), [("fp32", 1.0), ("fp32", 0.6), ("nf4", 1.0)])
def test_sampler_and_trainer_agree_on_every_token(prompts, backend, temperature, dense):
    """If the two disagree the policy gradient is that of another model.

    The trainer's own rounding is the larger: it subtracts a logarithm from a logit of 27, at 1.4e-5.
    """
    model, tokenizer = load(dense=dense)
    asked = [*prompts, [{"role": "user", "content": "Hello, who are you?"}]]  # of which the model knows nothing
    completions = engine_over(model, tokenizer, backend=backend).generate(asked, SamplingParams(100, temperature))
    assert sum(len(completion.token_ids) for completion in completions) > 200
    gap = differences(model, completions, temperature)
    with model.disable_adapter():
        from_base = differences(model, completions, temperature)
    assert from_base.max() > 0.5 and from_base.mean() > 5e-3  # the adapter makes another policy
    assert gap.max() < 5e-5 and gap.mean() < 1e-5
    error = errors(model, completions, temperature)
    assert error.max() < ROUNDING and error.mean() < 1e-6


@pytest.mark.parametrize("targets", [(), ("attention",), ("experts",)], ids=str)
def test_each_target_alone(prompts, targets):
    """Attention and experts are adapted in different places of the step."""
    model, tokenizer = load(targets)
    completions = engine_over(model, tokenizer).generate(prompts, SamplingParams(60))
    assert errors(model, completions).max() < ROUNDING


@pytest.mark.parametrize(
    ("changes", "most"),
    [(T4, 1e-4), ({**T4, "dense": "nf4"}, 1e-3), (BF16, 1e-3), ({**BF16, "experts": "bf16", "dense": "nf4"}, 1e-3)],
    ids=["t4", "t4 nf4", "bf16", "bf16 nf4"],
)
@pytest.mark.parametrize("targets", [(), ("attention", "experts")], ids=["base", "adapted"])
def test_they_agree_in_sixteen_bits(prompts, changes, most, targets):
    """A gap here is a ratio other than one on the very policy that was sampled.

    The mean, as a token may change an expert where two of the router's logits are the same but for rounding; the
    median tells whether the sampler rounds where the trainer rounds.
    """
    model, tokenizer = load(targets, **changes)
    engine = engine_over(model, tokenizer)
    completions = []
    for seed in (2, 3, 4):
        completions += engine.generate(prompts, SamplingParams(60, seed=seed))
    gap = differences(model, completions)
    assert gap.mean() < most and gap.median() < 1e-5
    if targets:
        with model.disable_adapter():
            assert differences(model, completions).mean() > 10 * most


def surprise(completions):
    """Log-probabilities to three digits: two weak adapters may well draw the same tokens."""
    return [[round(value, 3) for value in completion.logprobs] for completion in completions]


@pytest.mark.parametrize("uses", [0, 10**9], ids=["traced", "eager"])
def test_adapters_switched_off_are_off(prompts, monkeypatch, uses):
    """The base's answers of an evaluation come from a trained model whose adapter is switched off."""
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", uses)
    base, tokenizer = load(())
    model, _ = load()
    params = SamplingParams(50, 1.5, seed=1)
    engine = engine_over(model, tokenizer)
    adapted = engine.generate(prompts, params)
    with model.disable_adapter():
        switched_off = engine.generate(prompts, params)
    assert answers(switched_off) == answers(engine_over(base, tokenizer).generate(prompts, params))
    assert surprise(switched_off) != surprise(adapted)
    captures = engine.backend.captures
    assert engine.generate(prompts, params) == adapted
    with model.disable_adapter():
        assert engine.generate(prompts, params) == switched_off
    assert engine.backend.captures == captures and (captures > 0) == (uses == 0)  # both were kept


def optimizer_steps(model, completions, count):
    """Real steps that make the completions likelier."""
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], 3e-3)
    for _ in range(count):
        optimizer.zero_grad()
        logprobs, _, mask = policy_logprobs(model, completions)
        (-(logprobs * mask).sum() / mask.sum()).backward()
        optimizer.step()


@pytest.mark.parametrize("dense", ["fp32", "nf4"])
def test_an_optimizer_step_shows_in_the_next_rollout(prompts, monkeypatch, dense):
    """An engine that kept old weights would sample off-policy from the second step on; capturing anew takes seconds."""
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", 0)
    model, tokenizer = load(dense=dense)
    params = SamplingParams(40, 1.3, seed=1)
    engine = engine_over(model, tokenizer)
    before = engine.generate(prompts, params)
    captures = engine.backend.captures
    assert captures > 0
    optimizer_steps(model, before[:2], 3)
    after = engine.generate(prompts, params)
    assert engine.backend.captures == captures
    assert answers(after) != answers(before)
    assert after == engine_over(model, tokenizer).generate(prompts, params)
    assert errors(model, after, 1.3).max() < ROUNDING


def test_merged_adapters(prompts, monkeypatch):
    """Merging changes the base's bytes in place, and may do so twice: with other values, at the same address."""
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", 0)
    model, tokenizer = load()
    params = SamplingParams(50, 1.5, seed=1)
    engine = engine_over(model, tokenizer)
    before = engine.generate(prompts, params)
    for _ in range(2):
        model.merge_adapter()
        merged = engine.generate(prompts, params)
        assert errors(model, merged, 1.5).max() < ROUNDING
        model.unmerge_adapter()
        again = engine.generate(prompts, params)
        assert errors(model, again, 1.5).max() < ROUNDING
        assert answers(before) == answers(merged) == answers(again)
        train_like(model, seed=1)  # other values, so that the next merge is another
        before = engine.generate(prompts, params)
        assert surprise(before) != surprise(again)


def test_another_adapter(prompts):
    """A second adapter that is switched to, and values that are loaded into the first, as on resuming."""
    model, tokenizer = load()
    params = SamplingParams(50, 1.5, seed=1)
    engine = engine_over(model, tokenizer)
    first = engine.generate(prompts, params)
    kept = {name: weight.clone() for name, weight in get_peft_model_state_dict(model).items()}

    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "experts"]
    config = LoraConfig(r=2, lora_alpha=4, task_type="CAUSAL_LM", target_modules=modules)
    model.add_adapter("other", register_layers(config))
    model.set_adapter("other")
    train_like(model, seed=3)
    other = engine.generate(prompts, params)
    assert surprise(other) != surprise(first)
    assert errors(model, other, 1.5).max() < ROUNDING

    model.set_adapter("default")  # `train_like` has changed this one too
    assert surprise(engine.generate(prompts, params)) != surprise(first)
    set_peft_model_state_dict(model, kept)
    assert answers(engine.generate(prompts, params)) == answers(first)


@pytest.mark.parametrize(
    "context",
    [nullcontext, torch.no_grad, torch.inference_mode, partial(torch.autocast, "cpu", torch.bfloat16)],
    ids=["plain", "no_grad", "inference_mode", "autocast"],
)
@pytest.mark.parametrize("dense", ["fp32", "nf4"])
def test_a_rollout_leaves_the_model_as_it_was(prompts, context, dense):
    """Query, key and value matrices move into one: values, gradients and what may be trained must not.

    Matrices made in inference mode could not be trained through any more; autocast would round what is drawn from.
    """
    model, tokenizer = load(dense=dense)
    model.train()
    engine = engine_over(model, tokenizer)
    given = engine_over(model, tokenizer, backend="transformers").generate(prompts, SamplingParams(8))

    def gradients():
        model.zero_grad()
        policy_logprobs(model, given)[0].sum().backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}

    before, digest = gradients(), weights_digest(model)
    with context():
        first = engine.generate(prompts, SamplingParams(20))
    after = gradients()
    assert model.training and weights_digest(model) == digest
    assert before.keys() == after.keys() == {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all(torch.allclose(before[name], after[name], rtol=1e-4, atol=1e-6) for name in before)
    assert engine.generate(prompts, SamplingParams(20)) == first

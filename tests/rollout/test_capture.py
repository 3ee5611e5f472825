"""A step that was recorded does what the step itself does, whatever changes between two rollouts."""

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, add_lora, load_model
from helpers.rollout.backends import Request, captured
from tests.rollout.test_policy import BF16, T4, load, train_like

NEVER = 10**9


@pytest.fixture(scope="module")
def adapted():
    """An adapted model of its own."""
    model, tokenizer = load_model(profile="tiny", dense="fp32")
    return train_like(add_lora(model, r=8, alpha=16)), tokenizer


def engines(monkeypatch, model, tokenizer, uses=0):
    """Two engines as functions: one whose steps are traced after so many uses, one whose steps never are."""
    both = {uses: None, NEVER: None}
    for number in both:
        both[number] = RolloutEngine(model, tokenizer, max_batch_size=6, max_length=1024)

    def generating(number):
        def generate(*arguments, **settings):
            monkeypatch.setattr(captured, "USES_BEFORE_TRACE", number)
            found = both[number].generate(*arguments, **settings)
            assert (both[number].backend.captures > 0) == (number == uses)
            return found

        return generate

    return generating(uses), generating(NEVER)


@pytest.mark.parametrize(
    ("choice", "adapt", "uses"),
    [
        ({}, False, 0),
        ({}, True, 1),
        ({"temperature": 0.0}, True, 0),
        ({"top_k": 40, "top_p": 0.95, "min_p": 0.001}, True, 5),
    ],
    ids=["full", "full, adapted", "greedy, adapted", "trimmed, adapted"],
)
def test_traced_as_eager(model, tokenizer, adapted, prompts, monkeypatch, choice, adapt, uses):
    """Bit for bit: tokens and log-probabilities, across lengths, refilled rows and smaller buckets."""
    if adapt:
        model, tokenizer = adapted
    traced, eager = engines(monkeypatch, model, tokenizer, uses)
    params = SamplingParams(**{"max_new_tokens": 70, "temperature": 1.3, "seed": 5, **choice})
    assert traced(prompts, params, num_generations=2) == eager(prompts, params, num_generations=2)


def test_recording_is_no_step(model, random_ids, monkeypatch):
    """To record a step is to run it, once more than the host counts: at the next length a row would look a place short.

    A prompt of 57 tokens and eight steps fill the first length to its last place.
    """
    found = []
    for uses in (0, NEVER):
        monkeypatch.setattr(captured, "USES_BEFORE_TRACE", uses)
        backend = captured.CapturedBackend(model, max_batch_size=2, max_length=200)
        backend.sync()
        requests = [Request(random_ids(captured.LENGTH_STEP - 7, seed), seed) for seed in range(2)]
        found.append(dict(backend.generate(requests, SamplingParams(captured.LENGTH_STEP + 8), [])))
    assert found[0] == found[1]


def test_every_setting_may_change_between_rollouts(model, tokenizer, prompts, monkeypatch):
    """A recorded step computes with constants once: a setting that is one stays as it was at the first rollout."""
    traced, eager = engines(monkeypatch, model, tokenizer)
    common = eager(prompts, SamplingParams(30))[0].token_ids[12]
    for choice in (
        {"top_k": 50}, {"top_k": 2}, {"top_k": 10**6}, {"top_p": 0.3}, {"top_p": 0.99}, {"min_p": 0.5}, {"min_p": 0.01},
        {"temperature": 0.3}, {"temperature": 3.0}, {"temperature": 0.7, "top_k": 9}, {"seed": 3}, {"seed": 4},
        {"max_new_tokens": 5}, {"max_new_tokens": 1}, {"stop_token_ids": (common,)}, {"stop_token_ids": ()},
    ):  # fmt: skip
        params = SamplingParams(**{"max_new_tokens": 20, "temperature": 1.5, **choice})
        assert traced(prompts, params) == eager(prompts, params), choice


def test_weights_may_change_in_place(prompts, monkeypatch):
    """Not only the adapter's: whatever lies where it lay is read anew, or the sampler is not the model any more."""
    model, tokenizer = load()
    traced, eager = engines(monkeypatch, model, tokenizer)
    params = SamplingParams(20, 1.3)
    causal_lm = model.get_base_model()
    layer = causal_lm.model.layers[1]
    first = traced(prompts, params)
    for weight in (
        causal_lm.lm_head.weight, causal_lm.model.norm.weight, causal_lm.model.embed_tokens.weight,
        layer.self_attn.q_proj.base_layer.weight, layer.self_attn.sinks, layer.input_layernorm.weight,
        layer.mlp.router.weight, layer.mlp.router.bias, layer.mlp.experts.base_layer.gate_up_proj,
        layer.self_attn.v_proj.base_layer.bias, layer.mlp.experts.base_layer.down_proj_bias,
        layer.self_attn.v_proj.lora_A.default.weight, layer.mlp.experts.lora_down_B["default"],
    ):  # fmt: skip
        before = weight.detach().clone()
        with torch.no_grad():
            weight.mul_(1.7)
        changed = traced(prompts, params)
        assert changed == eager(prompts, params) and changed != first
        with torch.no_grad():
            weight.copy_(before)
    assert traced(prompts, params) == first


@pytest.mark.parametrize("changes", [T4, BF16, {"experts": "mxfp4"}], ids=["t4", "bf16", "mxfp4"])
def test_experts_that_cannot_be_recorded(prompts, monkeypatch, changes):
    """Expert by expert, the sizes are read on the host: a recorded step would keep those of its first tokens.

    Once it raised "unordered_map::at" instead, at the step at which it was to be recorded.
    """
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", 3)
    model, tokenizer = load(**changes)
    engine = RolloutEngine(model, tokenizer, max_batch_size=4, max_length=1024)
    usual = engine.generate(prompts, SamplingParams(40))
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", NEVER)
    eager = RolloutEngine(model, tokenizer, max_batch_size=4, max_length=1024)
    assert usual == eager.generate(prompts, SamplingParams(40))


def test_a_second_rollout_captures_nothing(model, tokenizer, prompts, monkeypatch):
    """What was recorded is kept, else every training step pays for it again."""
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", 0)
    engine = RolloutEngine(model, tokenizer, max_batch_size=8, max_length=1024)
    first = engine.generate(prompts, SamplingParams(40), num_generations=2)
    captures = engine.backend.captures
    assert captures >= 2  # two lengths at least
    assert engine.generate(prompts, SamplingParams(40), num_generations=2) == first
    engine.generate(prompts, SamplingParams(40, 0.7, seed=1), num_generations=2)
    assert engine.backend.captures <= captures + 2  # fewer rows may have been left at other lengths

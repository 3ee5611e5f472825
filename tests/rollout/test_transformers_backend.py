"""The cache of transformers' `generate`."""

import pytest
from transformers import DynamicCache

from helpers import SamplingParams
from helpers.rollout.backends import Request
from helpers.rollout.backends import transformers as backend
from helpers.rollout.backends.transformers import TransformersBackend


@pytest.fixture
def draw(model, tokenizer, random_ids):
    """A function that draws completions of three prompts, two of them longer than the sliding window."""
    window = model.config.sliding_window
    lengths = [3 * window + 5, window - 9, 2 * window]
    requests = [Request(random_ids(length, seed=number), number) for number, length in enumerate(lengths)]

    def generate():
        drawing = TransformersBackend(model, tokenizer, max_batch_size=2)
        return list(drawing.generate(requests, SamplingParams(12, temperature=1.3), stop_ids=[]))

    return generate


def tokens_in_memory(tensor):
    """Tokens for which the storage of a layer's keys or values has room. tensor: [B, Hkv, T, D]."""
    return tensor.untyped_storage().nbytes() // tensor[:, :, 0].nbytes


def test_sliding_layers_let_go_of_the_prompt(model, draw):
    """They kept views of it, and with them as much memory as the full layers."""
    window = model.config.sliding_window
    sizes = {True: [], False: []}

    def measure(module, args, kwargs, output):
        for layer in output.past_key_values.layers:
            sizes[layer.is_sliding] += [tokens_in_memory(layer.keys), tokens_in_memory(layer.values)]

    hook = model.register_forward_hook(measure, with_kwargs=True)
    try:
        draw()
    finally:
        hook.remove()
    assert max(sizes[False]) > 3 * window  # so the cache of the longest prompt was among them
    assert max(sizes[True]) <= window


def test_the_completions_are_those_of_transformers_own_cache(draw, monkeypatch):
    """Tokens and log-probabilities, to the last bit."""
    ours = draw()
    monkeypatch.setattr(backend, "_empty_cache", lambda config: DynamicCache(config=config))
    assert ours == draw()

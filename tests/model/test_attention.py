import pytest
import torch

from helpers import set_attention

TEXTS = ["<|start|>user<|message|>Use zip.<|end|>", "<|start|>user<|message|>" + "Use nested loops. " * 60 + "<|end|>"]


@pytest.fixture
def batch(tokenizer):
    return tokenizer(TEXTS, padding=True, return_tensors="pt")


@torch.no_grad()
def last_logits(model, **inputs):
    return model(**inputs).logits[:, -1]


@pytest.fixture(autouse=True)
def restore(model):
    yield
    set_attention(model, "auto")


@pytest.mark.parametrize("backend", ["auto", "eager", "sdpa", "flex"])
def test_padded_batch_equals_its_rows_alone(model, tokenizer, batch, backend):
    """A mask that is off by one pad lets a row see its neighbour's length."""
    set_attention(model, backend)
    together = last_logits(model, **batch)
    for row, text in enumerate(TEXTS):
        alone = last_logits(model, **tokenizer(text, return_tensors="pt"))
        assert (together[row] - alone[0]).abs().max() < 5e-5


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flex"])
def test_equal_to_transformers_eager(model, batch, backend):
    seen = batch.attention_mask.bool()
    with torch.no_grad():
        set_attention(model, backend)
        ours = model(**batch).logits[seen]
        model.set_attn_implementation("eager")
        theirs = model(**batch).logits[seen]
    assert (ours - theirs).abs().max() < 5e-5


@pytest.mark.parametrize("backend", ["auto", "eager", "sdpa", "flex"])
def test_cached_decode_equals_full_forward(model, tokenizer, backend):
    """Decoding stands far behind position 0, and the sliding cache forgets: both shift the mask."""
    set_attention(model, backend)
    ids = tokenizer(TEXTS[1] * 2, return_tensors="pt").input_ids
    assert ids.shape[1] > 2 * model.config.sliding_window
    with torch.no_grad():
        full = model(ids).logits
        cache = model(ids[:, :100], use_cache=True).past_key_values
        chunk = model(ids[:, 100:140], past_key_values=cache, use_cache=True).logits
        steps = [
            model(ids[:, n : n + 1], past_key_values=cache, use_cache=True).logits for n in range(140, ids.shape[1])
        ]
    assert (torch.cat([chunk, *steps], 1) - full[:, 100:]).abs().max() < 5e-5


def test_sinks_matter(model, batch):
    """Learned and used: a sink far below every score changes what the model says."""
    before = last_logits(model, **batch)
    sinks = [layer.self_attn.sinks for layer in model.model.layers]
    kept = [sink.data.clone() for sink in sinks]
    for sink in sinks:
        sink.data.fill_(-1e9)
    without = last_logits(model, **batch)
    for sink, value in zip(sinks, kept):
        sink.data.copy_(value)
    assert (before - without).abs().max() > 1e-2

from functools import partial

import pytest
import torch

from helpers import AttentionMask, UserError, attention_problem, set_attention
from helpers.model.attention import attention_mask, check_attention

TEXTS = ["<|start|>user<|message|>Use zip.<|end|>", "<|start|>user<|message|>" + "Use nested loops. " * 60 + "<|end|>"]
BACKENDS = ["eager", "sdpa", "flex"]


@pytest.fixture
def batch(tokenizer):
    return tokenizer(TEXTS, padding=True, padding_side="left", return_tensors="pt")


@torch.no_grad()
def last_logits(model, **inputs):
    return model(**inputs).logits[:, -1]


@pytest.fixture(autouse=True)
def restore(model):
    yield
    set_attention(model, "auto")


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_padded_batch_equals_its_rows_alone(model, tokenizer, batch, backend):
    """A mask that is off by one pad lets a row see its neighbour's length."""
    set_attention(model, backend)
    together = last_logits(model, **batch)
    for row, text in enumerate(TEXTS):
        alone = last_logits(model, **tokenizer(text, return_tensors="pt"))
        assert (together[row] - alone[0]).abs().max() < 5e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_to_transformers_eager(model, batch, backend):
    seen = batch.attention_mask.bool()
    with torch.no_grad():
        set_attention(model, backend)
        ours = model(**batch).logits[seen]
        model.set_attn_implementation("eager")
        theirs = model(**batch).logits[seen]
    assert (ours - theirs).abs().max() < 5e-5


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_equal_transformers_eager(model, tokenizer, backend, side):
    """Of the loss on a padded batch, to the sinks and what makes queries, keys and values, in every layer."""
    batch = tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt")
    seen, ids = batch.attention_mask.bool(), batch.input_ids
    weights = {n: w for n, w in model.named_parameters() if "self_attn.sinks" in n or "input_layernorm" in n}
    assert len(weights) == 2 * model.config.num_hidden_layers

    def gradients():
        logprobs = model(**batch).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        return torch.autograd.grad(logprobs[seen[:, 1:] & seen[:, :-1]].sum(), list(weights.values()))

    for weight in weights.values():
        weight.requires_grad_()
    try:
        set_attention(model, backend)
        ours = gradients()
        model.set_attn_implementation("eager")
        theirs = gradients()
    finally:
        for weight in weights.values():
            weight.requires_grad_(False)
    for name, gradient, wanted in zip(weights, ours, theirs):
        assert wanted.any() and (gradient - wanted).norm() < 1e-4 * wanted.norm(), name


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_cached_decode_equals_full_forward(model, tokenizer, backend):
    """Decoding stands far behind position 0, and the sliding cache forgets: both shift the mask."""
    set_attention(model, backend)
    texts = [TEXTS[1] + TEXTS[1][: len(TEXTS[1]) // 4], TEXTS[1]]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
    ids, seen = batch.input_ids, batch.attention_mask
    length = ids.shape[1]
    assert length > 2 * model.config.sliding_window and 20 < int((seen == 0).sum()) < 100
    with torch.no_grad():
        full = model(**batch).logits
        cache = model(ids[:, :100], attention_mask=seen[:, :100], use_cache=True).past_key_values
        steps = [(100, 140), *((n, n + 1) for n in range(140, length))]
        parts = [
            model(ids[:, a:b], attention_mask=seen[:, :b], past_key_values=cache, use_cache=True).logits
            for a, b in steps
        ]
    assert (torch.cat(parts, 1) - full[:, 100:]).abs().max() < 5e-5


#: Greedy, from prompts of 12 to 180 tokens padded on the left, so that rows cross the window at different steps.
NEW, ROWS = 256, 5


def generate(model, **options):
    return model.generate(max_new_tokens=NEW, do_sample=False, eos_token_id=None, **options)


@pytest.fixture(scope="module")
def prompts(loaded):
    texts = [f"<|start|>user<|message|>Add {n} and {n + 3}. " + "Use zip. " * (n * n) for n in range(ROWS - 1)]
    batch = loaded[1]([*texts, TEXTS[1]], padding=True, padding_side="left", return_tensors="pt")
    lengths = batch.attention_mask.sum(1)
    assert lengths.min() < 30 < 150 < lengths.max()
    return batch


@pytest.fixture(scope="module")
def alone(loaded, prompts):
    """Each row by itself, with transformers' own attention."""
    model, rows = loaded[0], []
    model.set_attn_implementation("eager")
    for ids, seen in zip(prompts.input_ids, prompts.attention_mask.bool()):
        own = ids[seen][None]
        rows.append(generate(model, input_ids=own, attention_mask=torch.ones_like(own))[0, own.shape[1] :])
    return rows


@pytest.mark.parametrize(
    ("backend", "cache"),
    [
        ("auto", "dynamic"),
        ("auto", "static"),
        ("sdpa", "static"),
        pytest.param("flex", "dynamic", marks=pytest.mark.slow),
        ("flex", "static"),
    ],
)
def test_generation_under_left_padding_is_each_row_alone(model, prompts, alone, backend, cache, monkeypatch):
    """The incumbent decodes with eager because its flex "returns gibberish" here; in transformers 5.23 flex meets a
    static cache with an error, and builds two block masks in each step."""
    built, create = [], AttentionMask.__init__
    monkeypatch.setattr(AttentionMask, "__init__", lambda self, *a, **k: (built.append(a), create(self, *a, **k))[1])
    set_attention(model, backend)
    out = generate(model, **prompts, **({"cache_implementation": "static"} if cache == "static" else {}))
    for row, wanted in zip(out[:, prompts.input_ids.shape[1] :], alone):
        assert torch.equal(row, wanted)  # no tie was close enough here to be broken by rounding
    if cache == "static":
        assert len(built) <= 4, "prefill and decoding, full and sliding: all later steps move their masks"


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_packed_rows_are_documents_alone(model, tokenizer, backend):
    """Transformers has no packing for gpt-oss: restarting position_ids isolates nothing. A dict of our masks does."""
    set_attention(model, backend)
    rows = [tokenizer(text, return_tensors="pt").input_ids for text in reversed(TEXTS)]
    ids = torch.cat(rows, 1)
    documents = torch.cat([torch.full_like(row, n) for n, row in enumerate(rows)], 1)
    positions = torch.cat([torch.arange(row.shape[1]) for row in rows])[None]
    masks = {
        kind: AttentionMask(1, ids.shape[1], ids.shape[1], window=window, document_ids=documents)
        for kind, window in (("full_attention", None), ("sliding_attention", model.config.sliding_window))
    }
    with torch.no_grad():
        packed = model(ids, attention_mask=masks, position_ids=positions).logits
        alone = torch.cat([model(row).logits for row in rows], 1)
    assert (packed - alone).abs().max() < 5e-5


def test_a_decoding_mask_is_not_shared_with_a_graph():
    """One token with a gradient: its mask is still needed in the backward pass, when decoding has moved on."""
    with torch.enable_grad():
        first, second = (attention_mask(1, 1, 8, q_offset=n) for n in (3, 4))
    assert first is not second
    with torch.no_grad():
        first = attention_mask(1, 1, 8, q_offset=torch.tensor(3))
        second = attention_mask(1, 1, 8, q_offset=torch.tensor(4))
        other = attention_mask(1, 1, 8, q_offset=torch.tensor(4), local_size=2)
    assert first is second and other is not second
    assert second.dense()[0, 0, 0].sum() == 5 and other.dense()[0, 0, 0].sum() == 2


def test_a_mask_made_in_inference_mode_is_not_moved_outside_it():
    """The rollout engine decodes in inference mode, a user's `generate` without: tensors of the one cannot be written
    in the other."""
    for context in (torch.inference_mode, torch.no_grad, torch.inference_mode, torch.no_grad):
        with context():
            mask = attention_mask(1, 1, 8, q_offset=torch.tensor(4))
            assert mask.dense().sum() == 5


def test_the_cache_counts_on_in_its_own_tensor():
    """Transformers' static cache adds to the offset it handed out, before the layer attends."""
    counter = torch.tensor(3)
    mask = attention_mask(1, 2, 8, q_offset=counter)
    counter.add_(2)
    assert mask.dense()[0, 0].sum(-1).tolist() == [4, 5]


@pytest.mark.parametrize("queries", [4, 1])
def test_holes_in_a_mask_are_refused(queries):
    """Taken for left padding, a hole would be seen; padding on the right is one as soon as a token follows it."""
    rows = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 1]])
    make = partial(attention_mask, q_length=queries, kv_length=4, q_offset=4 - queries)
    with torch.no_grad():
        with pytest.raises(ValueError, match=r"attention_mask \[2, 4\] has holes: to generate, pad on the left"):
            make(2, attention_mask=rows.bool())
        with pytest.raises(ValueError, match=r"attention_mask \[1, 4\] has a row without any token: leave it out"):
            make(1, attention_mask=torch.zeros(1, 4).bool())
        for fine in ([1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]):
            make(1, attention_mask=torch.tensor([fine]).bool())


def test_dropout_is_refused(model, batch):
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    model.train()
    try:
        with pytest.raises(
            ValueError, match=r"got dropout 0.1 for q \[2, \d+, \d+, \d+\]: set config.attention_dropout"
        ):
            model(**batch)
    finally:
        model.eval()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.0


def test_unknown_backend_is_refused(model):
    with pytest.raises(ValueError, match="backend must be one of auto, eager, sdpa, flex, got 'flash'"):
        set_attention(model, "flash")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kernels-community/vllm-flash-attn3", "forwards only"),
        ("flash_attention_3", "forwards only"),
        ("flash_attention_2", "no sinks"),
        ("sdpa", "no sinks"),
        ("flex_attention", "16 bits"),
        ("something_new", "nobody has shown"),
    ],
)
def test_attention_that_cannot_train_is_named(model, name, reason):
    assert reason in attention_problem(name)
    assert attention_problem("eager") is attention_problem("sinks_auto") is None
    model.config._attn_implementation = name
    with pytest.raises(UserError, match=f"Attention '{name}' cannot be trained .*{reason}.* set_attention"):
        check_attention(model)

import pytest
import torch
from transformers import GptOssConfig

from helpers import UserError, get_task, layer_inputs, probe_layers, set_attention, sink_attention, synthetic_inputs
from helpers.model.probe import COMPARED
from tests.kernels.attention import BOUNDS

LIMITS = {"float32": (2e-6, 1e-5)} | {str(dtype).removeprefix("torch."): limits for dtype, limits in BOUNDS.items()}
CONFIG = GptOssConfig(num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=1)


def rounded_lse(q, k, v, sinks, mask, *, scale):
    """The log-sum-exp goes through 16 bits before the sink, in fp32, is applied."""
    none = torch.full_like(sinks, -1e4)
    output, lse = sink_attention(q, k, v, none, mask, scale=scale, backend="flex", return_lse=True)
    kept = torch.sigmoid(lse.to(q.dtype).float() - sinks[:, None])
    return (output.float() * kept.unsqueeze(-1)).to(q.dtype)


@pytest.fixture
def recorded(model, tokenizer):
    texts = [row[0]["content"] for row in get_task("matmul").dataset("monitor", 7)["prompt"]]
    texts = [texts[0], " ".join(texts[1:])]
    return layer_inputs(model, **tokenizer(texts, padding=True, padding_side="left", return_tensors="pt"))


def test_every_layer_is_recorded(model, recorded):
    kinds = ["sliding" if kind == "sliding_attention" else "full" for kind in model.config.layer_types]
    assert [(layer.layer, layer.kind) for layer in recorded] == list(enumerate(kinds))
    assert recorded[0].mask.window == model.config.sliding_window and recorded[1].mask.window is None
    assert all(torch.equal(x.sinks, model.model.layers[x.layer].self_attn.sinks) for x in recorded)


@pytest.mark.parametrize("backend", ["flex", "sdpa"])
def test_backends_stay_within_bounds_in_every_layer_of_the_model(recorded, backend):
    rows = probe_layers(recorded, backend)
    assert len(rows) == 3 * len(recorded)
    for row in rows:
        for n, name in enumerate(COMPARED):
            assert 0 < row[name] < LIMITS[row["dtype"]][n > 0], row


def test_a_wrong_backend_is_seen_in_the_layers_where_it_is_wrong(recorded):
    """One sink dropped, in sliding layers only: the probe must point there."""

    def wrong(q, k, v, sinks, mask, *, scale):
        if mask.window:
            sinks = sinks.clone().index_fill(0, torch.tensor([1]), -1e4)
        return sink_attention(q, k, v, sinks, mask, scale=scale, backend="sdpa")

    for row in probe_layers(recorded, wrong, dtypes=(torch.float32,)):
        assert (row["output"] > 1e-3) == (row["dsinks"] > 0.02) == (row["kind"] == "sliding"), row


def test_rounding_the_lse_costs_more_where_it_is_large():
    """What "flash output rescaled by LSE drifts" can come from."""
    errors = {}
    for score in (1, 8):
        for name, attention in (("kept", "flex"), ("rounded", rounded_lse)):
            rows = probe_layers(synthetic_inputs(CONFIG, 200, score=score), attention, dtypes=(torch.bfloat16,))
            errors[score, name] = max(row["output"] for row in rows)
    assert errors[8, "kept"] < 5e-3
    assert errors[8, "rounded"] > 5 * errors[8, "kept"] and errors[8, "rounded"] > 2 * errors[1, "rounded"]


def test_synthetic_sinks_take_what_was_asked_for():
    for sink, share in ((-4, 0.02), (0, 0.5), (4, 0.98)):
        for layer in synthetic_inputs(CONFIG, 300, sink=sink):
            _, lse = sink_attention(*layer[2:7], scale=layer.scale, backend="eager", return_lse=True)
            taken = torch.sigmoid(layer.sinks[:, None] - lse)[..., 200:]
            assert abs(taken.mean() - share) < 0.1, (layer.kind, sink)


def test_stock_attention_cannot_be_recorded(model):
    model.set_attn_implementation("eager")
    try:
        with pytest.raises(UserError, match="call set_attention"):
            layer_inputs(model, input_ids=torch.tensor([[1, 2, 3]]))
    finally:
        set_attention(model, "auto")

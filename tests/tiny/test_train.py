import pytest
import torch

from helpers import load_model
from helpers.tiny import train as tiny
from tests.conftest import CHECKPOINT


def trained(tokenizer, seed, steps=4):
    model = tiny.new_model(seed)
    loss = tiny.train(model, tokenizer, steps, seed + 1, log=lambda *_, **__: None)
    return model, loss


def test_same_seed_same_bytes(tokenizer):
    """`make tiny` can be repeated by anyone with the same versions."""
    first, again, other = (tiny.packed_state(trained(tokenizer, seed, steps=2)[0]) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.slow
def test_loss_falls(tokenizer):
    short, long = trained(tokenizer, 0, steps=3)[1], trained(tokenizer, 0, steps=30)[1]
    assert long < 0.9 * short


def test_packing_loses_nothing_of_what_was_trained(tokenizer, tmp_path):
    """The last phase trains through the rounding, so the saved experts are those that the loss saw."""
    model, _ = trained(tokenizer, 0)
    assert any("parametrizations" in name for name, _ in model.named_parameters())
    tiny.save(model, tokenizer, tmp_path)
    loaded, _ = load_model(tmp_path, profile="tiny", dense="fp32")
    for ours, theirs in zip(model.model.layers, loaded.model.layers):
        assert torch.equal(ours.mlp.experts.gate_up_proj, theirs.mlp.experts.gate_up_proj)
        assert torch.equal(ours.mlp.experts.down_proj, theirs.mlp.experts.down_proj)


def test_gradient_passes_straight_through():
    weight = torch.randn(2, 64, 4, requires_grad=True)
    tiny.Mxfp4Rounding()(weight).sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))


def test_shipped_config_is_the_one_in_the_code():
    """A checkpoint older than its recipe could not be made again."""
    import json
    from pathlib import Path

    assert json.loads((Path(CHECKPOINT) / "config.json").read_text()) == tiny.CONFIG


def test_prompt_tokens_weigh_less(tokenizer):
    ids, weights = tiny.Batches(tokenizer, 0).encode()
    prompt = tokenizer.decode(ids[weights < 1])
    assert prompt.startswith("<|start|>system") and prompt.endswith("<|start|>assistant")
    assert set(weights.tolist()) == {1.0, torch.tensor(tiny.PROMPT_WEIGHT).item()}

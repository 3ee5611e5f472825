import json

import pytest
import torch

from helpers import UserError, add_lora, load_model, trainable_parameters
from helpers.model.lora import check_trainable, save_adapter


@pytest.fixture
def fresh():
    return load_model(profile="tiny", dense="fp32")[0]


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        # r (in + out) for each matrix; four layers, hidden 128, q 128, kv 64
        (("attention",), 4 * 4 * (2 * (128 + 128) + 2 * (128 + 64))),
        # each of eight experts: gate_up 128 -> 256, down 128 -> 128
        (("experts",), 4 * 4 * 8 * ((128 + 256) + (128 + 128))),
    ],
)
def test_exactly_the_targets_train(fresh, targets, count):
    """A published run trained attention only while its config named the experts: nobody had counted."""
    sizes = trainable_parameters(add_lora(fresh, r=4, alpha=8, targets=targets))
    assert sum(sizes.values()) == count


def test_the_same_adapter_is_the_same_bytes(fresh, tmp_path):
    """PEFT writes a set in the order of the process's hashes, so the resumed run's adapter was another file."""
    save_adapter(add_lora(fresh, r=4, alpha=8), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert config["target_parameters"] == ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"]


def test_fresh_adapter_changes_nothing_and_gets_a_gradient(fresh):
    ids = torch.arange(40)[None]
    before = fresh(ids).logits
    adapted = add_lora(fresh, r=4, alpha=8)
    output = adapted(ids).logits
    assert torch.equal(output, before)
    output.square().mean().backward()
    names = {
        name for name, weight in adapted.named_parameters() if weight.grad is not None and weight.grad.abs().sum() > 0
    }
    for part in ("q_proj", "k_proj", "v_proj", "o_proj", "mlp.experts"):
        assert any(part in name and "lora_B" in name for name in names), part


@pytest.mark.parametrize("targets", [("head",), ()])
def test_unknown_target_is_one_sentence(fresh, targets):
    with pytest.raises(UserError, match="LoRA targets are attention, experts"):
        add_lora(fresh, r=4, alpha=8, targets=targets)


def test_a_target_that_matches_nothing_is_an_error():
    with pytest.raises(UserError, match="nothing to adapt"):
        add_lora(torch.nn.Sequential(torch.nn.Linear(4, 4)), r=2, alpha=4, targets=("attention",))


def test_stray_or_half_precision_weights_are_refused(fresh):
    adapted = add_lora(fresh, r=4, alpha=8)
    weight = next(weight for weight in adapted.parameters() if weight.requires_grad)
    weight.data = weight.data.half()
    with pytest.raises(UserError, match="must be float32"):
        check_trainable(adapted)
    weight.data = weight.data.float()
    adapted.get_base_model().model.norm.weight.requires_grad_()
    with pytest.raises(UserError, match="Only LoRA"):
        check_trainable(adapted)

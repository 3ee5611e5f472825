import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from helpers import UserError, add_lora, load_model, set_attention, trainable_parameters
from helpers.model.lora import adapter_norm, check_trainable, save_adapter
from helpers.runtime import ROOT


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


def test_the_sinks_stay_as_they_were_released(fresh):
    """02_attention says so: a backend that loses their gradient is wrong, but not by that alone here."""
    adapted = add_lora(fresh, r=4, alpha=8)
    assert not any(layer.self_attn.sinks.requires_grad for layer in adapted.get_base_model().model.layers)
    assert all("lora_" in name for name in trainable_parameters(adapted))


def test_the_same_adapter_is_the_same_bytes(fresh, tmp_path):
    """PEFT writes a set in the order of the process's hashes, so the resumed run's adapter was another file."""
    save_adapter(add_lora(fresh, r=4, alpha=8), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == ["experts", "k_proj", "o_proj", "q_proj", "v_proj"]


def test_saving_an_adapter_asks_the_hub_nothing(fresh, tmp_path, monkeypatch):
    """PEFT asked at every checkpoint, of a model that knows where it comes from, as those of `from_pretrained` do."""
    requests = []
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr("peft.utils.other.file_exists", lambda *name, **_: requests.append(name))
    fresh.name_or_path = fresh.config._name_or_path = "openai/gpt-oss-20b"
    adapted = add_lora(fresh, r=2, alpha=4)
    assert adapted.active_peft_config.base_model_name_or_path == "openai/gpt-oss-20b"
    save_adapter(adapted, tmp_path)
    assert requests == []
    assert all("lora_" in name for name in load_file(tmp_path / "adapter_model.safetensors"))


def test_the_norm_of_an_adapter_is_that_of_its_update(fresh):
    """Against the update itself, which a large model has no room for; a fresh adapter has moved nothing."""
    adapted = add_lora(fresh, r=4, alpha=12)
    assert adapter_norm(adapted) == 0
    generator = torch.Generator().manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "_B." in name:
            weight.data = torch.randn(weight.shape, generator=generator)
    total = 0.0
    for layer in fresh.model.layers:
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            total += getattr(layer.self_attn, projection).get_delta_weight("default").square().sum()
        lora = layer.mlp.experts.adapter()
        for a, b in ((lora[0], lora[1]), (lora[2], lora[3])):
            total += (lora.scaling * b @ a).square().sum()
    assert adapter_norm(adapted) == pytest.approx(total.sqrt().item(), rel=1e-5)


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
    for part in ("q_proj.lora_B", "k_proj.lora_B", "v_proj.lora_B", "o_proj.lora_B", "lora_gate_up_B", "lora_down_B"):
        assert sum(part in name for name in names) == 4, part


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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kernels-community/vllm-flash-attn3", "FlashAttention 3 computes sinks forwards only"),
        ("flash_attention_2", "it has no sinks"),
        ("flex_attention", "to 16 bits"),
    ],
)
def test_attention_without_a_gradient_for_the_sinks_is_refused(fresh, name, reason):
    """It trains without a word, on a wrong gradient."""
    fresh.config._attn_implementation_internal = name
    with pytest.raises(UserError, match=f"'{name}' cannot be trained with gpt-oss: .*{reason}"):
        add_lora(fresh, r=2, alpha=4)


@pytest.mark.parametrize("backend", ["auto", "sdpa", "eager", "flex"])
def test_our_attention_is_not(fresh, backend):
    set_attention(fresh, backend)
    add_lora(fresh, r=2, alpha=4)


ADAPT = """
import sys
from helpers import add_lora, load_model
model, _ = load_model(profile="tiny", dense=sys.argv[1])
add_lora(model, 4, 8)
print("torchao" in sys.modules)
"""


@pytest.mark.parametrize("dense", ["fp32", pytest.param("nf4", marks=pytest.mark.slow)])
def test_colabs_old_torchao_is_left_alone(tmp_path, dense):
    """PEFT raised ImportError for the torchao 0.10.0 that Colab has installed, at the first `add_lora` there."""
    (tmp_path / "torchao").mkdir()
    (tmp_path / "torchao" / "__init__.py").write_text("raise RuntimeError('imported')")
    info = tmp_path / "torchao-0.10.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchao\nVersion: 0.10.0\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    run = subprocess.run(
        [sys.executable, "-c", ADAPT, dense], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines()[-1] == "False" and run.stderr == ""


def test_a_package_that_peft_refuses_is_one_sentence(fresh, monkeypatch):
    """PEFT raises ImportError for more packages than torchao, and a page of its insides does not name the remedy."""

    def refuse(*_, **__):
        raise ImportError("Found an incompatible version of somequant.\nMore lines.")

    monkeypatch.setattr("helpers.model.lora.get_peft_model", refuse)
    with pytest.raises(UserError, match="incompatible version of somequant.*uninstall") as caught:
        add_lora(fresh, r=4, alpha=8)
    assert "\n" not in str(caught.value)

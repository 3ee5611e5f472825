"""What leaves the project must be the same model in stock transformers and stock PEFT."""

import json
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import UserError, add_lora, export_adapter, load_model, merge_adapter
from helpers.model.export import unpacked_weight
from helpers.model.lora import save_adapter
from helpers.profiles import PROFILES

IDS = torch.randint(0, 800, (1, 150), generator=torch.Generator().manual_seed(0))
TARGETS = [("attention", "experts"), ("attention",), ("experts",)]


@torch.no_grad()
def logits(model):
    return model.eval()(IDS).logits


def trained(dense, targets=TARGETS[0]):
    """A few real steps, so that A and B are what training makes of them."""
    torch.manual_seed(0)
    model = add_lora(load_model(profile="tiny", dense=dense, experts="mxfp4")[0], r=4, alpha=8, targets=targets)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], 5e-3)
    for _ in range(3):
        loss = -model(IDS).logits.log_softmax(-1)[:, :-1].gather(-1, IDS[:, 1:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def stock(ours):
    """Stock transformers in fp32 on the dense weights that `ours` computes with."""
    model = AutoModelForCausalLM.from_pretrained(
        load_model(profile="tiny")[0].config._name_or_path, dtype=torch.float32
    )
    model.float()
    for theirs, mine in zip(model.model.layers, ours.get_base_model().model.layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            layer = getattr(mine.self_attn, name)
            getattr(theirs.self_attn, name).weight.data = unpacked_weight(getattr(layer, "base_layer", layer))
    return model


def distance(a, b):
    return float((a - b).abs().max() / b.abs().max())


@pytest.mark.parametrize(
    ("dense", "targets"), [("fp32", TARGETS[0]), ("nf4", TARGETS[0]), ("fp32", TARGETS[1]), ("fp32", TARGETS[2])]
)
def test_export_in_stock_peft(dense, targets, tmp_path):
    model = trained(dense, targets)
    export_adapter(model, tmp_path / "exported")
    base = stock(model)
    before = logits(base)
    theirs = logits(PeftModel.from_pretrained(base, str(tmp_path / "exported")))
    assert distance(logits(model), theirs) < 1e-5 < 1e-2 < distance(before, theirs)
    config = json.loads((tmp_path / "exported/adapter_config.json").read_text())
    assert sorted(config["target_parameters"] or []) == (
        ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"] if "experts" in targets else []
    )


@pytest.mark.parametrize("dense", ["fp32", "nf4"])
def test_merge_in_stock_transformers(dense, tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.model.export.SHARD", 2**20)
    model = trained(dense)
    assert merge_adapter(model, tmp_path / "merged", "float32") < 1e-5
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    assert distance(logits(model), logits(merged)) < 1e-5
    assert len(list((tmp_path / "merged").glob("model-*.safetensors"))) > 2
    text = "<|start|>user<|message|>Hello<|end|>"
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "merged")(text).input_ids
        == load_model(profile="tiny")[1](text).input_ids
    )
    assert merged.generation_config.eos_token_id == model.generation_config.eos_token_id


def test_what_rounding_loses_is_reported(tmp_path):
    """A small update vanishes beside a large weight: in 16 bits most of an early run is gone."""
    model = trained("fp32")
    lost = [merge_adapter(model, tmp_path / dtype, dtype) for dtype in ("float32", "float16", "bfloat16")]
    assert lost[0] < 1e-4 < lost[1] < lost[2] < 1.2
    for name, weight in model.named_parameters():
        if "lora_B" in name or name.endswith("_B.default"):
            weight.data /= 1000
    assert merge_adapter(model, tmp_path / "small", "bfloat16") > 0.9


def test_the_active_adapter_is_the_one_that_leaves(tmp_path):
    """PEFT's function for the tensors takes the one named "default", whichever is active."""
    model = trained("fp32")
    want = logits(model)
    save_adapter(model, tmp_path)
    model.load_adapter(tmp_path, "kept")
    for name, weight in model.named_parameters():
        if ".default" in name:
            weight.data.zero_()
    model.set_adapter("kept")
    export_adapter(model, tmp_path / "exported")
    assert distance(logits(PeftModel.from_pretrained(stock(model), str(tmp_path / "exported"))), want) < 1e-5


def test_a_merged_folder_has_the_embedding_that_eight_bits_stand_for(tmp_path):
    profile = replace(PROFILES["tiny"], dtype="bfloat16", dense="bf16", experts="mxfp4", embedding="int8")
    model = add_lora(load_model(profile=profile)[0], r=2, alpha=4)
    merge_adapter(model, tmp_path / "merged", "float32")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    assert torch.equal(merged.model.embed_tokens(IDS), model.get_base_model().model.embed_tokens(IDS))


@pytest.mark.parametrize("experts", ["mxfp4", "fp32"])
def test_the_exported_form_is_not_ours(tmp_path, experts):
    """PEFT would warn that nothing matched and give the base model, to be evaluated as the tuned one."""
    export_adapter(trained("fp32"), tmp_path / "exported")
    with pytest.raises(UserError, match="stock PEFT's form.*give the folder that the trainer wrote"):
        load_model(profile="tiny", experts=experts, adapter=tmp_path / "exported")


def test_an_adapter_with_lost_tensors_is_one_sentence(tmp_path):
    """What is missing would stay as fresh as add_lora makes it."""
    save_adapter(trained("fp32"), tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if "layers.2" not in name}
    save_file(kept, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match="cannot be put on this model .*it is damaged"):
        load_model(profile="tiny", adapter=tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        lambda model, folder: export_adapter(model, folder),
        lambda model, folder: merge_adapter(model, folder, "bfloat16"),
    ],
)
def test_a_model_without_adapter_is_one_sentence(model, tmp_path, call):
    with pytest.raises(UserError, match="has no adapter"):
        call(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_dtype_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="dtype must be"):
        merge_adapter(add_lora(load_model(profile="tiny", dense="fp32")[0], 2, 4), tmp_path / "out", "int8")

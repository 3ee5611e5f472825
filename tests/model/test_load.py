import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import UserError, load_model, weights_digest
from tests.conftest import CHECKPOINT

PROMPT = "<|start|>user<|message|>Multiply two matrices in Python.<|end|><|start|>assistant"


@torch.no_grad()
def logits(model, tokenizer, text=PROMPT):
    return model(**tokenizer(text, return_tensors="pt")).logits


def test_equal_to_stock_transformers(model, tokenizer):
    """Another loader, another unpacking, another attention: the same logits."""
    from transformers import AutoModelForCausalLM

    stock = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()
    stock.float()  # transformers 5.15 leaves the experts in bfloat16 whatever the dtype
    assert (logits(stock, tokenizer) - logits(model, tokenizer)).abs().max() < 1e-5
    long = PROMPT * 30  # longer than the sliding window
    assert (logits(stock, tokenizer, long) - logits(model, tokenizer, long)).abs().max() < 5e-5


def test_nf4_is_near_and_keeps_its_gradient(tokenizer):
    """A forward without gradients makes bitsandbytes' CPU code repack the weight and cut the gradient for good."""
    model, _ = load_model(profile="tiny", dense="nf4")
    first = logits(model, tokenizer)
    again = logits(model, tokenizer)
    assert torch.equal(first, again)
    embedded = model.model.embed_tokens(tokenizer(PROMPT, return_tensors="pt").input_ids).requires_grad_()
    output = model(inputs_embeds=embedded).logits
    output.square().mean().backward()
    assert embedded.grad.abs().sum() > 0
    torch.testing.assert_close(output.detach(), first, atol=1e-5, rtol=1e-4)
    kinds = {type(module).__name__ for module in model.modules()}
    assert "Linear4bit" in kinds


def test_model_comes_frozen_and_in_eval_mode(model):
    assert not model.training and not any(weight.requires_grad for weight in model.parameters())


def test_unknown_dense_is_one_sentence():
    with pytest.raises(UserError, match="dense must be nf4 or fp32"):
        load_model(profile="tiny", dense="int8")


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(CHECKPOINT, tmp_path / "copy")


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def break_shard(folder):
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"short")


def lose_shard(folder):
    (folder / "model-00002-of-00002.safetensors").unlink()


def change_tensor(folder, change):
    path = folder / "model-00002-of-00002.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


BROKEN = {
    "config.json (": lambda f: (f / "config.json").unlink(),
    "is this a checkpoint folder": lambda f: (f / "config.json").write_text("{"),
    "config.json (list": lambda f: (f / "config.json").write_text("[]"),
    "does not describe a gpt-oss model": lambda f: edit_config(f, num_hidden_layers="four"),
    "'llama' model": lambda f: edit_config(f, model_type="llama"),
    "holds no model*.safetensors": lambda f: [path.unlink() for path in f.glob("*.safetensors")],
    "fetch it again": break_shard,
    "lacks": lose_shard,
    "has shape": lambda f: change_tensor(f, lambda t: t.update({"model.norm.weight": torch.zeros(3)})),
    "does not have": lambda f: change_tensor(f, lambda t: t.update({"model.extra.weight": torch.zeros(3)})),
    "has no tokenizer": lambda f: (f / "tokenizer.json").unlink(),
    "or generation_config.json": lambda f: (f / "generation_config.json").unlink(),
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_folder_is_one_sentence(copy, words):
    BROKEN[words](copy)
    with pytest.raises(UserError) as caught:
        load_model(copy, profile="tiny")
    message = str(caught.value)
    assert "\n" not in message and str(copy) in message and words in message


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./checkpoint", "~/none"])
def test_a_missing_folder_is_one_sentence(path):
    with pytest.raises(UserError, match="There is no folder"):
        load_model(path, profile="tiny")


def test_an_unreadable_folder_is_one_sentence(monkeypatch):
    with pytest.raises(UserError, match="Cannot read the folder .*give one that you may read"):
        load_model("x" * 5000, profile="tiny")  # the system refuses even to look


def test_an_unreachable_hub_is_one_sentence():
    """conftest switches the hub off, as an aeroplane does."""
    with pytest.raises(
        UserError, match=r"Could not download nobody/nothing .*check the name and the network"
    ) as caught:
        load_model("nobody/nothing", profile="tiny")
    assert "\n" not in str(caught.value)


def test_missing_adapter_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="run 04_grpo first"):
        load_model(profile="tiny", adapter=tmp_path)


def test_digest_notices_one_bit(model):
    digest = weights_digest(model)
    weight = model.model.norm.weight
    before = weight[0].item()
    weight.data[0] = torch.nextafter(weight[0], torch.tensor(9.0))
    assert weights_digest(model) != digest
    weight.data[0] = before
    assert weights_digest(model) == digest

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import GRPOConfig, UserError, add_lora, get_task, load_model, memory_plan, merge_adapter, weights_digest
from helpers.kernels.experts import Packed
from helpers.model import load
from helpers.model.layers import Int8Embedding
from helpers.model.lora import save_adapter
from helpers.profiles import PROFILES
from tests.conftest import CHECKPOINT

CHECKPOINT_FILES = {name: path for path in Path(CHECKPOINT).glob("*.safetensors") for name in load_file(path)}
PROMPT = "<|start|>user<|message|>Multiply two matrices in Python.<|end|><|start|>assistant"


@torch.no_grad()
def logits(model, tokenizer, text=PROMPT):
    return model(**tokenizer(text, return_tensors="pt")).logits


def test_equal_to_stock_transformers(model, tokenizer):
    """Another loader, another unpacking, another attention: the same logits."""
    from transformers import AutoModelForCausalLM

    stock = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()
    stock.float()  # transformers 5.15 leaves the experts in bfloat16 whatever the dtype
    row = get_task("matmul").dataset("monitor", 1)[0]
    answer = {"role": "assistant", "thinking": "", "content": row["answer"]}
    conversation = tokenizer.apply_chat_template([*row["prompt"], answer], tokenize=False)
    for text in (PROMPT, conversation):  # the second is longer than the sliding window
        theirs = logits(stock, tokenizer, text)
        assert (logits(model, tokenizer, text) - theirs).abs().max() < 1e-6 * theirs.abs().max()


@pytest.fixture(scope="module")
def stock():
    """The embedded model as stock transformers has it, its experts unpacked."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).float().eval()


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """dtype -> folder that `merge_adapter` wrote of a model with an adapter that is not zero."""
    torch.manual_seed(0)
    model = add_lora(load_model(profile="tiny", dense="fp32")[0], r=4, alpha=8)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data.normal_(std=0.05)
    folder = tmp_path_factory.mktemp("merged")
    for dtype in ("float32", "bfloat16"):
        merge_adapter(model, folder / dtype, dtype)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_merge_adapter_writes_can_be_loaded(merged, tokenizer, dtype):
    """The loader said that a tensor of our own folder was not gpt-oss's: it knew packed experts only."""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(merged / dtype, dtype=torch.float32).float().eval()
    ours, our_tokenizer = load_model(merged / dtype, profile="tiny", dense="fp32")
    wanted = logits(theirs, tokenizer)
    assert (logits(ours, our_tokenizer) - wanted).abs().max() < 1e-6 * wanted.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_transformers_saves_can_be_loaded(stock, tokenizer, tmp_path, dtype):
    """transformers 5.23 calls dense experts `gate_up_proj_blocks` when it saves, without scales; older ones do not."""
    wanted = logits(stock, tokenizer)
    folder = save_dense(stock, tokenizer, tmp_path / "saved", dtype)
    ours, our_tokenizer = load_model(folder, profile="tiny", dense="fp32")
    tolerance = 1e-6 if dtype == torch.float32 else 0.03  # norms and the router are rounded to 8 bits, too
    assert (logits(ours, our_tokenizer) - wanted).abs().max() < tolerance * wanted.abs().max()


def save_dense(model, tokenizer, folder, dtype=torch.float32):
    """A checkpoint of one file, as `save_pretrained` makes it; its config.json names no quantisation."""
    from copy import deepcopy

    deepcopy(model).to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) == 1
    return folder


def test_dense_experts_are_loaded_in_16_bits_and_packed_only_when_asked(stock, tokenizer, tmp_path):
    """A T4 cannot hold them dense. Packing what was unpacked gives the released bytes; anything else it rounds."""
    folder = save_dense(stock, tokenizer, tmp_path / "saved")
    profile = replace(PROFILES["tiny"], dtype="bfloat16", dense="bf16", experts="mxfp4")
    dense = load_model(folder, profile=profile)[0].model.layers[0].mlp.experts
    assert not dense.packed and dense.gate_up_proj.dtype == torch.bfloat16
    packed = load_model(folder, profile=profile, experts="mxfp4")[0]
    released = load_model(profile=profile)[0]
    values = [
        Packed(experts.gate_up_proj_blocks, experts.gate_up_proj_scales).dense(torch.float32)
        for experts in (model.model.layers[0].mlp.experts for model in (packed, released))
    ]
    assert packed.model.layers[0].mlp.experts.packed and torch.equal(*values)


def test_dense_experts_that_do_not_fit_are_one_sentence(merged, monkeypatch):
    """The way out is not a smaller profile but packing."""
    profile = replace(PROFILES["tiny"], experts="mxfp4")
    room = (memory_plan(profile).total + memory_plan(replace(profile, experts="fp32")).total) / 2
    monkeypatch.setattr("helpers.model.memory._available", lambda profile: room)
    with pytest.raises(UserError, match="has dense experts, which do not fit the GPU: load it with experts='mxfp4'"):
        load_model(merged / "float32", profile=profile)


def test_dense_weights_beyond_float16_are_one_sentence(stock, tokenizer, tmp_path):
    """They would be infinite, and every answer with them."""
    folder = save_dense(stock, tokenizer, tmp_path / "saved")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if "experts.down_proj" in name and "bias" not in name)
    tensors[name][0, 0, 0] = 1e5
    save_file(tensors, path, metadata={"format": "pt"})
    profile = replace(PROFILES["tiny"], dtype="float16", dense="fp16")
    with pytest.raises(UserError, match="experts.down_proj holds NaN or weights beyond the range of float16"):
        load_model(folder, profile=profile, experts="fp16")


def test_a_config_that_hides_the_form_of_the_experts_is_one_sentence(stock, tokenizer, tmp_path):
    """In a checkpoint of one file only config.json tells it before the weights are fetched."""
    folder = save_dense(stock, tokenizer, tmp_path / "saved")
    edit_config(folder, quantization_config={"quant_method": "mxfp4"})
    with pytest.raises(UserError, match="is quantization_config in config.json that of these weights"):
        load_model(folder, profile="tiny")


def test_the_plan_is_that_of_the_run(capsys):
    """The loader planned for the profile's completions, whatever length the run had."""
    config = GRPOConfig.for_profile(PROFILES["tiny"], "out", max_completion_length=100, gradient_accumulation_steps=2)
    load_model(profile="tiny", plan=config.memory_plan("tiny"))
    assert f"Memory plan, {config.generation_batch_size} completions of 612 tokens" in capsys.readouterr().out


def test_an_adapter_whose_replacement_was_killed_is_found(tmp_path):
    """Killed between the two renames, the old adapter is left under a hidden name."""
    model = add_lora(load_model(profile="tiny", dense="fp32")[0], r=2, alpha=4)
    save_adapter(model, tmp_path / ".adapter.old")
    assert not (tmp_path / "adapter").exists()
    load_model(profile="tiny", dense="fp32", adapter=tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_config.json").exists()


@pytest.fixture
def refused_host(monkeypatch):
    """A system that locks the small table of the probe and not the real one; yields the names of tensors in the order
    they are read in."""
    read = load.read_tensors
    names = []

    def refuse(table):
        raise RuntimeError("cudaHostRegister: error 2")

    def recorded(index, ending=""):
        for name, tensor in read(index, ending):
            names.extend([name] if not ending else [])
            yield name, tensor

    monkeypatch.setattr(load, "HostEmbedding", refuse)
    monkeypatch.setattr(load, "read_tensors", recorded)
    return names


HOST = replace(PROFILES["tiny"], dtype="float16", dense="fp16", experts="mxfp4", embedding="host")


def test_an_embedding_that_the_host_refuses_is_kept_in_eight_bits(refused_host, tokenizer, capsys):
    """A traceback in the middle of a load of minutes: only a small table had been tried."""
    ours, _ = load_model(profile=HOST)
    assert refused_host[0] == "model.embed_tokens.weight" and len(set(refused_host)) == len(refused_host)
    assert isinstance(ours.model.embed_tokens, Int8Embedding)
    first, refusal, second = capsys.readouterr().out.splitlines()
    assert "embedding host" in first and "embedding int8" in second
    assert "refuses to lock host memory for the embedding (cudaHostRegister: error 2)" in refusal
    planned, _ = load_model(profile=replace(HOST, embedding="int8"))
    assert torch.equal(logits(ours, tokenizer), logits(planned, tokenizer))


def test_an_embedding_that_fits_nowhere_is_one_sentence_before_the_rest_is_read(refused_host, monkeypatch):
    plans = [memory_plan(replace(HOST, embedding=embedding)).total for embedding in ("host", "int8")]
    monkeypatch.setattr("helpers.model.memory._available", lambda profile: sum(plans) / 2)
    with pytest.raises(
        UserError, match="host memory for the embedding .*error 2.*: free host memory, or plan for fewer"
    ) as caught:
        load_model(profile=HOST)
    assert "\n" not in str(caught.value)
    assert refused_host == ["model.embed_tokens.weight"]


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


@pytest.mark.parametrize(
    ("name", "words"), [("dense", "dense must be nf4 or fp32"), ("experts", "experts must be mxfp4 or fp32")]
)
def test_an_unknown_form_is_one_sentence(name, words):
    with pytest.raises(UserError, match=words):
        load_model(profile="tiny", **{name: "int8"})


def test_an_error_comes_before_any_tensor_is_read(copy, monkeypatch):
    """A shard of the wrong model at the end of 13 GB must not cost the minutes of the others."""
    change_tensor(copy, lambda t: t.update({"model.norm.weight": torch.zeros(3)}))
    monkeypatch.setattr("helpers.model.load.fill", lambda *_: pytest.fail("a tensor was loaded"))
    with pytest.raises(UserError, match="has shape"):
        load_model(copy, profile="tiny")


def test_weights_are_fetched_only_when_they_will_fit(copy, monkeypatch):
    """65 GB of the 120b for a T4, refused after the download, would be an evening."""
    fetched = []

    def fetch(name, allow_patterns):
        fetched.append(any("safetensors" in pattern for pattern in allow_patterns))
        return copy

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    load_model("someone/tiny", profile="tiny")
    assert fetched == [False, True]
    monkeypatch.setattr("helpers.model.memory._available", lambda profile: 1e6)
    with pytest.raises(UserError, match="choose a smaller profile"):
        load_model("someone/tiny", profile="tiny")
    assert fetched == [False, True, False]


def test_missing_bitsandbytes_is_found_before_the_weights(monkeypatch):
    """Colab has none."""
    monkeypatch.setitem(sys.modules, "helpers.model.nf4", None)
    monkeypatch.setattr("helpers.model.load.fill", lambda *_: pytest.fail("a tensor was loaded"))
    with pytest.raises(UserError, match="needs bitsandbytes"):
        load_model(profile="tiny", dense="nf4")


def test_packed_bytes_are_the_files_and_no_view_of_it(copy):
    """The released bytes, bit for bit, also after the file is overwritten."""
    model, _ = load_model(copy, profile="tiny", experts="mxfp4")
    before = weights_digest(model)
    for path in copy.glob("*.safetensors"):
        path.write_bytes(bytes(path.stat().st_size))
    names = [name for name in CHECKPOINT_FILES if name.endswith(("_blocks", "_scales"))]
    assert len(names) == 16
    for name in names:
        assert torch.equal(model.get_parameter(name), load_file(CHECKPOINT_FILES[name])[name])
    assert weights_digest(model) == before


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


def cut_shard(folder):
    """As a download that broke off leaves it."""
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def scales_name(tensors):
    return next(name for name in tensors if name.endswith("down_proj_scales"))


def spoil_scale(tensors):
    tensors[scales_name(tensors)][0, 0, 0] = 255


def unpack_scales(tensors):
    tensors[scales_name(tensors)] = tensors[scales_name(tensors)].float()


def widen(tensors):
    tensors["model.norm.weight"] = tensors["model.norm.weight"].double()


BROKEN = {
    "config.json (": lambda f: (f / "config.json").unlink(),
    "is this a checkpoint folder": lambda f: (f / "config.json").write_text("{"),
    "config.json (list": lambda f: (f / "config.json").write_text("[]"),
    "does not describe a gpt-oss model": lambda f: edit_config(f, num_hidden_layers="four"),
    "'llama' model": lambda f: edit_config(f, model_type="llama"),
    "holds no model*.safetensors": lambda f: [path.unlink() for path in f.glob("model*")],
    "lacks 2 of 2 shards, among them model-00001": lambda f: [path.unlink() for path in f.glob("*.safetensors")],
    "model-00001-of-00002.safetensors (": break_shard,
    "model-00002-of-00002.safetensors (": cut_shard,
    "index.json (": lambda f: (f / "model.safetensors.index.json").write_text("[]"),
    "lacks 1 of 2 shards, among them model-00002": lose_shard,
    "tensors, among them lm_head.weight": lambda f: (lose_shard(f), (f / "model.safetensors.index.json").unlink()),
    "config.json says [16, ": lambda f: edit_config(f, num_local_experts=16),
    "config.json says": lambda f: edit_config(f, hidden_size=192),
    "wrong: num_experts_per_tok": lambda f: edit_config(f, num_experts_per_tok=9),
    "wrong: head_dim 0": lambda f: edit_config(f, head_dim=0),
    "wrong: sliding_window None": lambda f: edit_config(f, sliding_window=None),
    "wrong: vocab_size -1": lambda f: edit_config(f, vocab_size=-1),
    "wrong: pad_token_id": lambda f: edit_config(f, pad_token_id=9999),
    "a scale byte of 255": lambda f: change_tensor(f, spoil_scale),
    "is this the MXFP4 checkpoint": lambda f: change_tensor(f, unpack_scales),
    "a gpt-oss checkpoint holds": lambda f: change_tensor(f, widen),
    "has shape": lambda f: change_tensor(f, lambda t: t.update({"model.norm.weight": torch.zeros(3)})),
    "does not have": lambda f: change_tensor(f, lambda t: t.update({"model.extra.weight": torch.zeros(3)})),
    "has no tokenizer": lambda f: (f / "tokenizer.json").unlink(),
    "tokenizer.json or": lambda f: (f / "tokenizer.json").write_text("{}"),
    "that can be read": lambda f: (f / "generation_config.json").write_text("[]"),
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

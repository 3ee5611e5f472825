"""The loaded model against stock transformers on the dequantised weights, and LoRA through PEFT."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import UserError, add_lora, load_model, weights_digest
from helpers.model.experts import LoraExperts, PackedExperts
from helpers.model.lora import load_adapter, save_adapter
from helpers.profiles import PROFILES
from tests.conftest import CHECKPOINT


@pytest.fixture(scope="module")
def stock():
    model = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32, attn_implementation="eager")
    return model.float().eval()


@pytest.fixture(scope="module", params=["mxfp4", "fp32"])
def ours(request):
    return load_model(profile="tiny", dense="fp32", experts=request.param)[0]


def close(ours, theirs, limit):
    """Greatest difference beside the greatest magnitude."""
    return float((ours - theirs).abs().max() / theirs.abs().max()) <= limit


@pytest.mark.parametrize("tokens", [1, 7, 64, 4096])
@pytest.mark.parametrize("routing", ["router", "two", "all", "skewed"])
def test_a_layer_equals_transformers(stock, ours, tokens, routing):
    """1 to 4,096 tokens; the router's choice, all on two experts, each on all experts, an expert without tokens."""
    theirs, mine = (model.model.layers[1].mlp for model in (stock, ours))
    hidden = torch.randn(tokens, 128, generator=torch.Generator().manual_seed(tokens))
    _, weights, indices = theirs.router(hidden)
    if routing == "two":
        indices = torch.tensor([[0, 1]]).expand(tokens, -1).contiguous()
    if routing == "all":
        indices = torch.arange(8).expand(tokens, -1).contiguous()
        weights = torch.rand(tokens, 8).softmax(-1)
    if routing == "skewed":
        indices = torch.stack([torch.zeros(tokens).long(), 1 + torch.arange(tokens) % 6], 1)  # never expert 7
    direction = torch.randn(tokens, 128)
    results = []
    for experts in (mine.experts, theirs.experts):
        leaves = [hidden.clone().requires_grad_(), weights.detach().clone().requires_grad_()]
        out = experts(leaves[0], indices, leaves[1])
        results.append([out.detach(), *torch.autograd.grad((out * direction).sum(), leaves)])
    assert close(results[0][0], results[1][0], 1e-5)
    assert all(close(a, b, 1e-4) for a, b in zip(results[0][1:], results[1][1:]))


@torch.no_grad()
def test_logits_of_the_whole_model(stock, ours):
    """On text, over 171 tokens: at random ids some tokens lie between two experts, and the last bit decides."""
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    question = "Multiply two matrices with nested loops, then with zip. " * 12
    ids = tokenizer(f"<|start|>user<|message|>{question}<|end|>", return_tensors="pt").input_ids
    assert ids.shape[1] > stock.config.sliding_window
    assert close(ours(ids).logits, stock(ids).logits, 2e-6)


def test_gradients_of_the_whole_model(stock, ours):
    """To the inputs, the router and the sinks, over 200 tokens: beyond the sliding window."""
    ids = torch.randint(0, 800, (2, 200), generator=torch.Generator().manual_seed(0))
    gradients = []
    for model in (ours, copy.deepcopy(stock)):
        embedded = model.model.embed_tokens(ids).detach().requires_grad_()
        layers = model.model.layers
        leaves = [layer.self_attn.sinks for layer in layers] + [layer.mlp.router.weight for layer in layers]
        leaves = [embedded, *(leaf.requires_grad_() for leaf in leaves)]
        logprobs = model(inputs_embeds=embedded).logits.log_softmax(-1)
        gradients.append(torch.autograd.grad(logprobs[..., 5].mean(), leaves))
        model.requires_grad_(False)
    assert all(close(a, b, 1e-4) for a, b in zip(*gradients))


class TestPeft:
    """What people do with a PEFT model, on experts that PEFT has never heard of."""

    @pytest.fixture
    def adapted(self):
        torch.manual_seed(0)
        adapted = add_lora(load_model(profile="tiny", dense="fp32", experts="mxfp4")[0], r=4, alpha=8)
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.data += 0.02 * torch.randn_like(weight)
        return adapted

    IDS = torch.arange(60)[None]

    @torch.no_grad()
    def logits(self, model):
        return model(self.IDS).logits

    def test_disable_adapter(self, adapted):
        base = self.logits(load_model(profile="tiny", dense="fp32", experts="mxfp4")[0])
        assert not torch.equal(self.logits(adapted), base)
        with adapted.disable_adapter():
            assert torch.equal(self.logits(adapted), base)

    def test_save_and_load(self, adapted, tmp_path):
        """PEFT's file does not say how experts are adapted; loading registers it again."""
        save_adapter(adapted, tmp_path)
        loaded = load_adapter(load_model(profile="tiny", dense="fp32", experts="mxfp4")[0], tmp_path)
        assert torch.equal(self.logits(loaded), self.logits(adapted))
        assert not any(weight.requires_grad for weight in loaded.parameters())

    def test_a_second_adapter(self, adapted, tmp_path):
        first = self.logits(adapted)
        save_adapter(adapted, tmp_path)
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.data.zero_()
        adapted.load_adapter(tmp_path, "kept")
        adapted.set_adapter("kept")
        assert torch.equal(self.logits(adapted), first)
        adapted.set_adapter("default")
        assert not torch.equal(self.logits(adapted), first)
        adapted.delete_adapter("kept")
        assert {name for module in adapted.modules() if isinstance(module, LoraExperts) for name in module.r} == {
            "default"
        }

    def test_two_active_adapters_are_one_sentence(self, adapted, tmp_path):
        save_adapter(adapted, tmp_path)
        adapted.load_adapter(tmp_path, "other")
        adapted.base_model.set_adapter(["default", "other"])
        with pytest.raises(UserError, match="one adapter at a time"):
            self.logits(adapted)

    def test_counting_and_unloading(self, adapted, capsys):
        adapted.print_trainable_parameters()
        assert "trainable params: 96,256 " in capsys.readouterr().out
        base = adapted.unload()
        assert all(type(layer.mlp.experts) is PackedExperts for layer in base.model.layers)

    def test_merging_in_place_and_back(self, adapted):
        """PEFT's own merge: the experts are unpacked first, as packed bytes cannot hold the sum."""
        want = self.logits(adapted)
        with adapted.disable_adapter():
            plain = self.logits(adapted)
        adapted.merge_adapter()
        assert (self.logits(adapted) - want).abs().max() < 1e-4
        adapted.unmerge_adapter()
        with adapted.disable_adapter():
            assert (self.logits(adapted) - plain).abs().max() < 1e-4
        merged = adapted.merge_and_unload()
        assert (self.logits(merged) - want).abs().max() < 1e-4 < 1e-2 < (want - plain).abs().max()
        assert all(type(layer.mlp.experts) is PackedExperts for layer in merged.model.layers)

    def test_an_adapter_is_not_added_to_an_adapted_model(self, adapted):
        """PEFT would replace the loaded one by a fresh one without a word."""
        with pytest.raises(UserError, match="has an adapter already"):
            add_lora(adapted, r=4, alpha=8)

    def test_rollout_then_backward(self, adapted):
        """The gradient of a model that generated first is that of one that did not, and the base is untouched."""
        digest = weights_digest(adapted)
        gradients = []
        for generate in (False, True):
            if generate:
                adapted.eval().generate(self.IDS, max_new_tokens=5, do_sample=False, pad_token_id=0)
            adapted.zero_grad()
            adapted(self.IDS).logits.log_softmax(-1)[..., 7].sum().backward()
            gradients.append([weight.grad.clone() for weight in adapted.parameters() if weight.requires_grad])
        assert all(torch.equal(a, b) for a, b in zip(*gradients)) and weights_digest(adapted) == digest


@pytest.mark.parametrize("dense", ["nf4", "bf16", "fp16"])
def test_rollout_then_backward_in_every_dense_form(dense):
    """bitsandbytes on AVX512-BF16 repacks a weight in a forward without gradients, and its gradient is gone."""
    dtype = {"nf4": "float32", "bf16": "bfloat16", "fp16": "float16"}[dense]
    profile = replace(PROFILES["tiny"], dtype=dtype, dense=dense, experts=dense if dense == "bf16" else "mxfp4")
    gradients = []
    for generate in (False, True):
        torch.manual_seed(0)
        model = add_lora(load_model(profile=profile)[0], r=2, alpha=4)
        digest, ids = weights_digest(model), torch.arange(40)[None]
        if generate:
            model.eval().generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
        model(ids).logits.log_softmax(-1)[..., 7].sum().backward()
        gradients.append(torch.cat([w.grad.flatten() for w in model.parameters() if w.requires_grad]))
        assert weights_digest(model) == digest
    assert torch.equal(*gradients) and gradients[0].abs().sum() > 0

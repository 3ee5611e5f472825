"""fp16 as on a T4: gpt-oss leaves its range, so the residual stream and what is added to it are fp32."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import UserError, add_lora, load_model
from helpers.kernels.logprobs import token_logprobs
from helpers.profiles import PROFILES
from helpers.tiny.train import Batches
from tests.conftest import CHECKPOINT

#: A power of two for the residual stream; norms take it out again, so the logits stay as they were.
FACTOR = 2**13
T4 = replace(PROFILES["tiny"], dtype="float16", experts="mxfp4", dense="fp16", embedding="host")


def conversations(length=150):
    """Token ids [2, length] of text like that of the training: at random ids many tokens lie between two experts, and
    the last bit decides which one they get."""
    batches = Batches(AutoTokenizer.from_pretrained(CHECKPOINT), seed=0)
    drawn = [batches.encode()[0] for _ in range(20)]
    return torch.stack([ids[:length] for ids in drawn if len(ids) >= length][:2])


IDS = conversations()


@pytest.fixture(scope="module")
def rescaled(tmp_path_factory):
    """The embedded model with a residual stream exactly 8,192 times larger: all that writes into it is scaled."""
    folder = shutil.copytree(CHECKPOINT, tmp_path_factory.mktemp("rescaled") / "model")
    config = json.loads((folder / "config.json").read_text())
    config["rms_norm_eps"] *= FACTOR**2
    (folder / "config.json").write_text(json.dumps(config))
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        for name in tensors:
            if name.endswith(("embed_tokens.weight", "o_proj.weight", "o_proj.bias", "down_proj_bias")):
                tensors[name] = tensors[name] * FACTOR
            if name.endswith("down_proj_scales"):
                tensors[name] = tensors[name] + 13
        save_file(tensors, path, metadata={"format": "pt"})
    return folder


def residual_peak(model):
    peak = []
    hooks = [
        layer.register_forward_hook(lambda _, __, out: peak.append(float(out.abs().max())))
        for layer in model.model.layers
    ]
    with torch.no_grad():
        logits = model(IDS).logits
    for hook in hooks:
        hook.remove()
    return max(peak), logits


def gradients(model):
    torch.manual_seed(0)
    model = add_lora(model, r=4, alpha=8)
    hidden = model.get_base_model().model(IDS).last_hidden_state
    logprobs, _ = token_logprobs(hidden[:, :-1], model.get_base_model().lm_head.weight, IDS[:, 1:])
    logprobs.sum().backward()
    return {name: weight.grad for name, weight in model.named_parameters() if "B" in name and weight.requires_grad}


def test_the_t4_arithmetic_stays_near_fp32_where_plain_fp16_fails(rescaled):
    exact, _ = load_model(rescaled, profile="tiny", dense="fp32")
    peak, reference = residual_peak(exact)
    assert peak > 65_504, "the stream must leave fp16's range for this to test anything"
    ours, _ = load_model(rescaled, profile=T4)
    our_peak, logits = residual_peak(ours)
    assert our_peak > 65_504 and logits.isfinite().all()
    # as near as fp16 operands allow: the same distance as on the model that was not rescaled
    plain = [load_model(profile=profile, dense=dense)[0] for profile, dense in ((T4, "fp16"), ("tiny", "fp32"))]
    allowed = (residual_peak(plain[0])[1] - residual_peak(plain[1])[1]).norm()
    assert (logits - reference).norm() < 1.2 * allowed < 0.01 * reference.norm()
    half = AutoModelForCausalLM.from_pretrained(rescaled, dtype=torch.float16).eval()
    assert not residual_peak(half)[1].isfinite().all()


def test_gradients_are_finite_and_right(rescaled):
    """Of a sum over 400 tokens, in fp16, through a stream beyond its range."""
    exact = gradients(load_model(rescaled, profile="tiny", dense="fp32")[0])
    ours = gradients(load_model(rescaled, profile=T4)[0])
    for name, gradient in exact.items():
        assert ours[name].isfinite().all()
        assert (ours[name] - gradient).norm() < 0.05 * gradient.norm(), name


@pytest.mark.parametrize(("dtype", "dense", "experts"), [("bfloat16", "bf16", "bf16"), ("bfloat16", "bf16", "mxfp4")])
def test_bf16(dtype, dense, experts):
    """a100 and h100, experts packed or unpacked: as near to fp32 as stock transformers in bf16, over most tokens (a few
    are routed to another expert by the last bit, in either)."""
    exact = residual_peak(load_model(profile="tiny", dense="fp32")[0])[1]
    profile = replace(PROFILES["tiny"], dtype=dtype, dense=dense, experts=experts)
    model, _ = load_model(profile=profile)
    stock = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.bfloat16).eval()
    distance, theirs = ((residual_peak(m)[1].float() - exact).norm(dim=-1).median() for m in (model, stock))
    assert distance < theirs and distance < 0.05 * exact.norm(dim=-1).median()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


def test_weights_beyond_fp16_are_one_sentence(rescaled, tmp_path):
    folder = shutil.copytree(rescaled, tmp_path / "larger")
    path = next(
        path for path in folder.glob("*.safetensors") if any("down_proj_scales" in name for name in load_file(path))
    )
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("down_proj_scales"))
    tensors[name][0, 0, 0] = 150
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match="beyond the range of float16: use a bfloat16 profile"):
        load_model(folder, profile=T4)


def test_the_device_and_what_is_kept_where():
    """A host embedding must not make `model.device` the host's, nor follow the model to the GPU."""
    model, _ = load_model(profile=T4)
    assert "model.embed_tokens.weight" not in dict(model.named_parameters())
    assert model.model.embed_tokens.to("meta").weight.device.type == "cpu"
    kinds = {name.rpartition(".")[2]: weight.dtype for name, weight in model.named_parameters() if "layers.0" in name}
    assert kinds["weight"] == torch.float32 and kinds["sinks"] == torch.float32  # the last "weight" is a norm's
    assert kinds["gate_up_proj_blocks"] == torch.uint8 and kinds["gate_up_proj_bias"] == torch.float32
    attention = model.model.layers[0].self_attn
    assert (
        attention.q_proj.weight.dtype == torch.float16 and attention.q_proj(torch.zeros(1, 128)).dtype == torch.float16
    )
    assert attention.o_proj(torch.zeros(1, 128)).dtype == torch.float32


def test_the_cache_is_sixteen_bit():
    """fp32 keys would double it: the plan counts two bytes."""
    model, _ = load_model(profile=T4)
    cache = model(IDS, use_cache=True).past_key_values
    assert (
        {layer.keys.dtype for layer in cache.layers}
        == {layer.values.dtype for layer in cache.layers}
        == {torch.float16}
    )


def test_an_embedding_in_eight_bits_is_near():
    from helpers.model.host_embedding import HostEmbedding
    from helpers.model.layers import Int8Embedding

    table = torch.randn(50, 64).half()
    whole, small = HostEmbedding(table)(torch.arange(50)), Int8Embedding(table, "cpu")(torch.arange(50))
    assert (whole - small).norm() < 0.01 * whole.norm() and small.dtype == torch.float32


class RefusingCuda(TorchFunctionMode):
    """A GPU whose driver refuses to lock host memory: the error stays pending until the next kernel launch raises it.

    It stands in for `torch.cuda.cudart()`; what is made on the GPU is a launch, and is made on the CPU.
    """

    pending = 0

    def cudaHostRegister(self, address, size, flags):
        self.pending = 712
        return 712

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
            error, self.pending = self.pending, 0
            if error:
                raise RuntimeError(f"CUDA error: {error}")
        return function(*args, **kwargs)


def test_a_refused_registration_leaves_no_error_behind(monkeypatch):
    """CUDA kept the error for the next kernel launch, which had nothing to do with it, and the load ended there."""
    from helpers.model.host_embedding import HostEmbedding

    with RefusingCuda() as cuda:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "cudart", lambda: cuda)
        with pytest.raises(RuntimeError, match="cudaHostRegister: error 712"):
            HostEmbedding(torch.zeros(4, 8))
        assert torch.zeros(1, device="cuda") == 0  # the next launch

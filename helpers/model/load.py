"""Load gpt-oss, tiny or released, from its on-disk format: one path for both.

The model is built empty, then filled tensor by tensor, each straight to the device: the expert
bytes as they were released, or unpacked; the layers outside the experts as the profile says.
"""

from dataclasses import replace

import torch
from torch import nn

from helpers.kernels.mxfp4 import Packed
from helpers.model.attention import set_attention
from helpers.model.experts import MATRICES, PackedExperts
from helpers.model.files import find_folder, read_config, read_index, read_tensors, read_tokenizer
from helpers.model.layers import Embedding, FrozenLinear, HostEmbedding, Int8Embedding, RotaryEmbedding
from helpers.model.lora import load_adapter
from helpers.model.memory import WHOLE, memory_plan
from helpers.runtime import UserError, get_profile

ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
#: The largest scale byte whose values fp16 holds: 6 * 2**13.
FP16_SCALE = 140


def load_model(path=None, *, profile="auto", adapter=None, dense=None, experts=None):
    """Load a model and its tokenizer.

    Args:
        path: a local folder or a hub id; default: the profile's.
        profile: a name or a `Profile`.
        adapter: a PEFT adapter folder to put on top, not trainable.
        dense: how the attention projections are kept, "nf4" or whole: "fp32" where the profile
            computes in float32, "bf16" and "fp16" likewise; default: the profile's.
        experts: how the expert matrices are kept, "mxfp4" or whole; default: the profile's.

    Returns: `(model, tokenizer)`, the model frozen, in eval mode, on the profile's device. Prints
    the memory plan.

    Raises UserError, before reading any weight, for a folder that is missing, incomplete, unreadable
    or not gpt-oss, tensors of other shapes, a hub that cannot be reached, and a model that does not
    fit the GPU.
    """
    profile = _chosen(get_profile(profile), dense=dense, experts=experts)
    folder = find_folder(path or profile.model)
    config = read_config(folder)
    tokenizer, generation_config = read_tokenizer(folder)
    index = read_index(folder)
    plan = memory_plan(profile, config=config)
    print(plan)
    plan.check()
    profile = replace(profile, dense=plan.dense)
    model = empty_model(config, profile)
    check_index(folder, index, model)
    fill(model, index, profile)
    model.config._name_or_path, model.generation_config = str(folder), generation_config
    set_attention(model, "auto")
    if adapter is not None:
        model = load_adapter(model, adapter)
    return model.eval(), tokenizer


def _chosen(profile, **choices):
    """The profile with what the caller chose instead."""
    packed = {"dense": "nf4", "experts": "mxfp4"}
    whole = WHOLE[profile.dtype]
    for name, value in choices.items():
        if value not in (None, packed[name], whole):
            raise UserError(
                f"Profile '{profile.name}' computes in {profile.dtype}: {name} must be {packed[name]} or {whole}; "
                f"got {value!r}."
            )
    return replace(profile, **{name: value for name, value in choices.items() if value is not None})


def empty_model(config, profile):
    """A `GptOssForCausalLM` on the meta device, with the project's experts and, in 16 bits, its layers."""
    from accelerate import init_empty_weights
    from transformers import GptOssForCausalLM

    dtype = getattr(torch, profile.dtype)
    with init_empty_weights():
        model = GptOssForCausalLM(config)
        for layer in model.model.layers:
            layer.mlp.experts = PackedExperts(config, profile.experts == "mxfp4", dtype)
    if dtype == torch.float32:
        return model
    for layer in model.model.layers:
        for name in ATTENTION_PROJECTIONS:
            linear = getattr(layer.self_attn, name)
            # what is cached stays in 16 bits, what is added to the residual stream leaves in 32
            setattr(layer.self_attn, name, FrozenLinear(linear, dtype, None if name == "o_proj" else dtype))
    model.lm_head = FrozenLinear(model.lm_head, dtype)
    model.model.embed_tokens = Embedding(config.vocab_size, config.hidden_size, device="meta", dtype=dtype)
    model.model.rotary_emb = RotaryEmbedding(config, dtype)
    return model


def check_index(folder, index, model):
    """Raise UserError unless the files hold exactly the tensors of `model`, experts packed."""
    expected = {}
    for name, weight in model.named_parameters():
        stem = name.rpartition(".")[2]
        if stem in MATRICES:
            count, wide, out = weight.shape
            expected[f"{name}_blocks"], expected[f"{name}_scales"] = (
                (count, out, wide // 32, 16),
                (count, out, wide // 32),
            )
        else:
            expected[name] = tuple(weight.shape)
    for name, entry in index.items():
        if name not in expected:
            raise UserError(f"{entry.file} holds a tensor {name} that gpt-oss does not have.")
        if entry.shape != expected[name]:
            raise UserError(
                f"{name} in {entry.file} has shape {list(entry.shape)}; config.json says {list(expected[name])}."
            )
        if (entry.dtype == "U8") != name.endswith(("_blocks", "_scales")):
            raise UserError(f"{name} in {entry.file} is {entry.dtype}: is this the MXFP4 checkpoint?")
    missing = sorted(set(expected) - set(index))
    if missing:
        raise UserError(f"{folder} lacks {len(missing)} tensors, among them {missing[0]}: is the download complete?")


def fill(model, index, profile):
    """Read every tensor and put it where it belongs, with the progress in bytes."""
    from tqdm import tqdm

    total, halves = sum(entry.bytes for entry in index.values()), {}
    with tqdm(total=total, unit="B", unit_scale=True, desc="loading", disable=total < 2**28) as progress:
        for name, tensor in read_tensors(index):
            if name.endswith("_scales"):
                _check_scales(name, tensor, index[name].file, profile)
            if name.endswith(("_blocks", "_scales")) and profile.experts != "mxfp4":
                halves[name] = tensor.to(profile.device)
                stem = name.rpartition("_")[0]
                if {f"{stem}_blocks", f"{stem}_scales"} <= set(halves):
                    packed = Packed(halves.pop(f"{stem}_blocks"), halves.pop(f"{stem}_scales"))
                    _put(model, stem, _unpacked(packed, getattr(torch, profile.dtype)))
            else:
                _place(model, name, tensor, profile)
            progress.update(index[name].bytes)
    if profile.dense == "nf4":
        _quantize_attention(model, profile)
    model.to(profile.device)  # buffers that no file holds
    model.requires_grad_(False)


def _check_scales(name, scales, file, profile):
    if bool((scales == 255).any()):
        raise UserError(f"{name} in {file} has a scale byte of 255, which stands for NaN: fetch the file again.")
    if profile.dtype == "float16" and bool((scales > FP16_SCALE).any()):
        raise UserError(f"{name} in {file} holds weights beyond the range of float16: use a bfloat16 profile.")


def _unpacked(packed, dtype):
    """Dense [E, in, out], one expert at a time."""
    count, out, groups = packed.scales.shape
    dense = torch.empty(count, groups * 32, out, dtype=dtype, device=packed.scales.device)
    for expert in range(count):
        dense[expert] = packed.expert(expert, dtype)
    return dense


def _place(model, name, tensor, profile):
    """Matrices in the operands' dtype, packed bytes as they are, the small rest in fp32."""
    dtype = getattr(torch, profile.dtype)
    if name == "model.embed_tokens.weight" and profile.host_embedding:
        model.model.embed_tokens = host_embedding(tensor.to(dtype), profile.device)
    elif tensor.dtype == torch.uint8:
        _put(model, name, tensor.to(profile.device, copy=True))  # on the CPU it would stay a view of the file
    else:
        matrix = name.endswith(("_proj.weight", "embed_tokens.weight", "lm_head.weight"))
        _put(model, name, tensor.to(profile.device).to(dtype if matrix else torch.promote_types(dtype, torch.float32)))


def _put(model, name, tensor):
    module, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(module), attribute, nn.Parameter(tensor, requires_grad=False))


def host_embedding(weight, device):
    """The embedding in pinned host memory if `device` can read it there, else in eight bits on it."""
    if device == "cpu":
        return HostEmbedding(weight.clone())
    embedding = HostEmbedding(weight.pin_memory())
    try:
        embedding(torch.zeros(1, dtype=torch.long, device=device))
        torch.cuda.synchronize()
    except (RuntimeError, ValueError, ImportError) as error:
        print(f"The GPU cannot read host memory ({error}): the embedding goes there in eight bits.")
        return Int8Embedding(weight, device)
    return embedding


def _quantize_attention(model, profile):
    """Put the attention projections into bitsandbytes NF4, double quantisation included."""
    try:
        from helpers.model.nf4 import nf4_linear
    except ImportError as error:
        raise UserError(
            f"dense='nf4' needs bitsandbytes: pip install bitsandbytes, or load with dense='{WHOLE[profile.dtype]}'."
        ) from error
    for layer in model.model.layers:
        for name in ATTENTION_PROJECTIONS:
            old = getattr(layer.self_attn, name)
            new = nf4_linear(
                old, old.weight.data, old.bias.data, getattr(torch, profile.dtype), getattr(old, "out_dtype", None)
            )
            setattr(layer.self_attn, name, new)

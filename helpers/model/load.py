"""Load gpt-oss, tiny or released, from its on-disk format: one path for both.

The model is built empty, then filled tensor by tensor, each straight to the device: the expert
bytes as they were released, or unpacked; the layers outside the experts as the profile says.
"""

import gc
from dataclasses import replace

import torch
from torch import nn

from helpers.kernels.experts import Packed
from helpers.kernels.mxfp4 import GROUP
from helpers.model.attention import set_attention
from helpers.model.experts import MATRICES, PackedExperts
from helpers.model.files import SMALL, find_folder, read_config, read_index, read_tensors, read_tokenizer
from helpers.model.layers import Embedding, FrozenLinear, HostEmbedding, Int8Embedding, RotaryEmbedding
from helpers.model.lora import load_adapter
from helpers.model.memory import WHOLE, memory_plan
from helpers.profiles import get_profile
from helpers.runtime import UserError, first_line

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

    Raises UserError, before fetching or loading any weight, for a folder that is missing, unreadable or
    not gpt-oss, a hub that cannot be reached, a model that does not fit the GPU and a package that is
    missing; before loading any, for shards or tensors that are missing, damaged or of other shapes.
    """
    profile = _chosen(get_profile(profile), dense=dense, experts=experts)
    path = path or profile.model
    if profile.device == "cuda":
        gc.collect()  # an earlier model that has no name any more may still hold its memory
    if profile.embedding == "host" and not gpu_reads_host(profile.device):
        profile = replace(profile, embedding="int8")
    folder = find_folder(path, SMALL)
    config = read_config(folder)
    tokenizer, generation_config = read_tokenizer(folder)
    plan = memory_plan(profile, config=config)
    print(plan)
    plan.check()
    profile = plan.profile
    model = empty_model(config, profile)
    folder = find_folder(path)  # the weights, now that they are wanted
    index = read_index(folder)
    check_index(folder, index, model)
    check_scales(index, profile)
    fill(model, index, profile)
    model.config._name_or_path, model.generation_config = str(path), generation_config
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

    if profile.dense == "nf4":
        try:
            import helpers.model.nf4  # noqa: F401
        except ImportError as error:
            raise UserError(
                "dense='nf4' needs bitsandbytes: pip install bitsandbytes, or load with "
                f"dense='{WHOLE[profile.dtype]}'."
            ) from error
    dtype = getattr(torch, profile.dtype)
    with init_empty_weights():
        try:
            model = GptOssForCausalLM(config)
        except (KeyError, TypeError, ValueError, ArithmeticError, AssertionError, RuntimeError) as error:
            raise UserError(f"config.json does not describe a gpt-oss model ({first_line(error)}).") from error
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
            groups = (count, out, wide // GROUP)
            expected |= {f"{name}_blocks": (*groups, GROUP // 2), f"{name}_scales": groups}
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
            if name.endswith(("_blocks", "_scales")) and profile.experts != "mxfp4":
                halves[name] = tensor.to(profile.device)
                stem = name.rpartition("_")[0]
                if {f"{stem}_blocks", f"{stem}_scales"} <= set(halves):
                    packed = Packed(halves.pop(f"{stem}_blocks"), halves.pop(f"{stem}_scales"))
                    _put(model, stem, packed.dense(getattr(torch, profile.dtype)))
            else:
                _place(model, name, tensor, profile)
            if profile.dense == "nf4" and ".self_attn." in name:
                _quantize_when_whole(model, name.rpartition(".")[0], profile)
            progress.update(index[name].bytes)
    model.to(profile.device)  # buffers that no file holds
    model.requires_grad_(False)


def check_scales(index, profile):
    """Raise UserError for scale bytes that no weight may have: read before all else, they are 4 % of the files."""
    for name, scales in read_tensors(index, "_scales"):
        file = index[name].file
        if bool((scales == 255).any()):
            raise UserError(f"{name} in {file} has a scale byte of 255, which stands for NaN: fetch the file again.")
        if profile.dtype == "float16" and bool((scales > FP16_SCALE).any()):
            raise UserError(f"{name} in {file} holds weights beyond the range of float16: use a bfloat16 profile.")


def _place(model, name, tensor, profile):
    """Matrices in the operands' dtype, packed bytes as they are, the small rest in fp32; always a copy, as on
    the CPU a tensor would stay a view of the file."""
    dtype = getattr(torch, profile.dtype)
    if name == "model.embed_tokens.weight" and profile.embedding != "device":
        table = tensor.to(dtype, copy=True)
        embedding = HostEmbedding(table) if profile.embedding == "host" else Int8Embedding(table, profile.device)
        model.model.embed_tokens = embedding
        return
    if tensor.dtype == torch.uint8:
        dtype = tensor.dtype
    elif not name.endswith(("_proj.weight", "embed_tokens.weight", "lm_head.weight")):
        dtype = torch.promote_types(dtype, torch.float32)
    _put(model, name, tensor.to(profile.device, copy=True).to(dtype))


def _put(model, name, tensor):
    module, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(module), attribute, nn.Parameter(tensor, requires_grad=False))


def gpu_reads_host(device):
    """Whether the GPU can read registered host memory: tried on a small table."""
    if device == "cpu":
        return True
    try:
        rows = HostEmbedding(torch.ones(2, 64, dtype=torch.float16))(torch.ones(1, dtype=torch.long, device=device))
        return bool((rows == 1).all())
    except (RuntimeError, ValueError, ImportError):
        return False


def _quantize_when_whole(model, path, profile):
    """Put an attention projection into NF4 once its weight and bias are there, so that few are whole at a time."""
    from helpers.model.nf4 import nf4_linear

    attention, name = model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
    old = getattr(attention, name, None)
    if isinstance(old, nn.Linear) and not (old.weight.is_meta or old.bias.is_meta):
        kinds = getattr(torch, profile.dtype), getattr(old, "out_dtype", None)
        setattr(attention, name, nf4_linear(old, old.weight.data, old.bias.data, *kinds))

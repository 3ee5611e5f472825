"""Load gpt-oss, tiny or released, from its on-disk format: one path for both.

Expert matrices come as MXFP4 blocks and scales and are unpacked by the project's own kernel;
layers outside the experts are kept as the profile says, for "nf4" through bitsandbytes.
"""

from dataclasses import replace

import torch
from torch import nn

from helpers.kernels.mxfp4 import dequantize
from helpers.model.attention import set_attention
from helpers.model.files import find_folder, read_config, read_tensors, read_tokenizer
from helpers.model.lora import load_adapter
from helpers.model.memory import memory_plan
from helpers.runtime import UserError, get_profile

#: dtype of the arithmetic -> what `dense` calls layers that are kept in it
DENSE = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


def load_model(path=None, *, profile="auto", adapter=None, dense=None):
    """Load a model and its tokenizer.

    Args:
        path: a local folder or a hub id; default: the profile's.
        profile: a name or a `Profile`.
        adapter: a PEFT adapter folder to put on top, not trainable.
        dense: how the attention projections are kept, "nf4" or whole: "fp32" where the profile
            computes in float32, "bf16" and "fp16" likewise; default: the profile's.

    Returns: `(model, tokenizer)`, the model frozen, in eval mode, on the profile's device.

    Raises UserError, before reading any weight, for a folder that is missing, unreadable or
    not gpt-oss, a hub that cannot be reached, and a model that does not fit the GPU.
    """
    profile = get_profile(profile)
    dense, whole = dense or profile.dense, DENSE[profile.dtype]
    if dense not in ("nf4", whole):
        raise UserError(
            f"Profile '{profile.name}' computes in {profile.dtype}: dense must be nf4 or {whole}; got {dense!r}."
        )
    folder = find_folder(path or profile.model)
    config = read_config(folder)
    tokenizer, generation_config = read_tokenizer(folder)
    memory_plan(replace(profile, dense=dense), config=config).check()
    model = build(folder, config, getattr(torch, profile.dtype), profile.device, dense)
    model.generation_config = generation_config
    set_attention(model, "auto")
    if adapter is not None:
        model = load_adapter(model, adapter)
    return model.eval(), tokenizer


def build(folder, config, dtype, device, dense):
    """An empty model filled tensor by tensor; packed experts are unpacked on `device`."""
    from accelerate import init_empty_weights
    from accelerate.utils import set_module_tensor_to_device
    from transformers import GptOssForCausalLM

    with init_empty_weights():
        model = GptOssForCausalLM(config)
    expected = {name: weight.shape for name, weight in model.named_parameters()}
    for name, tensor in dense_tensors(folder, device, dtype):
        shape = expected.pop(name, None)
        if shape is None:
            raise UserError(f"{folder} holds a tensor {name} that gpt-oss does not have.")
        if tensor.shape != shape:
            raise UserError(f"{name} in {folder} has shape {list(tensor.shape)}; its config.json says {list(shape)}.")
        set_module_tensor_to_device(model, name, device, value=tensor, dtype=dtype)
    if expected:
        raise UserError(
            f"{folder} lacks {len(expected)} tensors, among them {min(expected)}: is the download complete?"
        )
    model.to(device)
    model.requires_grad_(False)
    if dense == "nf4":
        quantize_attention(model, dtype)
    return model


def dense_tensors(folder, device, dtype):
    """Yield `(name, tensor)` of every parameter, each expert matrix unpacked once its two halves are there."""
    halves = {}
    for name, tensor in read_tensors(folder):
        stem, _, half = name.rpartition("_")
        if half not in ("blocks", "scales"):
            yield name, tensor
            continue
        halves[name] = tensor.to(device)
        if {f"{stem}_blocks", f"{stem}_scales"} <= set(halves):
            yield stem, dequantize(halves.pop(f"{stem}_blocks"), halves.pop(f"{stem}_scales"), dtype)


def quantize_attention(model, dtype):
    """Put the attention projections into bitsandbytes NF4, double quantisation included."""
    try:
        import bitsandbytes as bnb
    except ImportError as error:
        raise UserError(
            "dense='nf4' needs bitsandbytes: pip install bitsandbytes, or load with dense='fp32'."
        ) from error
    for layer in model.model.layers:
        for name in ATTENTION_PROJECTIONS:
            linear = getattr(layer.self_attn, name)
            packed = bnb.nn.Linear4bit(
                linear.in_features, linear.out_features, True, dtype, quant_type="nf4", device="meta"
            )
            packed.weight = bnb.nn.Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4", module=packed)
            packed.bias = nn.Parameter(linear.bias.data, requires_grad=False)
            # With it, one forward without gradients repacks the weight and cuts the gradient for good.
            packed.support_avx512bf16_for_cpu = False
            setattr(layer.self_attn, name, packed.to(linear.weight.device))

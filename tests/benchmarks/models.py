"""The models that the benchmarks measure, and a T4's memory on whatever card is there.

On a GPU gpt-oss-20b's shape in random bytes, kept as the profile "t4" keeps the released weights. On the CPU the
embedded model's shape in random numbers, so that every benchmark runs there, too.
"""

import gc
from dataclasses import replace

import torch
from torch import nn

from helpers import set_attention
from helpers.model.files import read_tokenizer
from helpers.model.host_embedding import gpu_reads_host
from helpers.model.load import _place, _quantize_when_complete, empty_model
from helpers.model.memory import known_config
from helpers.profiles import PROFILES, Profile
from helpers.runtime import GIB

#: What PyTorch may take of a T4's memory.
T4_GIB = 14.2


def benchmark_profile(device: str, dense: str | None = None) -> Profile:
    """The profile "t4" for a GPU and "tiny" for the CPU, with dense layers kept whole, or as `dense` says.

    Where a GPU cannot read the host's memory the embedding is kept in eight bits, as `load_model` does it.
    """
    if device == "cpu":
        return replace(PROFILES["tiny"], dense=dense or "fp32")
    embedding = "host" if gpu_reads_host(device) else "int8"
    return replace(PROFILES["t4"], dense=dense or "fp16", embedding=embedding)


def random_model(profile: Profile, layers: int | None = None) -> nn.Module:
    """The model of a profile in random numbers, frozen; with so many layers, or all. The same numbers each time.

    Its attention is "sdpa", as it is on a T4, where another card would take the time to compile flex.
    """
    config = known_config(profile)
    if layers is not None:
        config.num_hidden_layers = layers
        config.layer_types = config.layer_types[:layers]
    model = empty_model(config, profile)
    generator = torch.Generator(profile.device).manual_seed(0)
    for name, weight in list(model.named_parameters()):
        tensor = _random_weight(name, weight, generator)
        if profile.embedding != "device" and "embed_tokens" in name:
            tensor = tensor.cpu()
        _place(model, name, tensor, profile)
        if profile.dense == "nf4" and ".self_attn." in name:
            _quantize_when_complete(model, name.rpartition(".")[0], profile)
        del tensor
    model.to(profile.device).requires_grad_(False)
    set_attention(model, "sdpa")
    return model.eval()


def _random_weight(name: str, weight: nn.Parameter, generator: torch.Generator) -> torch.Tensor:
    """Values for a parameter of the empty model: weights near 0, norms near 1, MXFP4 bytes with scales near 2**-6."""
    device = generator.device
    if weight.dtype == torch.uint8:
        low, high = (118, 124) if name.endswith("_scales") else (0, 256)
        return torch.randint(low, high, weight.shape, dtype=torch.uint8, device=device, generator=generator)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    tensor = torch.randn(weight.shape, device=device, generator=generator, dtype=dtype)
    return tensor.mul_(0.02).add_(1 if "norm" in name else 0)


def embedded_tokenizer():
    """The embedded model's tokenizer, which serves the large one: its ids are few, and the text does not matter."""
    tokenizer, _ = read_tokenizer(PROFILES["tiny"].model)
    return tokenizer


def generate(
    model: nn.Module, tokenizer, settings: dict, prompts: list[list[int]], tokens: int, seed: int, temperature: float
) -> list[list[int]]:
    """Draw with transformers' `generate`, as little around it as there can be."""
    torch.manual_seed(seed)
    choice = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": temperature}
    if temperature == 0:
        choice = {"do_sample": False}
    inputs = tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt").to(model.device)
    with torch.inference_mode():
        sequences = model.generate(**inputs, **choice, **settings, max_new_tokens=tokens)
    return sequences[:, inputs.input_ids.shape[1] :].tolist()


def sixteen_bits() -> torch.dtype:
    """bf16 on GPUs that multiply it, else fp16."""
    return torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16


def cap_memory(gib: float) -> None:
    """Let PyTorch take so much of the GPU's memory and no more, in this process; nothing happens without a GPU."""
    if torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, gib * GIB / total))


def restart_peaks() -> None:
    """Let the GPU's peaks count anew from here, without what nobody uses any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peaks() -> dict[str, int]:
    """Bytes of the GPU's memory that tensors hold now, and the most since `restart_peaks`; empty without a GPU."""
    if not torch.cuda.is_available():
        return {}
    return {
        "allocated": torch.cuda.memory_allocated(),
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
    }

"""Take a trained adapter to stock PEFT and stock transformers: exported as it is, or merged into dense weights."""

import json
import shutil

import torch
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import save_file

from helpers.kernels.experts import Packed
from helpers.model.experts import MATRICES, LoraExperts
from helpers.model.files import SMALL, find_folder
from helpers.model.layers import Int8Embedding
from helpers.model.lora import TARGETS
from helpers.runtime import UserError, whole_folder

#: Bytes of a shard, about.
SHARD = 4 * 2**30


def export_adapter(model, folder):
    """Write the active adapter for stock PEFT on stock transformers, experts as `target_parameters`.

    There `PeftModel.from_pretrained(GptOssForCausalLM.from_pretrained(...), folder)` gives the same model.
    Raises UserError for a model without an adapter.
    """
    ours = _active_config(model)
    if isinstance(ours.target_modules, str) or ours.rank_pattern or ours.alpha_pattern:
        raise UserError("Only an adapter with one rank and one alpha can be exported, as add_lora makes it.")
    modules = [name for name in ours.target_modules if name in TARGETS["attention"]]
    parameters = [f"mlp.experts.{name}" for name in MATRICES] if "experts" in ours.target_modules else None
    config = LoraConfig(
        r=ours.r, lora_alpha=ours.lora_alpha, use_rslora=ours.use_rslora, bias="none", task_type="CAUSAL_LM",
        target_modules=sorted(modules), target_parameters=parameters, inference_mode=True,
        base_model_name_or_path=model.get_base_model().config._name_or_path,
    )  # fmt: skip
    ours_by_name = get_peft_model_state_dict(model, adapter_name=model.active_adapter)
    tensors = dict(_stock(name, tensor.cpu()) for name, tensor in ours_by_name.items())
    with whole_folder(folder) as part:
        save_file(tensors, part / "adapter_model.safetensors")
        config.save_pretrained(part)


def _stock(name, tensor):
    """PEFT wraps gate_up first and down around it; A is [E r, in] by expert, B [out, r E] by rank."""
    stem, _, last = name.rpartition(".lora_")
    if last not in ("gate_up_A", "gate_up_B", "down_A", "down_B"):
        return name, tensor
    matrix, half = last.rsplit("_", 1)
    where = f"{stem}.base_layer" if matrix == "gate_up" else stem
    flat = tensor.flatten(0, 1) if half == "A" else tensor.permute(1, 2, 0).flatten(1)
    return f"{where}.lora_{half}.weight", flat.contiguous()


def merge_adapter(model, folder, dtype):
    """Write the adapted model as a dense folder for stock transformers, in shards.

    dtype: of the weights written, "float32", "bfloat16" or "float16". One matrix stack is in memory at
    a time, besides the shard (4 GiB) that is being filled.

    Returns: the share of the update that rounding to `dtype` loses, ||kept - update|| / ||update|| over
    all adapted matrices; 0 in float32 up to its own rounding. gpt-oss's steps are small beside its
    weights, so in 16 bits it is large. Raises UserError for a model without an adapter or another dtype.
    """
    _active_config(model)
    if dtype not in ("float32", "bfloat16", "float16"):
        raise UserError(f"dtype must be float32, bfloat16 or float16; got {dtype!r}.")
    kind, base, sums = getattr(torch, dtype), model.get_base_model(), [0.0, 0.0]
    sizes = {name: count * kind.itemsize for name, count in _stock_sizes(base.config).items()}
    shards = _shards(sizes)
    with whole_folder(folder) as part, torch.no_grad():
        for number, names in enumerate(shards, 1):
            tensors = {name: _merged(base, name, kind, sums) for name in names}
            save_file(tensors, part / _file(number, len(shards)), metadata={"format": "pt"})
        where = {name: _file(number, len(shards)) for number, names in enumerate(shards, 1) for name in names}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": where}
        (part / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
        config = {key: value for key, value in base.config.to_dict().items() if key != "quantization_config"}
        (part / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=2, default=str))
        base.generation_config.save_pretrained(part)
        for file in find_folder(base.config._name_or_path, SMALL).glob("*"):
            if file.name.startswith(("tokenizer", "special_tokens", "chat_template")):
                shutil.copy(file, part)
    return (sums[0] / sums[1]) ** 0.5 if sums[1] else 0.0


def _active_config(model):
    if not hasattr(model, "active_peft_config"):
        raise UserError(
            "This model has no adapter: add_lora(model, ...) gives it one, load_model(adapter=...) loads one."
        )
    return model.active_peft_config


def _stock_sizes(config):
    """name -> number of values, as stock transformers names the parameters."""
    from accelerate import init_empty_weights
    from transformers import GptOssForCausalLM

    with init_empty_weights():
        return {name: weight.numel() for name, weight in GptOssForCausalLM(config).named_parameters()}


def _shards(sizes):
    shards, room = [[]], SHARD
    for name, size in sizes.items():
        if shards[-1] and size > room:
            shards.append([])
            room = SHARD
        shards[-1].append(name)
        room -= size
    return shards


def _file(number, count):
    return f"model-{number:05}-of-{count:05}.safetensors"


def _merged(base, name, kind, sums):
    """The parameter `name` of stock transformers, merged, on the CPU; adds to `sums` what rounding lost."""
    path, _, attribute = name.rpartition(".")
    module = base.get_submodule(path)
    if attribute in MATRICES:
        return _merged_experts(module, attribute, kind, sums)
    layer = getattr(module, "base_layer", module)
    weight = unpacked_weight(layer) if attribute == "weight" else getattr(layer, attribute)
    active, update = getattr(module, "active_adapters", []), None
    if attribute == "weight" and layer is not module and active[0] in module.lora_A:
        update = module.get_delta_weight(active[0])
    return _rounded(weight, update, kind, sums)


def _merged_experts(module, matrix, kind, sums):
    lora = module.adapter() if isinstance(module, LoraExperts) else None
    layer = module.base_layer if isinstance(module, LoraExperts) else module
    weights = layer.weights()
    stack = weights.gate_up if matrix == "gate_up_proj" else weights.down
    dense = torch.empty(layer.num_experts, *layer.sizes[matrix], dtype=kind)
    for expert in range(layer.num_experts):
        weight = stack.expert(expert, torch.float32) if isinstance(stack, Packed) else stack[expert]
        a, b = (lora[:2] if matrix == "gate_up_proj" else lora[2:4]) if lora else (None, None)
        update = lora.scaling * (b[expert] @ a[expert]).T if lora else None
        dense[expert] = _rounded(weight, update, kind, sums)
    return dense


def unpacked_weight(layer):
    """The fp32 weight that a layer computes with, unpacked where it is kept in fewer bits."""
    if isinstance(layer, Int8Embedding):
        return layer.unpacked()
    if hasattr(layer.weight, "quant_state"):
        from helpers.model.nf4 import unpack_nf4

        return unpack_nf4(layer)
    return layer.weight.float()


def _rounded(weight, update, kind, sums):
    weight = weight.float()
    if update is None:
        return weight.to(kind).cpu()
    merged = (weight + update).to(kind)
    sums[0] += float((merged.float() - weight - update).double().square().sum())
    sums[1] += float(update.double().square().sum())
    return merged.cpu()

"""Take a trained adapter to stock PEFT and stock transformers: exported as it is, or merged into dense weights."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers.kernels.experts import Packed
from helpers.model.experts import MATRICES, LoraExperts
from helpers.model.files import INDEX, SMALL, find_folder
from helpers.model.layers import Int8Embedding
from helpers.model.lora import TARGETS
from helpers.runtime import UserError, whole_folder

#: Bytes of a shard, about.
SHARD = 4 * 2**30


def export_adapter(model: PeftModel, folder: str | Path) -> None:
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
    ours_by_name = get_peft_model_state_dict(model, adapter_name=model.active_adapter, save_embedding_layers=False)
    stock_by_name = dict(_stock(name, tensor.cpu()) for name, tensor in ours_by_name.items())
    with whole_folder(folder) as part:
        save_file(stock_by_name, part / "adapter_model.safetensors")
        config.save_pretrained(part)


def _stock(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """Stock PEFT's name and shape of one of our adapter's tensors.

    PEFT wraps gate_up first and down around it; its A is [E r, in] by expert, its B [out, r E] by rank.
    """
    stem, _, last = name.rpartition(".lora_")
    if last not in ("gate_up_A", "gate_up_B", "down_A", "down_B"):
        return name, tensor
    matrix, half = last.rsplit("_", 1)
    where = f"{stem}.base_layer" if matrix == "gate_up" else stem
    flat = tensor.flatten(0, 1) if half == "A" else tensor.permute(1, 2, 0).flatten(1)
    return f"{where}.lora_{half}.weight", flat.contiguous()


@dataclass
class RoundingLoss:
    """The share of an update that rounding loses, summed up matrix by matrix."""

    lost: float = 0.0  # ||kept - update||^2
    wanted: float = 0.0  # ||update||^2

    def round(self, weight: Tensor, update: Tensor | None, dtype: torch.dtype) -> Tensor:
        """weight + update rounded to `dtype`, on the CPU; what that loses of the update is added to the sums."""
        weight = weight.float()
        if update is None:
            return weight.to(dtype).cpu()
        merged = (weight + update).to(dtype)
        difference = merged.float() - weight - update
        self.lost += float(difference.double().square().sum())
        self.wanted += float(update.double().square().sum())
        return merged.cpu()

    @property
    def share(self) -> float:
        """||kept - update|| / ||update||, 0 for an update of zeros."""
        return (self.lost / self.wanted) ** 0.5 if self.wanted else 0.0


def merge_adapter(model: PeftModel, folder: str | Path, dtype: str) -> float:
    """Write the adapted model as a dense folder for stock transformers, in shards; `load_model` loads it, too.

    dtype: of the weights written, "float32", "bfloat16" or "float16". One matrix stack is in memory at
    a time, besides the shard (4 GiB) that is being filled.

    Returns: the share of the update that rounding to `dtype` loses, ||kept - update|| / ||update|| over
    all adapted matrices; 0 in float32 up to its own rounding. gpt-oss's steps are small beside its
    weights, so in 16 bits it is large. Raises UserError for a model without an adapter or another dtype.
    """
    _active_config(model)
    if dtype not in ("float32", "bfloat16", "float16"):
        raise UserError(f"dtype must be float32, bfloat16 or float16; got {dtype!r}.")
    kind = getattr(torch, dtype)
    base = model.get_base_model()
    loss = RoundingLoss()
    sizes = {name: count * kind.itemsize for name, count in _stock_sizes(base.config).items()}
    shards = _shards(sizes)
    weight_map = {}
    with whole_folder(folder) as part, torch.no_grad():
        for number, names in enumerate(shards, 1):
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
            tensors = {name: _merged(base, name, kind, loss) for name in names}
            save_file(tensors, part / file, metadata={"format": "pt"})
            weight_map.update(dict.fromkeys(names, file))
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
        (part / INDEX).write_text(json.dumps(index, indent=2))
        _write_small_files(base, part, dtype)
    return loss.share


def _write_small_files(base, folder: Path, dtype: str) -> None:
    """Write configuration and tokenizer of a dense model beside its weights."""
    config = base.config.to_dict()
    config.pop("quantization_config", None)
    config["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str))
    base.generation_config.save_pretrained(folder)
    for file in find_folder(base.config._name_or_path, SMALL).glob("*"):
        if file.name.startswith(("tokenizer", "special_tokens", "chat_template")):
            shutil.copy(file, folder)


def _active_config(model) -> LoraConfig:
    """The configuration of the active adapter. Raises UserError for a model without one."""
    if not hasattr(model, "active_peft_config"):
        raise UserError(
            "This model has no adapter: add_lora(model, ...) gives it one, load_model(adapter=...) loads one."
        )
    return model.active_peft_config


def _stock_sizes(config) -> dict[str, int]:
    """Map the parameters' names, as stock transformers has them, to their numbers of values."""
    from accelerate import init_empty_weights
    from transformers import GptOssForCausalLM

    with init_empty_weights():
        model = GptOssForCausalLM(config)
    return {name: weight.numel() for name, weight in model.named_parameters()}


def _shards(sizes: dict[str, int]) -> list[list[str]]:
    """Distribute names over shards of `SHARD` bytes or one tensor, in order."""
    shards = [[]]
    room = SHARD
    for name, size in sizes.items():
        if shards[-1] and size > room:
            shards.append([])
            room = SHARD
        shards[-1].append(name)
        room -= size
    return shards


def _merged(base, name: str, dtype: torch.dtype, loss: RoundingLoss) -> Tensor:
    """The parameter `name` of stock transformers, merged, on the CPU."""
    path, _, attribute = name.rpartition(".")
    module = base.get_submodule(path)
    if attribute in MATRICES:
        return _merged_experts(module, attribute, dtype, loss)
    layer = getattr(module, "base_layer", module)
    if attribute != "weight":
        return loss.round(getattr(layer, attribute), None, dtype)
    update = None
    active = getattr(module, "active_adapters", [])
    is_added_already = getattr(module, "merged", False)  # by PEFT's own merge_adapter
    if layer is not module and not is_added_already and active[0] in module.lora_A:
        update = module.get_delta_weight(active[0])
    return loss.round(unpacked_weight(layer), update, dtype)


def _merged_experts(module, matrix: str, dtype: torch.dtype, loss: RoundingLoss) -> Tensor:
    """A matrix [E, in, out] of all experts, merged expert by expert, on the CPU."""
    lora = module.adapter() if isinstance(module, LoraExperts) else None
    layer = module.base_layer if isinstance(module, LoraExperts) else module
    weights = layer.weights()
    is_gate_up = matrix == "gate_up_proj"
    stack = weights.gate_up if is_gate_up else weights.down
    if lora:
        a = lora.gate_up_A if is_gate_up else lora.down_A  # [E, r, in]
        b = lora.gate_up_B if is_gate_up else lora.down_B  # [E, out, r]
    merged = torch.empty(layer.num_experts, *layer.sizes[matrix], dtype=dtype)
    for expert in range(layer.num_experts):
        weight = stack.expert(expert, torch.float32) if isinstance(stack, Packed) else stack[expert]
        update = lora.scaling * (b[expert] @ a[expert]).T if lora else None
        merged[expert] = loss.round(weight, update, dtype)
    return merged


def unpacked_weight(layer: nn.Module) -> Tensor:
    """The fp32 weight that a layer computes with, unpacked where it is kept in fewer bits."""
    if isinstance(layer, Int8Embedding):
        return layer.unpacked()
    if hasattr(layer.weight, "quant_state"):
        from helpers.model.nf4 import unpack_nf4

        return unpack_nf4(layer)
    return layer.weight.float()

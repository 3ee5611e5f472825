"""The weights of a loaded gpt-oss as the decoding step reads them: where they lie in the model, without a copy.

Base weights and LoRA matrices are the model's own tensors. An optimizer that updates the matrices in place updates what
the next rollout reads; nothing is merged or copied. `signature` tells whether a change was of another kind. There is
one exception: NF4 weights on the CPU are unpacked once, so they must stay what they are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import Linear as LoraLinear
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import GptOssForCausalLM

from helpers.kernels.experts import DECODE_TOKENS, ExpertLora, ExpertWeights, runs_grouped
from helpers.kernels.linear import frozen_linear
from helpers.model.experts import LoraExperts, PackedExperts
from helpers.runtime import UserError

USE_TRANSFORMERS = 'make the engine with backend="transformers"'


@dataclass(frozen=True)
class LowRank:
    """One LoRA adapter of a projection: a fp32 [r, in], b fp32 [out, r]; start: its first column of the result."""

    a: Tensor
    b: Tensor
    scaling: float
    start: int


@dataclass(frozen=True)
class Projection:
    """A linear layer, or several side by side, with their adapters.

    base: [N, in] -> [N, out] in the dtype that the model's layer gives.
    """

    base: Callable[[Tensor], Tensor]
    adapters: tuple[LowRank, ...]

    def __call__(self, x: Tensor) -> Tensor:
        """fp32 [N, in] -> [N, out]. As in PEFT, adapters are added in fp32 and the sum is rounded once more."""
        out = self.base(x)
        if not self.adapters:
            return out
        wide = out.to(torch.promote_types(out.dtype, torch.float32))
        matrices = [adapter.a for adapter in self.adapters]
        together = matrices[0] if len(matrices) == 1 else torch.cat(matrices)  # [sum of r, in]
        ranks = [adapter.a.shape[0] for adapter in self.adapters]
        lows = (x.to(together.dtype) @ together.T).split(ranks, -1)  # [N, r] each
        for adapter, low in zip(self.adapters, lows, strict=True):
            columns = wide[:, adapter.start : adapter.start + adapter.b.shape[0]]
            columns.addmm_(low, adapter.b.T, alpha=adapter.scaling)
        return wide.to(out.dtype)


@dataclass(frozen=True)
class LayerWeights:
    """One layer.

    sinks: fp32 [Hq].
    """

    attention_norm: Tensor
    qkv: Projection
    sinks: Tensor
    scale: float
    output: Projection
    expert_norm: Tensor
    router_weight: Tensor
    router_bias: Tensor
    experts: ExpertWeights
    expert_lora: ExpertLora | None


@dataclass(frozen=True)
class DecoderWeights:
    """A model.

    cos, sin: [length, D], what a head and the same head with its halves exchanged are multiplied by at each position.
    top_k: experts of a token.
    """

    embed: nn.Module
    layers: list[LayerWeights]
    norm: Tensor
    head: nn.Module
    cos: Tensor
    sin: Tensor
    eps: float
    hidden_size: int
    top_k: int
    heads: int
    key_heads: int
    head_dim: int

    def adapter_matrices(self) -> list[Tensor]:
        """The LoRA matrices of every layer: of all tensors here, those that an optimizer changes."""
        matrices = []
        for layer in self.layers:
            for adapter in (*layer.qkv.adapters, *layer.output.adapters):
                matrices += [adapter.a, adapter.b]
            if layer.expert_lora is not None:
                matrices += layer.expert_lora.matrices
        return matrices


def base_model(model: nn.Module) -> nn.Module:
    """The causal LM itself, without PEFT around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def problem_with(model: nn.Module) -> str | None:
    """Return the reason why the decoding step cannot run this model, or None if it can."""
    causal_lm = base_model(model)
    if not isinstance(causal_lm, GptOssForCausalLM):
        return f"it is a {type(causal_lm).__name__} and no gpt-oss"
    for layer in causal_lm.model.layers:
        experts = _without_adapter(layer.mlp.experts)
        if not isinstance(experts, PackedExperts):
            return "its experts are transformers' own: load it with load_model"
        if experts.down_proj_bias.is_cuda and not experts.packed:
            return "its experts are dense on a GPU"
    for module in causal_lm.modules():
        if isinstance(module, BaseTunerLayer) and not _is_plain_lora(module):
            return "it has an adapter other than plain LoRA"
    prompt_learners = [config for config in getattr(model, "peft_config", {}).values() if config.is_prompt_learning]
    return "it has a learned prompt" if prompt_learners else None


def check_model(model: nn.Module) -> None:
    """Raise UserError unless the decoding step can run this model."""
    reason = problem_with(model)
    if reason:
        raise UserError(f"The captured backend cannot run this model: {reason}; or {USE_TRANSFORMERS}.")


def _is_plain_lora(module: BaseTunerLayer) -> bool:
    if isinstance(module, LoraExperts):
        return True
    if not isinstance(module, LoraLinear | _quantized_lora_types()):
        return False
    return not module.lora_variant and not any(module.lora_bias.values())


def _quantized_lora_types() -> type:
    """PEFT's LoRA layer over bitsandbytes' 4-bit layer, where that is installed."""
    try:
        from peft.tuners.lora.bnb import Linear4bit
    except ImportError:
        return LoraLinear
    return Linear4bit


def most_rows(model: nn.Module) -> int | float:
    """The most rows that a step can decode without waiting for the device."""
    is_on_gpu = base_model(model).lm_head.weight.is_cuda
    return DECODE_TOKENS if is_on_gpu else math.inf


def can_be_traced(weights: "DecoderWeights") -> bool:
    """True if every weight is fp32 and none packed.

    Other experts are sorted on the host; and of a 16-bit weight a trace would keep a copy in fp32, which is a constant.
    """
    experts = weights.layers[0].experts
    return runs_grouped(experts) and weights.cos.dtype == torch.float32


def signature(model: nn.Module) -> tuple:
    """What must stay the same for `DecoderWeights` to be true: which tensors there are, and which adapters are on.

    A new value in a tensor changes nothing here.
    """
    parts = []
    for name, module in base_model(model).named_modules():
        if isinstance(module, LoraLayer):
            active = tuple(module.active_adapters)
            scalings = tuple(module.scaling.get(adapter) for adapter in active)
            parts.append((name, active, scalings, module.disable_adapters, tuple(module.merged_adapters)))
    tensors = [*base_model(model).parameters(), *base_model(model).buffers()]
    parts.extend(tensor.data_ptr() for tensor in tensors)
    return tuple(parts)


@torch.no_grad()
def read_weights(model: nn.Module, length: int) -> DecoderWeights:
    """Collect the weights of `model` for rows of up to `length` tokens.

    The model's query, key and value matrices become views of one matrix, so that one product serves the three.
    Raises UserError for a model that the decoding step cannot run.
    """
    check_model(model)
    causal_lm = base_model(model)
    config = causal_lm.config
    norm = causal_lm.model.norm
    cos, sin = _angles(causal_lm, length)
    return DecoderWeights(
        embed=causal_lm.model.embed_tokens,
        layers=[_layer(layer) for layer in causal_lm.model.layers],
        norm=norm.weight,
        head=causal_lm.lm_head,
        cos=cos,
        sin=sin,
        eps=norm.variance_epsilon,
        hidden_size=config.hidden_size,
        top_k=config.num_experts_per_tok,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
    )


def _angles(causal_lm: nn.Module, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines [length, D] of every position, as the model computes them for half a head."""
    weight = causal_lm.model.norm.weight
    positions = torch.arange(length, device=weight.device)
    cos, sin = causal_lm.model.rotary_emb(weight, positions[None])  # [1, length, D / 2]
    return torch.cat([cos[0], cos[0]], -1), torch.cat([-sin[0], sin[0]], -1)


def _layer(layer: nn.Module) -> LayerWeights:
    attention = layer.self_attn
    experts = layer.mlp.experts
    return LayerWeights(
        attention_norm=layer.input_layernorm.weight,
        qkv=_projection([attention.q_proj, attention.k_proj, attention.v_proj]),
        sinks=attention.sinks.detach(),
        scale=attention.scaling,
        output=_projection([attention.o_proj]),
        expert_norm=layer.post_attention_layernorm.weight,
        router_weight=layer.mlp.router.weight,
        router_bias=layer.mlp.router.bias,
        experts=_without_adapter(experts).weights(),
        expert_lora=_expert_adapter(experts),
    )


def _expert_adapter(experts: nn.Module) -> ExpertLora | None:
    """The active adapter of a layer's experts, without gradients."""
    lora = experts.adapter() if isinstance(experts, LoraExperts) else None
    if lora is None:
        return None
    matrices = [matrix.detach() for matrix in lora.matrices]
    return ExpertLora(*matrices, lora.scaling)


def _without_adapter(module: nn.Module) -> nn.Module:
    return module.get_base_layer() if isinstance(module, LoraLayer) else module


def _projection(modules: list[nn.Module]) -> Projection:
    """One `Projection` for linear layers that share their input."""
    adapters = []
    start = 0
    for module in modules:
        if isinstance(module, LoraLayer):
            adapters.extend(_active_adapters(module, start))
        start += module.out_features
    linears = [_without_adapter(module) for module in modules]
    return Projection(_base(linears), tuple(adapters))


def _active_adapters(module: LoraLayer, start: int) -> list[LowRank]:
    if module.disable_adapters or module.merged:
        return []
    return [
        LowRank(module.lora_A[name].weight.detach(), module.lora_B[name].weight.detach(), module.scaling[name], start)
        for name in module.active_adapters
        if name in module.lora_A
    ]


def _base(linears: list[nn.Module]) -> Callable[[Tensor], Tensor]:
    """The frozen layers side by side, as one function."""
    out_dtype = getattr(linears[0], "out_dtype", None)
    is_packed = linears[0].weight.dtype == torch.uint8
    if is_packed and linears[0].weight.is_cuda:
        return partial(_side_by_side, linears) if len(linears) > 1 else linears[0]
    if is_packed:
        weight = torch.cat([_unpacked(linear) for linear in linears])
    else:
        weight = _share_storage([linear.weight for linear in linears])
    bias = _share_storage([linear.bias for linear in linears])
    return partial(frozen_linear, weight=weight.T, bias=bias, out_dtype=out_dtype)


def _side_by_side(linears: list[nn.Module], x: Tensor) -> Tensor:
    return torch.cat([linear(x) for linear in linears], -1)


def _unpacked(linear: nn.Module) -> Tensor:
    """The weight [out, in] of an NF4 layer, in the dtype it is multiplied in.

    The CPU has memory to keep it, and nothing else computes with four bits there.
    """
    from helpers.model.nf4 import unpack_nf4

    dtype = linear.compute_dtype or torch.float32
    return unpack_nf4(linear).to(dtype)


def _share_storage(weights: list[nn.Parameter]) -> Tensor:
    """One tensor [sum of out, ...] that holds all `weights`; they become views of it, so nothing is kept twice."""
    first = weights[0].detach()
    if _lie_together(weights):
        rows = sum(len(weight) for weight in weights)
        return first.as_strided((rows, *first.shape[1:]), first.stride())
    with torch.inference_mode(False):
        together = torch.cat([weight.detach() for weight in weights])
    start = 0
    for weight in weights:
        weight.data = together[start : start + len(weight)]
        start += len(weight)
    return together


def _lie_together(weights: list[nn.Parameter]) -> bool:
    """True if each tensor begins in memory where the one before ends, as `_share_storage` leaves them."""
    storages = {weight.untyped_storage().data_ptr() for weight in weights}
    ends = [weight.data_ptr() + weight.nbytes for weight in weights]
    starts = [weight.data_ptr() for weight in weights]
    return len(storages) == 1 and starts[1:] == ends[:-1]

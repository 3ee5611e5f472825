"""The experts of a layer over packed or dense weights, and LoRA on both of their matrices through PEFT."""

import math

import torch
from peft import LoraConfig
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import check_adapters_to_merge
from torch import Tensor, nn
from transformers import GptOssConfig

from helpers.kernels.experts import ExpertLora, ExpertWeights, Packed, expert_forward
from helpers.kernels.mxfp4 import GROUP
from helpers.runtime import UserError

MATRICES = ("gate_up_proj", "down_proj")


class PackedExperts(nn.Module):
    """Takes the place of transformers' `GptOssExperts`, with the released tensors' names and shapes.

    packed: keep MXFP4 as `{matrix}_blocks` and `{matrix}_scales`; else a dense parameter
    [E, in, out] as transformers has it. dtype: of the operands. Biases are fp32, or wider.
    """

    def __init__(self, config, packed: bool, dtype: torch.dtype):
        super().__init__()
        self.num_experts = config.num_local_experts
        self.packed = packed
        self.dtype = dtype
        self.alpha = getattr(config, "swiglu_alpha", 1.702)
        self.limit = getattr(config, "swiglu_limit", 7.0)
        self.sizes = matrix_sizes(config)
        bias_dtype = torch.promote_types(dtype, torch.float32)
        for name, (wide, out) in self.sizes.items():
            if packed:
                groups = (self.num_experts, out, wide // GROUP)
                self._add_frozen(f"{name}_blocks", (*groups, GROUP // 2), torch.uint8)
                self._add_frozen(f"{name}_scales", groups, torch.uint8)
            else:
                self._add_frozen(name, (self.num_experts, wide, out), dtype)
            self._add_frozen(f"{name}_bias", (self.num_experts, out), bias_dtype)

    def _add_frozen(self, name: str, shape: tuple, dtype: torch.dtype) -> None:
        self.register_parameter(name, _frozen(torch.empty(shape, dtype=dtype)))

    def _matrix(self, name: str) -> Packed | Tensor:
        """One of `MATRICES` as it is kept."""
        if not self.packed:
            return getattr(self, name)
        return Packed(getattr(self, f"{name}_blocks"), getattr(self, f"{name}_scales"))

    def weights(self) -> ExpertWeights:
        """The layer's weights as the kernels take them."""
        return ExpertWeights(
            gate_up=self._matrix("gate_up_proj"),
            gate_up_bias=self.gate_up_proj_bias,
            down=self._matrix("down_proj"),
            down_bias=self.down_proj_bias,
            dtype=self.dtype,
            alpha=self.alpha,
            limit=self.limit,
        )

    @torch.no_grad()
    def unpack_(self) -> None:
        """Keep the matrices dense from here on."""
        if not self.packed:
            return
        for name in MATRICES:
            dense = self._matrix(name).dense(self.dtype)
            delattr(self, f"{name}_blocks")
            delattr(self, f"{name}_scales")
            self.register_parameter(name, _frozen(dense))
        self.packed = False

    def forward(
        self, hidden_states: Tensor, router_indices: Tensor, routing_weights: Tensor, lora: ExpertLora | None = None
    ) -> Tensor:
        """hidden_states [T, H], router_indices and routing_weights [T, K] -> fp32 [T, H]."""
        return expert_forward(hidden_states, router_indices, routing_weights, self.weights(), lora)

    def extra_repr(self):
        kept = "MXFP4" if self.packed else str(self.dtype).removeprefix("torch.")
        return f"{self.num_experts} experts, {kept}"


def matrix_sizes(config: GptOssConfig) -> dict[str, tuple[int, int]]:
    """Map the name of each matrix of an expert to (in, out)."""
    hidden = config.hidden_size
    inner = config.intermediate_size
    return {"gate_up_proj": (hidden, 2 * inner), "down_proj": (inner, hidden)}


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


class LoraExperts(nn.Module, LoraLayer):
    """PEFT's layer over `PackedExperts`: A [E, r, in] and B [E, out, r] for each of the two matrices.

    Found by PEFT through `helpers.model.lora.register_layers`. Merging in place unpacks the experts first, as packed
    bytes cannot hold the sum; for a model that is large for its device, `merge_adapter` writes a folder.
    """

    adapter_layer_names = ("lora_gate_up_A", "lora_gate_up_B", "lora_down_A", "lora_down_B")

    def __init__(self, base_layer, adapter_name, config, r=0, lora_alpha=1, **_):
        nn.Module.__init__(self)
        LoraLayer.__init__(self, base_layer)
        for name in self.adapter_layer_names:
            setattr(self, name, nn.ParameterDict())
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, r, lora_alpha=lora_alpha, config=config)

    def _get_in_out_features(self, module):
        return module.sizes["gate_up_proj"]

    def update_layer(self, adapter_name: str, r: int, lora_alpha: float, config: LoraConfig, **_):
        """Add fresh fp32 matrices: A as PEFT starts a linear layer's, B zero."""
        if config.lora_dropout or config.use_dora or config.lora_bias or r < 1:
            raise UserError(
                "LoRA on experts takes r >= 1 and neither dropout, bias nor DoRA: leave those at their defaults."
            )
        base = self.get_base_layer()
        device = base.down_proj_bias.device
        for name, (wide, out) in base.sizes.items():
            stem = f"lora_{name.removesuffix('_proj')}"
            a = torch.empty(base.num_experts, r, wide, device=device).uniform_(-1, 1) / math.sqrt(wide)
            b = torch.zeros(base.num_experts, out, r, device=device)
            getattr(self, f"{stem}_A")[adapter_name] = nn.Parameter(a)
            getattr(self, f"{stem}_B")[adapter_name] = nn.Parameter(b)
        self.r[adapter_name] = r
        self.lora_alpha[adapter_name] = lora_alpha
        self.scaling[adapter_name] = lora_alpha / (math.sqrt(r) if config.use_rslora else r)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def adapter(self) -> ExpertLora | None:
        """The active adapter, or None."""
        active = [name for name in self.active_adapters if name in self.scaling]
        if self.disable_adapters or self.merged or not active:
            return None
        if len(active) > 1:
            raise UserError(
                f"Experts take one adapter at a time, and {', '.join(active)} are active: choose with set_adapter."
            )
        return self._lora(active[0])

    def _lora(self, name: str) -> ExpertLora:
        matrices = [getattr(self, part)[name] for part in self.adapter_layer_names]
        return ExpertLora(*matrices, self.scaling[name])

    def forward(self, hidden_states: Tensor, router_indices: Tensor, routing_weights: Tensor) -> Tensor:
        return self.base_layer(hidden_states, router_indices, routing_weights, self.adapter())

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """PEFT's merge: the weights become dense and take the adapter in; `safe_merge`: only if it is finite."""
        self.get_base_layer().unpack_()
        for name in check_adapters_to_merge(self, adapter_names):
            if name in self.scaling:
                self._shift(name, 1, safe_merge)
                self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """PEFT's unmerge: take the merged adapters out again; the weights stay dense."""
        while self.merged_adapters:
            self._shift(self.merged_adapters.pop(), -1)

    @torch.no_grad()
    def _shift(self, name: str, sign: int, safe: bool = False) -> None:
        """Add an adapter's update to the dense weights, or with sign -1 take it away."""
        lora = self._lora(name)
        base = self.get_base_layer()
        factors = {
            "gate_up_proj": (lora.gate_up_A, lora.gate_up_B),
            "down_proj": (lora.down_A, lora.down_B),
        }
        for matrix, (a, b) in factors.items():
            update = sign * lora.scaling * torch.einsum("eor,eri->eio", b, a)  # [E, in, out]
            if safe and not bool(update.isfinite().all()):
                raise ValueError(f"Adapter {name} is not finite: it cannot be merged.")
            getattr(base, matrix).add_(update)

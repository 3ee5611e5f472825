"""Compare two ways to compute attention on the same inputs of every layer."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import GptOssConfig

from helpers.kernels.attention import sink_attention
from helpers.kernels.masks import AttentionMask
from helpers.runtime import UserError

#: The values that a row of `probe_layers` compares: the output, and the gradients of the four inputs.
COMPARED = ("output", "dq", "dk", "dv", "dsinks")


class LayerInputs(NamedTuple):
    """The inputs of one layer's attention; shapes as in `sink_attention`. kind: "full" or "sliding"."""

    layer: int
    kind: str
    q: Tensor
    k: Tensor
    v: Tensor
    sinks: Tensor
    mask: AttentionMask
    scale: float


def layer_inputs(model: nn.Module, **batch: Tensor) -> list[LayerInputs]:
    """Record the inputs of every layer's attention in one forward pass of `model` over `batch`, a tokenizer's output.

    Raises UserError if the model does not use this project's attention (`set_attention`).
    """
    found = []

    def note(module, q, k, v, sinks, mask, scale):
        kind = "full" if mask.window is None else "sliding"
        found.append(LayerInputs(module.layer_idx, kind, q, k, v, sinks.detach(), mask, scale))

    with torch.no_grad():
        model(**batch, use_cache=False, logits_to_keep=1, on_attention=note)
    if not found:
        raise UserError("The model does not use this project's attention: call set_attention(model, 'auto') first.")
    return found


def synthetic_inputs(
    config: GptOssConfig,
    length: int,
    *,
    score: float = 1.0,
    sink: float = 0.0,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Iterator[LayerInputs]:
    """Yield `LayerInputs` for each layer of a `GptOssConfig`, drawn at random.

    Scores have mean 0 and standard deviation `score`; the sinks lie `sink` above the log-sum-exp that so many such
    scores are expected to have, log n + score² / 2 for n visible keys, so that 0 gives half of the attention away.
    """
    generator = torch.Generator(device).manual_seed(seed)
    dim = config.head_dim
    heads = config.num_attention_heads

    def draw(count: int) -> Tensor:
        return torch.randn(1, count, length, dim, generator=generator, device=device)

    for layer, name in enumerate(config.layer_types):
        window = config.sliding_window if name == "sliding_attention" else None
        mask = AttentionMask(1, length, length, window=window, device=device)
        q = draw(heads) * score
        k = draw(config.num_key_value_heads)
        v = draw(config.num_key_value_heads)
        visible_keys = torch.tensor(float(min(length, window or length)))
        level = visible_keys.log() + score**2 / 2 + sink
        sinks = level.to(device).expand(heads)
        kind = "sliding" if window else "full"
        yield LayerInputs(layer, kind, q, k, v, sinks, mask, scale=dim**-0.5)


def probe_layers(
    inputs: Iterable[LayerInputs],
    attention: str | Callable,
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16),
    seed: int = 0,
) -> list[dict]:
    """Compare `attention` with the definition in float64, layer by layer and dtype by dtype.

    Args:
        inputs: of `layer_inputs` or `synthetic_inputs`; each layer's are rounded to the dtype for both sides.
        attention: a backend's name, or a function with `sink_attention`'s arguments.

    Returns: list of dict with layer, kind, dtype, lse (largest magnitude, natural log), and for each of `COMPARED` the
    relative error in norm. Both sides are differentiated along one random direction.
    """
    rows = []
    for layer in inputs:
        draw = torch.Generator(layer.q.device).manual_seed(seed + layer.layer)
        direction = torch.randn(layer.q.shape, generator=draw, device=layer.q.device)
        for dtype in dtypes:
            rounded = [x.to(dtype) for x in (layer.q, layer.k, layer.v)]
            rounded_direction = direction.to(dtype)
            ours, _ = _forward_and_backward(attention, rounded, layer, rounded_direction)
            exact_inputs = [x.double() for x in rounded]
            exact, lse = _forward_and_backward("eager", exact_inputs, layer, rounded_direction.double())
            row = {
                "layer": layer.layer,
                "kind": layer.kind,
                "dtype": str(dtype).removeprefix("torch."),
                "lse": lse,
            }
            for name, value, wanted in zip(COMPARED, ours, exact):
                row[name] = _relative_error(value, wanted)
            rows.append(row)
    return rows


def _relative_error(value: Tensor, wanted: Tensor) -> float:
    """||value - wanted|| / ||wanted||, in float64."""
    difference = (value.double() - wanted).norm()
    return float(difference / wanted.norm().clamp(min=1e-300))


def _forward_and_backward(
    attention: str | Callable, qkv: list[Tensor], layer: LayerInputs, direction: Tensor
) -> tuple[list[Tensor], float | None]:
    """`([output, dq, dk, dv, dsinks], largest |lse|, or None where `attention` gives none)`."""
    wide = torch.promote_types(qkv[0].dtype, torch.float32)  # sinks are fp32 in the model
    inputs = [*qkv, layer.sinks.to(wide)]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    if not callable(attention):
        attention = partial(sink_attention, backend=attention, return_lse=attention == "eager")
    with torch.enable_grad():
        result = attention(*leaves, layer.mask, scale=layer.scale)
        output, lse = result if isinstance(result, tuple) else (result, None)
        gradients = torch.autograd.grad((output * direction).sum(), leaves)
    values = [output.detach(), *gradients]
    if lse is None:
        return values, None
    finite = lse.detach()[lse.isfinite()]
    return values, float(finite.abs().max())

"""Two ways to compute attention on the same inputs of every layer: where they differ, and by how much."""

from functools import partial
from typing import NamedTuple

import torch

from helpers.kernels.attention import sink_attention
from helpers.kernels.masks import AttentionMask
from helpers.runtime import UserError

#: What a row of `probe_layers` compares: the output, and the gradients of the four inputs.
COMPARED = ("output", "dq", "dk", "dv", "dsinks")


class LayerInputs(NamedTuple):
    """What one layer hands to its attention; shapes as in `sink_attention`. kind: "full" or "sliding"."""

    layer: int
    kind: str
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sinks: torch.Tensor
    mask: AttentionMask
    scale: float


def layer_inputs(model, **batch):
    """list[LayerInputs] of one forward pass of `model` over `batch`, as a tokenizer gives it.

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


def synthetic_inputs(config, length, *, score=1.0, sink=0.0, device="cpu", seed=0):
    """Yield `LayerInputs` for each layer of a `GptOssConfig`, drawn at random.

    Scores have mean 0 and standard deviation `score`; the sinks lie `sink` above the log-sum-exp that so many such
    scores are expected to have, log n + score² / 2 for n visible keys, so that 0 gives half of the attention away.
    """
    generator = torch.Generator(device).manual_seed(seed)
    dim, heads, key_heads = config.head_dim, config.num_attention_heads, config.num_key_value_heads
    for layer, name in enumerate(config.layer_types):
        window = config.sliding_window if name == "sliding_attention" else None
        mask = AttentionMask(1, length, length, window=window, device=device)
        q, k, v = (
            torch.randn(1, count, length, dim, generator=generator, device=device)
            for count in (heads, key_heads, key_heads)
        )
        level = torch.tensor(float(min(length, window or length))).log() + score**2 / 2 + sink
        kind = "sliding" if window else "full"
        yield LayerInputs(layer, kind, q * score, k, v, level.to(device).expand(heads), mask, dim**-0.5)


def probe_layers(inputs, attention, dtypes=(torch.float32, torch.bfloat16, torch.float16), seed=0):
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
            tensors = [x.to(dtype) for x in (layer.q, layer.k, layer.v)]
            ours, _ = _both_ways(attention, tensors, layer, direction.to(dtype))
            exact, lse = _both_ways("eager", [x.double() for x in tensors], layer, direction.to(dtype).double())
            errors = {
                name: float((x.double() - y).norm() / y.norm().clamp(min=1e-300))
                for name, x, y in zip(COMPARED, ours, exact)
            }
            head = {"layer": layer.layer, "kind": layer.kind, "dtype": str(dtype).removeprefix("torch."), "lse": lse}
            rows.append(head | errors)
    return rows


def _both_ways(attention, tensors, layer, direction):
    """`([output, dq, dk, dv, dsinks], largest |lse|, or None where `attention` gives none)`."""
    wide = torch.promote_types(tensors[0].dtype, torch.float32)  # sinks are fp32 in the model
    leaves = [x.detach().clone().requires_grad_() for x in (*tensors, layer.sinks.to(wide))]
    if not callable(attention):
        attention = partial(sink_attention, backend=attention, return_lse=attention == "eager")
    with torch.enable_grad():
        result = attention(*leaves, layer.mask, scale=layer.scale)
        output, lse = result if isinstance(result, tuple) else (result, None)
        values = [output.detach(), *torch.autograd.grad((output * direction).sum(), leaves)]
    return values, None if lse is None else float(lse.detach()[lse.isfinite()].abs().max())

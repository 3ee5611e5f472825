"""The project's attention in an unmodified `GptOssForCausalLM`, by transformers' registries."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from helpers.kernels.attention import sink_attention
from helpers.kernels.masks import AttentionMask
from helpers.runtime import UserError

#: backend -> name for `set_attn_implementation`. Transformers searches names for "sdpa" and
#: "flex_attention" and would then apply its own rules, so these avoid both.
NAMES = {"auto": "sinks_auto", "eager": "sinks_eager", "sdpa": "sinks_fused", "flex": "sinks_flex"}


class ModelMask(AttentionMask):
    """An `AttentionMask` in transformers' hands."""

    def contiguous(self):
        """Itself: `generate` asks this of every mask when the cache is static."""
        return self


def attention_forward(backend: str) -> Callable:
    """Make the function that transformers calls in each layer.

    `on_attention`, a keyword of the model's forward pass, is called with the arguments of each layer's attention.
    """

    def forward(module, query, key, value, attention_mask, scaling, dropout=0.0, s_aux=None, on_attention=None, **_):
        if dropout:
            raise ValueError(
                f"attention dropout is not supported, got dropout {dropout} for q {list(query.shape)}: set "
                "config.attention_dropout = 0, as in the released gpt-oss"
            )
        if on_attention:
            on_attention(module, query, key, value, s_aux, attention_mask, scaling)
        output = sink_attention(query, key, value, s_aux, attention_mask, scale=scaling, backend=backend)
        return output.transpose(1, 2).contiguous(), None

    return forward


class _Decoding(threading.local):
    """The mask of the last decoding step for each kind of layer, to be moved by one."""

    def __init__(self):
        self.masks = {}


_decoding = _Decoding()


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    device: torch.device | str | None = None,
    **_,
) -> ModelMask:
    """Build the `AttentionMask` of one layer type from what transformers knows.

    With a sliding cache the keys start at position `kv_offset`; all positions here are counted from there. While
    decoding with a cache of fixed length the mask of the step before is moved, not built. Raises ValueError for a
    2-D mask with holes, or with a row of no token, when a mask is built.
    """
    shape = (batch_size, q_length, kv_length)
    left_pad = None
    # as a new tensor: the cache counts on in its own before the layer attends
    q_offset = q_offset - kv_offset
    # a tensor made in inference mode cannot be changed outside it
    kind = (device, local_size, attention_mask is None, torch.is_inference_mode_enabled())
    is_decoding = q_length == 1 and not torch.is_grad_enabled()
    kept = _decoding.masks.get(kind) if is_decoding else None
    if kept is not None and (kept.batch, kept.q_len, kept.kv_len) != shape:
        kept = None
    if attention_mask is not None:
        left_pad = attention_mask.to(torch.uint8).argmax(1)
        if kept is None or not attention_mask.is_cuda:
            _check_padding(attention_mask, left_pad)
        left_pad = (left_pad - kv_offset).clamp(min=0)
    if kept is not None:
        kept.move(q_offset, left_pad)
        return kept
    mask = ModelMask(*shape, window=local_size, left_pad=left_pad, q_offset=q_offset, device=device)
    if is_decoding:
        _decoding.masks[kind] = mask
    return mask


def _check_padding(attention_mask: Tensor, left_pad: Tensor) -> None:
    """Raise ValueError unless the ones of each row are one piece.

    Zeros after it are hidden by causality only as long as no token follows.
    """
    ones = attention_mask.sum(1)
    last = attention_mask.shape[1] - 1 - attention_mask.flip(1).to(torch.uint8).argmax(1)
    if bool((ones == 0).any()):
        raise ValueError(f"attention_mask {list(attention_mask.shape)} has a row without any token: leave it out")
    if bool((last - left_pad + 1 != ones).any()):
        raise ValueError(
            f"attention_mask {list(attention_mask.shape)} has holes: to generate, pad on the left; for packed rows "
            "give the model a dict of AttentionMask with document_ids for 'full_attention' and 'sliding_attention'"
        )


for _backend, _name in NAMES.items():
    AttentionInterface.register(_name, attention_forward(_backend))
    AttentionMaskInterface.register(_name, attention_mask)


def attention_problem(name: str) -> str | None:
    """Return the reason why gpt-oss cannot be trained with transformers' attention of that name; None if it can.

    Ours and transformers' eager are tested; FlashAttention 3 takes sinks but has no gradient for them,
    FlashAttention 2 and PyTorch's own SDPA know no sinks at all.
    """
    if name in (*NAMES.values(), "eager"):
        return None
    if "flash-attn3" in name or "flash_attention_3" in name:
        return "FlashAttention 3 computes sinks forwards only, without their gradient"
    if name == "flex_attention":
        return "transformers' version rounds the normaliser that the sinks' gradient goes through to 16 bits"
    if name in ("sdpa", "flash_attention_2"):
        return "it has no sinks"
    return "nobody has shown that its gradient reaches the sinks"


def check_attention(model: nn.Module) -> None:
    """Raise UserError unless gradients reach the sinks: they would be silently wrong, or missing."""
    name = model.config._attn_implementation
    if reason := attention_problem(name):
        raise UserError(
            f"Attention '{name}' cannot be trained with gpt-oss: {reason}. Call set_attention(model, 'auto') first."
        )


def set_attention(model: nn.Module, backend: str) -> None:
    """Make `model` use one of "auto", "sdpa", "flex", "eager" from here on. Raises ValueError for another name."""
    if backend not in NAMES:
        raise ValueError(f"backend must be one of {', '.join(NAMES)}, got {backend!r}")
    model.set_attn_implementation(NAMES[backend])

"""Gives an unmodified `GptOssForCausalLM` the project's attention, by transformers' registries."""

from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from helpers.kernels.attention import AttentionMask, sink_attention
from helpers.runtime import UserError

#: backend -> name for `set_attn_implementation`. Transformers searches names for "sdpa" and
#: "flex_attention" and would then apply its own rules, so these avoid both.
NAMES = {"auto": "sinks_auto", "eager": "sinks_eager", "sdpa": "sinks_fused", "flex": "sinks_flex"}


def attention_forward(backend):
    """The function that transformers calls in each layer."""

    def forward(module, query, key, value, attention_mask, scaling, dropout=0.0, s_aux=None, **_):
        if dropout:
            raise ValueError(f"attention dropout is not supported, got {dropout}")
        output = sink_attention(query, key, value, s_aux, attention_mask, scale=scaling, backend=backend)
        return output.transpose(1, 2).contiguous(), None

    return forward


def attention_mask(
    batch_size, q_length, kv_length, q_offset=0, kv_offset=0, attention_mask=None, local_size=None, device=None, **_
):
    """Build the `AttentionMask` of one layer type from what transformers knows.

    With a sliding cache the keys start at position `kv_offset`; all positions here are
    counted from there.
    """
    left_pad = None
    if attention_mask is not None and not bool(attention_mask.all()):
        left_pad = (attention_mask.long().argmax(1) - kv_offset).clamp(min=0)
    return AttentionMask(
        batch_size,
        q_length,
        kv_length,
        window=local_size,
        left_pad=left_pad,
        q_offset=q_offset - kv_offset,
        device=device,
    )


for _backend, _name in NAMES.items():
    AttentionInterface.register(_name, attention_forward(_backend))
    AttentionMaskInterface.register(_name, attention_mask)


def check_attention(model):
    """Raise UserError unless gradients reach the sinks: they would be silently wrong, or missing.

    Ours and transformers' eager are tested; FlashAttention 3 takes sinks but has no gradient for them,
    FlashAttention 2 and PyTorch's own SDPA know no sinks at all.
    """
    name = model.config._attn_implementation
    if name in (*NAMES.values(), "eager"):
        return
    if "flash-attn3" in name or "flash_attention_3" in name:
        reason = "FlashAttention 3 computes sinks forwards only, without their gradient"
    elif name == "flex_attention":
        reason = "transformers' version rounds the normaliser that the sinks' gradient goes through to 16 bits"
    elif name in ("sdpa", "flash_attention_2"):
        reason = "it has no sinks"
    else:
        reason = "nobody has shown that its gradient reaches the sinks"
    raise UserError(
        f"Attention '{name}' cannot be trained with gpt-oss: {reason}. Call set_attention(model, 'auto') first."
    )


def set_attention(model, backend):
    """Make `model` use one of "auto", "sdpa", "flex", "eager" from here on."""
    model.set_attn_implementation(NAMES[backend])

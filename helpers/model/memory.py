"""What a model will take, part by part, before anything is loaded."""

from dataclasses import dataclass

from helpers.model.files import read_config
from helpers.runtime import GIB, Profile, UserError, named_profile

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: NF4 with double quantisation: 4 bits, one byte a block of 64, one float a 256 blocks.
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by part; `available` is what the device offers (None: not checked, on the CPU)."""

    profile: str
    parts: dict
    available: int | None

    @property
    def total(self):
        return sum(self.parts.values())

    def check(self):
        """Raise UserError if the plan does not fit the device."""
        if self.available is not None and self.total > self.available:
            raise UserError(
                f"Profile '{self.profile}' needs {self.total / GIB:.1f} GiB of GPU memory and "
                f"{self.available / GIB:.1f} are there: choose a smaller profile, or PROFILE = 'tiny' for the embedded "
                "model on the CPU."
            )

    def rows(self):
        """`(part, GiB)` pairs, the total last."""
        return [*((part, size / GIB) for part, size in self.parts.items()), ("total", self.total / GIB)]


def memory_plan(profile, batch=None, length=None, config=None):
    """Predict the memory of training one micro-batch and of one rollout under `profile`.

    Args:
        profile: a name or a `Profile`.
        batch: completions in a rollout; default: the profile's generation batch.
        length: tokens of prompt and completion; default: the longest completion and 512 more.
        config: a `GptOssConfig`; default: gpt-oss-20b's sizes, or the embedded model's.
    """
    profile = profile if isinstance(profile, Profile) else named_profile(profile)
    config = config or known_config(profile)
    batch = batch or profile.generation_batch_size
    length = length or profile.max_completion_length + 512
    item = BYTES[profile.dtype]
    dense_item = NF4_BYTES if profile.dense == "nf4" else item
    h, d, layers = config.hidden_size, config.head_dim, config.num_hidden_layers
    q, kv = config.num_attention_heads * d, config.num_key_value_heads * d
    experts = layers * config.num_local_experts * 3 * h * config.intermediate_size
    attention = layers * h * (2 * q + 2 * kv)
    biases = layers * (config.num_local_experts * (3 * config.intermediate_size + 1 + h) + 2 * q + 2 * kv + 3 * h)
    cached = [
        min(length, config.sliding_window) if kind == "sliding_attention" else length for kind in config.layer_types
    ]
    lora = layers * profile.lora_r * lora_widths(profile, config)
    rows = profile.per_device_train_batch_size * length
    parts = {
        "experts, unpacked from MXFP4": experts * item,
        "attention": attention * dense_item,
        "embedding and head": 2 * config.vocab_size * h * item,
        "biases, norms, router, sinks": biases * item,
        "KV cache of a rollout": 2 * kv * sum(cached) * batch * item,
        "LoRA, gradients and Adam": lora * 4 * 4,
        # about 12 hidden-sized tensors a layer are kept for the backward pass
        "activations of a micro-batch": rows * layers * 12 * max(h, q) * item,
        "logits of a tile": 2 * 1024 * config.vocab_size * 4,
    }
    return MemoryPlan(profile.name, parts, _gpu_bytes(profile))


def lora_widths(profile, config):
    """Rows and columns together of the adapted matrices of one layer."""
    h, d, i = config.hidden_size, config.head_dim, config.intermediate_size
    q, kv = config.num_attention_heads * d, config.num_key_value_heads * d
    attention = 2 * (h + q) + 2 * (h + kv) if "attention" in profile.lora_targets else 0
    experts = config.num_local_experts * ((h + 2 * i) + (i + h)) if "experts" in profile.lora_targets else 0
    return attention + experts


def known_config(profile):
    """The config of the profile's model, without reading a file for the released one."""
    from transformers import GptOssConfig

    if profile.name == "tiny":
        return read_config(profile.model)
    return GptOssConfig(num_hidden_layers=24, num_local_experts=32)


def _gpu_bytes(profile):
    if profile.device == "cpu":
        return None
    import torch

    return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None

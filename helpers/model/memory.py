"""What a model will take, part by part, before anything is loaded."""

from dataclasses import dataclass, replace

from helpers.kernels.experts import DECODE_TOKENS
from helpers.kernels.logprobs import ROWS, TILE
from helpers.model.files import read_config
from helpers.profiles import Profile, named_profile
from helpers.runtime import GIB, UserError

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: What `experts` and `dense` call matrices that are kept in the dtype of the arithmetic.
WHOLE = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
#: MXFP4: half a byte, and one byte for 32.
MXFP4_BYTES = 0.5 + 1 / 32
#: NF4 with double quantisation: 4 bits, one byte a block of 64, one float a 256 blocks.
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
#: Tokens of a prompt, where only the completion's length is known.
PROMPT = 512
#: The largest batch of one rollout where memory sets no limit, as on the CPU.
MOST_COMPLETIONS = 128

#: Parts that live through a run; those of a rollout and those of an update take turns.
RESIDENT = (
    "experts", "attention", "head", "embedding", "biases, norms, router, sinks", "dequantise scratch",
    "LoRA", "LoRA gradients", "optimizer",
)  # fmt: skip
ROLLOUT = ("KV cache, full layers", "KV cache, sliding layers", "prefill or a step of decoding")
UPDATE = ("activations", "logits tile")


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by part. profile: with `dense` as the plan chose it. available: bytes that tensors may take (None: the
    CPU, not checked). batch, length: what was planned for. parameters: by kind, as `parameter_counts`."""

    profile: Profile
    parts: dict
    available: float | None
    batch: int
    length: int
    parameters: dict

    @property
    def total(self):
        """Bytes at the worst moment: everything resident, and the larger of a rollout and an update."""
        sums = [sum(self.parts[name] for name in names) for names in (RESIDENT, ROLLOUT, UPDATE)]
        return sums[0] + max(sums[1:])

    @property
    def fits(self):
        return self.available is None or self.total <= self.available

    @property
    def host(self):
        """Bytes that stay in host memory, locked."""
        return self.parameters["embedding"] * BYTES[self.profile.dtype] if self.profile.embedding == "host" else 0

    def check(self):
        """Raise UserError if the plan does not fit the device."""
        if not self.fits:
            raise UserError(
                f"Profile '{self.profile.name}' needs {self.total / GIB:.1f} GiB of GPU memory for {self.batch} "
                f"completions of {self.length} tokens and {self.available / GIB:.1f} are free: restart the kernel if "
                "it holds a model, choose a smaller profile, or PROFILE = 'tiny' for the embedded model on the CPU."
            )

    def rows(self):
        """`(part, GiB)` pairs, the total last."""
        return [*((part, size / GIB) for part, size in self.parts.items()), ("total", self.total / GIB)]

    def __str__(self):
        card = f" of {self.available / GIB:.1f}" if self.available else ""
        host = f" ({self.host / GIB:.2f} GiB)" if self.host else ""
        return (
            f"Memory plan, {self.batch} completions of {self.length} tokens: {self.total / GIB:.2f}{card} GiB. "
            f"{sum(self.parameters.values()) / 1e6:,.0f} M parameters, experts {self.profile.experts} "
            f"({self.parts['experts'] / GIB:.2f} GiB), dense {self.profile.dense}, "
            f"embedding {self.profile.embedding}{host}."
        )


def memory_plan(profile, batch=None, length=None, config=None):
    """Predict the memory of rollouts and updates under `profile`, for the device that is there.

    Args:
        profile: a name or a `Profile`.
        batch: completions in a rollout; default: the profile's generation batch.
        length: tokens of prompt and completion; default: the longest completion and 512 more.
        config: a `GptOssConfig`; default: gpt-oss-20b's sizes, or the embedded model's.

    Without a GPU the plan is held against what the profile is made for. Where the profile says
    dense="auto", the plan chooses. Raises UserError for an unknown profile or a batch or length below 1.
    """
    profile = profile if isinstance(profile, Profile) else named_profile(profile)
    config = config or known_config(profile)
    batch = profile.generation_batch_size if batch is None else batch
    length = profile.max_completion_length + PROMPT if length is None else length
    if batch < 1 or length < 1:
        raise UserError(f"batch and length must be at least 1; got {batch} and {length}.")
    if profile.dense == "auto":
        plans = [
            memory_plan(replace(profile, dense=dense), batch, length, config) for dense in (WHOLE[profile.dtype], "nf4")
        ]
        return plans[0] if plans[0].fits else plans[1]
    sizes = parameter_counts(config)
    parts = _weights(profile, sizes) | _adapter(profile, config) | _rollout(profile, config, batch, length)
    return MemoryPlan(profile, parts | _update(profile, config, length), _available(profile), batch, length, sizes)


def longest(profile, batch, config=None):
    """The most tokens, in steps of 128, that `batch` completions may have on the profile's card; 0 if none fit."""
    profile = profile if isinstance(profile, Profile) else named_profile(profile)
    config = config or known_config(profile)
    low, high = 0, config.max_position_embeddings // 128
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if memory_plan(profile, batch, middle * 128, config).fits else (low, middle - 1)
    return low * 128


def largest_batch(profile, length: int, config=None) -> int:
    """The most completions of `length` tokens, prompt included, that one rollout may have on the profile's card.

    Call it before the model is loaded: it asks how much memory is free. Packed experts take no more than their
    decode kernel does; beyond that each expert would be unpacked at every step. Raises UserError if not even one
    completion fits.
    """
    profile = profile if isinstance(profile, Profile) else named_profile(profile)
    config = config or known_config(profile)
    low = 1
    high = DECODE_TOKENS if profile.experts == "mxfp4" else MOST_COMPLETIONS
    memory_plan(profile, low, length, config).check()
    while low < high:
        middle = (low + high + 1) // 2
        if memory_plan(profile, middle, length, config).fits:
            low = middle
        else:
            high = middle - 1
    return low


def parameter_counts(config):
    """Parameters by kind."""
    h, d, layers, i = config.hidden_size, config.head_dim, config.num_hidden_layers, config.intermediate_size
    q, kv, count = config.num_attention_heads * d, config.num_key_value_heads * d, config.num_local_experts
    expert_biases, router, norms = count * (2 * i + h), count * (h + 1), 2 * h
    attention_biases, sinks = q + 2 * kv + h, config.num_attention_heads
    return {
        "experts": layers * count * 3 * h * i,
        "attention": layers * h * (2 * q + 2 * kv),
        "head": config.vocab_size * h,
        "embedding": config.vocab_size * h,
        "small": layers * (expert_biases + router + norms + attention_biases + sinks) + h,
    }


def _weights(profile, sizes):
    item = BYTES[profile.dtype]
    packed = profile.experts == "mxfp4"
    return {
        "experts": sizes["experts"] * (MXFP4_BYTES if packed else item),
        "attention": sizes["attention"] * (NF4_BYTES if profile.dense == "nf4" else item),
        "head": sizes["head"] * item,
        "embedding": {"host": 0, "int8": sizes["embedding"], "device": sizes["embedding"] * item}[profile.embedding],
        "biases, norms, router, sinks": sizes["small"] * 4,
    }


def _adapter(profile, config):
    h, d, i = config.hidden_size, config.head_dim, config.intermediate_size
    q, kv = config.num_attention_heads * d, config.num_key_value_heads * d
    widths = {"attention": 2 * (h + q) + 2 * (h + kv), "experts": config.num_local_experts * ((h + 2 * i) + (i + h))}
    count = config.num_hidden_layers * profile.lora_r * sum(widths[target] for target in profile.lora_targets)
    scratch = 3 * h * i * BYTES[profile.dtype] if profile.experts == "mxfp4" else 0
    return {"dequantise scratch": scratch, "LoRA": count * 4, "LoRA gradients": count * 4, "optimizer": count * 8}


def _rollout(profile, config, batch, length):
    item, kinds = BYTES[profile.dtype], config.layer_types
    token = 2 * config.num_key_value_heads * config.head_dim * item
    sliding, full = kinds.count("sliding_attention"), kinds.count("full_attention")
    # some twelve hidden-sized fp32 tensors of the prompts
    prefill = 12 * batch * min(length, PROMPT) * config.hidden_size * 4
    # scores of all heads in fp32, four copies at their worst; keys and values of a layer, which the growing cache
    # copies; logits, log-probabilities and probabilities
    scores = 4 * batch * length * config.num_attention_heads * 4
    step = scores + batch * length * token + 3 * batch * config.vocab_size * 4
    return {
        "KV cache, full layers": full * token * length * batch,
        "KV cache, sliding layers": sliding * token * min(length, config.sliding_window) * batch,
        "prefill or a step of decoding": max(prefill, step),
    }


def _update(profile, config, length):
    """Of one micro-batch, by the tensors that `policy_logprobs` and a checkpointed layer keep."""
    h, i, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    q = config.num_attention_heads * config.head_dim
    item, rows = BYTES[profile.dtype], profile.per_device_train_batch_size * length
    # one layer: queries, keys and values, spread and padded, with their gradients; the mask and scores
    # of a tile; the rows of the busiest expert, taken as half of them, through eight inner-sized tensors
    attention = rows * (12 * h * 4 + 8 * q * item) + 2 * rows * length
    experts = rows // 2 * 8 * 2 * i * 4
    # on a GPU layers are checkpointed: the residual stream is kept at each; else all of every layer
    kept = layers * rows * h * 4 + attention + experts if profile.device == "cuda" else layers * (attention + experts)
    tile = min(rows, ROWS) * min(TILE, config.vocab_size) * 4 * 4
    return {"activations": kept, "logits tile": tile + rows * h * item}


def known_config(profile):
    """The config of the profile's model, without reading a file for the released ones."""
    if profile.device == "cpu":
        return read_config(profile.model)
    return released_config("120b" if "120b" in profile.model else "20b")


def released_config(size):
    """The `GptOssConfig` of openai/gpt-oss-20b ("20b") or -120b ("120b")."""
    from transformers import GptOssConfig

    layers, experts = {"20b": (24, 32), "120b": (36, 128)}[size]
    return GptOssConfig(num_hidden_layers=layers, num_local_experts=experts)


def _available(profile):
    """Bytes that tensors may take: what is free, or without a GPU what the profile is made for; None on the CPU."""
    if profile.device == "cpu":
        return None
    import torch

    if not torch.cuda.is_available():
        return profile.needs_gib * GIB
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

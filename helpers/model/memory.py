"""What a model will take, part by part, before anything is loaded."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from helpers.kernels.experts import DECODE_TOKENS
from helpers.kernels.logprobs import ROWS, TILE
from helpers.kernels.sdpa_sinks import EXTRA
from helpers.model.files import read_config
from helpers.model.gpu_memory import CONTEXT_BYTES, bytes_besides_tensors, free_gpu_bytes
from helpers.model.pieces import PIECE_BYTES
from helpers.profiles import Profile, named_profile
from helpers.runtime import GIB, UserError

if TYPE_CHECKING:
    from transformers import GptOssConfig

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: What `experts` and `dense` call matrices that are kept in the dtype of the arithmetic.
WHOLE = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
#: MXFP4: half a byte, and one byte for 32.
MXFP4_BYTES = 0.5 + 1 / 32
#: NF4 with double quantisation: 4 bits, one byte a block of 64, one float a 256 blocks.
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
#: Names of AdamW with moments in eight bits.
EIGHT_BIT = ("adamw_8bit", "adamw_bnb_8bit")
#: Tokens of a prompt, where only the completion's length is known.
PROMPT = 512
#: Tokens of prompts that a rollout prefills at once.
PREFILL_TOKENS = 512
#: The largest batch of one rollout where memory sets no limit, as on the CPU.
MOST_COMPLETIONS = 128

#: The frozen weights.
WEIGHTS = ("experts", "attention", "head", "embedding", "biases, norms, router, sinks")
#: Parts that live through a run. The others take turns, see `MemoryPlan.phases`.
RESIDENT = (
    *WEIGHTS, "dequantise scratch",
    "LoRA", "LoRA gradients", "optimizer", "KV cache, full layers", "KV cache, sliding layers",
    "a step of decoding",
)  # fmt: skip


@dataclass(frozen=True)
class MemoryPlan:
    """Predicted bytes, part by part.

    Attributes:
        profile: with `dense` and `per_device_train_batch_size` as the plan chose them.
        parts: name -> bytes of tensors.
        estimates: name -> bytes that a GPU takes besides: counted numbers of things, times an estimate of each.
        available: bytes of the card that this process may take; None: the CPU, not checked.
        batch: completions in a rollout.
        length: tokens of prompt and completion.
        optim: the optimizer, as `GRPOConfig` has it.
        parameters: kind -> number, as `parameter_counts`.
    """

    profile: Profile
    parts: dict[str, float]
    estimates: dict[str, float]
    available: float | None
    batch: int
    length: int
    optim: str
    parameters: dict[str, int]

    @property
    def total(self) -> float:
        """Bytes at the worst moment of a run."""
        return max(self.phases.values()) + sum(self.estimates.values())

    @property
    def outside_pytorch(self) -> float:
        """Bytes that the driver will take for kernels and graphs, and that PyTorch's allocator must leave to it."""
        return sum(self.estimates.get(name, 0) for name in ("kernel modules", "CUDA graphs"))

    @property
    def phases(self) -> dict[str, float]:
        """Map each phase of a run to the bytes of its tensors at its worst moment.

        The optimizer's state is taken to be there from the start.
        """
        parts = self.parts
        weights = self._sum(WEIGHTS)
        resident = self._sum(RESIDENT)
        rollout = resident + parts["prefill"]
        # first the logits of all tokens, then the layers one after the other
        update = parts["residual stream"] + max(parts["activations"], parts["logits tile"])
        return {
            "load": weights + PIECE_BYTES,
            "LoRA": weights + parts["LoRA"],
            "prefill": rollout,
            "decode": rollout,
            "forward and backward": resident + update,
            "AdamW": resident + parts["temporaries of AdamW"],
            "checkpoint": resident,
        }

    def _sum(self, names: tuple[str, ...]) -> float:
        return sum(self.parts[name] for name in names)

    @property
    def fits(self) -> bool:
        """True if the total is available, and on the CPU."""
        return self.available is None or self.total <= self.available

    @property
    def host(self) -> int:
        """Bytes that stay in host memory, locked."""
        if self.profile.embedding != "host":
            return 0
        return self.parameters["embedding"] * BYTES[self.profile.dtype]

    def with_profile(self, profile: Profile, config: "GptOssConfig") -> "MemoryPlan":
        """Return the plan of the same rollouts and optimizer under another profile, or for another model."""
        return memory_plan(profile, self.batch, self.length, config, optim=self.optim)

    def check(self) -> None:
        """Raise UserError if the plan does not fit the device."""
        if not self.fits:
            raise UserError(
                f"Profile '{self.profile.name}' needs {self.total / GIB:.1f} GiB of GPU memory for {self.batch} "
                f"completions of {self.length} tokens and {self.available / GIB:.1f} are free: restart the kernel if "
                "it holds a model, choose a smaller profile, or PROFILE = 'tiny' for the embedded model on the CPU."
            )

    def rows(self) -> list[tuple[str, float]]:
        """`(part, GiB)` pairs, the total last."""
        rows = [(part, size / GIB) for part, size in self.parts.items()]
        rows += [(f"{part} (estimate)", size / GIB) for part, size in self.estimates.items()]
        rows.append(("total", self.total / GIB))
        return rows

    def __str__(self):
        card = f" of {self.available / GIB:.1f}" if self.available else ""
        host = f" ({self.host / GIB:.2f} GiB)" if self.host else ""
        besides = sum(self.estimates.values()) / GIB
        estimated = f", {besides:.2f} of them estimated" if besides else ""
        millions = sum(self.parameters.values()) / 1e6
        return (
            f"Memory plan, {self.batch} completions of {self.length} tokens: {self.total / GIB:.2f}{card} GiB"
            f"{estimated}. {millions:,.0f} M parameters, experts {self.profile.experts} "
            f"({self.parts['experts'] / GIB:.2f} GiB), dense {self.profile.dense}, "
            f"embedding {self.profile.embedding}{host}."
        )


def rollout_length(max_completion_length: int, max_prompt_length: int = PROMPT) -> int:
    """Tokens of prompt and completion that a rollout needs room for, in the engine and in the memory plan."""
    return max_prompt_length + max_completion_length


def memory_plan(
    profile: str | Profile,
    batch: int | None = None,
    length: int | None = None,
    config: "GptOssConfig | None" = None,
    *,
    optim: str = "auto",
) -> MemoryPlan:
    """Predict the memory of rollouts and updates under `profile`, for the device that is there.

    Give what will run; the profile's values stand in for what is left out.

    Args:
        profile: a name or a `Profile`.
        batch: completions in a rollout; default: the profile's generation batch.
        length: tokens of prompt and completion, as `rollout_length` adds them; default: the profile's.
        config: a `GptOssConfig`; default: gpt-oss-20b's sizes, or the embedded model's.
        optim: the optimizer, as `GRPOConfig` has it.

    Without a GPU the plan is held against what the profile is made for. Where the profile says dense="auto", the plan
    chooses; and it has as many completions in a micro-batch as fit, up to the profile's. Raises UserError for an
    unknown profile or a batch or length below 1.
    """
    wanted = named_profile(profile)
    if config is None:
        config = known_config(wanted)
    if batch is None:
        batch = wanted.generation_batch_size
    if length is None:
        length = rollout_length(wanted.max_completion_length)
    if batch < 1 or length < 1:
        raise UserError(f"batch and length must be at least 1; got {batch} and {length}.")
    return _choose(wanted, config, batch, length, optim, _available(wanted))


def micro_batch_size(profile: Profile, length: int | None = None, optim: str = "auto") -> int:
    """Completions in a micro-batch of an update: the profile's, or as many as fit the memory that it is made for.

    They divide the profile's generation batch.

    Arguments as in `memory_plan`. The memory that is free at the moment plays no part: the trainer is made when the
    model fills the GPU.
    """
    if profile.device == "cpu":
        return _cuts(profile, profile.generation_batch_size)[0]
    if length is None:
        length = rollout_length(profile.max_completion_length)
    config = known_config(profile)
    made_for = profile.needs_gib * GIB
    plan = _choose(profile, config, profile.generation_batch_size, length, optim, made_for)
    return plan.profile.per_device_train_batch_size


def _choose(
    profile: Profile, config: "GptOssConfig", batch: int, length: int, optim: str, available: float | None
) -> MemoryPlan:
    """Return the first plan that fits, or the smallest if none does.

    Dense layers are tried whole before NF4, if the profile leaves that open. Within each, as many completions in a
    micro-batch as the profile has are tried first, and then fewer.
    """
    forms = [profile.dense] if profile.dense != "auto" else [WHOLE[profile.dtype], "nf4"]
    rows = [profile.per_device_train_batch_size] if profile.device == "cpu" else _cuts(profile, batch)
    for dense in forms:
        for count in rows:
            chosen = replace(profile, dense=dense, per_device_train_batch_size=count)
            plan = _plan(chosen, config, batch, length, optim, available)
            if plan.fits:
                return plan
    return plan


def _cuts(profile: Profile, batch: int) -> list[int]:
    """Return how many completions a micro-batch may have that cuts a batch evenly, the profile's number first."""
    return [count for count in range(profile.per_device_train_batch_size, 0, -1) if batch % count == 0]


def _plan(
    profile: Profile, config: "GptOssConfig", batch: int, length: int, optim: str, available: float | None
) -> MemoryPlan:
    """The plan of a profile whose storage is decided. available: as in `MemoryPlan`."""
    counts = parameter_counts(config)
    parts = {
        **_weights(profile, counts),
        **_adapter(profile, config, optim),
        **_rollout(profile, config, batch, length),
        **_update(profile, config, length),
    }
    plan = MemoryPlan(profile, parts, {}, available, batch, length, optim, counts)
    if profile.device == "cpu":
        return plan
    return replace(
        plan, estimates=bytes_besides_tensors(config.num_hidden_layers, batch, length, max(plan.phases.values()))
    )


def longest(profile: str | Profile, batch: int, config: "GptOssConfig | None" = None) -> int:
    """The most tokens, in steps of 128, that `batch` completions may have on the profile's card; 0 if none fit."""
    wanted = named_profile(profile)
    if config is None:
        config = known_config(wanted)

    def fits(steps: int) -> bool:
        return memory_plan(wanted, batch, steps * 128, config).fits

    return 128 * _largest(0, config.max_position_embeddings // 128, fits)


def largest_batch(
    profile: str | Profile,
    length: int | None = None,
    config: "GptOssConfig | None" = None,
) -> int:
    """The most completions that one rollout may have on the profile's card; arguments as in `memory_plan`.

    Call it before the model is loaded: it asks how much memory is free. Packed experts take no more than their
    decode kernel does; beyond that each expert would be unpacked at every step. Raises UserError if not even one
    completion fits.
    """
    wanted = named_profile(profile)
    if config is None:
        config = known_config(wanted)
    if length is None:
        length = rollout_length(wanted.max_completion_length)
    memory_plan(wanted, 1, length, config).check()

    def fits(batch: int) -> bool:
        return memory_plan(wanted, batch, length, config).fits

    most = DECODE_TOKENS if wanted.experts == "mxfp4" else MOST_COMPLETIONS
    return _largest(1, most, fits)


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest of low..high that fits, by bisection; `low` is taken to fit, and so is all below what does."""
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _attention_widths(config: "GptOssConfig") -> tuple[int, int]:
    """Values of the queries of one token, and of its keys; its values are as many as its keys."""
    return config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim


def parameter_counts(config: "GptOssConfig") -> dict[str, int]:
    """Count the parameters by kind."""
    layers = config.num_hidden_layers
    hidden = config.hidden_size
    inner = config.intermediate_size
    experts = config.num_local_experts
    queries, keys = _attention_widths(config)

    expert_biases = experts * (2 * inner + hidden)
    router = experts * (hidden + 1)
    norms = 2 * hidden
    attention_biases = queries + 2 * keys + hidden
    sinks = config.num_attention_heads
    small_of_a_layer = expert_biases + router + norms + attention_biases + sinks
    last_norm = hidden
    return {
        "experts": layers * experts * 3 * hidden * inner,
        "attention": layers * hidden * (2 * queries + 2 * keys),
        "head": config.vocab_size * hidden,
        "embedding": config.vocab_size * hidden,
        "small": layers * small_of_a_layer + last_norm,
    }


def _weights(profile: Profile, counts: dict[str, int]) -> dict[str, float]:
    """Bytes of the frozen weights on the device."""
    item = BYTES[profile.dtype]
    expert_item = MXFP4_BYTES if profile.experts == "mxfp4" else item
    attention_item = NF4_BYTES if profile.dense == "nf4" else item
    embedding_item = {"host": 0, "int8": 1, "device": item}[profile.embedding]
    return {
        "experts": counts["experts"] * expert_item,
        "attention": counts["attention"] * attention_item,
        "head": counts["head"] * item,
        "embedding": counts["embedding"] * embedding_item,
        "biases, norms, router, sinks": counts["small"] * 4,
    }


def _adapter(profile: Profile, config: "GptOssConfig", optim: str) -> dict[str, float]:
    """Bytes of LoRA in fp32, its gradients and Adam's two moments, and of the expert that is unpacked."""
    sizes = _adapter_sizes(profile, config)
    count = sum(sizes)
    hidden = config.hidden_size
    inner = config.intermediate_size
    scratch = 3 * hidden * inner * BYTES[profile.dtype] if profile.experts == "mxfp4" else 0
    if has_eight_bit_moments(optim, profile.device == "cuda"):
        moments = sum(_eight_bit_moments(size) for size in sizes)
        temporaries = 0  # each weight is moved by one kernel
    else:
        moments = count * 8
        temporaries = count * 4
    return {
        "dequantise scratch": scratch,
        "LoRA": count * 4,
        "LoRA gradients": count * 4,
        "optimizer": moments,
        "temporaries of AdamW": temporaries,
    }


def _adapter_sizes(profile: Profile, config: "GptOssConfig") -> list[int]:
    """How many numbers each matrix of the adapter has."""
    hidden = config.hidden_size
    inner = config.intermediate_size
    experts = config.num_local_experts
    queries, keys = _attention_widths(config)
    # of every adapted matrix the inputs, which A has, and the outputs, which B has
    widths = {
        "attention": [hidden, queries, hidden, keys, hidden, keys, queries, hidden],
        "experts": [experts * hidden, experts * 2 * inner, experts * inner, experts * hidden],
    }
    of_a_layer = [profile.lora_r * width for target in profile.lora_targets for width in widths[target]]
    return of_a_layer * config.num_hidden_layers


def has_eight_bit_moments(optim: str, is_on_gpu: bool) -> bool:
    """Tell whether AdamW's moments are kept in eight bits: optim "auto" does so on a GPU, with bitsandbytes."""
    return optim in EIGHT_BIT or (optim == "auto" and is_on_gpu and find_spec("bitsandbytes") is not None)


def _eight_bit_moments(size: int) -> float:
    """Bytes of both moments of a weight as bitsandbytes keeps them: small ones in fp32, else a scale for 256 codes."""
    if size < 4096:
        return size * 8
    return 2 * (size + 4 * -(-size // 256))


def _rollout(profile: Profile, config: "GptOssConfig", batch: int, length: int) -> dict[str, int]:
    """Bytes of the cache, of a prefill, and of a step of decoding, whose memory a captured CUDA graph keeps."""
    heads = config.num_attention_heads
    _, keys = _attention_widths(config)
    cached_of_a_token = 2 * keys * BYTES[profile.dtype]  # in one layer
    full_layers = config.layer_types.count("full_attention")
    sliding_layers = config.layer_types.count("sliding_attention")
    sliding_length = min(length, config.sliding_window)
    rows = batch + 1  # one more for a prompt, see `RolloutCache`

    # of the tokens that are prefilled together, some twelve hidden-sized fp32 tensors in the experts
    hidden_sized = PREFILL_TOKENS * config.hidden_size * 4
    in_experts = 12 * hidden_sized
    # or some four in attention, and all keys and values: as they are cached, and repeated for each head of a query
    repeated = 2 * heads * (config.head_dim + EXTRA) * BYTES[profile.dtype]
    masks = PREFILL_TOKENS * (1 + 1 + BYTES[profile.dtype])  # of a key: with and without the sink's, and as a bias
    in_attention = 4 * hidden_sized + length * (cached_of_a_token + repeated + masks)
    # in fp32, over all heads: bias, scores, their softmax and its rounded copy
    scores = 4 * batch * length * heads * 4
    # logits in fp32, probabilities and their sums in fp64
    over_vocabulary = batch * config.vocab_size * (4 + 8 + 8)
    return {
        "KV cache, full layers": full_layers * cached_of_a_token * (1 + length) * rows,
        "KV cache, sliding layers": sliding_layers * cached_of_a_token * (1 + sliding_length) * rows,
        "prefill": max(in_experts, in_attention),
        "a step of decoding": scores + over_vocabulary,
    }


def _update(profile: Profile, config: "GptOssConfig", length: int) -> dict[str, int]:
    """Bytes of one micro-batch, by the tensors that `policy_logprobs` and a checkpointed layer keep."""
    layers = config.num_hidden_layers
    hidden = config.hidden_size
    inner = config.intermediate_size
    item = BYTES[profile.dtype]
    queries, _ = _attention_widths(config)
    rows = profile.per_device_train_batch_size * length

    # one layer outside of its experts: norms, projections and attention, as they are kept for their gradients
    attention = rows * (8 * hidden * 4 + 4 * queries * item)
    # the gradient of every pair of a token and an expert
    pairs = rows * config.num_experts_per_tok * hidden * 4
    # inside the busiest expert, taken as half of the tokens: sums and operands of the first matrix, h and its gradient,
    # the token's gradient and its operands
    inside = 2 * inner * (4 + item) + 2 * inner * 4 + hidden * (4 + item)
    one_layer = attention + pairs + rows // 2 * inside
    # the low-rank part of every token and expert, and its gradient
    low_rank = rows * config.num_local_experts * profile.lora_r * 4 * 2
    one_layer += low_rank
    # the gradients of a layer's adapter, before they are added to those of earlier micro-batches
    one_layer += sum(_adapter_sizes(profile, config)) // layers * 4

    layers_at_once = 1 if profile.device == "cuda" else layers  # on a GPU the layers are checkpointed

    slope = rows * hidden * item  # of the log-probabilities, see `token_logprobs`
    tile = min(rows, ROWS) * min(TILE, config.vocab_size) * 4 * 4
    return {
        "residual stream": layers * rows * hidden * 4 + slope,
        "activations": layers_at_once * one_layer,
        "logits tile": tile,
    }


def known_config(profile: Profile) -> "GptOssConfig":
    """The config of the profile's model, without reading a file for the released ones."""
    if profile.device == "cpu":
        return read_config(profile.model)
    return released_config("120b" if "120b" in profile.model else "20b")


def released_config(size: str) -> "GptOssConfig":
    """The `GptOssConfig` of openai/gpt-oss-20b ("20b") or -120b ("120b")."""
    from transformers import GptOssConfig

    layers, experts = {"20b": (24, 32), "120b": (36, 128)}[size]
    return GptOssConfig(num_hidden_layers=layers, num_local_experts=experts)


def _available(profile: Profile) -> float | None:
    """Bytes of the card that this process may take, its context included; None on the CPU.

    Without a GPU what the profile is made for.
    """
    if profile.device == "cpu":
        return None
    import torch

    if not torch.cuda.is_available():
        return profile.needs_gib * GIB
    return free_gpu_bytes() + CONTEXT_BYTES  # the context is there already

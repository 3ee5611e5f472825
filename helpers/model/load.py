"""Load gpt-oss, tiny or released, from its on-disk format: one path for both.

The model is built empty, then filled tensor by tensor, each straight to the device: the expert
bytes as they were released, or unpacked; the layers outside the experts as the profile says.
"""

import gc
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import GptOssConfig

from helpers.kernels.experts import Packed
from helpers.kernels.mxfp4 import GROUP
from helpers.model.attention import set_attention
from helpers.model.experts import MATRICES, PackedExperts, matrix_sizes
from helpers.model.files import (
    SMALL,
    Entry,
    experts_are_packed,
    find_folder,
    read_config,
    read_index,
    read_tensors,
    read_tokenizer,
)
from helpers.model.gpu_memory import leave_to_driver, memory_errors_explained
from helpers.model.host_embedding import HostEmbedding, gpu_reads_host
from helpers.model.layers import Embedding, FrozenLinear, Int8Embedding, RotaryEmbedding
from helpers.model.lora import load_adapter
from helpers.model.memory import WHOLE, MemoryPlan, memory_plan
from helpers.model.pieces import copy_to
from helpers.profiles import Profile, get_profile
from helpers.runtime import GIB, UserError, first_line

ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
EMBEDDING = "model.embed_tokens.weight"
#: Endings of the names of matrices, which are kept in the operands' dtype.
MATRIX_NAMES = ("_proj.weight", "embed_tokens.weight", "lm_head.weight", *MATRICES)
#: The largest scale byte whose values fp16 holds: 6 * 2**13.
FP16_SCALE = 140


@memory_errors_explained()
def load_model(
    path: str | Path | None = None,
    *,
    profile: str | Profile = "auto",
    adapter: str | Path | None = None,
    dense: str | None = None,
    experts: str | None = None,
    plan: MemoryPlan | None = None,
) -> tuple:
    """Load a model and its tokenizer.

    Args:
        path: a local folder or a hub id, with MXFP4 or dense experts; default: the profile's.
        profile: a name or a `Profile`.
        adapter: a PEFT adapter folder to put on top, not trainable.
        dense: storage of the attention projections, "nf4" or whole: "fp32" where the profile
            computes in float32, "bf16" and "fp16" likewise; default: the profile's.
        experts: storage of the expert matrices, "mxfp4" or whole; default: the profile's, and whole where
            the folder's are dense, because packing rounds them: ask for "mxfp4" to have that.
        plan: says what will run, as `config.memory_plan(profile)` or `memory_plan(profile, batch, length)` returns it;
            default: the profile's rollouts. It is made again for the model in `path` and the memory that is free.

    Returns: `(model, tokenizer)`, the model frozen, in eval mode, on the profile's device. Prints
    the memory plan. On a GPU, PyTorch leaves what the plan has for the driver to it from here on.

    Raises UserError, before fetching or loading any weight, for a folder that is missing, unreadable or
    not gpt-oss, a hub that cannot be reached, a model that does not fit the GPU and a package that is
    missing; before loading any, for shards or tensors that are missing, damaged or of other shapes.
    """
    source = resolve_source(path, profile, dense, experts, plan)
    print(source.memory)
    source.check_memory()
    chosen = source.memory.profile
    if chosen.device == "cuda":
        leave_to_driver(source.memory.outside_pytorch)
    tokenizer, generation_config = read_tokenizer(source.small_files)
    model = empty_model(source.config, chosen)

    folder = find_folder(source.path)  # the weights, now that they are wanted
    index = read_index(folder)
    check_index(folder, index, expected_shapes(model, source.is_packed))
    check_scales(index, chosen)
    fill(model, index, source.memory)
    model.config._name_or_path = str(source.path)
    model.loaded_from = str(folder)  # for `identity.base_settings`
    model.generation_config = generation_config
    set_attention(model, "auto")
    if adapter is not None:
        model = load_adapter(model, adapter)
    return model.eval(), tokenizer


@dataclass(frozen=True)
class Source:
    """The checkpoint to load and the way to keep it, decided before any weight is fetched.

    path: a local folder or a hub id. small_files: the local folder with its files that are no weights.
    is_packed: the experts are MXFP4 in the files. memory: the plan, with the profile that will be used.
    """

    path: str | Path
    small_files: Path
    config: GptOssConfig
    is_packed: bool
    memory: MemoryPlan

    def check_memory(self) -> None:
        """Raise UserError if the model does not fit; where packing the experts would help, say so."""
        if not self.memory.fits and not self.is_packed:
            packed_profile = replace(self.memory.profile, experts="mxfp4")
            if self.memory.with_profile(packed_profile, self.config).fits:
                raise UserError(
                    f"{self.path} has dense experts, which do not fit the GPU: load it with experts='mxfp4', which "
                    "rounds them to four bits."
                )
        self.memory.check()


def resolve_source(
    path: str | Path | None,
    profile: str | Profile,
    dense: str | None = None,
    experts: str | None = None,
    plan: MemoryPlan | None = None,
) -> Source:
    """Decide what to load, and how: by the arguments of `load_model`, the machine and the checkpoint's small files."""
    named = get_profile(profile)
    _check_storage(named, dense=dense, experts=experts)
    location = path or named.model
    folder = find_folder(location, SMALL)
    config = read_config(folder)
    is_packed = experts_are_packed(folder)
    if named.device == "cuda":
        gc.collect()  # an earlier model that has no name any more may still hold its memory

    default_experts = named.experts if is_packed else WHOLE[named.dtype]
    host_is_unreadable = named.embedding == "host" and not gpu_reads_host(named.device)
    chosen = replace(
        named,
        dense=dense or named.dense,
        experts=experts or default_experts,
        embedding="int8" if host_is_unreadable else named.embedding,
    )
    if plan is not None and not (isinstance(plan, MemoryPlan) and plan.profile.name == named.name):
        raise UserError(
            f"plan must be a memory plan of profile '{named.name}': make it with config.memory_plan(profile) or "
            "memory_plan(profile, batch, length)."
        )
    if plan is None:
        memory = memory_plan(chosen, config=config)
    else:
        memory = plan.with_profile(chosen, config)
    return Source(location, folder, config, is_packed, memory)


def _check_storage(profile: Profile, **choices: str | None) -> None:
    """Raise UserError for a way to keep matrices that the profile cannot compute with."""
    packed_form = {"dense": "nf4", "experts": "mxfp4"}
    whole = WHOLE[profile.dtype]
    for name, value in choices.items():
        if value not in (None, packed_form[name], whole):
            raise UserError(
                f"Profile '{profile.name}' computes in {profile.dtype}: {name} must be {packed_form[name]} or {whole}; "
                f"got {value!r}."
            )


def empty_model(config: GptOssConfig, profile: Profile) -> nn.Module:
    """Build a `GptOssForCausalLM` on the meta device, with the project's experts and, in 16 bits, its layers."""
    from accelerate import init_empty_weights
    from transformers import GptOssForCausalLM

    if profile.dense == "nf4":
        try:
            import helpers.model.nf4  # noqa: F401
        except ImportError as error:
            raise UserError(
                "dense='nf4' needs bitsandbytes: pip install bitsandbytes, or load with "
                f"dense='{WHOLE[profile.dtype]}'."
            ) from error
    dtype = getattr(torch, profile.dtype)
    with init_empty_weights():
        try:
            model = GptOssForCausalLM(config)
        except (KeyError, TypeError, ValueError, ArithmeticError, AssertionError, RuntimeError) as error:
            raise UserError(f"config.json does not describe a gpt-oss model ({first_line(error)}).") from error
        for layer in model.model.layers:
            layer.mlp.experts = PackedExperts(config, profile.experts == "mxfp4", dtype)
    if dtype == torch.float32:
        return model
    for layer in model.model.layers:
        for name in ATTENTION_PROJECTIONS:
            linear = getattr(layer.self_attn, name)
            # the cache stays in 16 bits; the output is added to the residual stream, which is fp32
            out_dtype = None if name == "o_proj" else dtype
            setattr(layer.self_attn, name, FrozenLinear(linear, dtype, out_dtype))
    model.lm_head = FrozenLinear(model.lm_head, dtype)
    model.model.embed_tokens = Embedding(config.vocab_size, config.hidden_size, device="meta", dtype=dtype)
    model.model.rotary_emb = RotaryEmbedding(config, dtype)
    return model


def expert_matrix(name: str) -> str | None:
    """The parameter name of the expert matrix that a tensor is, or is a half of; None for any other tensor."""
    stem = name.removesuffix("_blocks").removesuffix("_scales")
    return stem if stem.endswith(MATRICES) else None


def expected_shapes(model: nn.Module, packed: bool) -> dict[str, tuple]:
    """Map the name of every tensor that the files must hold to its shape; packed: the experts are MXFP4 there."""
    count = model.config.num_local_experts
    sizes = matrix_sizes(model.config)
    expected = {}
    for name, weight in model.named_parameters():
        matrix = expert_matrix(name)
        if matrix is None:
            expected[name] = tuple(weight.shape)
            continue
        wide, out = sizes[matrix.rpartition(".")[2]]
        if packed:
            groups = (count, out, wide // GROUP)
            expected[f"{matrix}_blocks"] = (*groups, GROUP // 2)
            expected[f"{matrix}_scales"] = groups
        else:
            expected[matrix] = (count, wide, out)
    return expected


def check_index(folder: Path, index: dict[str, Entry], expected: dict[str, tuple]) -> None:
    """Raise UserError unless the files hold exactly the tensors that are expected."""
    for name, entry in index.items():
        if name not in expected and expert_matrix(name):
            raise UserError(
                f"{entry.file} holds {entry.stored_as} as {entry.dtype}, and by the other files of {folder} the "
                "experts are kept in another form: is quantization_config in config.json that of these weights?"
            )
        if name not in expected:
            raise UserError(f"{entry.file} holds a tensor {name} that gpt-oss does not have.")
        if entry.shape != expected[name]:
            raise UserError(
                f"{name} in {entry.file} has shape {list(entry.shape)}; config.json says {list(expected[name])}."
            )
        is_half = name.endswith(("_blocks", "_scales"))
        if (entry.dtype == "U8") != is_half:
            raise UserError(f"{name} in {entry.file} is {entry.dtype}: is this the MXFP4 checkpoint?")
    missing = sorted(set(expected) - set(index))
    if missing:
        raise UserError(f"{folder} lacks {len(missing)} tensors, among them {missing[0]}: is the download complete?")


def fill(model: nn.Module, index: dict[str, Entry], memory: MemoryPlan) -> None:
    """Read every tensor and put it where it belongs, with the progress in bytes.

    The embedding comes first: where it may not lie is known before minutes are spent on the others.
    """
    from tqdm import tqdm

    profile = memory.profile
    embedding_first = {EMBEDDING: index[EMBEDDING], **index}
    total = sum(entry.bytes for entry in index.values())
    unpacked_halves = {}
    with tqdm(total=total, unit="B", unit_scale=True, desc="loading", disable=total < 2**28) as progress:
        for name, tensor in read_tensors(embedding_first):
            if name == EMBEDDING:
                _place_embedding(model, tensor, memory)
            elif expert_matrix(name) is None:
                _place(model, name, tensor, profile)
            else:
                _place_experts(model, name, tensor, profile, unpacked_halves)
            if profile.dense == "nf4" and ".self_attn." in name:
                _quantize_when_complete(model, name.rpartition(".")[0], profile)
            progress.update(index[name].bytes)
    model.to(profile.device)  # buffers that no file holds
    model.requires_grad_(False)


def _place_embedding(model, tensor: Tensor, memory: MemoryPlan) -> None:
    """Put the embedding in its place, while the GPU holds nothing else of the model.

    `gpu_reads_host` has tried a small table. Where the system refuses to lock one of this size, the embedding is kept
    on the GPU in eight bits. Raises UserError if that does not fit.
    """
    profile = memory.profile
    try:
        _place(model, EMBEDDING, tensor, profile)
        return
    except RuntimeError as error:
        if profile.embedding != "host":
            raise
        reason = first_line(error)
        eight_bits = memory.with_profile(replace(profile, embedding="int8"), model.config)
        if not eight_bits.fits:
            raise UserError(
                f"The system refuses to lock {memory.host / GIB:.1f} GiB of host memory for the embedding ({reason}), "
                f"and with it on the GPU the model needs {eight_bits.total / GIB:.1f} GiB of "
                f"{eight_bits.available / GIB:.1f}: free host memory, or plan for fewer or shorter completions "
                "(num_generations, max_completion_length)."
            ) from error
    print(f"The system refuses to lock host memory for the embedding ({reason}): it is kept on the GPU in eight bits.")
    print(eight_bits)
    _place(model, EMBEDDING, tensor, eight_bits.profile)


def _place_experts(model, name: str, tensor: Tensor, profile: Profile, halves: dict[str, Tensor]) -> None:
    """Put an expert matrix, or a half of one, into the form that the profile keeps.

    halves: blocks and scales that wait for each other to be unpacked.
    """
    matrix = expert_matrix(name)
    is_packed = name != matrix
    keep_packed = profile.experts == "mxfp4"
    if is_packed == keep_packed:
        _place(model, name, tensor, profile)
    elif keep_packed:
        _check_range(name, tensor, profile)
        packed = Packed.from_dense(tensor.to(profile.device))
        _put(model, f"{matrix}_blocks", packed.blocks)
        _put(model, f"{matrix}_scales", packed.scales)
    else:
        halves[name] = tensor.to(profile.device)
        both = (f"{matrix}_blocks", f"{matrix}_scales")
        if all(half in halves for half in both):
            packed = Packed(*(halves.pop(half) for half in both))
            _put(model, matrix, packed.dense(getattr(torch, profile.dtype)))


def check_scales(index: dict[str, Entry], profile: Profile) -> None:
    """Raise UserError for scale bytes that no weight may have: read before all else, they are 4 % of the files."""
    for name, scales in read_tensors(index, "_scales"):
        file = index[name].file
        if bool((scales == 255).any()):
            raise UserError(f"{name} in {file} has a scale byte of 255, which stands for NaN: fetch the file again.")
        if profile.dtype == "float16" and bool((scales > FP16_SCALE).any()):
            raise UserError(f"{name} in {file} holds weights beyond the range of float16: use a bfloat16 profile.")


def _check_range(name: str, weight: Tensor, profile: Profile) -> None:
    """Raise UserError for a dense expert matrix that the profile's dtype cannot hold."""
    limit = torch.finfo(getattr(torch, profile.dtype)).max
    lowest, highest = weight.aminmax()
    if not (lowest >= -limit and highest <= limit):  # so that NaN is refused, too
        raise UserError(
            f"{name} holds NaN or weights beyond the range of {profile.dtype}: fetch it again or use a bfloat16 "
            "profile."
        )


def _place(model, name: str, tensor: Tensor, profile: Profile) -> None:
    """Put a tensor in its place: matrices in the operands' dtype, packed bytes as they are, the small rest in fp32.

    Always a copy, as on the CPU a tensor would stay a view of the file; and in pieces, as the head in two dtypes would
    take twice its room on the GPU.
    """
    dtype = getattr(torch, profile.dtype)
    if name == EMBEDDING and profile.embedding != "device":
        table = tensor.to(dtype, copy=True)
        on_host = profile.embedding == "host"
        model.model.embed_tokens = HostEmbedding(table) if on_host else Int8Embedding(table, profile.device)
        return
    if expert_matrix(name) == name:
        _check_range(name, tensor, profile)
    if tensor.dtype == torch.uint8:
        dtype = tensor.dtype
    elif not name.endswith(MATRIX_NAMES):
        dtype = torch.promote_types(dtype, torch.float32)
    _put(model, name, copy_to(tensor, profile.device, dtype))


def _put(model, name: str, tensor: Tensor) -> None:
    """Make a tensor the frozen parameter of that name."""
    module, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(module), attribute, nn.Parameter(tensor, requires_grad=False))


def _quantize_when_complete(model, path: str, profile: Profile) -> None:
    """Put an attention projection into NF4 once its weight and bias are there, so that few are dense at a time."""
    from helpers.model.nf4 import nf4_linear

    parent, _, name = path.rpartition(".")
    attention = model.get_submodule(parent)
    linear = getattr(attention, name, None)
    if not isinstance(linear, nn.Linear) or linear.weight.is_meta or linear.bias.is_meta:
        return
    dtype = getattr(torch, profile.dtype)
    out_dtype = getattr(linear, "out_dtype", None)
    setattr(attention, name, nf4_linear(linear, linear.weight.data, linear.bias.data, dtype, out_dtype))

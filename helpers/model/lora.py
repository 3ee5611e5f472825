"""LoRA through PEFT, with the trainable set checked."""

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora.layer import Linear as LoraLinear
from safetensors import SafetensorError, safe_open
from torch import nn

from helpers.kernels.experts import Recomputing
from helpers.model.attention import check_attention
from helpers.model.experts import LoraExperts, PackedExperts
from helpers.model.gpu_memory import is_out_of_memory
from helpers.model.pieces import PIECE_BYTES
from helpers.runtime import UserError, first_line, recover_folder

#: What may be adapted -> names of the modules.
TARGETS = {"attention": ["q_proj", "k_proj", "v_proj", "o_proj"], "experts": ["experts"]}


def add_lora(
    model: nn.Module,
    r: int,
    alpha: float,
    targets: tuple[str, ...] = ("attention", "experts"),
    seed: int | None = None,
) -> PeftModel:
    """Wrap `model` in a `peft.PeftModel` with fresh fp32 adapters.

    targets: "attention" (the four projections) and "experts" (both matrices of every expert). seed: of the random
    matrices A, the same for the same seed whatever was drawn before; None: they are drawn from torch's generators.

    Raises UserError for an unknown target, for one that the model does not have, and for an
    attention that cannot be trained.
    """
    unknown = set(targets) - set(TARGETS)
    if unknown or not targets:
        raise UserError(f"LoRA targets are {', '.join(TARGETS)}; got {', '.join(sorted(unknown)) or 'none'}.")
    if hasattr(model, "peft_config"):
        raise UserError("This model has an adapter already: load it without one before you add another.")
    if r < 1:
        raise UserError(f"LoRA's rank r must be at least 1; got {r}.")
    modules = [name for target in targets for name in TARGETS[target]]
    config = LoraConfig(
        r=r, lora_alpha=alpha, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM", target_modules=modules
    )
    try:
        with _quiet(), _seeded(seed):
            adapted = get_peft_model(model, register_layers(config))
    except ValueError as error:
        raise UserError(f"LoRA found nothing to adapt for {', '.join(targets)}: {first_line(error)}") from error
    except ImportError as error:
        raise UserError(_refused_package(error)) from error
    check_trainable(adapted, targets)
    check_attention(adapted)
    return adapted


def register_layers(config: LoraConfig) -> LoraConfig:
    """Tell a `LoraConfig` which layer adapts `PackedExperts`, and which a linear layer.

    PEFT would choose the same layer for a linear one. But it would first look for other packages that may have
    quantised it, and raise ImportError where it finds one that is too old, such as the torchao 0.10.0 of Colab. A newer
    torchao would be no help: transformers imports every torchao from 0.15 on, which then complains on stderr that its
    libraries do not fit. PEFT does not save what is registered, so loading registers it again.
    """
    config._register_custom_module({PackedExperts: LoraExperts, nn.Linear: LoraLinear})
    return config


def _refused_package(error: ImportError) -> str:
    """A sentence for a package that PEFT refuses to work beside."""
    return f"PEFT does not work with the packages here ({first_line(error)}): upgrade or uninstall the one it names."


def save_adapter(model: PeftModel, folder: str | Path) -> None:
    """Write the adapter as PEFT does, into a folder that exists; the same adapter gives the same bytes.

    PEFT keeps the targets in a set and writes it in an order that differs from process to process. It would also look
    up the base model on the hub, to find out whether its embeddings have been resized; they are frozen.
    """
    model.save_pretrained(folder, save_embedding_layers=False)
    path = Path(folder) / "adapter_config.json"
    config = json.loads(path.read_text())
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True))


def load_adapter(model: nn.Module, folder: str | Path) -> PeftModel:
    """Put a saved LoRA adapter on top of `model`, frozen.

    Raises UserError for a folder that holds no adapter for this model.
    """
    recover_folder(folder)
    if not (Path(folder) / "adapter_config.json").is_file():
        raise UserError(
            f"There is no adapter in {folder}: run 04_grpo first, or give the folder that holds adapter_config.json."
        )
    try:
        config = LoraConfig.from_pretrained(str(folder))
        if config.target_parameters:
            raise UserError(
                f"The adapter in {folder} is in stock PEFT's form, as by export_adapter: give the folder that the "
                "trainer wrote."
            )
        with _quiet():
            adapted = PeftModel.from_pretrained(model, str(folder), config=register_layers(config))
        with safe_open(Path(folder) / "adapter_model.safetensors", framework="pt") as tensors:
            # PEFT would leave what is missing fresh, and what is too much out
            if set(tensors.keys()) != set(get_peft_model_state_dict(adapted, save_embedding_layers=False)):
                raise KeyError("other tensors than the model's")
    except UserError:
        raise
    except ImportError as error:
        raise UserError(_refused_package(error)) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, SafetensorError) as error:
        if is_out_of_memory(error):
            raise
        raise UserError(
            f"The adapter in {folder} cannot be put on this model ({type(error).__name__}): it is damaged, or was "
            "trained on another model or profile; use another RUN_DIR, or train it again."
        ) from error
    return adapted


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Draw random numbers from a seed in the block, and leave the generators as they were; None: change nothing."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@contextmanager
def _quiet():
    """PEFT 0.21 asks transformers 5.23 for something by its old name, with a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


def checkpoint_layers(model: nn.Module) -> None:
    """Keep only each layer's input for the backward pass of `model` in training mode."""
    arguments = {
        "use_reentrant": False,
        "preserve_rng_state": False,  # nothing in a layer is random
        "context_fn": lambda: (nullcontext(), Recomputing()),
    }
    if hasattr(model, "activation_checkpointing_enable"):  # transformers 5.2x's name for it
        model.activation_checkpointing_enable(arguments)
    else:
        model.gradient_checkpointing_enable(arguments)


def trainable_parameters(model: nn.Module) -> dict[str, int]:
    """Map the name of every trainable parameter to its number of values."""
    return {name: weight.numel() for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def adapter_norm(model: PeftModel) -> float:
    """Frobenius norm of what the adapter adds to the model's matrices, all of them together; 0 for a fresh adapter.

    It tells how far training has moved the model, whatever the random start of the matrices A was.
    """
    scale = model.active_peft_config.lora_alpha / model.active_peft_config.r
    weights = dict(model.named_parameters())
    total = 0.0
    for name, a in weights.items():
        # "lora_A.default.weight" of a projection [r, in], "lora_gate_up_A.default" of all experts [E, r, in]
        if "lora_" not in name or "_A." not in name:
            continue
        b = weights[name.replace("_A.", "_B.")].double()
        a = a.double()
        # ||B A||^2 is the sum over all entries of (B'B) * (A A'), which are r by r
        total += float(((b.mT @ b) * (a @ a.mT)).sum())
    return scale * total**0.5


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over every frozen parameter and buffer, packed weights as their bytes.

    They come to the host piece by piece: a model may be larger than its memory.
    """
    digest = hashlib.sha256()
    tensors = {name: weight for name, weight in model.named_parameters() if not weight.requires_grad}
    tensors.update(model.named_buffers())
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().contiguous().flatten()
        digest.update(name.encode())
        for piece in flat.view(torch.uint8).split(PIECE_BYTES):
            digest.update(piece.cpu().numpy())
    return digest.hexdigest()


def check_trainable(model: nn.Module, targets: tuple[str, ...] = ()) -> None:
    """Raise UserError unless only LoRA matrices are trainable, in fp32, some for every target."""
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    stray = [name for name in names if "lora_" not in name]
    if stray:
        raise UserError(f"Only LoRA matrices should be trainable, but {stray[0]} is too.")
    for target in targets:
        part = {"attention": "self_attn", "experts": "mlp.experts"}[target]
        if not any(part in name for name in names):
            raise UserError(f"LoRA matched nothing for target '{target}': the model has no {part} modules.")
    for name, weight in model.named_parameters():
        if weight.requires_grad and weight.dtype != torch.float32:
            raise UserError(f"Adapters must be float32 to learn at small rates, but {name} is {weight.dtype}.")

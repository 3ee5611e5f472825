"""Find and read a checkpoint folder, with errors that name the file.

The experts' matrices stand in it packed, as `..._blocks` and `..._scales`, or dense, under the parameter's name.
transformers 5.23 saves dense ones as `..._blocks` without scales; they are read under the parameter's name here.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.runtime import UserError, file_digest, first_line, read_checked, recover_folder, write_checked

if TYPE_CHECKING:
    from torch import Tensor

#: What to fetch from the hub: everything that is not a weight, and with the weights.
SMALL = ["*.json", "*.jinja"]
ALL = [*SMALL, "model*.safetensors"]
#: The file that names the shard of every tensor.
INDEX = "model.safetensors.index.json"
#: The file that keeps the digests of a base model's files, beside the run that trains on it.
BASE_MODEL = "base_model.json"


def find_folder(path: str | Path, patterns: list[str] = ALL) -> Path:
    """Return the local folder of `path`; where it is a hub id, the files that match are fetched first."""
    try:
        folder = recover_folder(Path(path).expanduser())
        if folder.is_dir():
            return folder
    except OSError as error:
        raise UserError(f"Cannot read the folder {path} ({error.strerror}): give one that you may read.") from error
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)) or str(path).startswith((".", "/", "~")):
        raise UserError(
            f"There is no folder {path}: give a folder that holds config.json and *.safetensors, or a hub id."
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(path), allow_patterns=patterns))
    except (OSError, ValueError) as error:  # huggingface_hub's own errors derive from these
        raise UserError(
            f"Could not download {path} from the Hugging Face hub ({type(error).__name__}): check the name and the "
            "network, or give a local folder."
        ) from error


def read_config(folder: str | Path):
    """Return the `GptOssConfig` of a checkpoint folder. Raises UserError for one that describes no gpt-oss model."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import GptOssConfig

    content = _config_content(folder)
    model_type = content["model_type"]
    if model_type != "gpt_oss":
        raise UserError(f"{folder} holds a {model_type!r} model; only gpt-oss can be loaded.")
    try:
        config = GptOssConfig(**{key: value for key, value in content.items() if key != "quantization_config"})
        sizes = {name: getattr(config, name) for name in _WHOLE_NUMBERS}
        wrong = [f"{name} {size!r}" for name, size in sizes.items() if not (isinstance(size, int) and size > 0)]
        wrong += ["num_experts_per_tok"] * (config.num_experts_per_tok > config.num_local_experts)
        wrong += ["pad_token_id"] * ((config.pad_token_id or 0) >= config.vocab_size)
        if wrong:
            raise ValueError("wrong: " + ", ".join(wrong))
        return config
    except (TypeError, ValueError, KeyError, ArithmeticError, StrictDataclassError) as error:
        raise UserError(f"{folder}/config.json does not describe a gpt-oss model ({first_line(error)}).") from error


def _config_content(folder: str | Path) -> dict:
    """config.json as it is written, with a model_type."""
    try:
        content = json.loads((Path(folder) / "config.json").read_text())
        content["model_type"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"Cannot read {folder}/config.json ({error}): is this a checkpoint folder you may read?"
        ) from error
    return content


def experts_are_packed(folder: str | Path) -> bool:
    """Tell from the small files of a checkpoint whether its experts are MXFP4, before any weight is fetched.

    The index of the shards knows their names; a checkpoint of one file has none, and its config.json tells.
    """
    index = Path(folder) / INDEX
    if index.exists():
        return any(name.endswith("_scales") for name in _weight_map(index))
    return _config_content(folder).get("quantization_config") is not None


#: Sizes without which there is no model.
_WHOLE_NUMBERS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "num_local_experts", "num_experts_per_tok", "sliding_window", "max_position_embeddings",
)  # fmt: skip


def read_tokenizer(folder: str | Path) -> tuple:
    """Return `(tokenizer, generation_config)` of a checkpoint folder; the tokenizer pads on the left."""
    from transformers import AutoTokenizer, GenerationConfig

    try:
        return AutoTokenizer.from_pretrained(folder, padding_side="left"), GenerationConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{folder} has no tokenizer.json or generation_config.json that can be read: is the download complete?"
        ) from error


@dataclass(frozen=True)
class Entry:
    """The place of a tensor and what its file's header says of it. stored_as: its name in the file."""

    file: Path
    stored_as: str
    shape: tuple
    dtype: str
    bytes: int


#: safetensors' names of the types that a gpt-oss checkpoint holds -> bytes of one value.
_SIZES = {"U8": 1, "BF16": 2, "F16": 2, "F32": 4}


@contextmanager
def _opened(file):
    """A shard, with errors that name it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt", device="cpu") as tensors:
            yield tensors
    except (OSError, SafetensorError) as error:
        raise UserError(f"Cannot read {file} ({first_line(error)}): delete it and fetch it again.") from error


def read_index(folder: str | Path) -> dict[str, Entry]:
    """Map each parameter's name to its `Entry` over all shards, from their headers alone.

    Raises UserError for a shard that is missing, cut off or damaged, by its name.
    """
    found = {}
    for file in _shards(Path(folder)):
        with _opened(file) as tensors:
            for name in tensors.keys():
                piece = tensors.get_slice(name)
                shape = tuple(piece.get_shape())
                dtype = piece.get_dtype()
                if dtype not in _SIZES:
                    raise UserError(f"{name} in {file} is {dtype}: a gpt-oss checkpoint holds {', '.join(_SIZES)}.")
                is_dense = dtype != "U8"
                parameter = name.removesuffix("_blocks") if is_dense else name
                found[parameter] = Entry(file, name, shape, dtype, prod(shape) * _SIZES[dtype])
    return found


def _shards(folder):
    """The files that hold the weights, all of them there."""
    index = folder / INDEX
    if not index.exists():
        files = sorted(folder.glob("model*.safetensors"))
        if not files:
            raise UserError(f"{folder} holds no model*.safetensors: is the download complete?")
        return files
    files = sorted({folder / name for name in _weight_map(index).values()})
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise UserError(
            f"{folder} lacks {len(missing)} of {len(files)} shards, among them {missing[0]}: fetch the rest."
        )
    return files


def _weight_map(index: Path) -> dict[str, str]:
    """Map each tensor's name to the name of its shard, as the file `index` has it."""
    try:
        weight_map = json.loads(index.read_text())["weight_map"]
        return {name: str(shard) for name, shard in weight_map.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"Cannot read {index} ({first_line(error)}): delete it and fetch it again.") from error


def read_tensors(index: dict[str, Entry], ending: str = "") -> Iterator[tuple[str, "Tensor"]]:
    """Yield `(name, tensor)` shard by shard, of names with that ending; read when it is its turn, and not kept."""
    by_file = {}
    for name, entry in index.items():
        by_file.setdefault(entry.file, []).append(name)
    for file, names in by_file.items():
        with _opened(file) as tensors:
            for name in names:
                if name.endswith(ending):
                    yield name, tensors.get_tensor(index[name].stored_as)


def base_identity(folder: str | Path, kept_in: str | Path) -> str:
    """Return a digest of a model's config.json and *.safetensors: 16 hexadecimal digits.

    folder: the local folder that the model was loaded from. kept_in: the run folder, where base_model.json keeps the
    digest of each file with its size and its time of change. Only files for which these differ are read again, as
    gpt-oss-20b's 14 GB may take a minute; files in the hub's cache are not read at all.
    """
    folder = Path(folder).resolve()
    kept = _kept_digests(Path(kept_in) / BASE_MODEL, folder)
    files = {}
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        stat = path.stat()
        entry = kept.get(path.name)
        if entry is None or (entry["size"], entry["mtime_ns"]) != (stat.st_size, stat.st_mtime_ns):
            entry = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": _sha256_of(path)}
        files[path.name] = entry
    if files != kept:
        with suppress(OSError):  # it only saves time
            write_checked(Path(kept_in) / BASE_MODEL, {"folder": str(folder), "files": files})
    digests = {name: entry["sha256"] for name, entry in files.items()}
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]


def _sha256_of(path: Path) -> str:
    """The SHA-256 of a file. In the hub's cache a large file is a link to one that is named by it."""
    blob = path.resolve()
    if blob.parent.name == "blobs" and re.fullmatch("[0-9a-f]{64}", blob.name):
        return blob.name
    return file_digest(path)


def _kept_digests(path: Path, folder: Path) -> dict[str, dict]:
    """What `base_identity` kept of the files in `folder`; {} where that is another folder or cannot be read."""
    try:
        kept = read_checked(path)
    except (OSError, ValueError):
        return {}
    return kept["files"] if kept["folder"] == str(folder) else {}

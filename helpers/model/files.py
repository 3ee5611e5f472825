"""Find and read a checkpoint folder, with errors that name the file."""

import json
import re
from pathlib import Path

from helpers.runtime import UserError, first_line


def find_folder(path):
    """The local folder of `path`, downloaded first where it is a hub id."""
    folder = Path(path).expanduser()
    try:
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
        return Path(snapshot_download(str(path), allow_patterns=["*.json", "*.jinja", "model*.safetensors"]))
    except (OSError, ValueError) as error:  # huggingface_hub's own errors derive from these
        raise UserError(
            f"Could not download {path} from the Hugging Face hub ({type(error).__name__}): check the name and the "
            "network, or give a local folder."
        ) from error


def read_config(folder):
    """The `GptOssConfig` of a checkpoint folder."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import GptOssConfig

    try:
        content = json.loads((Path(folder) / "config.json").read_text())
        model_type = content["model_type"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"Cannot read {folder}/config.json ({error}): is this a checkpoint folder you may read?"
        ) from error
    if model_type != "gpt_oss":
        raise UserError(f"{folder} holds a {model_type!r} model; only gpt-oss can be loaded.")
    try:
        return GptOssConfig(**{key: value for key, value in content.items() if key != "quantization_config"})
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise UserError(f"{folder}/config.json does not describe a gpt-oss model ({first_line(error)}).") from error


def read_tokenizer(folder):
    """`(tokenizer, generation_config)` of a checkpoint folder; the tokenizer pads on the left."""
    from transformers import AutoTokenizer, GenerationConfig

    try:
        return AutoTokenizer.from_pretrained(folder, padding_side="left"), GenerationConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder} has no tokenizer.json or generation_config.json that can be read: is the download complete?"
        ) from error


def read_tensors(folder):
    """Yield `(name, tensor)` over all shards, one tensor in memory at a time."""
    from safetensors import SafetensorError, safe_open

    files = sorted(Path(folder).glob("model*.safetensors"))
    if not files:
        raise UserError(f"{folder} holds no model*.safetensors: is the download complete?")
    for file in files:
        try:
            with safe_open(file, framework="pt", device="cpu") as tensors:
                for name in tensors.keys():
                    yield name, tensors.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise UserError(f"Cannot read {file} ({error}): delete it and fetch it again.") from error

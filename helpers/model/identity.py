"""Which base model a run trains on, and in which arithmetic: what a resumed run must share with the one before."""

import weakref
from pathlib import Path

from peft import PeftModel
from torch import nn

from helpers.model.files import base_identity
from helpers.model.host_embedding import HostEmbedding
from helpers.model.layers import Int8Embedding
from helpers.model.lora import weights_digest
from helpers.model.memory import WHOLE

#: Base model -> its digest. Base weights never change, so each model is asked once, whatever becomes of its files.
_digests = weakref.WeakKeyDictionary()


def base_settings(model: PeftModel, kept_in: str | Path) -> dict[str, str]:
    """Return what tells the model under an adapter from others, as plain values; kept_in: as for `base_identity`.

    base_model: a digest of the files that `load_model` read. A model that was made otherwise, as in a test, has none:
    there it is a digest of the weights in memory.
    """
    base = model.get_base_model()
    if base not in _digests:
        folder = getattr(base, "loaded_from", None)
        is_there = folder is not None and (Path(folder) / "config.json").is_file()
        _digests[base] = base_identity(folder, kept_in) if is_there else weights_digest(base)[:16]
    return {"base_model": _digests[base], **arithmetic(base)}


def arithmetic(model: nn.Module) -> dict[str, str]:
    """Return how a `GptOssForCausalLM` computes, read from its first layer.

    dtype: of the operands. experts, dense: storage of the expert matrices and of the attention projections, by the
    names that `load_model` has for them. embedding: "device", "host" or "int8". attention: the registered name.
    """
    layer = model.model.layers[0]
    experts = getattr(layer.mlp.experts, "base_layer", layer.mlp.experts)  # below PEFT's layer
    projection = getattr(layer.self_attn.q_proj, "base_layer", layer.self_attn.q_proj)
    dtype = str(getattr(experts, "dtype", model.dtype)).removeprefix("torch.")
    dense = WHOLE.get(dtype, dtype)
    storages = {HostEmbedding: "host", Int8Embedding: "int8"}
    return {
        "dtype": dtype,
        "experts": "mxfp4" if getattr(experts, "packed", False) else dense,
        "dense": "nf4" if hasattr(projection.weight, "quant_state") else dense,
        "embedding": storages.get(type(model.model.embed_tokens), "device"),
        "attention": model.config._attn_implementation,
    }

"""Bytes that a decoding step has to read, which on a GPU are what bounds its speed."""

import statistics

from torch import nn

from helpers.model.experts import PackedExperts
from helpers.rollout.weights import base_model
from tests.benchmarks.models import generate

#: Tokens that are drawn to see which experts they hit.
WATCHED_TOKENS = 8


def experts_hit(model: nn.Module, tokenizer, prompts: list[list[int]]) -> float:
    """How many experts of a layer a decoding step reads, on average over a few tokens of `generate`."""
    counts = []

    def note(_, arguments: tuple) -> None:
        hidden, indices = arguments[:2]
        if len(hidden) == len(prompts):  # decoding, where a row has one token
            counts.append(indices.unique().numel())

    hooks = [module.register_forward_pre_hook(note) for module in model.modules() if isinstance(module, PackedExperts)]
    generate(model, tokenizer, {}, prompts, WATCHED_TOKENS, 0, 1.0)
    for hook in hooks:
        hook.remove()
    return statistics.mean(counts)


def step_reads(model: nn.Module, tokenizer, prompts: list[list[int]], tokens: int) -> dict[str, float]:
    """Bytes of each weight once, of the experts those that are hit, and of the cache in the middle of the completions.

    prompts: of the rows that are decoded together. tokens: of each completion.
    """
    config = base_model(model).config
    hit = experts_hit(model, tokenizer, prompts)
    share = hit / config.num_local_experts
    read = {"experts": 0.0, "adapter": 0.0, "head": 0.0, "attention and the rest": 0.0}
    for name, weight in model.named_parameters():
        part = "adapter" if "lora_" in name else "experts"
        if ".experts." in name:
            read[part] += share * weight.nbytes
        elif "lm_head" in name or part == "adapter":
            read["head" if "lm_head" in name else part] += weight.nbytes
        elif "embed_tokens" not in name:  # of which a row needs one row
            read["attention and the rest"] += weight.nbytes
    read["cache"] = len(prompts) * _cached_bytes(model, statistics.mean(map(len, prompts)) + tokens / 2)
    return {"rows": len(prompts), "experts_hit": hit, "bytes": sum(read.values()), **read}


def _cached_bytes(model: nn.Module, length: float) -> float:
    """Bytes of the keys and values of one row with so many tokens, as far as its layers look."""
    causal_lm = base_model(model)
    config = causal_lm.config
    of_a_token = 2 * config.num_key_value_heads * config.head_dim * causal_lm.lm_head.weight.element_size()
    full = config.layer_types.count("full_attention")
    sliding = config.layer_types.count("sliding_attention")
    return of_a_token * (full * length + sliding * min(length, config.sliding_window))

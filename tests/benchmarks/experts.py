"""One layer's experts: packed MXFP4 against transformers' eager, grouped_mm and batched_mm on dense weights.

    python -m tests.benchmarks.experts [--device cuda] [--out file.json]

All in one run, taking turns; the median of the rounds. On the CPU fp32, and a quarter of gpt-oss's width; on a
GPU 16 bits and gpt-oss-20b's own shapes. Every result is compared with eager's; what does not fit is named.
"""

import argparse
from functools import partial

import torch
from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from helpers.display import text_table
from helpers.kernels.mxfp4 import dequantize, quantize
from helpers.model.experts import PackedExperts
from helpers.runtime import GIB
from tests.benchmarks.models import sixteen_bits
from tests.benchmarks.record import Record
from tests.benchmarks.timing import take_turns

TOKENS = (1, 8, 64, 1024)
STOCK = ("eager", "grouped_mm", "batched_mm")


def make(device):
    """`(config, {name: module})` with the same weights; ours packed and, on the CPU, unpacked as it is used there."""
    width, dtype = (704, torch.float32) if device == "cpu" else (2880, sixteen_bits())
    config = GptOssConfig(hidden_size=width, intermediate_size=width, num_local_experts=32, num_experts_per_tok=4)
    torch.manual_seed(0)
    packed = PackedExperts(config, True, dtype).to(device)
    dense = {}
    for name, (wide, out) in packed.sizes.items():
        halves = [quantize(torch.randn(1, wide, out, device=device) * 0.02) for _ in range(config.num_local_experts)]
        blocks, scales = (torch.cat(column) for column in zip(*halves))
        getattr(packed, f"{name}_blocks").data, getattr(packed, f"{name}_scales").data = blocks, scales
        getattr(packed, f"{name}_bias").data.normal_(std=0.1)
        dense[name] = dequantize(blocks, scales, dtype)
    modules = {"packed (ours)": packed}
    if device == "cpu":
        modules["unpacked (ours)"] = PackedExperts(config, False, dtype)
    for implementation in STOCK:
        own = GptOssConfig(**{**config.to_dict(), "rope_scaling": None})
        own._experts_implementation = implementation
        modules[implementation] = GptOssExperts(own).to(device, dtype)
    for module in modules.values():
        for name, weight in dense.items():
            if module is not packed:
                getattr(module, name).data = weight
            getattr(module, f"{name}_bias").data = getattr(packed, f"{name}_bias").data.to(
                getattr(module, f"{name}_bias").dtype
            )
        module.requires_grad_(False)
    return config, modules


def inputs(config, tokens, device, dtype):
    top = torch.randn(tokens, config.num_local_experts, device=device).topk(config.num_experts_per_tok)
    hidden = torch.randn(tokens, config.hidden_size, device=device).to(dtype)
    return hidden, top.indices, top.values.softmax(-1).to(dtype)


def gathered_bytes(config, tokens, dtype):
    """What batched_mm copies: the whole expert for every pair of token and expert."""
    return tokens * config.num_experts_per_tok * 3 * config.hidden_size * config.intermediate_size * dtype.itemsize


def forward(module, hidden, indices, weights):
    with torch.no_grad():
        return module(hidden, indices, weights)


def both_ways(module, hidden, indices, weights):
    out = module(hidden.detach().requires_grad_(), indices, weights)
    out.float().sum().backward()


def compare(module, arguments, exact):
    """Relative distance of a module's result from `exact`; raises AssertionError beyond rounding."""
    error = float((forward(module, *arguments).float() - exact).norm() / exact.norm())
    assert error < (1e-5 if arguments[0].dtype == torch.float32 else 2e-2), error
    return error


def run(device, rounds, token_counts, out):
    """Measure every number of tokens; returns what the file holds, which is written after every row."""
    config, modules = make(device)
    dtype = modules["eager"].gate_up_proj.dtype
    sizes = {"hidden": config.hidden_size, "inner": config.intermediate_size, "experts": 32, "top_k": 4}
    record = Record(out, device=device, dtype=str(dtype), **sizes)
    room = 4 * GIB if device == "cpu" else torch.cuda.mem_get_info()[0] / 2
    for tokens in token_counts:
        for kind, step in (("forward", forward), ("forward and backward", both_ways)):
            arguments = inputs(config, tokens, device, dtype)
            exact = forward(modules["eager"], *arguments).float()
            chosen, size = dict(modules), gathered_bytes(config, tokens, dtype)
            if size > room:
                chosen.pop("batched_mm")
                print(f"batched_mm at {tokens} tokens: not run, it would copy {size / GIB:.1f} GiB of weights")
            errors = {name: compare(module, arguments, exact) for name, module in chosen.items()}
            calls = {name: partial(step, module, *arguments) for name, module in chosen.items()}
            for name, cost in take_turns(calls, rounds, device).items():
                record.add({"tokens": tokens, "pass": kind, "experts": name} | cost | {"error": errors[name]})
    return record.content


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    result = run(arguments.device, arguments.rounds, arguments.tokens, arguments.out)
    print(result["hardware"], result["dtype"], f"{result['hidden']} wide, 32 experts, 4 of them a token")
    shown = [(r["tokens"], r["pass"], r["experts"], round(r["ms"], 2), round(r["peak_MiB"])) for r in result["rows"]]
    print(text_table(shown, ["tokens", "pass", "experts", "ms", "peak MiB"]))


if __name__ == "__main__":
    main()

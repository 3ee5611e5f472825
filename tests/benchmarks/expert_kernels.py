"""The experts of a decoding step against the speed of a copy on the same card.

    python -m tests.benchmarks.expert_kernels [--device cuda] [--out file.json]

One layer's experts for 1 to 64 tokens, as a rollout runs them: from packed bytes, without gradients, with an adapter
and without. A call needs the bytes of the experts that are hit once, whatever the number of tokens; so those bytes over
the time it takes, as a share of what a copy reads and writes in a second, say how much is left to gain. The tokens are
routed at random and evenly, and the calls go through several layers in turn, as what one layer has read may still lie
in a cache. On a GPU gpt-oss-20b's sizes in fp16, captured as a CUDA graph, with the kernels that this card uses and,
where those are others, with a T4's; on the CPU the embedded model's in fp32.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from helpers.benchmark import ROUNDS, copy_speed, quickest
from helpers.display import text_table
from helpers.kernels.experts import DECODE_TOKENS, ExpertLora, ExpertWeights, Packed, routed_forward
from helpers.kernels.mxfp4 import GROUP
from helpers.model.memory import known_config
from tests.benchmarks.models import benchmark_profile
from tests.benchmarks.record import Record

TOKENS = (1, 2, 4, 8, 16, 32, DECODE_TOKENS)
#: Layers that take turns.
LAYERS = {"cpu": 2, "cuda": 8}
#: A T4's compute capability.
T4 = (7, 5)
#: How often all of them are called in one timing.
REPEATS = {"cpu": 1, "cuda": 20}


class Layer(NamedTuple):
    """The experts of one layer, and an adapter on them."""

    experts: ExpertWeights
    lora: ExpertLora


def random_layer(hidden: int, inner: int, count: int, rank: int, dtype: torch.dtype, device: str) -> Layer:
    """Draw a layer whose products neither overflow nor vanish."""

    def packed(wide: int, out: int) -> Packed:
        blocks = torch.randint(0, 256, (count, out, wide // GROUP, GROUP // 2), dtype=torch.uint8, device=device)
        scales = torch.randint(118, 124, (count, out, wide // GROUP), dtype=torch.uint8, device=device)
        return Packed(blocks, scales)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device) * 0.02

    experts = ExpertWeights(
        gate_up=packed(hidden, 2 * inner),
        gate_up_bias=normal(count, 2 * inner),
        down=packed(inner, hidden),
        down_bias=normal(count, hidden),
        dtype=dtype,
    )
    lora = ExpertLora(
        gate_up_A=normal(count, rank, hidden),
        gate_up_B=normal(count, 2 * inner, rank),
        down_A=normal(count, rank, inner),
        down_B=normal(count, hidden, rank),
        scaling=2.0,
    )
    return Layer(experts, lora)


def bytes_of(layer: Layer, indices: Tensor, is_adapted: bool) -> int:
    """Bytes of the experts that are hit, their adapters included; tokens and results are left out."""
    share = indices.unique().numel() / len(layer.experts.down_bias)
    tensors = [*layer.experts.gate_up, *layer.experts.down, layer.experts.gate_up_bias, layer.experts.down_bias]
    if is_adapted:
        tensors += layer.lora.matrices
    return round(share * sum(tensor.nbytes for tensor in tensors))


def seconds_of_each(calls: list[Callable[[], Tensor]], device: str) -> float:
    """Seconds of one call when all take turns; on a GPU by the replay of a graph, as in a rollout."""
    for call in calls:
        call()  # kernels are compiled here

    def take_turns() -> None:
        for call in calls:
            call()

    replay = take_turns
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            take_turns()
        replay = graph.replay
    repeats = REPEATS[device]

    def repeated() -> None:
        for _ in range(repeats):
            replay()

    repeated()
    (seconds,) = quickest([repeated], device)
    return seconds / (repeats * len(calls))


@torch.no_grad()
def measure(layers: list[Layer], tokens: int, top_k: int, is_adapted: bool, device: str, tiling: object) -> dict:
    """Time the experts of all layers for so many tokens: one row, without the speed of a copy.

    tiling: the form of the Triton kernels; None on the CPU, which has none.
    """
    count, hidden = layers[0].experts.down_bias.shape
    calls = []
    sizes = []
    for layer in layers:
        x = torch.randn(tokens, hidden, device=device)
        top = torch.randn(tokens, count, device=device).topk(top_k)
        shares = top.values.softmax(-1)
        lora = layer.lora if is_adapted else None
        workspace = workspace_in(tiling, layer.experts, tokens, top_k)

        def call(x=x, indices=top.indices, shares=shares, experts=layer.experts, lora=lora, workspace=workspace):
            return routed_forward(x, indices, shares, experts, lora, workspace)

        assert bool(call().isfinite().all())
        calls.append(call)
        sizes.append(bytes_of(layer, top.indices, is_adapted))
    seconds = seconds_of_each(calls, device)
    mean_bytes = sum(sizes) / len(sizes)
    return {
        "tokens": tokens,
        "adapter": is_adapted,
        "form": name_of(tiling),
        "us": 1e6 * seconds,
        "bytes": mean_bytes,
        "bytes_per_s": mean_bytes / seconds,
    }


def workspace_in(tiling: object, experts: ExpertWeights, tokens: int, top_k: int) -> object:
    """The buffers of a step with kernels of that form; None on the CPU."""
    if tiling is None:
        return None
    from helpers.kernels.mxfp4_triton import Workspace

    return Workspace.allocate(tokens, top_k, experts, tiling)


def name_of(tiling: object) -> str:
    """A form of the kernels in words."""
    if tiling is None:
        return "no kernel"
    return "tensor cores" if tiling.dot else f"multiply-adds, {tiling.tokens} together"


def forms(tokens: int, device: str) -> list:
    """The form that this card uses for so many tokens, and a T4's if that is another."""
    if device == "cpu":
        return [None]
    from helpers.kernels.mxfp4_triton import Tiling

    own = Tiling.choose(tokens, torch.cuda.get_device_capability())
    of_a_t4 = Tiling.choose(tokens, T4)
    return [own] if own == of_a_t4 else [own, of_a_t4]


def run(device: str, out: str | None) -> None:
    profile = benchmark_profile(device)
    config = known_config(profile)
    sizes = {"hidden": config.hidden_size, "inner": config.intermediate_size, "experts": config.num_local_experts}
    dtype = getattr(torch, profile.dtype)
    torch.manual_seed(0)
    layers = [random_layer(*sizes.values(), profile.lora_r, dtype, device) for _ in range(LAYERS[device])]
    speed = copy_speed(device)
    record = Record(
        out, device=device, dtype=profile.dtype, **sizes, top_k=config.num_experts_per_tok, lora_r=profile.lora_r,
        layers=len(layers), rounds=ROUNDS, copy_bytes_per_s=speed,
    )  # fmt: skip
    for is_adapted in (False, True):
        for tokens in TOKENS:
            for tiling in forms(tokens, device):
                row = measure(layers, tokens, config.num_experts_per_tok, is_adapted, device, tiling)
                record.add(row | {"share_of_copy": row["bytes_per_s"] / speed})
    show(record.content)


def show(content: dict) -> None:
    """Print the table."""
    shown = [
        (
            row["tokens"],
            "LoRA" if row["adapter"] else "none",
            row["form"],
            f"{row['us']:.1f}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{row['bytes_per_s'] / 1e9:.1f}",
            f"{row['share_of_copy']:.0%}",
        )
        for row in content["rows"]
    ]
    print(content["hardware"], f"a copy reads and writes {content['copy_bytes_per_s'] / 1e9:.1f} GB/s", sep="\n")
    print(text_table(shown, ["tokens", "adapter", "kernels", "us a layer", "MB of experts hit", "GB/s", "of a copy"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    run(arguments.device, arguments.out)


if __name__ == "__main__":
    main()

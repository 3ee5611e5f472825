"""Project the times of a GRPO step of gpt-oss-20b from what was counted: a projection, not a measurement.

    python -m tests.fake_gpu.projection

Counted: kernels of a decoding step and launches of an update (`results/path-20b.json`), and the instructions that the
kernels over packed experts spend on a byte (`tests/kernels/test_aot.py` holds them below `MOST_INSTRUCTIONS`). Computed
from the sizes of the model: bytes and products. Assumed: the rates in `CARDS`. The parts are added where they follow
each other; where they go on at the same time the larger counts. Expect an error of 40 %.
"""

import json
from dataclasses import dataclass

from helpers.display import text_table
from helpers.kernels.mxfp4_triton import Tiling
from helpers.model.gpu_memory import captured_lengths
from helpers.model.memory import MXFP4_BYTES, parameter_counts, released_config, rollout_length
from helpers.rollout.schedule import smallest
from helpers.runtime import ROOT
from tests.kernels.test_aot import MOST_INSTRUCTIONS

TABLE = ROOT / "tests/fake_gpu/results/path-20b.json"
#: Tokens of a prompt and of each completion.
PROMPT, COMPLETION = 150, 768
#: Tokens of the cache that a decoding step looks at in the middle of a rollout.
LOOKED_AT = smallest(captured_lengths(rollout_length(COMPLETION)), PROMPT + COMPLETION // 2)
#: Seconds of a step for rewards, records and the share of a checkpoint.
BESIDE = 5.0
#: Instructions a byte where tensor cores multiply, as compiled for sm_90.
TENSOR_CORE_INSTRUCTIONS = 20


@dataclass(frozen=True)
class Card:
    """What is assumed of a GPU.

    Attributes:
        capability: compute capability.
        bandwidth: bytes a second that a long kernel reads.
        instructions: thread instructions a second.
        products: of 16-bit matrices, FLOP a second that cuBLAS reaches on a few hundred rows.
        gap: seconds between two kernels of a CUDA graph.
        launch: seconds that the host takes for a kernel outside of a graph.
    """

    capability: tuple[int, int]
    bandwidth: float
    instructions: float
    products: float
    gap: float
    launch: float


CARDS = {
    # 40 multiprocessors at 1.3 GHz; 80 % of 320 GB/s; what was measured of its 65 TFLOP/s is 20 to 43
    "T4": Card((7, 5), bandwidth=250e9, instructions=40 * 128 * 1.3e9, products=16e12, gap=1.5e-6, launch=8e-6),
    # 132 multiprocessors at 1.7 GHz; 80 % of 3,350 GB/s
    "H100": Card((9, 0), bandwidth=2680e9, instructions=132 * 128 * 1.7e9, products=300e12, gap=1e-6, launch=5e-6),
}


def experts_hit(tokens: int, experts: int, top_k: int) -> float:
    """Experts that at least one of so many tokens chooses, if each chooses at random."""
    return experts * (1 - (1 - top_k / experts) ** tokens)


def decoding_step(name: str, batch: int, kernels: int) -> float:
    """Seconds of a captured decoding step."""
    card = CARDS[name]
    config = released_config("20b")
    counts = parameter_counts(config)
    hit = experts_hit(batch, config.num_local_experts, config.num_experts_per_tok) / config.num_local_experts
    packed = counts["experts"] * MXFP4_BYTES * hit
    reading = packed / card.bandwidth
    tiling = Tiling.choose(batch, card.capability)
    of_a_byte = TENSOR_CORE_INSTRUCTIONS if tiling.dot else MOST_INSTRUCTIONS[tiling.tokens]
    computing = packed * of_a_byte / card.instructions
    keys = 2 * config.num_key_value_heads * config.head_dim * 2  # bytes of a token in a layer
    cache = batch * 12 * keys * (LOOKED_AT + min(LOOKED_AT, config.sliding_window))
    dense = 2 * (counts["attention"] + counts["head"]) + 4 * counts["small"]
    return max(reading, computing) + (dense + cache) / card.bandwidth + kernels * card.gap


def update(name: str, completions: int, rows: int, launches: float) -> float:
    """Seconds of forward and backward passes over so many completions, `rows` a micro-batch."""
    card = CARDS[name]
    config = released_config("20b")
    counts = parameter_counts(config)
    tokens = completions * (PROMPT + COMPLETION)
    active = counts["experts"] * config.num_experts_per_tok / config.num_local_experts
    # forwards; again the first matrix, and both to the inputs
    of_experts = active * (1 + 2 / 3 + 1)
    of_attention = counts["attention"] * 3  # forwards, again, and to the inputs
    of_head = counts["head"] * 2 * COMPLETION / (PROMPT + COMPLETION)
    computing = 2 * tokens * (of_experts + of_attention + of_head) / card.products
    micro_batches = completions / rows
    unpacking = micro_batches * 2 * counts["experts"] * (MXFP4_BYTES + 2) / card.bandwidth
    return max(computing + unpacking, launches * card.launch)


def main() -> None:
    table = json.loads(TABLE.read_text())
    rows = []
    for name in CARDS:
        for batch in (8, 16, 32):
            counted = {row["phase"]: row for row in table if (row["batch"], row["routing"]) == (batch, "uniform")}
            step = decoding_step(name, batch, counted["decode"]["kernels_a_step"])
            rollout = step * COMPLETION
            passes = counted["forward and backward"]
            launches = passes["kernels"] / passes["completions"] * batch
            updating = update(name, batch, passes["micro_batch"], launches)
            whole = rollout + updating + BESIDE
            figures = [1e3 * step, batch / step, rollout, updating, whole, batch * COMPLETION / whole]
            rows.append((name, batch, *(f"{figure:,.0f}" for figure in figures)))
    header = [
        "card",
        "completions",
        "ms a decoding step",
        "tok/s",
        "rollout s",
        "update s",
        "step s",
        "tok/s of a step",
    ]
    print(f"Projected, not measured; {PROMPT} tokens of a prompt, {COMPLETION} of a completion, {BESIDE:g} s beside:")
    print(text_table(rows, header))


if __name__ == "__main__":
    main()

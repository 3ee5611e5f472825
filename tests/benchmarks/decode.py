"""Prefill and decoding at gpt-oss-20b's shape within a T4's memory: against the bandwidth, and against the memory plan.

    python -m tests.benchmarks.decode [--device cuda] [--out file.json]

The model in random bytes with an adapter, drawn from by `RolloutEngine`; on the CPU the embedded model's shape. A step
has to read each weight once, of the experts those that are hit, and the cache; those bytes at the speed of a copy are
the bound. Peaks are of all tensors, the model included, and the plan is `memory_plan` for the same rows and length.
"""

import argparse

from helpers import add_lora, memory_plan, text_table
from helpers.benchmark import (
    BATCHES,
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    ROLLOUT_PARTS,
    copy_speed,
    decode_speed,
    prefill_speed,
    random_prompt,
)
from helpers.model.memory import WEIGHTS
from helpers.runtime import GIB
from tests.benchmarks.models import (
    T4_GIB,
    benchmark_profile,
    cap_memory,
    embedded_tokenizer,
    peaks,
    random_model,
    restart_peaks,
)
from tests.benchmarks.reads import step_reads
from tests.benchmarks.record import Record

#: Parts of the memory plan that are there once the model is loaded and adapted.
LOADED = (*WEIGHTS, "LoRA")


def run(device: str, out: str | None) -> None:
    cap_memory(T4_GIB)
    restart_peaks()
    profile = benchmark_profile(device)
    model = add_lora(random_model(profile), profile.lora_r, profile.lora_alpha).eval()
    tokenizer = embedded_tokenizer()
    prompt = random_prompt(model, PROMPT_TOKENS)
    tokens = COMPLETION_TOKENS[1]
    length = PROMPT_TOKENS + tokens
    speed = copy_speed(device)
    record = Record(
        out, device=device, dtype=profile.dtype, embedding=profile.embedding, lora_r=profile.lora_r, length=length,
        cap_gib=T4_GIB if device == "cuda" else None, copy_bytes_per_s=speed, memory_of_loading=peaks(),
        prefill_tokens_per_s=prefill_speed(model, tokenizer),
    )  # fmt: skip
    for rows in BATCHES:
        restart_peaks()
        decode = decode_speed(model, tokenizer, profile, rows)
        memory = peaks()
        parts = memory_plan(profile, rows, length, model.config).parts
        reads = step_reads(model, tokenizer, rows * [prompt], tokens)
        bound_ms = 1e3 * reads["bytes"] / speed
        record.add(
            {
                "rows": rows,
                "tokens_per_s": decode.tokens_per_s,
                "step_ms": decode.step_ms,
                "first_token_s": decode.first_token_s,
                "reads": reads,
                "bound_ms": bound_ms,
                "share_of_bound": bound_ms / decode.step_ms,
                "memory": memory,
                "planned_bytes": sum(parts[name] for name in (*LOADED, *ROLLOUT_PARTS)),
            }
        )
    show(record.content)


def show(content: dict) -> None:
    """Print the table."""
    shown = []
    for row in content["rows"]:
        peak = row["memory"].get("max_allocated")
        shown.append(
            (
                row["rows"],
                f"{row['tokens_per_s']:,.0f}",
                f"{row['step_ms']:.2f}",
                f"{row['bound_ms']:.2f}",
                f"{row['share_of_bound']:.0%}",
                f"{row['reads']['experts_hit']:.1f}",
                f"{row['first_token_s']:.1f}",
                "not measured" if peak is None else f"{peak / GIB:.2f}",
                f"{row['planned_bytes'] / GIB:.2f}",
            )
        )
    header = [
        "rows", "tokens/s", "ms a step", "at a copy's speed", "share", "experts hit", "first token s", "peak GiB",
        "planned",
    ]  # fmt: skip
    print(content["hardware"], f"a copy reads and writes {content['copy_bytes_per_s'] / 1e9:.1f} GB/s", sep="\n")
    print(f"prefill: {content['prefill_tokens_per_s']:,.0f} tokens/s")
    print(text_table(shown, header))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    run(arguments.device, arguments.out)


if __name__ == "__main__":
    main()

"""Attention projections in NF4 against whole ones: bytes, speed of decoding, and what the rounding does to the logits.

    python -m tests.benchmarks.nf4 [--device cuda] [--out file.json]

Needs bitsandbytes. On a GPU at gpt-oss-20b's shape in random bytes within a T4's memory, and the logits of the embedded
model; on the CPU the embedded model's shape. Both forms in one run, one after the other.
"""

import argparse

import torch

from helpers import add_lora, load_model, memory_plan, text_table
from helpers.benchmark import decode_speed, random_prompt
from helpers.profiles import PROFILES
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
from tests.benchmarks.record import Record

BATCHES = (1, 8)


def measure(device: str, dense: str) -> dict:
    """Load one form, and time its decoding."""
    restart_peaks()
    profile = benchmark_profile(device, dense)
    model = add_lora(random_model(profile), profile.lora_r, profile.lora_alpha).eval()
    attention = model.get_base_model().model.layers[0].self_attn
    loaded = peaks().get("allocated")
    speeds = [decode_speed(model, embedded_tokenizer(), profile, rows) for rows in BATCHES]
    return {
        "dense": dense,
        "layer": type(attention.q_proj.get_base_layer()).__name__,
        "loaded_bytes": loaded,
        "planned_attention_bytes": memory_plan(profile, 1, 1).parts["attention"],
        "step_ms": {speed.rows: speed.step_ms for speed in speeds},
        "tokens_per_s": {speed.rows: speed.tokens_per_s for speed in speeds},
    }


@torch.no_grad()
def embedded_logits(device: str, dense: str) -> torch.Tensor:
    """The trained embedded model's logits with one form."""
    profile = benchmark_profile(device, dense)
    model, tokenizer = load_model(PROFILES["tiny"].model, profile=profile)
    ids = torch.tensor([random_prompt(model, 200)], device=model.device)
    return model(ids).logits.float()


def run(device: str, out: str | None) -> None:
    whole = benchmark_profile(device).dense
    exact = embedded_logits(device, whole)
    rounded = embedded_logits(device, "nf4")
    cap_memory(T4_GIB)  # after `load_model`, which sets a limit of its own
    change = float((rounded - exact).norm() / exact.norm())
    record = Record(out, device=device, embedded_logits_change=change)
    for dense in (whole, "nf4"):
        record.add(measure(device, dense))
    show(record.content)


def show(content: dict) -> None:
    """Print the table."""
    shown = []
    for row in content["rows"]:
        loaded = row["loaded_bytes"]
        speeds = [f"{row['tokens_per_s'][rows]:.0f}" for rows in BATCHES]
        held = "not measured" if loaded is None else f"{loaded / GIB:.2f}"
        shown.append((row["dense"], row["layer"], held, f"{row['planned_attention_bytes'] / GIB:.3f}", *speeds))
    speed_columns = [f"tokens/s, {rows} rows" for rows in BATCHES]
    print(content["hardware"])
    print(text_table(shown, ["dense", "layer", "loaded GiB", "attention planned GiB", *speed_columns]))
    print(f"NF4 changes the embedded model's logits by {content['embedded_logits_change']:.0%} of their norm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    run(arguments.device, arguments.out)


if __name__ == "__main__":
    main()

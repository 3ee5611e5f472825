"""The GPU's memory outside of PyTorch: of the context, of loaded kernels, and of captured graphs.

    python -m tests.benchmarks.driver [--device cuda] [--out file.json]

`helpers.model.gpu_memory` has an estimate of each, and these rows say what to put in their place. Four layers of
gpt-oss-20b's shape with an adapter decode one kernel after the other, with 1 to 8 rows, and then by graphs of as many.
What the driver has taken is what is neither free nor PyTorch's, without what nvidia-smi says that was in use before.
Nothing else may use the card meanwhile. On the CPU, which has none of this, the embedded model shows that it works.
"""

import argparse
import shutil
import subprocess

import torch

from helpers import add_lora, text_table
from helpers.benchmark import draw, random_prompt
from helpers.model import gpu_memory
from helpers.model.gpu_memory import CONTEXT_BYTES, MODULE_BYTES, NODE_BYTES, release_memory
from helpers.rollout.engine import RolloutEngine
from tests.benchmarks.models import benchmark_profile, embedded_tokenizer, random_model
from tests.benchmarks.record import Record

LAYERS = 4
ROWS = (1, 2, 4, 8)
#: Kernels that a rollout loads, as `tests/fake_gpu/rollouts.py` counts them.
ROLLOUT_KERNELS = 119
PROMPT, TOKENS = 32, 24
#: What nvidia-smi is asked.
ASKED = (
    "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "temperature.gpu", "power.limit",
    "memory.total", "memory.used", "ecc.mode.current", "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip


def ask_nvidia_smi() -> dict[str, str]:
    """What nvidia-smi says of the first GPU; empty where it is not there."""
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        return {"error": (run.stderr or run.stdout).strip()}
    values = run.stdout.splitlines()[0].split(", ")
    return dict(zip(ASKED, values, strict=True))


def used_before(nvidia_smi: dict[str, str]) -> int:
    """Bytes of the GPU's memory that others had in use, by the answer of nvidia-smi; 0 where it gave none."""
    number, _, unit = nvidia_smi.get("memory.used", "").partition(" ")
    return int(number) * 2**20 if unit == "MiB" else 0


def outside_pytorch() -> int:
    """Bytes of the GPU's memory that are neither free nor PyTorch's; 0 without a GPU."""
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def run(device: str, out: str | None) -> list[dict]:
    """Measure each in turn; returns the rows of the file."""
    before_us = ask_nvidia_smi()
    torch.zeros(1, device=device)  # makes the context
    record = Record(out, device=device, nvidia_smi=before_us, cuda=torch.version.cuda, layers=LAYERS)
    taken = used_before(before_us)

    def add(what: str, count: int, estimate: float) -> None:
        """Record what was taken since the last row. count: of things; estimate: bytes of one of them."""
        nonlocal taken
        release_memory()
        since = outside_pytorch() - taken
        taken += since
        record.add({"what": what, "count": count, "bytes": since, "estimated_bytes": count * estimate})

    add("context", 1, CONTEXT_BYTES)
    profile = benchmark_profile(device)
    model = add_lora(random_model(profile, LAYERS), profile.lora_r, profile.lora_alpha).eval()
    prompt = random_prompt(model, PROMPT)

    def engine_of(rows: int) -> RolloutEngine:
        return RolloutEngine(model, embedded_tokenizer(), max_batch_size=rows, max_length=PROMPT + TOKENS)

    for rows in ROWS:
        engine = engine_of(rows)
        engine.backend.use_less_memory()  # no graphs
        draw(engine, prompt, rows, TOKENS)
    del engine
    add("kernels of a rollout", ROLLOUT_KERNELS, MODULE_BYTES)

    engines = [engine_of(rows) for rows in ROWS]  # a graph lives as long as its engine
    for engine, rows in zip(engines, ROWS, strict=True):
        draw(engine, prompt, rows, TOKENS)
    captures = sum(engine.backend.captures for engine in engines)
    nodes = LAYERS * gpu_memory.NODES_A_LAYER + gpu_memory.NODES_BESIDE
    add("nodes of captured graphs", captures * nodes, NODE_BYTES)
    show(record.content)
    return record.rows


def show(content: dict) -> None:
    """Print the table."""
    shown = []
    for row in content["rows"]:
        each = row["bytes"] / row["count"] / 2**10 if row["count"] else 0
        sizes = (f"{row['bytes'] / 2**20:.1f}", f"{row['estimated_bytes'] / 2**20:.1f}", f"{each:.1f}")
        shown.append((row["what"], row["count"], *sizes))
    print(content["hardware"], content["nvidia_smi"], sep="\n")
    print(text_table(shown, ["outside PyTorch", "count", "MiB", "MiB estimated", "KiB of one"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    run(arguments.device, arguments.out)


if __name__ == "__main__":
    main()

"""Two GRPO steps at gpt-oss-20b's shape within a T4's memory: seconds and peak bytes of each phase, beside the plan.

    python -m tests.benchmarks.step_20b [--device cuda] [--out file.json]

`GRPOTrainer` itself draws, scores and updates, with the profile "t4", on the model in random bytes; on the CPU on the
embedded model's shape, with short completions. The phases:

- load: the model is made of random bytes, so its seconds and its peak say nothing about reading a checkpoint.
- LoRA: the adapter.
- prefill: a rollout of one token for each completion of a prompt; in the first step with all that happens once.
- decode: a rollout of all tokens, less the seconds of the prefill.
- forward and backward: over all completions, in micro-batches.
- AdamW: the norm of the gradient, and the step.
- checkpoint: adapter and optimizer are written to the disk.

The first step compiles and captures; the second is what the others will be like. Peaks are of all tensors on the GPU,
and what is held is what is left of them at the end of a phase. The plan is for the peak, after load and LoRA for what
is held. Where the counts of the same path on a fake GPU (tests/fake_gpu) are committed, they stand beside.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from helpers import add_lora, memory_plan, text_table
from helpers.grpo.checkpoint import save_checkpoint
from helpers.grpo.config import GRPOConfig
from helpers.grpo.trainer import GRPOTrainer
from helpers.model.memory import MemoryPlan
from helpers.profiles import Profile
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import GIB, ROOT
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

COUNTED = ROOT / "tests" / "fake_gpu" / "results" / "path-20b.json"
#: Parts of the plan that the first step does not find yet: where a phase begins that makes them, they count.
MADE_BY_THE_FIRST_STEP = {
    "prefill": ("LoRA gradients", "optimizer"),
    "decode": ("LoRA gradients", "optimizer"),
    "forward and backward": ("optimizer",),
}


@dataclass(frozen=True)
class Sizes:
    """Tokens of the prompt and of each completion at the most, and completions of a step."""

    prompt: int
    completion: int
    rows: int = 8


#: What the profile "t4" has, and little for the CPU.
SIZES = {"cuda": Sizes(512, 768), "cpu": Sizes(64, 16)}


class Prompts(list):
    """Rows with `prompt`, as far as a trainer asks for a `datasets.Dataset`: that package may not be there."""

    column_names = ("prompt",)

    def __getitem__(self, key):
        return [row[key] for row in self] if key == "prompt" else super().__getitem__(key)

    def select(self, numbers: list[int]) -> "Prompts":
        return Prompts(self[number] for number in numbers)


def odd_tokens(completion_ids: list[list[int]], **_) -> list[float]:
    """A reward that differs within a group whatever the model writes: the share of odd token ids."""
    return [sum(token % 2 for token in ids) / len(ids) for ids in completion_ids]


class Phases:
    """Measures phases one after the other, and records each as a row."""

    def __init__(self, record: Record, plan: MemoryPlan):
        self.record = record
        self.plan = plan
        self.counted = counted_peaks()

    @contextmanager
    def measure(self, step: int, phase: str, minus_s: float = 0.0) -> Iterator[dict]:
        """Record the seconds and peak bytes of the block, beside the plan for that phase.

        minus_s: seconds that another row has already. The yielded row takes more figures.
        """
        row = {"step": step, "phase": phase}
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()  # what the allocator has cached stays, as in a real run
        started = time.perf_counter()
        yield row
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        row["seconds"] = time.perf_counter() - started - minus_s
        row["memory"] = peaks()
        absent = MADE_BY_THE_FIRST_STEP.get(phase, ()) if step == 1 else ()
        row["planned_bytes"] = self.plan.phases[phase] - sum(self.plan.parts[name] for name in absent)
        if phase in self.counted:
            row["counted_bytes"] = self.counted[phase]
        self.record.add(row)


def counted_peaks() -> dict[str, float]:
    """Map phases to the peak bytes that were counted on a fake GPU; empty where none are committed."""
    if not COUNTED.exists():
        return {}
    rows = json.loads(COUNTED.read_text())
    usual = [row for row in rows if (row["batch"], row["routing"]) == (8, "uniform")]
    return {row["phase"]: row["peak_GiB"] * GIB for row in usual}


def prompt_of(tokens: int, length_of: Callable[[str], int]) -> str:
    """A text that is rendered to at most so many tokens, and hardly fewer. length_of: text -> tokens."""
    words = "Use zip."
    while length_of(f"{words} Use zip.") <= tokens:
        words += " Use zip."
    return words


def run(device: str, out: str | Path | None, sizes: Sizes) -> list[dict]:
    """Measure the phases of two steps, in the memory that this process may take; returns the rows of the file."""
    restart_peaks()
    profile = replace(
        benchmark_profile(device),
        generation_batch_size=sizes.rows,
        num_generations=sizes.rows,
        max_completion_length=sizes.completion,
    )
    if device == "cpu":
        profile = replace(profile, per_device_train_batch_size=2)
    plan = memory_plan(profile, sizes.rows, sizes.prompt + sizes.completion)
    record = Record(
        out, device=device, dtype=profile.dtype, embedding=profile.embedding, lora_r=profile.lora_r,
        sizes=vars(sizes), micro_batch=profile.per_device_train_batch_size, planned_total_bytes=plan.total,
        cap_gib=T4_GIB if device == "cuda" else None,
    )  # fmt: skip
    phases = Phases(record, plan)
    with phases.measure(0, "load"):
        model = random_model(profile)
    with phases.measure(0, "LoRA"):
        model = add_lora(model, profile.lora_r, profile.lora_alpha, profile.lora_targets)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(model, profile, sizes, folder)
        for step in (1, 2):
            one_step(phases, trainer, step)
    show(record.content)
    return record.rows


def make_trainer(model: torch.nn.Module, profile: Profile, sizes: Sizes, folder: str) -> GRPOTrainer:
    """A trainer of one prompt that is as long as it may be."""
    config = GRPOConfig.for_profile(profile, folder, max_prompt_length=sizes.prompt)
    tokenizer = embedded_tokenizer()
    rows = Prompts([{"prompt": "Use zip."}])
    trainer = GRPOTrainer(model, odd_tokens, config, rows, tokenizer)
    rows[0] = {"prompt": prompt_of(sizes.prompt, trainer.engine.prompt_length)}
    return trainer


def one_step(phases: Phases, trainer: GRPOTrainer, step: int) -> None:
    """Measure one step of a trainer."""
    prompts = trainer.train_dataset["prompt"]
    count = trainer.args.generation_batch_size
    with phases.measure(step, "prefill") as row:
        trainer.engine.generate(prompts, SamplingParams(max_new_tokens=1), count)
        row["tokens"] = trainer.engine.prompt_length(prompts[0])
    prefill_s = row["seconds"]
    with phases.measure(step, "decode", minus_s=prefill_s) as row:
        generation = trainer.generate(step - 1)
        row["tokens"] = sum(len(completion.token_ids) for completion in generation.completions)
    with phases.measure(step, "forward and backward") as row:
        sums = trainer.backward(generation)
        row["tokens"] = sum(len(c.prompt_ids) + len(c.token_ids) for c in generation.completions)
    with phases.measure(step, "AdamW") as row:
        row["metrics"] = trainer.step(sums)
    with phases.measure(step, "checkpoint"):
        state = {"step": step, "settings": {}, "generation": None}
        args = trainer.args
        save_checkpoint(args.output_dir, state, trainer.model, trainer.optimizer, trainer.scheduler, 1)


def show(content: dict) -> None:
    """Print the table; without counts committed, without their column."""
    header = ["step", "phase", "seconds", "tokens", "held GiB", "peak GiB", "planned GiB"]
    has_counts = any("counted_bytes" in row for row in content["rows"])
    if has_counts:
        header.append("counted without a GPU")
    shown = []
    for row in content["rows"]:
        sizes = [row["memory"].get("allocated"), row["memory"].get("max_allocated"), row["planned_bytes"]]
        if has_counts:
            sizes.append(row.get("counted_bytes"))
        shown_sizes = ["not measured" if size is None else f"{size / GIB:.2f}" for size in sizes]
        shown.append((row["step"] or "", row["phase"], f"{row['seconds']:.2f}", row.get("tokens", ""), *shown_sizes))
    sizes = content["sizes"]
    print(content["hardware"])
    print(f"{sizes['rows']} completions of up to {sizes['completion']} tokens, a prompt of up to {sizes['prompt']}")
    print(text_table(shown, header))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    cap_memory(T4_GIB)
    run(arguments.device, arguments.out, SIZES[arguments.device])


if __name__ == "__main__":
    main()

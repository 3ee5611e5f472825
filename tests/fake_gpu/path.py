"""Run a whole GRPO step of gpt-oss-20b on a fake GPU, and print what each phase did as JSON.

    python -m tests.fake_gpu.path [--layers 24 ...] [--batch 8 ...] [--routing NAME ...] [--fault NAME ...] [--out FILE]

The project's own loader, adapter, engine and trainer run, at the true sizes, as the profile "t4" has them; only the
files are made up, and what values alone could say: the router's choice, and that no completion ends early. Phases are
those of tests.benchmarks.step_20b, which measures the same on a real GPU.
"""

import argparse
import contextlib
import gc
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from unittest.mock import patch

from tests.fake_gpu.device import Gpu, fake_gpu, one_sided, planted, uniform  # before torch

# isort: split
import torch
from torch import nn

from helpers import GRPOConfig, GRPOTrainer, add_lora, load_model, memory_plan
from helpers.grpo.losses import token_weights
from helpers.grpo.update import UpdateBatch
from helpers.kernels import experts as experts_module
from helpers.model import load, lora
from helpers.model.files import Entry, read_tokenizer
from helpers.model.memory import micro_batch_size, released_config, rollout_length
from helpers.profiles import PROFILES
from helpers.rollout.backends import Request
from helpers.rollout.completion import Completion
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import GIB, ROOT, write_whole
from tests.benchmarks.step_20b import Prompts, odd_tokens
from tests.fake_gpu.step import separate_fields

#: Tokens of each prompt and of each completion: as many as the profile "t4" has room for.
PROMPT, COMPLETION = 512, 768
#: Tokens that are really drawn: the last of a completion, which look at the longest cache.
LAST_STEPS = 8
#: Micro-batches of an update: the others of a step are like the second, which finds the gradients of the first.
MICRO_BATCHES = 2
BATCHES = (8, 16, 32)
#: bitsandbytes has no fake form. Its moments take a quarter of these, as tests/model/test_memory.py counts.
OPTIM = "adamw_torch"
ROUTINGS = {"uniform": uniform, "one-sided": one_sided}


def released_entries(model: nn.Module, file: Path) -> dict[str, Entry]:
    """What the headers of the released files say, for a model of these sizes."""
    entries = {}
    for name, shape in load.expected_shapes(model, packed=True).items():
        is_packed = name.endswith(("_blocks", "_scales"))
        dtype, size = ("U8", 1) if is_packed else ("BF16", 2)
        entries[name] = Entry(file, name, shape, dtype, prod(shape) * size)
    return entries


@contextlib.contextmanager
def released_files(layers: int) -> Iterator[str]:
    """Let `load_model` find gpt-oss-20b with fewer layers; yields its folder. Its tensors have no values."""
    config = released_config("20b")
    config.num_hidden_layers = layers
    config.layer_types = config.layer_types[:layers]
    with tempfile.TemporaryDirectory() as folder:
        content = config.to_dict() | {"quantization_config": {"quant_method": "mxfp4"}}
        (Path(folder) / "config.json").write_text(json.dumps(content))
        shapes = load.empty_model(config, PROFILES["t4"])
        entries = released_entries(shapes, Path(folder) / "model.safetensors")

        def tensors(index: dict[str, Entry], ending: str = ""):
            for name, entry in index.items():
                if name.endswith(ending):
                    dtype = torch.uint8 if entry.dtype == "U8" else torch.bfloat16
                    yield name, torch.empty(entry.shape, dtype=dtype)

        with (
            patch.object(load, "read_index", lambda _: entries),
            patch.object(load, "read_tensors", tensors),
            patch.object(load, "read_tokenizer", lambda _: read_tokenizer(ROOT / "helpers/tiny/checkpoint")),
            patch.object(load, "gpu_reads_host", lambda device: True),
        ):
            yield folder


def longest_completions(count: int, prompt: int, tokens: int) -> list[Completion]:
    """Completions of one prompt, all as long as they may be."""
    completion = Completion([5] * prompt, [5] * tokens, [0.0] * tokens, "", "", "stop")
    return [completion] * count


def update_batch(completions: list[Completion]) -> UpdateBatch:
    """An optimizer step on completions that are worth nothing."""
    tokens = [len(completion.token_ids) for completion in completions]
    weights = token_weights("dapo", tokens, COMPLETION, len(completions))
    return UpdateBatch(completions, torch.zeros(len(completions)), weights, tokens)


class Run:
    """One GRPO step, phase by phase."""

    def __init__(self, gpu: Gpu, layers: int, batch: int, micro_batch: int | None, prompt: int, completion: int):
        self.gpu = gpu
        self.layers = layers
        self.batch = batch
        self.prompt = prompt
        self.completion = completion
        profile = replace(
            PROFILES["t4"],
            dense="fp16",  # bitsandbytes has no fake form
            generation_batch_size=batch,
            num_generations=batch,
            max_completion_length=completion,
        )
        if micro_batch is None:
            micro_batch = micro_batch_size(profile, rollout_length(completion, prompt))
        # whether it fits is for the comparison with the plan to say
        self.profile = replace(profile, per_device_train_batch_size=micro_batch, needs_gib=80)
        self.rows = []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the block."""
        gpu = self.gpu
        before = gpu.live + gpu.pool
        with gpu.recording() as record:
            yield
        self.rows.append(
            {
                "layers": self.layers,
                "batch": self.batch,
                "micro_batch": self.profile.per_device_train_batch_size,
                "length": self.prompt + self.completion,
                "phase": name,
                "before_GiB": before / GIB,
                "peak_GiB": record.peak / GIB,
                "after_GiB": (gpu.live + gpu.pool) / GIB,
                "kernels": len(record.kernels),
                "kernel_forms": len(gpu.driver.loaded),
                "waits": record.waits.total(),
                "waits_at": dict(record.waits),
                "problems": dict(record.problems),
                "kernels_by_name": dict(Counter(record.kernels).most_common()),
            }
        )

    def go(self, steps: int = 2) -> list[dict]:
        """Load, adapt, and run some steps; return the rows of the last. The second finds the optimizer's state."""
        profile = self.profile
        with self.phase("load"), released_files(self.layers) as folder, contextlib.redirect_stdout(sys.stderr):
            planned = memory_plan(profile, self.batch, self.prompt + self.completion)
            model, tokenizer = load_model(folder, profile=profile, plan=planned)
        with self.phase("LoRA"):
            model = add_lora(model, profile.lora_r, profile.lora_alpha, profile.lora_targets)
        plan = memory_plan(profile, self.batch, self.prompt + self.completion, model.config, optim=OPTIM)
        with tempfile.TemporaryDirectory() as folder:
            config = GRPOConfig.for_profile(profile, folder, max_prompt_length=self.prompt, optim=OPTIM)
            trainer = GRPOTrainer(model, odd_tokens, config, Prompts([{"prompt": "Use zip."}]), tokenizer)
            for _ in range(steps):
                del self.rows[2:]  # all but those of load and LoRA
                self.step(trainer)
        for row in self.rows:
            row["planned_GiB"] = plan.phases[row["phase"]] / GIB
        return self.rows

    def step(self, trainer: GRPOTrainer) -> None:
        """A rollout of one token, one that ends at the longest, and an update with two micro-batches."""
        backend = trainer.engine.backend
        stop_ids = [200002]
        backend.sync()
        with self.phase("prefill"):
            requests = [Request([5] * self.prompt, number) for number in range(self.batch)]
            list(backend.generate(requests, SamplingParams(max_new_tokens=1), stop_ids))
        with self.phase("decode"):
            almost_done = [5] * (self.prompt + self.completion - LAST_STEPS)
            requests = [Request(almost_done, number) for number in range(self.batch)]
            list(backend.generate(requests, SamplingParams(max_new_tokens=LAST_STEPS), stop_ids))
        self.rows[-1]["kernels_a_step"] = max(len(graph.kernels) for graph in self.gpu.driver.graphs)
        self.rows[-1]["problems"] |= {f"{name} of a bucket is no view": 1 for name in separate_fields(backend)}
        count = MICRO_BATCHES * trainer.args.per_device_train_batch_size
        batch = update_batch(longest_completions(count, self.prompt, self.completion))
        with self.phase("forward and backward"):
            trainer.optimizer.zero_grad()
            trainer.model.train()
            statistics, _ = trainer.accumulate_gradients(batch)
        self.rows[-1]["completions"] = count
        with self.phase("AdamW"):
            trainer.step(statistics)
        with self.phase("checkpoint"):
            for state in trainer.optimizer.state_dict()["state"].values():
                for tensor in state.values():
                    tensor.cpu()


def waits_for_every_expert(read_sizes: Callable) -> Callable:
    """Ask for the size of each expert's share by itself."""

    def faulty(expert_of_pair, count):
        for _ in range(count):
            expert_of_pair.sum().item()
        return read_sizes(expert_of_pair, count)

    return faulty


def routes_on_the_host(sort_pairs: Callable) -> Callable:
    """Sort the pairs on the host, and leave them there."""

    def faulty(indices, count):
        return sort_pairs(indices.cpu(), count)

    return faulty


def adds_a_bias_of_16_bits(activate: Callable) -> Callable:
    """Give the Triton kernel a bias in fp16 where it was compiled for fp32."""

    def faulty(inner, bias, *others):
        return activate(inner, bias.half(), *others)

    return faulty


def repeats_the_experts(recomputing: Callable) -> Callable:
    """Compute the experts again with the rest of their layer."""
    return contextlib.nullcontext


def copies_whole(copy_to: Callable) -> Callable:
    """Take a tensor to the GPU before it is converted there."""

    def faulty(tensor, device, dtype):
        return tensor.to(device, copy=True).to(dtype)

    return faulty


#: Name -> whose function is replaced, its name, and by what.
FAULTS = {
    "item": (experts_module, "read_sizes", waits_for_every_expert),
    "cpu-index": (experts_module, "sort_pairs", routes_on_the_host),
    "dtype": (experts_module, "activate", adds_a_bias_of_16_bits),
    "repeated-experts": (lora, "Recomputing", repeats_the_experts),
    "two-dtypes": (load, "copy_to", copies_whole),
}


def run_with_fault(gpu: Gpu, fault: str) -> dict:
    """Plant a fault in one short step of two layers; return its rows, and the error that ended it, if one did."""
    run = Run(gpu, layers=2, batch=2, micro_batch=2, prompt=100, completion=156)
    stopped = None
    with planted(FAULTS[fault]):
        try:
            run.go(steps=1)
        except Exception as error:  # whatever it is, what was seen until then is worth reading
            stopped = repr(error)
    return {"rows": run.rows, "stopped": stopped}


def start_again(gpu: Gpu) -> None:
    """Let go of the last model and its graphs."""
    gc.collect()
    assert gpu.pool == 0 and not gpu.driver.graphs, "something keeps a graph of the last run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[24])
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--micro-batch", type=int, help="default: what the plan chooses for a T4")
    parser.add_argument("--prompt", type=int, default=PROMPT)
    parser.add_argument("--completion", type=int, default=COMPLETION)
    parser.add_argument("--routing", choices=ROUTINGS, nargs="+", default=list(ROUTINGS))
    parser.add_argument("--fault", choices=FAULTS, nargs="+", default=[])
    parser.add_argument("--out", help="write the rows here")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # fake tensors have no data pointers, which `read_weights` asks for
    rows = []
    faults = {}
    with fake_gpu() as gpu:
        for routing in options.routing:
            gpu.routing = ROUTINGS[routing]
            for layers in options.layers:
                for batch in options.batch:
                    run = Run(gpu, layers, batch, options.micro_batch, options.prompt, options.completion)
                    rows.extend({"routing": routing} | row for row in run.go())
                    del run
                    start_again(gpu)
        gpu.routing = uniform
        for fault in options.fault:
            faults[fault] = run_with_fault(gpu, fault)
            start_again(gpu)
    print(json.dumps({"rows": rows, "faults": faults}))
    if options.out:
        write_whole(options.out, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

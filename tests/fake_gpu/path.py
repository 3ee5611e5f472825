"""Run a whole GRPO step of gpt-oss-20b on a GPU that is not there, and print what each phase did as JSON.

    python -m tests.fake_gpu.path [--layers 24] [--batch 8 ...] [--routing uniform|one-sided] [--fault NAME] [--out FILE]

The project's own loader, adapter, engine and trainer run, at the true sizes, as the profile "t4" has them; only the
files are made up, and what values alone could say: the router's choice, and that no completion ends early. Phases are
those of tests.benchmarks.grpo_step, which measures the same on a real GPU.
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

from tests.fake_gpu.device import Gpu, fake_gpu, one_sided, uniform  # before torch

# isort: split
import torch
from torch import nn

from helpers import GRPOConfig, GRPOTrainer, add_lora, load_model, memory_plan
from helpers.grpo.batch import Generation
from helpers.kernels import decode_triton
from helpers.kernels import experts as experts_module
from helpers.model import load
from helpers.model.files import Entry, read_tokenizer
from helpers.model.memory import MemoryPlan, released_config
from helpers.profiles import PROFILES, Profile
from helpers.rollout import decoder
from helpers.rollout.backends import Request
from helpers.rollout.completion import Completion
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import GIB, ROOT, write_whole

#: Tokens of each prompt and of each completion: as many as the profile "t4" has room for.
PROMPT, COMPLETION = 512, 768
#: Tokens that are really drawn: the last of a completion, which look at the longest cache.
LAST_STEPS = 8
BATCHES = (8, 16, 32)
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


class Rows(list):
    """Rows with `prompt`, as far as a trainer asks for a `datasets.Dataset`."""

    column_names = ("prompt",)

    def __getitem__(self, key):
        return [row[key] for row in self] if key == "prompt" else super().__getitem__(key)


def no_reward(completions: list, **_) -> list[float]:
    """A reward that is never asked for."""
    return [0.0] * len(completions)


def longest_completions(count: int) -> Generation:
    """Completions of one prompt, all as long as they may be."""
    ids = [5] * COMPLETION
    completion = Completion([5] * PROMPT, ids, [0.0] * COMPLETION, "", "", "stop")
    rewards = torch.zeros(count, 1, dtype=torch.float64)
    return Generation(["Use zip."], [completion] * count, rewards, {})


class Run:
    """One GRPO step, phase by phase."""

    def __init__(self, gpu: Gpu, layers: int, batch: int):
        self.gpu = gpu
        self.layers = layers
        self.batch = batch
        self.profile = replace(
            PROFILES["t4"], generation_batch_size=batch, num_generations=batch, max_completion_length=COMPLETION
        )
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
                "batch": self.batch,
                "phase": name,
                "before_GiB": before / GIB,
                "peak_GiB": record.peak / GIB,
                "after_GiB": (gpu.live + gpu.pool) / GIB,
                "kernels": len(record.kernels),
                "waits": record.waits.total(),
                "waits_at": dict(record.waits),
                "problems": dict(record.problems),
                "kernels_by_name": dict(Counter(record.kernels).most_common()),
            }
        )

    def go(self) -> list[dict]:
        """Load, adapt, and run two steps, of which the second finds the optimizer's state; return its rows."""
        profile = self.profile
        with self.phase("load"), released_files(self.layers) as folder, contextlib.redirect_stdout(sys.stderr):
            model, tokenizer = load_model(folder, profile=profile, batch=self.batch)
        with self.phase("LoRA"):
            model = add_lora(model, profile.lora_r, profile.lora_alpha, profile.lora_targets)
        plan = memory_plan(
            replace(profile, dense="fp16"), config=model.config,
            max_completion_length=COMPLETION, max_prompt_length=PROMPT,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            config = GRPOConfig.for_profile(profile, folder, max_prompt_length=PROMPT)
            trainer = GRPOTrainer(model, no_reward, config, Rows([{"prompt": "Use zip."}]), tokenizer)
            self.step(trainer)
            del self.rows[2:]
            self.step(trainer)
        for row in self.rows:
            row["planned_GiB"] = plan.phases[row["phase"]] / GIB
        return self.rows

    def step(self, trainer: GRPOTrainer) -> None:
        """A rollout of one token, one that ends at the longest, and the update."""
        backend = trainer.engine.backend
        stop_ids = [200002]
        backend.sync()
        with self.phase("prefill"):
            requests = [Request([5] * PROMPT, number) for number in range(self.batch)]
            list(backend.generate(requests, SamplingParams(max_new_tokens=1), stop_ids))
        with self.phase("decode"):
            almost_done = [5] * (PROMPT + COMPLETION - LAST_STEPS)
            requests = [Request(almost_done, number) for number in range(self.batch)]
            list(backend.generate(requests, SamplingParams(max_new_tokens=LAST_STEPS), stop_ids))
        self.rows[-1]["kernels_a_step"] = len(self.gpu.graphs[-1])
        generation = longest_completions(self.batch)
        with self.phase("forward and backward"):
            sums = trainer.backward(generation)
        with self.phase("AdamW"):
            trainer.step(sums)
        with self.phase("checkpoint"):
            for state in trainer.optimizer.state_dict()["state"].values():
                for tensor in state.values():
                    tensor.cpu()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--routing", choices=ROUTINGS, default="uniform")
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # fake tensors have no data pointers, which `read_weights` asks for
    rows = []
    with fake_gpu(routing=ROUTINGS[options.routing]) as gpu:
        for batch in options.batch:
            run = Run(gpu, options.layers, batch)
            rows.extend(run.go())
            del run
            gc.collect()
            gpu.pool = 0
    for row in rows:
        print(json.dumps(row))
    if options.out:
        write_whole(options.out, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

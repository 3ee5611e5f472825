"""Run the decoding step of gpt-oss-20b on a fake GPU, and print what it did as one JSON object.

    python -m tests.fake_gpu.step [--layers N] [--batch B ...] [--fault NAME ...] [--whole]

The layers have their true sizes. Each batch is run for three steps, drawing from the whole distribution and from a part
of it, and once more with the experts of its tokens recorded. Each fault is then planted in the step of the largest
batch: the report must name it.
"""

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace

from tests.fake_gpu.device import Gpu, fake_gpu, planted  # before torch

# isort: split
import torch
from torch import nn

from helpers import add_lora
from helpers.kernels.experts import workspace_for
from helpers.model.load import _place, empty_model, expected_shapes
from helpers.model.memory import released_config
from helpers.profiles import PROFILES
from helpers.rollout import decoder
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.cache import LayerCache, RolloutCache
from helpers.rollout.decoder import Rows, decode_step
from helpers.rollout.weights import DecoderWeights, base_model, read_weights
from tests.fake_gpu.operations import storage_of

#: Tokens of a prompt and a completion together, all of which the steps look at.
MAX_LENGTH = 1280
STEPS = 3


def fake_model(layers: int) -> nn.Module:
    """Return gpt-oss-20b with fewer layers and an adapter on all targets, as the T4's profile loads it."""
    config = released_config("20b")
    config.num_hidden_layers = layers
    config.layer_types = config.layer_types[:layers]
    profile = replace(PROFILES["t4"], dense="fp16")
    model = empty_model(config, profile)
    for name, shape in expected_shapes(model, packed=True).items():
        is_packed = name.endswith(("_blocks", "_scales"))
        released = torch.empty(shape, dtype=torch.uint8 if is_packed else torch.bfloat16)
        _place(model, name, released, profile)
    model.to("cuda")
    return add_lora(model.eval(), profile.lora_r, profile.lora_alpha, profile.lora_targets)


def separate_fields(backend: CapturedBackend) -> set[str]:
    """Names of the fields of a bucket's rows that are no views of the backend's: what is drawn there, nobody reads."""
    own = _tensors_by_name(backend.rows)
    separate = set()
    for view in backend._views.values():
        for name, tensor in _tensors_by_name(view).items():
            if storage_of(tensor) != storage_of(own[name]):
                separate.add(name)
    return separate


def _tensors_by_name(rows: Rows) -> dict[str, torch.Tensor]:
    """The tensors of the fields, and of the named tuples among them."""
    found = {}
    for field in fields(rows):
        value = getattr(rows, field.name)
        named = value._asdict() if hasattr(value, "_asdict") else {"": value}
        for name, part in named.items():
            if isinstance(part, torch.Tensor):
                found[f"{field.name} {name}".strip()] = part
    return found


class Case:
    """The buffers of one batch, and its steps."""

    def __init__(
        self,
        gpu: Gpu,
        model: nn.Module,
        weights: DecoderWeights,
        batch: int,
        trims: bool,
        record_experts: bool = False,
    ):
        config = base_model(model).config
        device = weights.cos.device
        self.gpu = gpu
        self.weights = weights
        self.trims = trims
        self.batch = batch
        self.layer_types = config.layer_types
        self.cache = RolloutCache(config, batch, MAX_LENGTH, weights.cos.dtype, device, record_experts)
        self.rows = Rows.empty(batch, MAX_LENGTH, config.vocab_size, device)
        self.view = self.rows.first(batch)
        self.workspace = workspace_for(weights.layers[0].experts, batch, weights.top_k)

    def storages(self) -> dict[str, int]:
        """Where each buffer lies."""
        buffers = {f"cache {number}": buffer for number, buffer in enumerate(self.cache.buffers())}
        for owner in (self.view, self.view.params, self.workspace):
            if owner is None:  # there is no workspace for many rows
                continue
            values = owner._asdict() if hasattr(owner, "_asdict") else vars(owner)
            named = {f"{type(owner).__name__} {name}": value for name, value in values.items()}
            buffers |= {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
        return {name: storage_of(buffer) for name, buffer in buffers.items()}

    @torch.inference_mode()
    def step(self, layers: int | None = None) -> None:
        """Run one step, with the first layers only if asked."""
        weights = replace(self.weights, layers=self.weights.layers[:layers])
        decode_step(weights, self.cache, self.view, MAX_LENGTH, self.trims, self.workspace)

    @torch.inference_mode()
    def begin_row(self, number: int) -> None:
        """Do between two steps what the host does when a row is free: another prompt begins in it."""
        row = number % self.batch
        self.cache.copy_row(self.cache.prompt_row, [row], 10 * number)
        self.rows.tokens[row] = number
        self.rows.positions[row] = 10 * number
        self.rows.is_live[row] = True

    def report(self) -> dict:
        """Run three steps and return what they did; the words are those of `Record`, or explained here.

        stopped: the error that ended a step. outlives_bytes: by how much more is alive after a step than before.
        moved: buffers that lie elsewhere than at first. same_operations: the steps are the same to a graph.
        """
        totals = {"waits": Counter(), "factories": Counter(), "problems": Counter()}
        addresses = self.storages()
        moved = set()
        records = []
        stopped = None
        live_before = self.gpu.live
        for number in range(STEPS):
            self.begin_row(number)
            with self.gpu.recording() as record:
                try:
                    self.step()
                except Exception as error:  # whatever it is, what was seen until then is worth reading
                    stopped = repr(error)
            records.append(record)
            moved |= {name for name, address in self.storages().items() if address != addresses[name]}
            for name, total in totals.items():
                total.update(getattr(record, name))
            if stopped:
                break
        return totals | {
            "stopped": stopped,
            "outlives_bytes": self.gpu.live - live_before,
            "moved": sorted(moved),
            "same_operations": all(record.operations == records[0].operations for record in records),
            "kernels": len(record.kernels),
            "kernels_by_name": Counter(record.kernels),
            "live_bytes": live_before,
            "transient_bytes": record.peak - live_before,
        }

    def kernels_per_layer(self) -> dict[str, int]:
        """Kernels of a layer of each kind: a step with no layer, one with the first, and one with the first two."""
        counts = []
        for layers in range(3):
            with self.gpu.recording() as record:
                self.step(layers)
            counts.append(len(record.kernels))
        first, second = self.layer_types[:2]
        return {first: counts[1] - counts[0], second: counts[2] - counts[1]}


def reads_a_value(draw: Callable) -> Callable:
    """Draw after a look at the logits on the host."""

    def faulty(logits, *others):
        logits.max().item()
        return draw(logits, *others)

    return faulty


def lists_values(draw: Callable) -> Callable:
    """Draw after all largest logits were read on the host."""

    def faulty(logits, *others):
        logits.amax(-1).tolist()
        return draw(logits, *others)

    return faulty


def selects_rows(draw: Callable) -> Callable:
    """Draw for the rows that a mask selects; how many they are only the GPU knows."""

    def faulty(logits, *others):
        is_finite = logits[:, 0] > -torch.inf
        return draw(logits[is_finite], *others)

    return faulty


def makes_a_tensor(draw: Callable) -> Callable:
    """Draw after an allocation that is filled by a kernel."""

    def faulty(logits, *others):
        torch.zeros(8, device="cuda")
        return draw(logits, *others)

    return faulty


def copies_from_the_host(draw: Callable) -> Callable:
    """Draw with a constant that is copied to the GPU."""

    def faulty(logits, *others):
        bonus = torch.tensor([0.5], device="cuda")
        return draw(logits + bonus, *others)

    return faulty


def indexes_from_the_host(attention: Callable) -> Callable:
    """Attend to keys that an index on the CPU selects."""

    def faulty(q, keys, *others):
        heads = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7])
        return attention(q, keys[:, heads], *others)

    return faulty


def grows(filled: Callable) -> Callable:
    """Append to the cache as transformers' dynamic cache does, in place of writing into it."""

    def faulty(layer, length):
        for name in ("keys", "values"):
            buffer = getattr(layer, name)
            longer = torch.cat([buffer, buffer[:, :, -1:]], 2)
            object.__setattr__(layer, name, longer)  # the dataclass is frozen
        return filled(layer, length)

    return faulty


def gives_a_wrong_dtype(experts: Callable) -> Callable:
    """Give the Triton kernels a buffer in fp32 where they were compiled for fp16."""

    def faulty(*arguments):
        workspace = arguments[-1]
        wide = workspace._replace(inside=workspace.inside.float())
        return experts(*arguments[:-1], wide)

    return faulty


#: Name -> whose function is replaced, its name, and by what.
FAULTS = {
    "item": (decoder, "draw", reads_a_value),
    "tolist": (decoder, "draw", lists_values),
    "boolean-index": (decoder, "draw", selects_rows),
    "factory": (decoder, "draw", makes_a_tensor),
    "copy": (decoder, "draw", copies_from_the_host),
    "cpu-index": (decoder, "decode_attention", indexes_from_the_host),
    "growing-cache": (LayerCache, "filled", grows),
    "dtype": (decoder, "routed_forward", gives_a_wrong_dtype),
}


def measure(gpu: Gpu, layers: int, batches: list[int], draws: list[bool], faults: list[str]) -> dict:
    """Run each batch with each draw and once recording experts, then each fault in the largest batch.

    Return the reports.
    """
    model = fake_model(layers)
    weights = read_weights(model, MAX_LENGTH)
    steps = []
    kernels_per_layer = {}
    for batch in batches:
        for trims in draws:
            case = Case(gpu, model, weights, batch, trims)
            steps.append({"batch": batch, "trims": trims} | case.report())
            if batch not in kernels_per_layer and not steps[-1]["stopped"]:
                kernels_per_layer[batch] = case.kernels_per_layer()
    recording = []
    for batch in batches:
        case = Case(gpu, model, weights, batch, trims=False, record_experts=True)
        recording.append({"batch": batch, "trims": False} | case.report())
    planted_steps = {}
    for fault in faults:
        case = Case(gpu, model, weights, max(batches), trims=False)
        with planted(FAULTS[fault]):
            planted_steps[fault] = case.report()
    return {
        "layers": layers,
        "kernels_per_layer": kernels_per_layer,
        "steps": steps,
        "recording": recording,
        "faults": planted_steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4, 8, 32])
    parser.add_argument("--fault", choices=FAULTS, nargs="+", default=[])
    parser.add_argument("--whole", action="store_true", help="also run all layers, with one batch")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # fake tensors have no data pointers, which `read_weights` asks for

    with fake_gpu() as gpu:
        report = measure(gpu, options.layers, options.batch, [False, True], options.fault)
        if options.whole:
            report["whole"] = measure(gpu, released_config("20b").num_hidden_layers, [8], [False], [])
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""The decoding step of gpt-oss-20b is fit for capture as a CUDA graph, as far as that shows without a GPU.

`step.py` runs it on fake CUDA tensors at the true sizes of a layer, in a process of its own: `guard.cpp` must be loaded
before torch. The last tests run the real step on the embedded model and compare its operations.
"""

import re
import shutil
from collections import Counter

import pytest
import torch

import helpers
from helpers.kernels.experts import expert_forward
from helpers.kernels.launch import Launch
from helpers.kernels.mxfp4_triton import Workspace
from helpers.profiles import PROFILES
from helpers.rollout import decoder
from helpers.rollout.cache import RolloutCache
from helpers.rollout.decoder import Rows, decode_step
from helpers.rollout.sampling import SamplingParams
from helpers.rollout.weights import read_weights
from helpers.runtime import GIB
from tests.fake_gpu.conftest import REPORT_S
from tests.fake_gpu.operations import Recorder, describe, storage_of, tensors_in

BATCHES = (1, 2, 4, 8, 32)
DRAWS = {"whole": False, "trimmed": True}
#: The tensors that the step makes out of nothing: what our own kernels write to. That launches nothing, and in a
#: capture they come from the graph's pool like the output of any operation.
OUTPUTS = r"empty at helpers/kernels/\w+_triton\.py:\d+ (gather_rows|low_rank|rotate_and_cache)"
#: Fault that is planted -> the part of the report that must name it, and how.
FAULTS = {
    "item": ("waits", r"item at tests/fake_gpu/step\.py:\d+ faulty"),
    "tolist": ("waits", r"tolist at tests/fake_gpu/step\.py:\d+ faulty"),
    "boolean-index": ("waits", r"boolean index at tests/fake_gpu/step\.py:\d+ faulty"),
    "factory": ("factories", r"zeros at tests/fake_gpu/step\.py:\d+ faulty"),
    "copy": ("waits", r"copy from cpu to cuda at tests/fake_gpu/step\.py:\d+ faulty"),
    "cpu-index": ("waits", r"index from the CPU at tests/fake_gpu/step\.py:\d+ faulty"),
    "growing-cache": ("moved", "cache 0"),
    "dtype": ("problems", r"gate_up_kernel: out is torch\.float32, compiled for \*fp16 at .*:\d+ decode"),
}
#: Kernels that a step takes to record the experts of all its layers together: stack, make bytes, write.
RECORDING = {"stack": 1, "_to_copy": 1, "index_put_": 1}
LENGTH = 192

needs_fake_gpu = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++ to compile the stand-in for CUDA"),
    pytest.mark.skipif(torch.backends.cuda.is_built(), reason="stands in for CUDA, which this PyTorch has"),
    pytest.mark.timeout(2 * REPORT_S),
]


@pytest.fixture(scope="module")
def report(report_of) -> dict:
    """What `step.py` says of a sliding and a full layer with each batch, draw and fault, and of the whole model."""
    return report_of("step", "--layers", "2", "--whole", "--batch", *map(str, BATCHES), "--fault", *FAULTS)


def unexpected(step: dict) -> dict:
    """What the report of a step says that a captured step may not do; empty if it is fit."""
    found = {name: step[name] for name in ("stopped", "waits", "problems", "moved", "outlives_bytes") if step[name]}
    factories = [name for name in step["factories"] if not re.fullmatch(OUTPUTS, name)]
    if factories:
        found["factories"] = factories
    if not step["same_operations"]:
        found["same_operations"] = False
    return found


class TestFakeGpu:
    """gpt-oss-20b on fake CUDA tensors."""

    pytestmark = needs_fake_gpu

    @pytest.mark.parametrize("draw", DRAWS)
    def test_the_step_is_fit_for_a_cuda_graph(self, report, draw):
        """One wait for the GPU ends the capture; a buffer that moves, or a tensor that outlives the step, lets every
        replay read memory that is no longer its own."""
        found = {step["batch"]: unexpected(step) for step in report["steps"] if step["trims"] == DRAWS[draw]}
        assert found == {batch: {} for batch in BATCHES}

    def test_kernels_are_counted_by_layer(self, report):
        """A kernel more in a layer is 24 more in a step; on a T4 each costs microseconds however little it does."""
        for batch, layers in report["kernels_per_layer"].items():
            assert max(layers.values()) <= 39, (batch, layers)  # 40 on a GPU, where `topk` is two
        for step in report["steps"]:
            outside = step["kernels"] - sum(report["kernels_per_layer"][str(step["batch"])].values())
            assert 20 < outside < 80, step
            once_a_layer = ("slots", "gate_up", "down", "rotate")
            counts = [
                step["kernels_by_name"][f"triton {name}_kernel"] for name in ("gather", "low_rank", *once_a_layer)
            ]
            assert counts == [1, 4, 2, 2, 2, 2]

    def test_recorded_experts_are_fit_for_a_cuda_graph(self, report):
        """A record that is written layer by layer is 24 kernels more in a step, and one that waits ends the capture."""
        for part in (report, report["whole"]):
            plain = {step["batch"]: step for step in part["steps"] if not step["trims"]}
            for step in part["recording"]:
                assert unexpected(step) == {}
                added = Counter(step["kernels_by_name"])
                added.subtract(plain[step["batch"]]["kernels_by_name"])
                assert {name: count for name, count in added.items() if count} == RECORDING

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_planted_fault_is_named(self, report, fault):
        """A harness that sees no fault calls every step fit."""
        part, pattern = FAULTS[fault]
        step = report["faults"][fault]
        assert any(re.fullmatch(pattern, name) for name in step[part]), step
        assert part in unexpected(step)
        if fault == "growing-cache":
            assert step["outlives_bytes"] > 0 and not step["same_operations"]

    def test_the_whole_model_fits_a_t4(self, report):
        """Two layers say little of the whole: its kernels add up, and a step fits beside all weights and caches."""
        whole = report["whole"]
        (step,) = whole["steps"]
        assert unexpected(step) == {}
        (two_layers,) = [step for step in report["steps"] if (step["batch"], step["trims"]) == (8, False)]
        layers = whole["kernels_per_layer"]["8"]
        assert layers == report["kernels_per_layer"]["8"]
        assert step["kernels"] == two_layers["kernels"] + 11 * sum(layers.values())
        assert step["transient_bytes"] == two_layers["transient_bytes"] < 64 * 2**20
        assert 11 * GIB < step["live_bytes"] + step["transient_bytes"] < PROFILES["t4"].needs_gib * GIB


class Embedded:
    """The embedded model, adapted, with the buffers of three rows; the CPU runs the real step.

    With packed experts it takes the GPU's way through `mxfp4_triton.decode`, except that its kernels are noted and not
    run: what they would compute is zero.
    """

    def __init__(self, experts: str, monkeypatch: pytest.MonkeyPatch, record_experts: bool = False):
        model, _ = helpers.load_model(profile="tiny", dense="fp32", experts=experts)
        self.model = helpers.add_lora(model, 4, 8)
        config = model.config
        self.weights = read_weights(self.model, LENGTH)
        self.cache = RolloutCache(config, 3, LENGTH, torch.float32, torch.device("cpu"), record_experts)
        self.rows = Rows.empty(3, LENGTH, config.vocab_size, torch.device("cpu"))
        self.rows.is_stop[7] = True
        self.workspace = None
        if experts == "mxfp4":
            self.workspace = Workspace.allocate(3, self.weights.top_k, self.weights.layers[0].experts)
            self.workspace.inside.zero_()
            self.workspace.outside.zero_()
            monkeypatch.setattr(Launch, "__call__", self._note_launch)
        kept = [vars(self.rows), self.rows.params, self.cache.buffers(), self.workspace, list(self.model.parameters())]
        self.buffers = {storage_of(tensor) for tensor in tensors_in(kept)}

    def _note_launch(self, grid: tuple, *arguments: object) -> None:
        self.recorder.operations.append(describe("launch", (grid, *arguments), {}, self.buffers))

    @torch.inference_mode()
    def record(self, trims: bool, tokens: list[int], positions: list[int], is_live: list[bool], step=decode_step):
        """Run a step of three rows that have reached this, and return its `Recorder`."""
        self.rows.tokens.copy_(torch.tensor(tokens))
        self.rows.positions.copy_(torch.tensor(positions))
        self.rows.is_live.copy_(torch.tensor(is_live))
        self.rows.params.fill(SamplingParams(max_new_tokens=tokens[0], temperature=1 / tokens[1]), 832)
        self.recorder = Recorder(self.buffers)
        with self.recorder:
            step(self.weights, self.cache, self.rows, LENGTH, trims, self.workspace)
        return self.recorder

    def record_two(self, trims: bool, step=decode_step) -> tuple[Recorder, Recorder]:
        """Two steps at positions on both sides of the sliding window's end, with other tokens, ends and settings."""
        first = self.record(trims, [5, 6, 7], [3, 50, 100], [True, True, True], step)
        second = self.record(trims, [300, 200, 100], [127, 128, 150], [True, False, True], step)
        assert first.chosen != second.chosen, "these two steps should take other experts"
        return first, second


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("experts", "record_experts"), [("fp32", False), ("mxfp4", False), ("mxfp4", True)], ids=str)
def test_operations_do_not_depend_on_values(experts, record_experts, draw, monkeypatch):
    """A graph repeats the operations, numbers and addresses of its capture, so a step that chooses them by a position,
    by a token or by the experts would decode all later ones as if they were the first."""
    first, second = Embedded(experts, monkeypatch, record_experts).record_two(DRAWS[draw])
    assert len(first.operations) > 200
    assert first.operations == second.operations


def looks_as_far_as_the_longest_row(weights, cache, rows, length, trims, workspace):
    """A step whose shapes follow a position."""
    decode_step(weights, cache, rows, int(rows.positions.max()) + 1, trims, workspace)


def skips_experts_without_tokens(monkeypatch):
    """Let the step run one expert after the other, those that were chosen only."""

    def one_by_one(hidden, indices, weights, experts, lora, workspace):
        return expert_forward(hidden, indices, weights, experts, lora)

    monkeypatch.setattr(decoder, "routed_forward", one_by_one)


@pytest.mark.parametrize("fault", ["position", "routing"])
def test_operations_that_follow_a_value_are_seen(fault, monkeypatch):
    """The comparison above would be empty if it did not tell such steps apart."""
    embedded = Embedded("mxfp4", monkeypatch)
    step = decode_step
    if fault == "position":
        step = looks_as_far_as_the_longest_row
    else:
        skips_experts_without_tokens(monkeypatch)
    first, second = embedded.record_two(False, step)
    assert first.operations != second.operations

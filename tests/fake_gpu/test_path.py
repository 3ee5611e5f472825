"""A whole GRPO step of gpt-oss-20b on a fake GPU: nothing fails, and memory and launches are as planned.

`path.py` runs loader, adapter, engine and trainer on fake CUDA tensors at the true sizes, in a process of its own. Here
with few layers; the table of all 24 in `results` must continue what these show.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace

import pytest

from helpers import memory_plan
from helpers.model.gpu_memory import MODULES
from helpers.model.memory import released_config
from helpers.profiles import PROFILES
from helpers.runtime import GIB, ROOT
from tests.fake_gpu.test_step import needs_fake_gpu

pytestmark = needs_fake_gpu

TABLE = ROOT / "tests/fake_gpu/results/path-20b.json"
#: A sliding and a full layer are what every run tries; `make test-slow` tries two of each as well.
LAYERS = 2
MORE_LAYERS = 4
ALL_LAYERS = 24
PHASES = ["load", "LoRA", "prefill", "decode", "forward and backward", "AdamW", "checkpoint"]
#: Kernels of a micro-batch of one completion of 900 tokens before the pairs were sorted by expert and the experts left
#: out of the recomputation (counted on 21 November 2026 by a prototype of this harness).
MICRO_BATCH_BEFORE = 126_400


def by_layers_and_phase(rows: Iterable[dict]) -> dict[tuple, dict]:
    return {(row["layers"], row["phase"]): row for row in rows}


#: A wait and a wrong dtype, which any phase may have, are planted in every run, the others in `make test-slow`.
FAULTS = ("item", "dtype")
MORE_FAULTS = ("cpu-index", "repeated-experts", "two-dtypes")


@pytest.fixture(scope="module")
def report(report_of) -> dict:
    """What `path.py` says of two layers, and of some faults."""
    few = ("--layers", str(LAYERS), "--batch", "8", "--routing", "uniform")
    return report_of("path", *few, "--fault", *FAULTS)


@pytest.fixture(scope="module")
def report_of_more_layers(report_of) -> dict:
    """What `path.py` says of four layers."""
    return report_of("path", "--layers", str(MORE_LAYERS), "--batch", "8", "--routing", "uniform")


@pytest.fixture(scope="module")
def report_of_more_faults(report_of) -> dict:
    """What `path.py` says of the other faults."""
    smallest = ("--layers", "2", "--batch", "2", "--micro-batch", "1", "--routing", "uniform")
    return report_of("path", *smallest, "--fault", *MORE_FAULTS)


@pytest.fixture(scope="module")
def table() -> list[dict]:
    """The committed rows of all layers."""
    return json.loads(TABLE.read_text())


def test_every_phase_runs_without_a_fault_of_device_or_dtype(report):
    """Each such fault ends somebody's first evening on a GPU, after the download."""
    rows = report["rows"]
    assert [row["phase"] for row in rows] == PHASES
    assert [row["problems"] for row in rows] == [{}] * len(rows)


def test_an_update_waits_once_a_layer(report):
    """While the host waits for the sizes of the experts' shares, the GPU runs out of work. There were three such waits
    a layer in the forward pass, three in the recomputation and three in the backward pass."""
    (row,) = [row for row in report["rows"] if row["phase"] == "forward and backward"]
    micro_batches = row["completions"] // row["micro_batch"]
    waits = row["waits_at"]
    (of_routing,) = [count for place, count in waits.items() if "read_sizes" in place]
    assert of_routing == LAYERS * micro_batches
    others = sum(waits.values()) - of_routing
    assert others <= 5 * micro_batches + 8, waits  # copies of a batch's ids, and the sums at the end


@pytest.mark.slow
def test_the_table_of_all_layers_continues_these(report, report_of_more_layers, table):
    """The table takes too long for every run. Its kernels, waits and bytes are those of these few layers, continued."""
    few = by_layers_and_phase([*report["rows"], *report_of_more_layers["rows"]])
    assert {phase for layers, phase in few if layers == MORE_LAYERS} == set(PHASES)
    assert all(row["problems"] == {} for row in few.values())
    whole = {row["phase"]: row for row in table if (row["batch"], row["routing"]) == (8, "uniform")}
    assert list(whole) == PHASES
    for phase, row in whole.items():
        assert row["layers"] == ALL_LAYERS and row["problems"] == {}
        first, second = (few[layers, phase] for layers in (LAYERS, MORE_LAYERS))
        assert (row["micro_batch"], row["length"]) == (first["micro_batch"], first["length"])
        for name, tolerance in (("kernels", 0), ("waits", 0), ("after_GiB", 1e-3), ("peak_GiB", 5e-3)):
            growth = (second[name] - first[name]) / (MORE_LAYERS - LAYERS)
            continued = second[name] + (ALL_LAYERS - MORE_LAYERS) * growth
            assert row[name] == pytest.approx(continued, abs=tolerance), (phase, name)


def planned(row: dict) -> float:
    """GiB of a row's phase, by the plan as it is now."""
    profile = replace(
        PROFILES["t4"],
        dense="fp16",
        needs_gib=80,
        generation_batch_size=row["batch"],
        per_device_train_batch_size=row["micro_batch"],
    )
    config = released_config("20b")
    config.num_hidden_layers = row["layers"]
    config.layer_types = config.layer_types[: row["layers"]]
    plan = memory_plan(profile, row["batch"], row["length"], config, optim="adamw_torch")
    return plan.phases[row["phase"]] / GIB


def test_peaks_are_within_the_plan_and_near_it(report, table):
    """A plan that is too small ends in an OutOfMemoryError after an hour; one that is too large refuses what fits."""
    cases = {(row["batch"], row["routing"]) for row in table}
    assert cases == {(batch, routing) for batch in (8, 16, 32) for routing in ("uniform", "one-sided")}
    for row in [*table, *report["rows"]]:
        case = [row[name] for name in ("layers", "batch", "routing", "phase", "peak_GiB", "planned_GiB")]
        plan = planned(row)
        assert plan == pytest.approx(row["planned_GiB"], abs=1e-6), case
        assert plan >= row["peak_GiB"] - 1e-4, case  # tensors are rounded up to 512 bytes
        if row["layers"] == ALL_LAYERS:
            assert plan <= 1.03 * row["peak_GiB"], case


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phases", "prompt", "completion"),
    [(("prefill", "decode"), 4224, 64), (("forward and backward",), 45, 71)],
    ids=["a long prompt", "few tokens"],
)
def test_what_the_usual_lengths_hide_is_planned(report_of, phases, prompt, completion):
    """Keys that are repeated for the heads of a long prompt, and the gradients of a layer's adapter, of which an update
    with few tokens mostly consists."""
    lengths = ("--prompt", str(prompt), "--completion", str(completion))
    shape = ("--layers", "2", "--batch", "2", "--micro-batch", "1", "--routing", "one-sided")
    rows = {row["phase"]: row for row in report_of("path", *shape, *lengths)["rows"]}
    for phase in phases:
        assert rows[phase]["peak_GiB"] - 1e-4 <= rows[phase]["planned_GiB"] <= 1.05 * rows[phase]["peak_GiB"], phase


def test_an_update_takes_a_third_of_the_launches(report, table):
    """The host of a T4 needs some microseconds for each."""
    for row in [*table, *report["rows"]]:
        if row["phase"] == "forward and backward":
            a_micro_batch = row["kernels"] / row["completions"] * row["micro_batch"]
            assert a_micro_batch <= MICRO_BATCH_BEFORE / 3 * row["layers"] / ALL_LAYERS + 300, row["batch"]


def test_the_plan_counts_the_kernels_that_are_loaded(report, table):
    """The driver takes memory for each when it first runs, and the plan has a number of them."""
    assert 150 < max(row["kernel_forms"] for row in [*table, *report["rows"]]) <= MODULES


def test_a_decoding_step_takes_few_launches(report, table):
    for row in [*table, *report["rows"]]:
        if row["phase"] == "decode":
            assert row["kernels_a_step"] <= 40 * row["layers"] + 60, row["batch"]


class TestFaults:
    """A harness that sees no fault calls every path sound."""

    def row(self, report: dict, fault: str, phase: str) -> dict:
        (row,) = [row for row in report["faults"][fault]["rows"] if row["phase"] == phase][-1:]
        return row

    def test_a_wait_for_every_expert(self, report):
        waits = self.row(report, "item", "forward and backward")["waits_at"]  # of two layers and two micro-batches
        assert [count for place, count in waits.items() if "item at tests/fake_gpu/path.py" in place] == [2 * 2 * 32]

    def test_a_kernel_with_another_dtype(self, report):
        """It would read the bias as other numbers."""
        rows = report["faults"]["dtype"]["rows"]
        problems = {problem for row in rows for problem in row["problems"]}
        assert any("bias is torch.float16, compiled for *fp32" in problem for problem in problems), problems

    @pytest.mark.slow
    def test_a_routing_on_the_host(self, report_of_more_faults):
        """A GPU takes an index from the host, after a wait for each."""
        waits = self.row(report_of_more_faults, "cpu-index", "forward and backward")["waits_at"]
        assert any(place.startswith("index from the CPU") for place in waits), waits

    @pytest.mark.slow
    def test_experts_that_are_computed_again(self, report_of_more_faults):
        """It shows as launches."""
        usual = self.row(report_of_more_faults, "two-dtypes", "forward and backward")["kernels"]
        repeated = self.row(report_of_more_faults, "repeated-experts", "forward and backward")["kernels"]
        assert repeated > usual + 2 * 32 * 8

    @pytest.mark.slow
    def test_a_tensor_in_two_dtypes_at_once(self, report_of_more_faults):
        """Both copies of it take memory, which the plan does not have."""
        row = self.row(report_of_more_faults, "two-dtypes", "load")
        assert row["peak_GiB"] > row["planned_GiB"] + 1


@pytest.mark.slow
def test_the_table_is_what_all_layers_show(table, tmp_path):
    """The committed figures are those of the code as it is."""
    out = tmp_path / "path.json"
    command = [sys.executable, "-m", "tests.fake_gpu.path", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = ("routing", "batch", "micro_batch", "phase", "kernels", "waits", "problems")
    rows = json.loads(out.read_text())
    assert [[row[name] for name in names] for row in rows] == [[row[name] for name in names] for row in table]
    for row, committed in zip(rows, table):
        assert row["peak_GiB"] == pytest.approx(committed["peak_GiB"], abs=1e-3)

"""The rollouts of a T4's training and evaluation on a fake GPU: few graphs, one stream that captures, and memory that
runs out at any place.

`rollouts.py` runs the project's engine at the true size of a layer, in a process of its own.
"""

import pytest

from helpers.model import gpu_memory
from tests.benchmarks.driver import ROLLOUT_KERNELS
from tests.fake_gpu.test_step import needs_fake_gpu

pytestmark = needs_fake_gpu

LAYERS = 2
#: Fault that is planted -> what the fake GPU must say of it.
FAULTS = {
    "no-warm-up": "cuBLAS takes a workspace during a capture",
    "pool-each": "a capture beside graphs of the same stream with another pool",
    "two-dtypes": "mm of torch.bfloat16 and torch.float16",
    "one-stream": "a replay of a graph whose workspace was freed when another graph ended",
    "one-pool": "a capture into a pool whose graphs have all ended",
    "replay-beside": "did not wait for",
    "no-wait": "did not wait for side stream",
}
#: Every run plants this one, `make test-slow` all of them: they test the fake GPU, and not the rollouts.
FAULTS_OF_A_RUN = ("no-wait",)
ONCE_MORE = "The GPU had no memory left for the rollout: what can be freed is freed, and the rest is drawn again."
EAGER = "The GPU had no memory left for the rollout: decoding steps run one kernel after the other from here on"
HALVED = "The GPU had no memory left for the rollout: completions are drawn 4 at a time from here on."


#: Where memory lacks in every run: within a capture, and outside of one, where there is more to give up.
PLACES = ("capture", "prefill")
#: Where it lacks, too, in `make test-slow`: the rollout has the same steps to take.
MORE_PLACES = ("replay", "buffers", "module")


@pytest.fixture(scope="module")
def report(report_of) -> dict:
    """What `rollouts.py` says."""
    return report_of("rollouts", "--layers", str(LAYERS), "--short-of-memory", *PLACES, "--fault", *FAULTS_OF_A_RUN)


@pytest.fixture(scope="module")
def report_of_all_faults(report_of) -> dict:
    """What `rollouts.py` says of all faults."""
    faults = ("copies", "copied-params", *FAULTS)
    return report_of("rollouts", "--layers", str(LAYERS), "--fault", *faults)


PLACES_OF_A_RUN = pytest.mark.parametrize(
    "places",
    [pytest.param(PLACES, id="a few places"), pytest.param(MORE_PLACES, id="more places", marks=pytest.mark.slow)],
)


@pytest.fixture
def lacking(report_of, report, places) -> list[dict]:
    """What became of the rollouts for which memory lacked at these places."""
    if places == PLACES:
        return report["short_of_memory"]
    more = report_of("rollouts", "--layers", str(LAYERS), "--short-of-memory", *places)
    return more["short_of_memory"]


def test_a_run_captures_few_graphs(report):
    """Each takes memory of the driver, that no tensor has. There were 9 in training, and some forty in 05_evaluate."""
    assert report["training"]["captures"] <= 8
    assert report["evaluation"]["captures"] <= 12
    assert report["training"]["problems"] == report["evaluation"]["problems"] == {}


def test_the_plan_counts_what_there_is(report):
    """Graphs, their kernels, streams and loaded kernels are counted; only the bytes of each are estimates."""
    planned_graphs = len(report["rows"]) * len(report["lengths"])
    for part in ("training", "evaluation"):
        counted = report[part]
        assert counted["most_graphs"] == planned_graphs
        assert counted["nodes"] == LAYERS * gpu_memory.NODES_A_LAYER + gpu_memory.NODES_BESIDE
        assert counted["streams"] == gpu_memory.STREAMS == 2
        assert counted["kernel_forms"] <= gpu_memory.MODULES
    assert report["training"]["kernel_forms"] == ROLLOUT_KERNELS


def test_an_engine_that_ends_leaves_the_others_alone(report):
    """Two engines, one of which ends, and an adapter that is switched off: no graph loses its workspace or its pool."""
    assert report["sound"] == {"problems": {}, "separate": [], "stopped": None}


@pytest.mark.parametrize("fault", FAULTS_OF_A_RUN)
def test_a_planted_fault_is_named(report, fault):
    """A harness that sees no fault calls every rollout sound."""
    problems = report["faults"][fault]["problems"]
    assert any(FAULTS[fault] in problem for problem in problems), problems


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_named(report_of_all_faults, fault):
    """The rarer faults, too."""
    problems = report_of_all_faults["faults"][fault]["problems"]
    assert any(FAULTS[fault] in problem for problem in problems), problems


@pytest.mark.slow
def test_rows_that_are_copies_are_named(report_of_all_faults):
    """A step that draws into rows of its own is lost: the host reads the engine's."""
    assert {"tokens", "drawn", "logprobs"} <= set(report_of_all_faults["faults"]["copies"]["separate"])
    assert "params temperature" in report_of_all_faults["faults"]["copied-params"]["separate"]


def test_a_row_that_never_ends_is_an_error(report):
    """It ran for ever, without a message."""
    assert "has made 768 steps and goes on" in report["endless"] and 'backend="transformers"' in report["endless"]


@pytest.mark.parametrize("name", ["invalidated", "interrupt", "compiler"])
def test_a_capture_that_fails_takes_nothing_with_it(report, name):
    """Its graph ends with the workspaces of those before, and PyTorch may believe that it goes on."""
    case = report["broken_captures"][name]
    assert (case["again"], case["problems"]) == (8, {}), case
    if name == "invalidated":
        (sentence,) = case["warned"]
        assert "cannot be captured" in sentence and case["stopped"] is None and not case["captures"]
    else:
        assert case["stopped"] and case["captures"] and case["warned"] == []


def shortages(lacking: list[dict], times: int) -> dict[str, dict]:
    """The rollouts in which so many calls failed, by the place."""
    found = {case["place"]: case for case in lacking if case["times"] == times}
    assert all(case["problems"] == {} for case in found.values())
    return found


@PLACES_OF_A_RUN
def test_memory_that_lacks_once_changes_nothing(lacking, places):
    """What was collected may be enough: every completion is there, and steps are captured as before."""
    cases = shortages(lacking, 1)
    assert set(cases) == set(places)
    for case in cases.values():
        assert (case["completions"], case["again"], case["ended"]) == (8, 8, None), case
        assert case["said"] == [ONCE_MORE] and case["after"] == {"rows": 8, "captures": True}, case


@PLACES_OF_A_RUN
def test_memory_that_lacks_twice_costs_the_graphs(lacking, places):
    """A rollout without graphs needs less memory, and is slower: it must say so, and go on."""
    cases = shortages(lacking, 2)
    assert set(cases) == set(places)
    for case in cases.values():
        assert (case["completions"], case["again"], case["ended"]) == (8, 8, None), case
        once_more, eager = case["said"]
        assert once_more == ONCE_MORE and eager.startswith(EAGER), case
        assert case["after"] == {"rows": 8, "captures": False}, case


@PLACES_OF_A_RUN
def test_memory_that_lacks_without_graphs_halves_the_rows(lacking, places):
    """Where there are no graphs left to give up, fewer completions at a time are the only way to go on."""
    cases = shortages(lacking, 3)
    assert set(cases) == set(places) - {"capture", "replay"}
    for case in cases.values():
        assert (case["completions"], case["again"], case["ended"]) == (8, 8, None), case
        _, eager, halved = case["said"]
        assert eager.startswith(EAGER) and halved == HALVED
        assert case["after"] == {"rows": 4, "captures": False}


@PLACES_OF_A_RUN
def test_memory_that_lacks_for_a_single_completion_is_one_sentence(lacking, places):
    """Nothing is left to give up: the user must learn what to do."""
    cases = shortages(lacking, 10**9)
    assert set(cases) == set(places) - {"capture", "replay"}
    for case in cases.values():
        assert case["ended"].startswith("The GPU has no memory left to draw a single completion (")
        assert "\n" not in case["ended"] and "): restart the kernel and run this again." in case["ended"]
        assert len(case["said"]) == 5 and case["after"]["rows"] == 1

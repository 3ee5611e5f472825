"""Everything that is worth measuring on a GPU, in one command and in the order of its value (`make bench-gpu`).

    python -m tests.benchmarks.gpu [--budget-minutes 9] [--parts NAME ...] [--device cpu] [--out file.json]

`parts.py` says how the parts run; the file is tests/benchmarks/results/gpu-<card>.json if nothing else is said. With
fewer than eight cores each part may take three times as long, and so may all of them; and a card is not asked for what
it lacks.

It takes the machine's own Python: torch, triton, transformers, peft, accelerate and pytest. NF4 needs bitsandbytes as
well; without a network, put its wheel into a folder and name the folder in BENCH_WHEELS. With --device cpu every part
runs on small models and numbers, to show that it works: its figures mean nothing.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from helpers.runtime import UserError, first_line
from tests.benchmarks.parts import (
    FAILED,
    RESULTS,
    Machine,
    Part,
    chosen_parts,
    describe_machine,
    machine_of,
    overview,
    run_parts,
    slug,
)

#: Minutes for all parts, on a machine with many cores.
BUDGET_MINUTES = 9
#: The model and the kernels before the attention, of which there are most.
TESTS = ("tests/gpu/test_gpu.py", "tests/gpu/test_experts.py", "tests/gpu/test_attention.py")
MEMORY_TEST = "tests/gpu/test_experts.py::test_the_20b_in_a_t4s_memory"
WHEELS = "BENCH_WHEELS"
#: What cuBLAS takes for itself on a T4. On Hopper it would be four times as much, within a T4's memory.
SMALL_WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"}
NO_FLEX = "FlexAttention is not used on this card, where Triton has no tensor cores"


def all_parts(machine: Machine, folder: Path) -> list[Part]:
    """Every part for a machine, the most valuable first. folder: for files that a part needs."""

    def part(name: str, limit_s: float, *arguments: str, why_not: str = "", environment: dict | None = None) -> Part:
        environment = SMALL_WORKSPACES | (environment or {})
        return Part(name, arguments, limit_s * machine.slowness, why_not, environment)

    def benchmark(module: str, *arguments: str) -> tuple[str, ...]:
        return "-m", f"tests.benchmarks.{module}", "--device", machine.device, "--out", "{out}", *arguments

    def tests(*arguments: str) -> tuple[str, ...]:
        # what the test of the 20b's memory measures is the part "GRPO step"
        return "-m", "pytest", *TESTS, "--deselect", MEMORY_TEST, "--tb=short", "-vv", *arguments

    attention = ()
    experts = ()
    rollout = ("--cap-gib", "14.2", "--rounds", "2", "--tokens", "64", "--large-tokens", "32")
    if machine.device == "cpu":
        attention = ("--lengths", "32", "64", "--rounds", "1")
        experts = ("--tokens", "1", "8", "--rounds", "1")
        rollout = ("--rounds", "1", "--tokens", "16")
    lacks_flex = machine.device == "cuda" and not machine.has_tensor_cores_for_triton
    why_not_nf4, nf4_environment = find_bitsandbytes(folder)
    return [
        part("tests", 150, *tests("-k", "not flex")),
        part("expert kernels", 90, *benchmark("expert_kernels")),
        part("prefill and decode", 120, *benchmark("decode")),
        part("GRPO step", 150, *benchmark("step_20b")),
        part("tests of flex", 120, *tests("-k", "flex"), why_not=NO_FLEX if lacks_flex else ""),
        part("attention", 90, *benchmark("attention", *attention)),
        part("experts", 60, *benchmark("experts", *experts)),
        part("rollout", 180, *benchmark("rollout", *rollout)),
        part("NF4", 90, *benchmark("nf4"), why_not=why_not_nf4, environment=nf4_environment),
    ]


def find_bitsandbytes(folder: Path) -> tuple[str, dict[str, str]]:
    """`(the reason why NF4 cannot run or "", variables that let it)`; a wheel is unpacked into `folder`."""
    if importlib.util.find_spec("bitsandbytes"):
        return "", {}
    wheels = sorted(Path(os.environ.get(WHEELS, "")).glob("bitsandbytes-*.whl")) if WHEELS in os.environ else []
    if not wheels:
        return f"NF4 not run on a GPU: bitsandbytes is not installed, and {WHEELS} names no folder with its wheel", {}
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(folder / "site")
    path = os.pathsep.join(filter(None, (str(folder / "site"), os.environ.get("PYTHONPATH"))))
    return "", {"PYTHONPATH": path}


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 where a part failed, or 2 where nothing could be run."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--budget-minutes", type=float, help=f"default: {BUDGET_MINUTES}, or three times that")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            about = describe_machine()
            machine = machine_of(about, chosen.device)
            parts = chosen_parts(all_parts(machine, Path(folder)), chosen.parts)
        except UserError as error:
            print(f"Error: {first_line(error)}", file=sys.stderr)
            return 2
        card = slug(about["gpu"]) if chosen.device == "cuda" else "cpu"
        out = chosen.out or RESULTS / f"gpu-{card}.json"
        minutes = chosen.budget_minutes or BUDGET_MINUTES * machine.slowness
        about |= {"device": chosen.device, "budget_minutes": minutes}
        print(about["hardware"], about["versions"], f"Writing to {out}", sep="\n", flush=True)
        left_s = started + 60 * minutes - time.monotonic()
        results = run_parts(parts, about, out, left_s)
    print("\n" + overview(results))
    return 1 if any(result.status == FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

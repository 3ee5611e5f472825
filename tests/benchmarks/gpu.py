"""Everything that is worth measuring on a GPU, in one command and in the order of its value (`make bench-gpu`).

    python -m tests.benchmarks.gpu [--budget-minutes 9] [--parts NAME ...] [--device cpu] [--out file.json]

Each part is a process of its own with a limit of its own, so one that fails, hangs or runs out of memory stops nothing
else. After every part the results are written, to tests/benchmarks/results/gpu-<card>.json if nothing else is said:
what ran, how it ended, and the rows that it had measured, those of a part that failed half way too. When the budget is
spent, what is left is "not run".

It takes the machine's own Python: torch, triton, transformers, peft, accelerate and pytest. NF4 needs bitsandbytes as
well; without a network, put its wheel into a folder and name the folder in BENCH_WHEELS. With --device cpu every part
runs on small models and numbers, to show that it works: its figures mean nothing.
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from helpers.display import text_table
from helpers.runtime import ROOT, UserError, first_line, write_whole

RESULTS = ROOT / "tests" / "benchmarks" / "results"
OK, FAILED, NOT_RUN = "ok", "failed", "not run"
#: A part is not begun with fewer seconds left than it takes to import PyTorch and load a model.
LEAST_SECONDS = 15
#: Last lines of a part's output that are kept in the file, and that are shown.
KEPT_LINES = 200
SHOWN_LINES = 40
#: Seconds that a part has to say where it was when its limit is over.
GRACE_SECONDS = 5
#: The model and the kernels before the attention, of which there are most.
TESTS = ("tests/gpu/test_gpu.py", "tests/gpu/test_experts.py", "tests/gpu/test_attention.py")
MEMORY_TEST = "tests/gpu/test_experts.py::test_the_20b_in_a_t4s_memory"
WHEELS = "BENCH_WHEELS"
#: Prints what is known of the machine: in a process of its own, as one that asks CUDA holds some of its memory.
ABOUT = (
    "import json; from helpers.environment import find_gpu, hardware, installed_version, versions; "
    "print(json.dumps({'gpu': find_gpu()[0], 'hardware': hardware(), "
    "'versions': versions() | {'triton': installed_version('triton') or 'absent'}}))"
)


@dataclass(frozen=True)
class Part:
    """One process.

    arguments: of Python; "{out}" stands for the file that the part writes its results to.
    limit_s: seconds after which it is killed. why_not: the reason not to run it here. environment: variables to set.
    """

    name: str
    arguments: tuple[str, ...]
    limit_s: float
    why_not: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    """How a part ended.

    why: of a part that did not end well. output: its last lines. result: what it wrote to its file, to the last row.
    """

    name: str
    status: str = NOT_RUN
    why: str = "not reached"
    seconds: float = 0.0
    limit_s: float = 0.0
    output: list[str] = field(default_factory=list)
    result: dict | None = None


def all_parts(device: str, folder: Path) -> list[Part]:
    """Every part for a device, the most valuable first. folder: for files that a part needs."""

    def benchmark(module: str, *arguments: str) -> tuple[str, ...]:
        return "-m", f"tests.benchmarks.{module}", "--device", device, "--out", "{out}", *arguments

    def tests(*arguments: str) -> tuple[str, ...]:
        # what the test of the 20b's memory measures is the part "GRPO step"
        return "-m", "pytest", *TESTS, "--deselect", MEMORY_TEST, "--tb=short", "-vv", *arguments

    attention = ()
    experts = ()
    rollout = ("--cap-gib", "14.2", "--rounds", "2", "--tokens", "64", "--large-tokens", "32")
    if device == "cpu":
        attention = ("--lengths", "32", "64", "--rounds", "1")
        experts = ("--tokens", "1", "8", "--rounds", "1")
        rollout = ("--rounds", "1", "--tokens", "16")
    why_not, environment = find_bitsandbytes(folder)
    return [
        Part("tests", tests("-k", "not flex"), 150),
        Part("expert kernels", benchmark("expert_kernels"), 90),
        Part("prefill and decode", benchmark("decode"), 120),
        Part("GRPO step", benchmark("step_20b"), 150),
        Part("tests of flex", tests("-k", "flex"), 120),
        Part("attention", benchmark("attention", *attention), 90),
        Part("experts", benchmark("experts", *experts), 60),
        Part("rollout", benchmark("rollout", *rollout), 180),
        Part("NF4", benchmark("nf4"), 90, why_not, environment),
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


def run_part(part: Part, limit_s: float, folder: Path) -> Result:
    """Run one part for at most so many seconds; its whole process group is gone afterwards."""
    out = folder / "result.json"
    log = folder / "output.txt"
    command = [sys.executable, *(argument.replace("{out}", str(out)) for argument in part.arguments)]
    result = Result(part.name, limit_s=limit_s)
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": "1"} | part.environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(limit_s)
            result.status = FAILED if status else OK
            result.why = f"exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            result.status = FAILED
            result.why = f"stopped after its limit of {limit_s:.0f} s"
            os.killpg(process.pid, signal.SIGINT)  # pytest then says what has failed so far, a benchmark where it is
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        finally:
            end_group(process)
    result.seconds = time.monotonic() - started
    result.output = log.read_text(errors="replace").splitlines()[-KEPT_LINES:]
    if out.exists():
        result.result = json.loads(out.read_text())
    return result


def end_group(process: subprocess.Popen) -> None:
    """Kill a process and all that it started; one that the driver does not let go is left to the system."""
    with suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        print(f"{process.args[:3]} does not end", file=sys.stderr)


def run_parts(parts: list[Part], about: dict, out: Path, budget_s: float) -> list[Result]:
    """Run the parts in order, and write the file before the first and after every one.

    about: what the file says besides. budget_s: seconds for all of them together.
    """
    started = time.monotonic()
    results = [Result(part.name) for part in parts]

    def save() -> None:
        seconds = time.monotonic() - started
        content = about | {"seconds": seconds, "parts": [asdict(result) for result in results]}
        write_whole(out, json.dumps(content, indent=1) + "\n")

    save()
    for number, part in enumerate(parts):
        left_s = started + budget_s - time.monotonic()
        if part.why_not:
            results[number].why = part.why_not
        elif left_s < LEAST_SECONDS:
            results[number].why = "no time left"
        else:
            print(f"\n{part.name}: at most {min(part.limit_s, left_s):.0f} s of {left_s:.0f}", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                results[number] = run_part(part, min(part.limit_s, left_s), Path(folder))
            print("\n".join(results[number].output[-SHOWN_LINES:]), flush=True)
        save()
    return results


def overview(results: list[Result]) -> str:
    """The closing table: how each part ended."""
    rows = []
    for result in results:
        notes = [result.why] if result.why else []
        if result.result and "rows" in result.result:
            notes.append(f"{len(result.result['rows'])} rows measured")
        elif result.name.startswith("tests") and result.output:
            notes.append(result.output[-1].strip("= "))
        rows.append((result.name, result.status, f"{result.seconds:.0f}", "; ".join(notes)))
    return text_table(rows, ["part", "status", "seconds", ""])


def describe_machine() -> dict:
    """Names of the GPU ("" without one) and the machine, and versions. Raises UserError where PyTorch cannot start."""
    run = subprocess.run([sys.executable, "-c", ABOUT], cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        raise UserError(f"PyTorch does not start here: {run.stderr.strip().splitlines()[-1]}")
    return json.loads(run.stdout.splitlines()[-1])


def slug(name: str) -> str:
    """A name as part of a file's name, such as "tesla-t4"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def chosen_parts(parts: list[Part], names: list[str] | None) -> list[Part]:
    """The parts of these names, or all. Raises UserError for a name that there is not."""
    known = [part.name for part in parts]
    unknown = set(names or known) - set(known)
    if unknown:
        raise UserError(f"There is no part {', '.join(sorted(unknown))}: there are {', '.join(known)}.")
    return [part for part in parts if part.name in (names or known)]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 where a part failed, or 2 where nothing could be run."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--budget-minutes", type=float, default=9)
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            about = describe_machine()
            if chosen.device == "cuda" and not about["gpu"]:
                raise UserError("There is no GPU that PyTorch can use: --device cpu shows that the parts work.")
            parts = chosen_parts(all_parts(chosen.device, Path(folder)), chosen.parts)
        except UserError as error:
            print(f"Error: {first_line(error)}", file=sys.stderr)
            return 2
        card = slug(about["gpu"]) if chosen.device == "cuda" else "cpu"
        out = chosen.out or RESULTS / f"gpu-{card}.json"
        about |= {"device": chosen.device, "budget_minutes": chosen.budget_minutes}
        print(about["hardware"], about["versions"], f"Writing to {out}", sep="\n", flush=True)
        left_s = started + 60 * chosen.budget_minutes - time.monotonic()
        results = run_parts(parts, about, out, left_s)
    print("\n" + overview(results))
    return 1 if any(result.status == FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

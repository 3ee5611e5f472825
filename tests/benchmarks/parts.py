"""Measurements on a GPU as parts: each a process of its own with a limit of its own, and all results in one file.

A part that fails, hangs or runs out of memory stops nothing else. The file is written before the first part and after
every one: what ran, how it ended, and the rows that it had measured, those of a part that failed half way too. When the
budget is spent, what is left is "not run".
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from helpers.display import text_table
from helpers.runtime import ROOT, UserError, write_whole

RESULTS = ROOT / "tests" / "benchmarks" / "results"
OK, FAILED, NOT_RUN = "ok", "failed", "not run"
#: A part is not begun with fewer seconds left than it takes to import PyTorch and load a model.
LEAST_SECONDS = 15
#: Last lines of a part's output that are kept in the file, and that are shown.
KEPT_LINES = 200
SHOWN_LINES = 40
#: Seconds that a part has to say where it was when its limit is over.
GRACE_SECONDS = 5
#: From so many cores on the limits are as they stand; with fewer, Triton and PyTorch compile for longer.
FAST_CORES = 8
#: How much longer a part may take with fewer cores: 31 launches compile in 93 seconds on Colab's two.
SLOW_FACTOR = 3.0
#: Prints what is known of the machine: in a process of its own, as one that asks CUDA holds some of its memory.
ABOUT = (
    "import json, torch; from helpers.environment import find_gpu, hardware, installed_version, versions; "
    "gpu, gib = find_gpu(); "
    "print(json.dumps({'gpu': gpu, 'gpu_GiB': gib, 'cuda': torch.version.cuda, 'hardware': hardware(), "
    "'capability': torch.cuda.get_device_capability() if gpu else None, "
    "'versions': versions() | {'triton': installed_version('triton') or 'absent'}}))"
)


@dataclass(frozen=True)
class Machine:
    """What decides which parts there are, and how long each may take.

    capability: compute capability of the GPU, None without one. cores: of the processor.
    """

    capability: tuple[int, int] | None
    cores: int

    @property
    def device(self) -> str:
        """The device that parts measure."""
        return "cpu" if self.capability is None else "cuda"

    @property
    def has_tensor_cores_for_triton(self) -> bool:
        """True from compute capability 8.0 on: for bf16 and FlexAttention, which a T4 lacks."""
        return self.capability is not None and self.capability >= (8, 0)

    @property
    def slowness(self) -> float:
        """The factor of all limits."""
        return 1.0 if self.cores >= FAST_CORES else SLOW_FACTOR


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
        elif "tests" in result.name and result.output:
            notes.append(result.output[-1].strip("= "))
        rows.append((result.name, result.status, f"{result.seconds:.0f}", "; ".join(notes)))
    return text_table(rows, ["part", "status", "seconds", ""])


def describe_machine() -> dict:
    """Names of the GPU ("" without one) and the machine, and versions. Raises UserError where PyTorch cannot start."""
    run = subprocess.run([sys.executable, "-c", ABOUT], cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        raise UserError(f"PyTorch does not start here: {run.stderr.strip().splitlines()[-1]}")
    return json.loads(run.stdout.splitlines()[-1])


def machine_of(about: dict, device: str) -> Machine:
    """The machine that `describe_machine` found, to measure a device of.

    Raises UserError for a GPU that is asked for and not there.
    """
    cores = os.cpu_count() or 1
    if device == "cpu":
        return Machine(None, cores)
    if not about["gpu"]:
        raise UserError("There is no GPU that PyTorch can use: --device cpu shows that the parts work.")
    return Machine(tuple(about["capability"]), cores)


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

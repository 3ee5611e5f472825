"""Half an hour on a GPU that nobody has tried, a Colab T4 above all: does all of it work there (`make try-gpu`)?

    python -m tests.benchmarks.try_gpu [--budget-minutes 30] [--parts NAME ...] [--device cpu] [--out file.json]

In order: the driver, its clocks and what it takes of the memory; the GPU tests marked "essential"; two GRPO steps of
gpt-oss-20b's shape in random bytes, phase by phase beside the memory plan; then the released weights, which are
downloaded: notebook 01, and a dry run of 04. `parts.py` says how the parts run. At the end stands a text to paste into
an issue; the file is tests/benchmarks/results/try-<card>.json if nothing else is said.

It takes the machine's own Python and packages, and installs no other torch: notebook 01 installs what is missing, as it
does for everybody. With --device cpu every part runs on the embedded model, to show that it works.
"""

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path

from helpers import __version__
from helpers.display import text_table
from helpers.runtime import GIB, UserError, first_line
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

BUDGET_MINUTES = 30

#: Cells whose printed text the report quotes: of the proofs for 01 the plan, the agreement and the speed, of 04 the dry
#: run.
CELLS_TO_REPORT = {"01_checks": ("p01-14", "p01-22", "p01-24"), "04_grpo": ("04-05", "04-07")}


def all_parts(machine: Machine) -> list[Part]:
    """Every part for a machine, in order; a later one needs nothing of an earlier one.

    Their limits make half an hour together, so that none takes the time of those after it.
    """

    def part(name: str, limit_s: float, *arguments: str, why_not: str = "") -> Part:
        return Part(name, arguments, limit_s, why_not)

    def benchmark(module: str) -> tuple[str, ...]:
        return "-m", f"tests.benchmarks.{module}", "--device", machine.device, "--out", "{out}"

    def notebook(name: str, *parameters: str) -> tuple[str, ...]:
        return "-m", "tests.notebooks.execute", name, *parameters, "--out", "{out}"

    profile = "PROFILE=tiny" if machine.device == "cpu" else "PROFILE=auto"
    has_jupyter = all(importlib.util.find_spec(package) for package in ("nbclient", "ipykernel"))
    no_jupyter = "" if has_jupyter else "nbclient and ipykernel are not installed"
    return [
        part("driver", 120, *benchmark("driver")),
        part("tests", 300, "-m", "pytest", "tests/gpu", "--tb=short", "-m", "essential"),
        part("GRPO step", 300, *benchmark("step_20b")),
        part("01_load", 600, *notebook("01_checks", profile), why_not=no_jupyter),
        part("04_grpo, dry run", 480, *notebook("04_grpo", profile, "DRY_RUN=True"), why_not=no_jupyter),
    ]


def issue_text(content: dict) -> str:
    """What to paste into an issue, of a file's content: the machine, how each part ended, and its figures."""
    sections = [
        f"**{content['hardware']}**, {content['gpu_GiB']:.2f} GiB, CUDA {content['cuda']}, project {__version__}",
        ", ".join(f"{name} {version}" for name, version in content["versions"].items()),
    ]
    for part in content["parts"]:
        why = f" ({part['why']})" if part["why"] else ""
        sections.append(f"**{part['name']}**: {part['status']}{why}, {part['seconds']:.0f} s")
        figures = _figures(part)
        if figures:
            sections.append(f"```\n{figures}\n```")
    return "\n\n".join(sections)


def _figures(part: dict) -> str:
    """What a part measured, as text; of one that failed its last lines as well."""
    result = part["result"] or {}
    texts = []
    if part["name"] == "driver" and "rows" in result:
        texts.append(json.dumps(result["nvidia_smi"]))
        rows = [(row["what"], row["count"], row["bytes"], round(row["estimated_bytes"])) for row in result["rows"]]
        texts.append(text_table(rows, ["outside PyTorch", "count", "bytes", "estimated"]))
    elif part["name"] == "GRPO step" and "rows" in result:
        rows = []
        for row in result["rows"]:
            peak = row["memory"].get("max_allocated")
            shown = "not measured" if peak is None else f"{peak / GIB:.2f}"
            planned = f"{row['planned_bytes'] / GIB:.2f}"
            rows.append((row["step"] or "", row["phase"], f"{row['seconds']:.1f}", shown, planned))
        texts.append(text_table(rows, ["step", "phase", "seconds", "peak GiB", "planned"]))
    elif "printed" in result:
        texts += [result["printed"].get(cell, "").strip() for cell in CELLS_TO_REPORT[result["notebook"]]]
        texts += [text.strip() for text in result["stderr"].values()]
        texts.append(result["why"])
    elif part["name"] == "tests" and part["output"]:
        texts.append(part["output"][-1])
    if part["status"] == FAILED:
        texts += part["output"][-15:]
    return "\n".join(text for text in texts if text)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 where a part failed, or 2 where nothing could be run."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--budget-minutes", type=float, default=BUDGET_MINUTES)
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        about = describe_machine()
        parts = chosen_parts(all_parts(machine_of(about, chosen.device)), chosen.parts)
    except UserError as error:
        print(f"Error: {first_line(error)}", file=sys.stderr)
        return 2
    card = slug(about["gpu"]) if chosen.device == "cuda" else "cpu"
    out = chosen.out or RESULTS / f"try-{card}.json"
    about |= {"device": chosen.device, "budget_minutes": chosen.budget_minutes}
    print(about["hardware"], about["versions"], f"Writing to {out}", sep="\n", flush=True)
    left_s = started + 60 * chosen.budget_minutes - time.monotonic()
    results = run_parts(parts, about, out, left_s)
    print("\n" + overview(results))
    print("\nPlease paste this into an issue, and attach the file:\n")
    print(issue_text(json.loads(out.read_text())))
    return 1 if any(result.status == FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Run the notebooks in order, headlessly: `python -m helpers.run` (`make run`)."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.display.watch import OUTPUT_LOG
from helpers.processes import write_process_file
from helpers.run.arguments import open_from, pairs_of, pairs_of_make, take
from helpers.run.closing import closing_table
from helpers.run.lists import LISTS
from helpers.run.notebooks import DEEPER, NOTEBOOKS, parameters_of_all, printed_by_last_cell, run_notebook
from helpers.run.opening import Run
from helpers.run.preflight import preflight
from helpers.run.settings import other_names, parse_truth
from helpers.runtime import ROOT, command, run_folder


@command(interrupted="Interrupted; make run with the same NAME goes on from the last checkpoint.")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the notebooks, or print a list. Return the exit status."""
    parser = argparse.ArgumentParser(prog="make run", allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--deeper", action="store_true", help="run the notebooks in notebooks/deeper instead")
    parser.add_argument("--list", choices=LISTS, help="print what there is, and run nothing")
    parser.add_argument("--from-make", action="store_true", help="take the variables of make's command line, too")
    args, others = parser.parse_known_args(arguments)
    if args.list:
        print(LISTS[args.list]())
        return 0
    started = time.monotonic()
    pairs = pairs_of(others) + (pairs_of_make() if args.from_make else [])
    detach, pairs = take(pairs, "DETACH", "USE_TMUX")
    run, given = open_from(pairs, parameters_of_all())
    print(run.profile if args.deeper else preflight(run), f"Writing to {run.folder}", sep="\n", flush=True)
    run_folder(run.folder)
    if detach and parse_truth("DETACH", detach):
        _detach(run, args.deeper, pairs)
        return 0
    given.setdefault("profile", run.profile.name)  # one for all notebooks, where each would choose its own
    _run_notebooks(run, given, args.deeper)
    print("\n" + _closing_lines(run, args.deeper, (time.monotonic() - started) / 60))
    return 0


def _detach(run: Run, is_deeper: bool, pairs: Sequence[str]) -> None:
    """Start the same run in a process that goes on when the terminal closes, and say how to follow it."""
    _, others = take(pairs, "NAME", "TMUX_SESSION")
    _, others = take(others, "RUN_DIR", *other_names("run_dir"))
    command = [sys.executable, "-m", __package__, *others, f"RUN_DIR={run.folder}"]
    if is_deeper:
        command.append("--deeper")
    with open(run.folder / OUTPUT_LOG, "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    write_process_file(run.folder, process.pid)
    name = run.folder.name if run.folder.parent == ROOT / "runs" else run.folder
    print(f"It goes on without this terminal, as process {process.pid}: make watch RUN={name} follows it.")


def _run_notebooks(run: Run, given: Mapping[str, Any], is_deeper: bool) -> None:
    os.environ["HELPERS_HEADLESS"] = "1"
    os.environ.setdefault("HELPERS_CALLER_DIR", os.getcwd())
    if run.profile.device == "cpu":  # so small a model gains nothing from more threads
        os.environ.setdefault("OMP_NUM_THREADS", "2")
    notebooks = DEEPER if is_deeper else NOTEBOOKS
    if run.settings.dry_run:
        notebooks = ("04_grpo",)
    for name in notebooks:
        run_notebook(name, run.folder, given)


def _closing_lines(run: Run, is_deeper: bool, minutes: float) -> str:
    if run.settings.dry_run:
        printed = printed_by_last_cell(run.folder / "04_grpo.ipynb")
        end = f"The dry run of task '{run.task.name}' came to its end in {minutes:.1f} minutes: {run.folder}/*.html"
        return f"{printed}\n{end}"
    if is_deeper:
        return f"All of notebooks/deeper ran, in {minutes:.1f} minutes: {run.folder}/*.html"
    return closing_table(run.folder, minutes)


if __name__ == "__main__":
    sys.exit(main())

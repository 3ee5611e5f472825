"""Follow a run from another shell: `python -m helpers.display.watch NAME` (`make watch RUN=NAME`)."""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from helpers.runtime import ROOT, UserError, did_you_mean

RUNS = ROOT / "runs"
#: Where a run's folder may have its log.
PLACES = ("grpo/train.log", "train.log")
#: Lines shown of what was there already.
LATEST = 20
SECONDS_BETWEEN = 0.5
#: A line of the log that begins a session, ends one, or is a step's.
EVENT = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  "
    r"(?:(?P<event>started|resumed|ended) after )?step (?P<step>\d+)(?:/(?P<last>\d+))?"
)


def run_folder_of(run: str, runs: Path = RUNS) -> Path:
    """Return the folder of a run, given by its name under runs/ or as a path.

    Raises UserError where there is none.
    """
    names = _run_names(runs)
    if not run:
        raise UserError(f"Say which run to follow, as in make watch RUN=name; {_list(names)}.")
    for folder in (runs / run, Path(run).expanduser()):
        if folder.is_dir():
            return folder
    raise UserError(f"There is no run '{run}'{did_you_mean(run, names)}: give its name or its folder; {_list(names)}.")


def _run_names(runs: Path) -> list[str]:
    if not runs.is_dir():
        return []
    return sorted(path.name for path in runs.iterdir() if path.is_dir())


def _list(names: list[str]) -> str:
    return f"under runs/ there are {', '.join(names)}" if names else "there are none under runs/ yet"


def follow(folder: Path, seconds_between: float = SECONDS_BETWEEN) -> Iterator[str]:
    """Yield the latest lines of a run's log and then each line as it comes, until the run has ended.

    A run that has not begun is waited for. A resumed run drops the lines of the steps that it repeats, and the new
    ones are yielded.
    """
    seen = []
    if not _read_lines(folder):
        yield f"Waiting for the run in {folder} to begin; Ctrl-C stops waiting."
    while True:
        lines = _read_lines(folder)
        same = _common(seen, lines)
        start = same if seen else max(0, len(lines) - LATEST)
        yield from lines[start:]
        seen = lines
        if _has_ended(lines):
            return
        time.sleep(seconds_between)


def _read_lines(folder: Path) -> list[str]:
    """Return the lines of a run's log that are written to their end; [] where there is none yet."""
    for place in PLACES:
        path = folder / place
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        *lines, _ = text.split("\n")  # what follows the last line break is still being written
        return lines
    return []


def _common(first: list[str], second: list[str]) -> int:
    """Return how many lines two logs have in common at their beginning."""
    same = 0
    for one, other in zip(first, second):
        if one != other:
            break
        same += 1
    return same


def _has_ended(lines: list[str]) -> bool:
    """Tell whether the log's last session was ended, or has done its last step."""
    matches = (EVENT.match(line) for line in reversed(lines))
    latest = next((match for match in matches if match), None)
    if latest is None:
        return False
    is_last_step = latest["event"] is None and latest["step"] == latest["last"]
    return latest["event"] == "ended" or is_last_step


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status: 0, or 1 after one sentence on what went wrong."""
    parser = argparse.ArgumentParser(prog="make watch", description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", default="", help="a name under runs/, or a folder")
    args = parser.parse_args(arguments)
    try:
        for line in follow(run_folder_of(args.run)):
            print(line, flush=True)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped watching; the run goes on.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

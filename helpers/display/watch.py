"""Follow a run from another shell: `python -m helpers.display.watch NAME` (`make watch RUN=NAME`).

Without a name it is the newest run, one that is running first.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from helpers.processes import is_running, read_process_file
from helpers.runtime import ROOT, UserError, command, did_you_mean

RUNS = ROOT / "runs"
#: What a run that goes on without its terminal prints, in its folder.
OUTPUT_LOG = "output.log"
#: Where a run's folder may have the log of its training.
PLACES = ("grpo/train.log", "train.log")
#: Lines shown of what was there already.
LATEST = 20
SECONDS_BETWEEN = 0.5
#: A line of the log that begins a session, ends one, or is a step's.
EVENT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  "
    r"(?:(?P<event>started|resumed|ended) after )?step (?P<step>\d+)(?:/(?P<last>\d+))?"
)
#: How the last line begins that `make run` prints: of its closing table, of another end, or of an error.
CLOSING = re.compile(r"report {2,}|All of notebooks/|The dry run of task |Error: |Interrupted; ")
DIED = "The run's process has ended before its last line: make run with the same NAME goes on from the last checkpoint."


def run_folder_of(run: str, runs: Path = RUNS) -> Path:
    """Return the folder of a run, given by its name under runs/ or as a path; of the newest run for "".

    Raises UserError where there is none.
    """
    if not run:
        return newest_run(runs)
    names = _run_names(runs)
    for folder in (runs / run, Path(run).expanduser()):
        if folder.is_dir():
            return folder
    raise UserError(f"There is no run '{run}'{did_you_mean(run, names)}: give its name or its folder; {_list(names)}.")


def newest_run(runs: Path = RUNS) -> Path:
    """Return the folder of the run that was started last of those whose process runs; else of the run changed last.

    Raises UserError where there are no runs.
    """
    folders = [runs / name for name in _run_names(runs)]
    if not folders:
        raise UserError("There is no run to follow under runs/ yet: start one with make run in another shell.")
    running = [folder for folder in folders if is_running(folder)]
    if running:
        return max(running, key=_started)
    return max(folders, key=_last_change)


def _started(folder: Path) -> float:
    """Return when the process of a run was noted, in seconds since 1970."""
    process = read_process_file(folder)
    return 0.0 if process is None else process.started


def _last_change(folder: Path) -> float:
    """Return when a log of a run, or the list of its files, changed last, in seconds since 1970."""
    paths = [folder, *(folder / place for place in (OUTPUT_LOG, *PLACES))]
    return max(path.stat().st_mtime for path in paths if path.exists())


def _run_names(runs: Path) -> list[str]:
    if not runs.is_dir():
        return []
    return sorted(path.name for path in runs.iterdir() if path.is_dir() and not path.name.startswith("."))


def _list(names: list[str]) -> str:
    return f"under runs/ there are {', '.join(names)}" if names else "there are none under runs/ yet"


def follow(folder: Path, seconds_between: float = SECONDS_BETWEEN) -> Iterator[str]:
    """Yield the latest lines of a run's log and then each line as it comes, until the run has ended.

    The log is what the run prints, where it goes on without its terminal, and ends with its process: one that ended
    without a closing line is told of. Else it is the log of the training. A run that has not begun is waited for. A
    resumed run drops the lines of the steps that it repeats, and the new ones are yielded.
    """
    log = _log_of(folder)
    if log is None:
        shown = []
        yield f"Waiting for the run in {folder} to begin; Ctrl-C stops waiting."
        log = _wait_for_log(folder, seconds_between)
    else:
        shown = _read_lines(log)[:-LATEST]
    is_output = log.name == OUTPUT_LOG
    while True:
        process_has_ended = is_output and not is_running(folder)  # asked before reading: nothing is written after it
        lines = _read_lines(log, with_part=process_has_ended)
        yield from lines[_common(shown, lines) :]
        shown = lines
        if process_has_ended or (not is_output and _training_has_ended(lines)):
            break
        time.sleep(seconds_between)
    if is_output and not _has_closing_line(lines):
        yield DIED


def _log_of(folder: Path) -> Path | None:
    """Return the log of a run that is to be followed; None where there is none yet.

    It is the training's where a later session has trained in the folder of a run whose process has ended.
    """
    training_logs = [folder / place for place in PLACES if (folder / place).exists()]
    training_log = training_logs[0] if training_logs else None
    output_log = folder / OUTPUT_LOG
    if read_process_file(folder) is None or not output_log.exists():
        return training_log
    if training_log is not None and not is_running(folder):
        if _last_session_began(training_log) > output_log.stat().st_mtime:
            return training_log
    return output_log


def _wait_for_log(folder: Path, seconds_between: float) -> Path:
    while True:
        log = _log_of(folder)
        if log is not None:
            return log
        time.sleep(seconds_between)


def _last_session_began(training_log: Path) -> float:
    """Return when the last session of a training began, in seconds since 1970; 0 where none is noted."""
    matches = [EVENT.match(line) for line in _read_lines(training_log)]
    times = [match["time"] for match in matches if match and match["event"] in ("started", "resumed")]
    return datetime.fromisoformat(times[-1]).timestamp() if times else 0.0


def _read_lines(log: Path, with_part: bool = False) -> list[str]:
    """Return the lines of a log that are written to their end; [] where it is gone.

    with_part: the last one, too, where it was cut short.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    *lines, part = text.split("\n")  # what follows the last line break is still being written
    if with_part and part:
        lines.append(part)
    return lines


def _common(first: list[str], second: list[str]) -> int:
    """Return how many lines two logs have in common at their beginning."""
    same = 0
    for one, other in zip(first, second):
        if one != other:
            break
        same += 1
    return same


def _training_has_ended(lines: list[str]) -> bool:
    """Tell whether the last session of a training was ended, or has done its last step."""
    matches = (EVENT.match(line) for line in reversed(lines))
    latest = next((match for match in matches if match), None)
    if latest is None:
        return False
    is_last_step = latest["event"] is None and latest["step"] == latest["last"]
    return latest["event"] == "ended" or is_last_step


def _has_closing_line(lines: list[str]) -> bool:
    """Tell whether the last of the lines that `make run` printed, empty ones left out, is one of its ends."""
    written = [line for line in lines if line.strip()]
    return bool(written) and CLOSING.match(written[-1]) is not None


@command(interrupted="Stopped watching; the run goes on.", status=0)
def main(arguments: list[str] | None = None) -> int:
    """Follow a run until it ends. Return the exit status."""
    parser = argparse.ArgumentParser(prog="make watch", description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", default="", help="a name under runs/, or a folder; else the newest")
    args = parser.parse_args(arguments)
    folder = run_folder_of(args.run)
    if not args.run:
        print(f"Following the run '{folder.name}', {_describe_newest(folder)}.", flush=True)
    for line in follow(folder):
        print(line, flush=True)
    return 0


def _describe_newest(folder: Path) -> str:
    return "which is running" if is_running(folder) else "the newest of those under runs/"


if __name__ == "__main__":
    sys.exit(main())

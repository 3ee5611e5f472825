"""Which process carries out a run, and whether it still lives.

A run that goes on without its terminal notes its process in its folder. A process id alone would not do: the system
gives it to another process once the first has ended. So the time at which the process began stands beside it.
"""

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from helpers.runtime import is_finite_number, is_whole_number, write_whole

PROCESS_FILE = "process.json"
#: States in /proc of a process that has ended and that its parent has not waited for yet.
ENDED_STATES = ("Z", "X")


class RunProcess(NamedTuple):
    """The process of a run, as its folder names it.

    started: seconds since 1970, when it was noted. start_ticks: when the process began, in clock ticks since the
    machine booted, as field 22 of /proc/PID/stat has it.
    """

    pid: int
    started: float
    start_ticks: int


def write_process_file(folder: str | Path, pid: int | None = None) -> None:
    """Note the process of a run in its folder, atomically. pid: of a process that this one started, else of this one.

    Raises ProcessLookupError where there is no such process.
    """
    pid = os.getpid() if pid is None else pid
    status = _status(pid)
    if status is None:
        raise ProcessLookupError(f"there is no process {pid}")
    noted = RunProcess(pid, time.time(), status.start_ticks)
    write_whole(Path(folder) / PROCESS_FILE, json.dumps(noted._asdict()))


def read_process_file(folder: str | Path) -> RunProcess | None:
    """Return the process that a folder names; None where there is no such file, or one that nobody can read."""
    try:
        saved = json.loads((Path(folder) / PROCESS_FILE).read_text(encoding="utf-8"))
        noted = RunProcess(saved["pid"], saved["started"], saved["start_ticks"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    has_numbers = is_whole_number(noted.pid) and is_finite_number(noted.started) and is_whole_number(noted.start_ticks)
    return noted if has_numbers else None


def is_running(folder: str | Path) -> bool:
    """Tell whether the process that a folder names still runs. Another process with its id is not taken for it."""
    noted = read_process_file(folder)
    if noted is None:
        return False
    status = _status(noted.pid)
    return status is not None and status.state not in ENDED_STATES and status.start_ticks == noted.start_ticks


class _Status(NamedTuple):
    state: str
    start_ticks: int


def _status(pid: int) -> _Status | None:
    """Return a process's state and when it began, in clock ticks since the machine booted; None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in brackets, which may hold blanks and brackets of its own.
    _, _, after_name = text.rpartition(")")
    fields = after_name.split()  # from the third field on
    return _Status(state=fields[0], start_ticks=int(fields[22 - 3]))

"""The metrics of a run on disk: one strict JSON object a line, with a checksum, so that damage costs a line at most.

The checksum is the last key of a line: the CRC-32 of the JSON text of the row without it, as eight hexadecimal digits.
A file in which no line has one is of an older version, and is read as it is.
"""

import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import NamedTuple

from helpers.grpo.folders import saving_to
from helpers.grpo.metrics import json_row
from helpers.runtime import UserError, first_line, write_whole

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
CHECKSUM = "checksum"
#: What stands between a row and its checksum.
SEPARATOR = f', "{CHECKSUM}": "'.encode()
#: A line that was written with a checksum: one damaged byte hides its name or its value, and never both.
WITH_CHECKSUM = re.compile(rb'"checksum": "|: "[0-9a-f]{8}"\}$')


class Records(NamedTuple):
    """The content of a metrics file: the sound rows, by step, and their lines.

    Of a step written twice the later row counts. unreadable: the number of lines that are no row. has_checksums: False
    where the file is of an older version.
    """

    rows: list[dict]
    lines: list[bytes]
    unreadable: int
    has_checksums: bool


class MetricsFile:
    """A metrics file that is open for appending: each line is on disk before the next step starts.

    Attributes:
        rows: those that the file had when it was opened.
        was_damaged: whether it had lines that cannot be read.
    """

    def __init__(self, path: str | Path, last_step: int = 0):
        """Drop what was written after `last_step`. Lines that cannot be read are named, and kept in a copy."""
        self.path = Path(path)
        records = records_of_run(self.path)
        _report_unreadable(self.path, records)
        self.was_damaged = records.unreadable > 0
        self.rows = [row for row in records.rows if row["step"] <= last_step]
        kept = records.lines[: len(self.rows)]  # both are in the order of the steps
        with saving_to(self.path):
            if self.was_damaged:
                keep_damaged(self.path)
            if self.path.exists():
                write_whole(self.path, b"".join(line + b"\n" for line in kept))
        self._lacks_checksums = bool(kept) and not records.has_checksums

    def append(self, row: dict) -> None:
        """Add a step's metrics, with null for each number that is not finite."""
        if self._lacks_checksums:  # beside a line with a checksum, one without is a damaged one
            with saving_to(self.path):
                write_rows(self.path, records_of_run(self.path).rows)
            self._lacks_checksums = False
        with saving_to(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(_line_of(row) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_metrics(path: str | Path) -> list[dict]:
    """Return the rows of a metrics file, one a step, without their checksums; [] where there is none.

    Lines that cannot be read are left out, as a crash or a bad disk leaves them, and one sentence says how many. Raises
    UserError where the file cannot be read.
    """
    records = records_of_run(path)
    _report_unreadable(path, records)
    return records.rows


def records_of_run(path: str | Path) -> Records:
    """Return what a metrics file holds. Raises UserError where it cannot be read."""
    try:
        return parse_metrics(path)
    except OSError as error:
        raise UserError(f"Cannot read {path} ({first_line(error)}): move it away to go on without it.") from error


def parse_metrics(path: str | Path) -> Records:
    """Return what a metrics file holds; nothing where there is none. Raises OSError where it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        content = b""
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    has_checksums = any(WITH_CHECKSUM.search(line) for line in lines)
    sound = {}
    unreadable = 0
    for line in lines:
        try:
            row = _row_of(line, has_checksums)
        except (ValueError, TypeError, KeyError, RecursionError):
            unreadable += 1
        else:
            sound[row["step"]] = (row, line)
    in_order = [sound[step] for step in sorted(sound)]
    rows = [row for row, _ in in_order]
    return Records(rows, [line for _, line in in_order], unreadable, has_checksums)


def write_rows(path: Path, rows: list[dict]) -> None:
    """Replace a metrics file, atomically, by rows, each with a checksum. Raises OSError."""
    in_order = sorted(rows, key=lambda row: row["step"])
    write_whole(path, "".join(_line_of(row) + "\n" for row in in_order))


def keep_damaged(path: Path) -> None:
    """Copy a damaged metrics file to `damaged-<name>`, before it is replaced. Raises OSError."""
    shutil.copy(path, path.with_name(f"damaged-{path.name}"))


def _line_of(row: dict) -> str:
    """Return the line of a row, with its checksum."""
    text = json.dumps(json_row(row), allow_nan=False)
    return f'{text[:-1]}, "{CHECKSUM}": "{_checksum(text.encode())}"}}'


def _row_of(line: bytes, has_checksums: bool) -> dict:
    """Return the row of a line. Raises ValueError, TypeError, KeyError or RecursionError where it is not sound."""
    text = _without_checksum(line) if has_checksums else line
    row = json.loads(text.decode())
    if type(row["step"]) is not int:
        raise TypeError("a step is a whole number")
    return row


def _without_checksum(line: bytes) -> bytes:
    """Return the JSON text that a line's checksum is of. Raises ValueError where the checksum does not fit."""
    beginning, _, end = line.rpartition(SEPARATOR)
    text = beginning + b"}"
    if end != f'{_checksum(text)}"}}'.encode():
        raise ValueError("its checksum is of another text")
    return text


def _checksum(text: bytes) -> str:
    return f"{zlib.crc32(text):08x}"


def _report_unreadable(path: str | Path, records: Records) -> None:
    """Print how many lines of a file cannot be read, if any."""
    if records.unreadable == 0:
        return
    lines, are = ("1 line", "is") if records.unreadable == 1 else (f"{records.unreadable} lines", "are")
    print(f"{lines} of {path} cannot be read and {are} left out: the other {len(records.rows)} are kept.")

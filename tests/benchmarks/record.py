"""What a benchmark has measured so far, in a file after every row: what is killed half way leaves half of its rows."""

import json
from pathlib import Path

from helpers.environment import hardware, installed_version, versions
from helpers.runtime import write_whole


class Record:
    """Rows of one benchmark. out: the file, or None; settings: what holds for all rows, JSON-able."""

    def __init__(self, out: str | Path | None, **settings):
        self.out = out
        self.rows = []
        self.content = {
            "hardware": hardware(),
            "versions": versions() | {"triton": installed_version("triton") or "absent"},
            **settings,
            "rows": self.rows,
        }

    def add(self, row: dict) -> None:
        """Append a row and write the file."""
        self.rows.append(row)
        if self.out:
            write_whole(self.out, json.dumps(self.content, indent=1) + "\n")

"""Data of a gigabyte are prepared in bounded memory, and what is wrong in them is found."""

import json
import resource
import subprocess
import sys

import pytest

from helpers.runtime import ROOT

pytestmark = pytest.mark.slow

GIGABYTE = 10**9
MOST_MEMORY = 1.5 * 10**9
FILLER = "Take your time and think about it step by step. " * 20
#: One row of so many has an empty answer, and one of so many is there twice.
EMPTY, AGAIN = 1000, 1500

PREPARE = """
import sys
from helpers.tasks.data.columns import Columns
from helpers.tasks.data.task import DataTask
from helpers.tasks.data.prepare import prepare

data, out = sys.argv[1:]
prepare(DataTask(data, Columns("question", "solution"), drop_faulty=True), out)
"""


def rows_of(size):
    """Rows of so many bytes together, about."""
    count = size // (len(FILLER) + 80)
    for number in range(count):
        row = {"question": f"What is {number} + 1? {FILLER}", "solution": str(number + 1), "level": str(number % 7)}
        if number % EMPTY == 0:
            row["solution"] = ""
        yield row
        if number % AGAIN == 1:
            yield row


def write_jsonl(path, rows):
    with open(path, "w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def write_json(path, rows):
    with open(path, "w") as file:
        file.write("[")
        for number, row in enumerate(rows):
            file.write((",\n" if number else "") + json.dumps(row))
        file.write("]")


def write_csv(path, rows):
    with open(path, "w") as file:
        file.write("question,solution,level\n")
        for row in rows:
            file.write(",".join(f'"{cell}"' for cell in row.values()) + "\n")


@pytest.mark.parametrize(
    ("name", "write", "size"),
    [
        ("rows.json", write_json, GIGABYTE // 5),
        ("rows.csv", write_csv, GIGABYTE // 5),
        ("rows.jsonl", write_jsonl, GIGABYTE),
    ],
)
def test_a_large_file_is_prepared_in_bounded_memory(tmp_path, row, name, write, size):
    """A list of dicts takes several times the size of the file, and a free Colab has 12 GB."""
    data = tmp_path / name
    out = tmp_path / "out"
    write(data, rows_of(size))
    subprocess.run([sys.executable, "-c", PREPARE, str(data), str(out)], cwd=ROOT, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024  # of the largest child so far
    count = size // (len(FILLER) + 80)
    empty = len(range(0, count, EMPTY))
    again = len([number for number in range(1, count, AGAIN) if number % EMPTY])
    twice_empty = len(range(1, count, AGAIN)) - again
    report = json.loads((out / "report.json").read_text())
    dropped = {reason: found["count"] for reason, found in report["dropped"].items()}
    assert dropped == {"no answer": empty + twice_empty, "duplicate": again}
    assert report["rows_read"] == report["rows_kept"] + sum(dropped.values()) == count + again + twice_empty
    assert peak < MOST_MEMORY
    row(f"{name} of {data.stat().st_size / 1e6:,.0f} MB", f"{peak / 1e6:,.0f} MB at most")

"""Sources are read in every format alike, and a second reading takes the same rows or refuses."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
from datasets import Dataset, DatasetDict

from helpers.gallery.sources import reading
from helpers.gallery.sources.reading import find_copy, read_source
from helpers.gallery.sources.table import SOURCES
from helpers.runtime import ROOT, UserError
from tests.gallery.sources.local_hub import local_hub
from tests.gallery.sources.make_hub import HUB, file_text

CLOSED = "http://127.0.0.1:9"


def rows_of(path):
    return [json.loads(line) for line in (HUB / path).read_text().splitlines()]


def message_of(call, *args, **options):
    with pytest.raises(UserError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Formats


def as_jsonl(copies, title, splits):
    """One file; where there are several splits, a column names that of each row."""
    rows = [{**row, "split": split} for split, found in splits.items() for row in found]
    (copies / f"{title}.jsonl").write_text(file_text(rows))


def as_csv(copies, title, splits):
    rows = [{**row, "split": split} for split, found in splits.items() for row in found]
    Dataset.from_list(rows).to_csv(copies / f"{title}.csv", index=False)


def as_parquet(copies, title, splits):
    rows = [{**row, "split": split} for split, found in splits.items() for row in found]
    Dataset.from_list(rows).to_parquet(copies / f"{title}.parquet")


def as_files(copies, title, splits):
    (copies / title).mkdir()
    for split, rows in splits.items():
        (copies / title / f"{split}.jsonl").write_text(file_text(rows))


def as_clone(copies, title, splits):
    """As git makes it: files of parquet in the folder "data", beside one without rows."""
    (copies / title / "data").mkdir(parents=True)
    (copies / title / "README.md").write_text("# A data set")
    for split, rows in splits.items():
        Dataset.from_list(rows).to_parquet(copies / title / "data" / f"{split}-00000-of-00001.parquet")


def as_saved(copies, title, splits):
    saved = {split: Dataset.from_list(rows) for split, rows in splits.items()}
    DatasetDict(saved).save_to_disk(copies / title)


FORMATS = (as_jsonl, as_csv, as_parquet, as_files, as_clone, as_saved)
SPLITS_OF = {
    "numinamath": {"train": "NuminaMath-1.5.jsonl"},
    "aime_2024": {"train": "aime_2024.jsonl"},
    "gsm8k_test": {"train": "gsm8k/train.jsonl", "test": "gsm8k/test.jsonl"},
}
WRITTEN = [("aime_2024", write) for write in FORMATS] + [("gsm8k_test", write) for write in FORMATS]
WRITTEN += [("numinamath", as_csv), ("numinamath", as_clone)]


@pytest.mark.parametrize(("name", "write"), WRITTEN)
def test_each_format_has_the_same_rows(tmp_path, name, write):
    """Were the digest one of bytes, a copy could not stand in for the hub: the second reading would be refused.

    A CSV file has texts alone, so its truth values have another digest; the questions are the same.
    """
    fixture = read_source(name, HUB)
    write(tmp_path, SOURCES[name].title, {split: rows_of(path) for split, path in SPLITS_OF[name].items()})
    found = read_source(name, tmp_path)
    assert found.questions == fixture.questions and found.provenance.dropped == fixture.provenance.dropped
    if write is as_csv and name == "numinamath":
        return
    assert found.provenance.sha256 == fixture.provenance.sha256
    assert dataclasses.replace(found.provenance, copy=fixture.provenance.copy) == fixture.provenance


@pytest.mark.parametrize("name", ["gsm8k", "math_test", "mbpp", "dapo_math"])
def test_a_clone_with_configurations(tmp_path, name):
    """It has a folder for each of them, and was refused as no data set; another configuration is not read."""
    source = SOURCES[name]
    fixture = reading.open_source(find_copy(source, HUB))
    found = [(row.split or row.values.get("split", "train"), row.values) for row in fixture.rows()]
    rows = [values for split, values in found if split == source.split]
    size = -(-len(rows) // len(source.configurations))
    parts = [rows[number * size : (number + 1) * size] for number in range(len(source.configurations))]
    for configuration, part in zip((*source.configurations, "another"), (*parts, rows), strict=True):
        folder = tmp_path / source.title / configuration
        folder.mkdir(parents=True)
        (folder / f"{source.split}.jsonl").write_text(file_text(part))
    assert read_source(name, tmp_path).provenance.sha256 == read_source(name, HUB).provenance.sha256


def test_a_split_is_chosen(tmp_path):
    """Rows of the other split would be trained on and then decide."""
    train, test = (read_source(name, HUB) for name in ("gsm8k", "gsm8k_test"))
    assert (train.provenance.rows, test.provenance.rows) == (70, 40)
    problems = [{question.problem for question in found.questions} for found in (train, test)]
    assert not problems[0] & problems[1]
    as_files(tmp_path, "gsm8k", {"train": rows_of("gsm8k/train.jsonl")})
    assert message_of(read_source, "gsm8k_test", tmp_path) == (
        "gsm8k has no row of split 'test' that is a question: there are no rows."
    )


def test_where_no_row_is_a_question(tmp_path):
    rows = [{**row, "answer": "proof"} for row in rows_of("aime_2024.jsonl")]
    as_files(tmp_path, "aime_2024", {"train": rows})
    assert message_of(read_source, "aime_2024", tmp_path) == (
        "aime_2024 has no row of split 'train' that is a question: 30 no integer."
    )


def test_provenance():
    """It is all that a reader of a run has to find the rows again."""
    columns = [[row["problem"], row["answer"]] for row in rows_of("apex-shortlist.jsonl")]
    lines = "".join(json.dumps(row) + "\n" for row in columns)
    assert dataclasses.asdict(read_source("apex", HUB).provenance) == {
        "hub": "MathArena/apex-shortlist",
        "split": "train",
        "licence": "CC BY-NC-SA 4.0",
        "revision": "",
        "copy": "apex-shortlist.jsonl",
        "rows": 10,
        "sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "kept": 8,
        "dropped": {"no integer": 2},
    }


# Mistakes


def test_a_column_that_is_missing(tmp_path):
    """A later version of a data set may rename one, and every row would be left out for want of an answer."""
    rows = [{**row} for row in rows_of("aime_2024.jsonl")]
    rows[4]["solution_text"] = rows[4].pop("answer")
    as_files(tmp_path, "aime_2024", {"train": rows})
    assert message_of(read_source, "aime_2024", tmp_path) == (
        "aime_2024 has the columns 'id', 'problem', 'solution', 'url', 'year', 'solution_text' in line 5 of "
        "train.jsonl and no 'answer': compare it with https://huggingface.co/datasets/HuggingFaceH4/aime_2024, which "
        "documents them."
    )


def test_copies_in_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "none"):
        assert message_of(read_source, "apex", place) == (
            f"There is no folder '{place}': let SOURCES_DIR name one with copies of data sets."
        )


def test_a_source_of_another_name():
    assert "There is no source 'numinmath' (did you mean 'numinamath'?): choose numinamath, dapo_math, " in message_of(
        read_source, "numinmath", HUB
    )


def test_a_row_with_half_a_character(tmp_path):
    """The digest of the pool ended with a UnicodeEncodeError after all sources were read."""
    rows = rows_of("aime_2024.jsonl")
    rows[0] = {**rows[0], "problem": "How many \ud800 are there, and why?"}
    (tmp_path / "aime_2024.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_source("aime_2024", tmp_path).provenance.dropped == {"text that is no Unicode": 1}


# Pins


def copy_of_aime(folder, change):
    rows = rows_of("aime_2024.jsonl")
    change(rows)
    folder.mkdir()
    (folder / "aime_2024.jsonl").write_text(file_text(rows))
    return folder


def pin_of(provenance):
    """As a record of JSON has it."""
    return json.loads(json.dumps(dataclasses.asdict(provenance)))


def change_answer(rows):
    rows[7]["answer"] = "001"


def change_last_problem(rows):
    rows[-1]["problem"] += " "


def swap(rows):
    rows[0], rows[1] = rows[1], rows[0]


@pytest.mark.parametrize(
    "change", [change_answer, change_last_problem, swap, list.pop, lambda rows: rows.append(rows[0])]
)
def test_other_rows_than_the_first_time_are_refused(tmp_path, change):
    """Two runs under one name would be compared that were asked other things."""
    pinned = pin_of(read_source("aime_2024", HUB).provenance)
    assert read_source("aime_2024", HUB, pinned).provenance.sha256 == pinned["sha256"]
    changed = copy_of_aime(tmp_path / "changed", change)
    digest = read_source("aime_2024", changed).provenance.sha256
    assert message_of(read_source, "aime_2024", changed, pinned) == (
        f"aime_2024 has other rows than when it was first read for this folder (SHA-256 {digest[:12]} after "
        f"{pinned['sha256'][:12]}): give the new rows another folder, or bring the old ones back."
    )


def change_another_column(rows):
    for row in rows:
        row["url"] = "https://example.org"
        row["more"] = "1"


def test_columns_that_nobody_reads_may_change(tmp_path):
    pinned = pin_of(read_source("aime_2024", HUB).provenance)
    read_source("aime_2024", copy_of_aime(tmp_path / "changed", change_another_column), pinned)


@pytest.mark.parametrize(("pinned_revision", "expected"), [("0a1b", "0a1b"), ("", "newest")])
def test_the_revision_of_the_pin_is_asked_for(monkeypatch, pinned_revision, expected):
    """The newest one would be refused for its rows, though the old one can be had."""
    fixture = read_source("math_train", HUB)
    source = reading.open_source(find_copy(SOURCES["math_train"], HUB))
    asked = []

    def open_source(name, revision):
        asked.append((name, revision))
        return source if len(asked) == 1 else dataclasses.replace(source, rows=lambda: iter(()))

    monkeypatch.setattr(reading, "open_source", open_source)
    monkeypatch.setattr(reading, "hub_revision", lambda name: "newest")
    found = read_source("math_train", "", {"revision": pinned_revision, "sha256": fixture.provenance.sha256})
    assert found.questions == fixture.questions
    assert (found.provenance.revision, found.provenance.copy) == (expected, "")
    names = [f"EleutherAI/hendrycks_math:{subject}" for subject in SOURCES["math_train"].configurations]
    assert asked == [(name, expected) for name in names]


# The hub

READER = """
import dataclasses, json, sys
from helpers.gallery.sources.reading import read_source
from helpers.runtime import UserError

for line in sys.stdin:
    name, copies, pin = json.loads(line)
    try:
        found = read_source(name, copies, pin)
        answer = {**dataclasses.asdict(found.provenance), "problem": found.questions[0].problem}
    except UserError as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
"""


@contextmanager
def reader_elsewhere(home, address):
    """Yield a function that reads a source in a process of its own.

    It returns the provenance with the first problem, or the message of a UserError. home: where the hub's library keeps
    what it has read. address: of the hub; it and home are read when the library is imported.
    """
    for_hub = {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    process = subprocess.Popen(
        [sys.executable, "-c", READER],
        cwd=ROOT,
        env={**environment, **for_hub},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def read(name, copies="", pin=None):
        print(json.dumps([name, str(copies), pin]), file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    with process:
        yield read
        process.stdin.close()


def test_the_hub_cannot_be_reached(tmp_path):
    """After half a minute of tries a traceback of the hub's library would say nothing of what can be done."""
    shutil.copy(HUB / "aime_2024.jsonl", tmp_path)
    shutil.copytree(HUB / "gsm8k", tmp_path / "gsm8k")
    with reader_elsewhere(tmp_path / "home", CLOSED) as read:
        message = read("numinamath", tmp_path)
    assert message == (
        "NuminaMath-1.5 is on the hub (https://huggingface.co/datasets/AI-MO/NuminaMath-1.5), which cannot be reached: "
        "check the connection, or put a copy into the folder that SOURCES_DIR names, as NuminaMath-1.5.jsonl or as a "
        "clone; here are copies of aime_2024, gsm8k, and the tasks matmul, math, code, general, reasoning, which make "
        "their own prompts."
    )


def test_the_commit_of_the_first_reading_is_read_again(tmp_path):
    """The owner of a data set may add a commit between two runs; the second would be trained on other rows."""
    rows = rows_of("aime_2024.jsonl")
    other_rows = [{**row, "problem": f"Other: {row['problem']}"} for row in rows]
    home = tmp_path / "home"
    with local_hub("HuggingFaceH4/aime_2024") as hub, reader_elsewhere(home, hub.address) as read:
        hub.commit(other_rows)
        commit = hub.commit(rows)
        first = read("aime_2024")
        assert (first["revision"], first["copy"]) == (commit, "")
        assert first["sha256"] == read_source("aime_2024", HUB).provenance.sha256
        assert first["problem"] == rows[0]["problem"]

        newer = hub.commit(other_rows)
        shutil.rmtree(home)  # as on another machine
        assert read("aime_2024", pin=first) == first
        assert hub.sent == [commit, commit]
        assert read("aime_2024")["revision"] == newer

        hub.put(commit, other_rows)
        shutil.rmtree(home)
        message = read("aime_2024", pin=first)
        assert "aime_2024 has other rows than when it was first read for this folder" in message
        assert hub.sent == [commit, commit, newer, commit]

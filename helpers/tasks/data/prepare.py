"""Writes the rows of a task as a folder that `load_from_disk` reads, with a report of what was kept and left out."""

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from helpers.environment import versions
from helpers.runtime import UserError, check_whole, file_digest, first_line, whole_folder, write_whole
from helpers.tasks.custom import CustomTask
from helpers.tasks.data.columns import is_blank
from helpers.tasks.data.rows import Dropped
from helpers.tasks.data.sources import each_row
from helpers.tasks.split import PROBE, SPLITS
from helpers.tasks.task import Row, Task

REPORT = "report.json"
#: Further files that may lie in the folder.
EXTRA_FILES = ("sources.json",)
#: Rows of a task that generates them, where nobody says how many.
GENERATED_ROWS = 1000
#: Of every so many generated rows one is for each split but "train".
SHARE = 8


@dataclass(frozen=True)
class Lengths:
    """How long texts are, in characters."""

    least: int
    median: int
    percentile_95: int
    most: int

    def __str__(self) -> str:
        return f"{self.least} to {self.most} characters, median {self.median}, 95 % up to {self.percentile_95}"


@dataclass(frozen=True)
class PrepareReport:
    """What `prepare` wrote.

    source: the name of the data; "generated" where the task makes them. source_sha256: of its file, or of the digests
    of its files one a line; "" without files. rows_read, dropped: of the source. rows_kept: what was written; rows that
    were fine and beyond the size asked for are in neither. splits: the rows of each. rows_sha256: of the written rows,
    one JSON object a line with sorted keys, split by split.
    """

    task: str
    folder: str
    source: str
    source_sha256: str
    columns: list[str]
    rows_read: int
    rows_kept: int
    dropped: dict[str, Dropped]
    splits: dict[str, int]
    prompt_characters: Lengths
    answer_characters: Lengths | None
    rows_sha256: str
    seed: int
    versions: dict[str, str]

    def __str__(self) -> str:
        splits = ", ".join(f"{split} {count}" for split, count in self.splits.items())
        lines = [
            f"{self.folder}: {self.rows_kept} rows of task '{self.task}' ({splits}), of {self.rows_read} read from "
            f"{self.source}.",
            f"columns: {', '.join(self.columns)}",
            f"prompts: {self.prompt_characters}",
        ]
        if self.answer_characters is not None:
            lines.append(f"answers: {self.answer_characters}")
        for reason, found in self.dropped.items():
            more = ", ..." if found.count > len(found.places) else ""
            lines.append(f"left out, {reason}: {found.count} ({', '.join(found.places)}{more})")
        if not self.dropped:
            lines.append("left out: nothing")
        if self.source_sha256:
            lines.append(f"sha256 of the source: {self.source_sha256}")
        lines.append(f"sha256 of the rows:   {self.rows_sha256}")
        lines.append(f"DATA={self.folder} trains on them; {REPORT} there has all of this.")
        return "\n".join(lines)


def prepare(
    task: Task,
    out: str | Path,
    size: int | None = None,
    seed: int = 0,
    extra_files: Mapping[str, str] = MappingProxyType({}),
) -> PrepareReport:
    """Write the rows of a task's splits train, monitor and confirm to the folder `out`, atomically.

    The folder is a `DatasetDict`, with the report as report.json. A task of data, made with drop_faulty=True, has left
    out rows with faults, which the report counts. Where the data have a split "probe", it is a fourth part. size: the
    most rows of the three splits altogether, shared among them as the task has them; the probe is kept whole and does
    not count. A task that generates its rows makes so many, 1000 if None, three quarters of them for training, and no
    probe. extra_files: name -> text of further files of the folder, with names in `EXTRA_FILES`.

    Raises UserError for a size below the number of the three splits, for an `out` that is there and that `prepare` did
    not write, and where it cannot be written. What was there is left as it is. Raises ValueError for another name of an
    extra file, with which no folder could be written anew.
    """
    out = Path(out).expanduser().resolve()
    check_out(out)
    unknown = set(extra_files) - set(EXTRA_FILES)
    if unknown:
        raise ValueError(f"extra files are called {', '.join(EXTRA_FILES)}; got {', '.join(sorted(unknown))}")
    if size is not None:
        check_whole("size", size, len(SPLITS))
    rows_of = {split: task.dataset(split, count, seed) for split, count in _sizes(task, size).items()}
    report = _report(task, out, rows_of, seed)
    try:
        with whole_folder(out) as part:
            _save(rows_of, part)
            write_whole(part / REPORT, json.dumps(asdict(report), indent=2) + "\n")
            for name, text in extra_files.items():
                write_whole(part / name, text)
    except OSError as error:
        raise UserError(f"Cannot write {out} ({first_line(error)}): give OUT a place with room for it.") from error
    return report


def check_out(out: str | Path) -> None:
    """Raise UserError for a place that is taken by anything but an empty folder or one that `prepare` wrote."""
    out = Path(out).expanduser()
    if not out.exists():
        return
    names = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    required = {REPORT, "dataset_dict.json"}
    is_prepared = required <= names <= {*required, *SPLITS, PROBE, *EXTRA_FILES}
    if names and not is_prepared:
        raise UserError(
            f"{out} holds other things than `prepare` writes: give OUT another name, so that nothing is lost."
        )


def _sizes(task: Task, size: int | None) -> dict[str, int]:
    """Return how many rows of each split to write. `size` does not count those of a probe."""
    if not isinstance(task, CustomTask):
        size = GENERATED_ROWS if size is None else size
        held_out = max(1, size // SHARE)
        return {"train": size - 2 * held_out, "monitor": held_out, "confirm": held_out}
    available = {split: len(task.kept.positions[split]) for split in SPLITS}
    shares = _shares(available, size)
    if PROBE in task.splits:
        shares[PROBE] = len(task.kept.positions[PROBE])
    return shares


def _shares(available: Mapping[str, int], size: int | None) -> dict[str, int]:
    """Share `size` rows among splits in proportion to the rows that they have; None: take all."""
    total = sum(available.values())
    if size is None or size >= total:
        return dict(available)
    shares = {split: max(1, size * count // total) for split, count in available.items()}
    missing = size - sum(shares.values())  # below 0 where a small split was given its one row
    for split in available:
        change = min(missing, available[split] - shares[split])
        change = max(change, 1 - shares[split])
        shares[split] += change
        missing -= change
    return shares


def _save(rows_of: Mapping[str, object], folder: Path) -> None:
    from datasets import DatasetDict
    from datasets.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

    was_enabled = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        DatasetDict(rows_of).save_to_disk(str(folder))
    finally:
        if was_enabled:
            enable_progress_bar()


def rows_sha256(rows_of: Mapping[str, object]) -> str:
    """Return the SHA-256 of rows, one JSON object a line with sorted keys, split by split.

    rows_of: split -> its `datasets.Dataset`.
    """
    digest = hashlib.sha256()
    for dataset in rows_of.values():
        for row in each_row(dataset):
            digest.update(_line_of(row))
    return digest.hexdigest()


def _line_of(row: Row) -> bytes:
    """Return a row as it counts in the SHA-256 of rows."""
    return json.dumps(row, sort_keys=True, default=repr).encode() + b"\n"


def _report(task: Task, out: Path, rows_of: Mapping[str, object], seed: int) -> PrepareReport:
    digest = hashlib.sha256()
    prompts = array("Q")
    answers = array("Q")
    for dataset in rows_of.values():
        for row in each_row(dataset):
            digest.update(_line_of(row))
            prompts.append(sum(len(message["content"]) for message in row["prompt"]))
            if not is_blank(row.get("answer")):
                answers.append(len(str(row["answer"])))
    kept = task.kept if isinstance(task, CustomTask) else None
    splits = {split: len(dataset) for split, dataset in rows_of.items()}
    return PrepareReport(
        task=task.name,
        folder=str(out),
        source="the task's generator" if kept is None else kept.source.name,
        source_sha256="" if kept is None else _digest_of(kept.source.files),
        columns=list(rows_of["train"].column_names),
        rows_read=sum(splits.values()) if kept is None else kept.rows_read,
        rows_kept=sum(splits.values()),
        dropped={} if kept is None else dict(kept.dropped),
        splits=splits,
        prompt_characters=_lengths(prompts),
        answer_characters=_lengths(answers) if answers else None,
        rows_sha256=digest.hexdigest(),
        seed=seed,
        versions=versions(),
    )


def _digest_of(files: Sequence[Path]) -> str:
    digests = [file_digest(file) for file in files]
    if len(digests) < 2:
        return "".join(digests)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _lengths(counts: array) -> Lengths:
    ordered = sorted(counts)
    last = len(ordered) - 1
    return Lengths(ordered[0], ordered[last // 2], ordered[round(last * 0.95)], ordered[last])

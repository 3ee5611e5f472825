"""Reads a data set of the hub, or a copy of it, and remembers what was read.

Nothing here names a revision. The first reading asks the hub for the newest one and keeps its commit and the SHA-256 of
the rows; every later reading into the same folder asks for that commit, and refuses other rows.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from helpers.gallery.sources.questions import Question, describe_dropped, keep_questions
from helpers.gallery.sources.table import SOURCES, DataSource
from helpers.runtime import UserError, did_you_mean
from helpers.tasks import list_tasks
from helpers.tasks.data.columns import describe_columns
from helpers.tasks.data.files import READERS, SourceRow
from helpers.tasks.data.sources import Source, hub_revision, open_source


@dataclass(frozen=True)
class Provenance:
    """The origin of the rows of a source, and which ones they were.

    revision: the commit of the data set on the hub; "" where a copy was read. copy: the name of that copy, or "".
    rows: how many there were. sha256: of the columns that are read, a JSON array a row; the same for each format that
    keeps lists and truth values, as CSV does not. kept, dropped: how many rows became questions, and of the others how
    many for which reason.
    """

    hub: str
    split: str
    licence: str
    revision: str
    copy: str
    rows: int
    sha256: str
    kept: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class Reading:
    """The questions of a source, and where they were read."""

    questions: list[Question]
    provenance: Provenance


def read_source(name: str, copies: str | Path = "", pinned: Mapping[str, str] | None = None) -> Reading:
    """Read a source and keep the rows that are questions, each problem once.

    name: in `SOURCES`. copies: a folder with copies of data sets, which stand above the hub. pinned: the provenance of
    an earlier reading, whose revision and rows this one must have.

    Raises UserError for a source that can be read neither here nor on the hub, for columns that are missing, and for
    other rows than those of the earlier reading.
    """
    source = find_source(name)
    parts, revision, copy = _open(source, copies, pinned)
    digest = hashlib.sha256()
    questions, dropped = keep_questions(_digested_rows(parts, source, digest), source.question)
    if not questions:
        why = describe_dropped(dropped) or "there are no rows"
        raise UserError(f"{source.title} has no row of split '{source.split}' that is a question: {why}.")
    found = digest.hexdigest()
    if pinned and pinned["sha256"] != found:
        raise UserError(
            f"{source.title} has other rows than when it was first read for this folder (SHA-256 {found[:12]} after "
            f"{pinned['sha256'][:12]}): give the new rows another folder, or bring the old ones back."
        )
    provenance = Provenance(
        hub=source.hub,
        split=source.split,
        licence=source.licence,
        revision=revision,
        copy=copy,
        rows=len(questions) + sum(dropped.values()),
        sha256=found,
        kept=len(questions),
        dropped=dropped,
    )
    return Reading(questions, provenance)


def find_source(name: str) -> DataSource:
    """Return the source of a name. Raises UserError for an unknown one."""
    if name not in SOURCES:
        raise UserError(f"There is no source '{name}'{did_you_mean(name, SOURCES)}: choose {', '.join(SOURCES)}.")
    return SOURCES[name]


def _open(source: DataSource, copies: str | Path, pinned: Mapping[str, str] | None) -> tuple[list[Source], str, str]:
    """Return what to read, the revision of the hub or "", and the name of the copy or ""."""
    copy = find_copy(source, copies)
    if copy is not None:
        return _open_copy(copy, source), "", copy.name
    revision = pinned["revision"] if pinned else ""
    revision = revision or hub_revision(source.hub)
    if not revision:
        raise UserError(_unreachable(source, copies))
    ids = [f"{source.hub}:{configuration}".rstrip(":") for configuration in source.configurations]
    return [open_source(one, revision=revision) for one in ids], revision, ""


def _open_copy(copy: Path, source: DataSource) -> list[Source]:
    """Return what to read of a copy. A clone of a data set with configurations has a folder for each of them."""
    folders = [copy / configuration for configuration in source.configurations]
    if all(folder.is_dir() for folder in folders):
        return [open_source(folder) for folder in folders]
    return [open_source(copy)]


def find_copy(source: DataSource, copies: str | Path) -> Path | None:
    """Return the file or folder in `copies` that is called as the data set is; None where there is none.

    Raises UserError where `copies` is no folder.
    """
    if not str(copies):
        return None
    folder = Path(copies).expanduser()
    if not folder.is_dir():
        raise UserError(f"There is no folder '{copies}': let SOURCES_DIR name one with copies of data sets.")
    for name in (source.title, *(source.title + ending for ending in READERS)):
        if (folder / name).exists():
            return folder / name
    return None


def _unreachable(source: DataSource, copies: str | Path) -> str:
    """Return what to say where a source is neither here nor to be had."""
    here = sorted({one.title for one in SOURCES.values() if find_copy(one, copies)})
    copied = f"copies of {', '.join(here)}, and " if here else ""
    return (
        f"{source.title} is on the hub ({source.page}), which cannot be reached: check the connection, or put a copy "
        f"into the folder that SOURCES_DIR names, as {source.title}.jsonl or as a clone; here are {copied}the tasks "
        f"{', '.join(list_tasks())}, which make their own prompts."
    )


def _rows_of_split(parts: list[Source], split: str) -> Iterator[SourceRow]:
    """Yield the rows of a split, and all rows where none names one."""
    for part in parts:
        for row in part.rows():
            named = row.split or row.values.get("split")
            if named is None or named == "" or named == split:
                yield row


def _digested_rows(parts: list[Source], source: DataSource, digest) -> Iterator[dict]:
    """Yield the columns that are read of each row of a split, and add them to a digest of `hashlib`."""
    for row in _rows_of_split(parts, source.split):
        values = _read_columns(row, source)
        digest.update(json.dumps(list(values.values())).encode() + b"\n")
        yield values


def _read_columns(row: SourceRow, source: DataSource) -> dict:
    """Return the columns that are read. Raises UserError for one that the row lacks."""
    for name in source.columns:
        if name not in row.values:
            raise UserError(
                f"{source.title} has the columns {describe_columns(row.values)} in {row.place} and no '{name}': "
                f"compare it with {source.page}, which documents them."
            )
    return {name: row.values[name] for name in source.columns}

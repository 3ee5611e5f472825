"""The backup of a run in another folder, on Drive say: copied to after each checkpoint, and restored from.

A Drive may be dead at any access, or hold half of a copy. The run goes on from its own checkpoints then, and one
sentence says so.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from helpers.grpo.best import best_first
from helpers.grpo.folders import checkpoint_folders, drop_old_checkpoints, saving_to, step_of
from helpers.grpo.metrics_file import EVALUATIONS, METRICS, keep_damaged, parse_metrics, records_of_run, write_rows
from helpers.runtime import UserError, first_line, whole_folder

#: Bytes that are copied at a time.
CHUNK = 2**22


class UnreadableBackup(UserError):
    """A backup that cannot be read. backup_dir: where it is. reason: what the system said."""

    def __init__(self, backup_dir: str | Path, reason: str):
        super().__init__(
            f"The backup in {backup_dir} cannot be read ({reason}): mount it again and run this again, or leave "
            "backup_dir out to start anew."
        )
        self.backup_dir = backup_dir
        self.reason = reason


@contextmanager
def reading_backup(backup_dir: str | Path) -> Iterator[None]:
    """Turn an OSError in a block that only reads a backup into UnreadableBackup."""
    try:
        yield
    except OSError as error:
        raise UnreadableBackup(backup_dir, first_line(error)) from error


def known_checkpoints(output_dir: str | Path, backup_dir: str | Path | None) -> list[Path]:
    """Return the checkpoints of a run and their copies, oldest first, a copy before its original.

    Where the backup cannot be read, one sentence says so, and the run's own are returned. Raises UnreadableBackup where
    there are none of its own: a new run would begin in place of the one that the backup holds.
    """
    originals = checkpoint_folders(output_dir)
    if not backup_dir:
        return originals
    try:
        copies = copies_in(backup_dir, output_dir)
    except UnreadableBackup as error:
        if not originals:
            raise
        report_unreadable(error)
        copies = []
    return sorted([*copies, *originals], key=step_of)


def copies_in(backup_dir: str | Path, output_dir: str | Path) -> list[Path]:
    """Return the checkpoints of a backup, oldest first; none where it is the run's own folder, or not there yet.

    Raises UnreadableBackup, also where the folder that it is in is not there, as on a Drive that is not mounted.
    """
    backup_dir = Path(backup_dir)
    with reading_backup(backup_dir):
        if backup_dir.resolve() == Path(output_dir).resolve():
            return []
        os.stat(backup_dir.parent)
        if not backup_dir.exists():
            return []
        os.listdir(backup_dir)  # a glob finds nothing, and says nothing, where reading is not allowed
        return checkpoint_folders(backup_dir)


def report_unreadable(error: UnreadableBackup) -> None:
    """Print that a backup cannot be read, and that the run does not end for it."""
    print(
        f"The backup in {error.backup_dir} cannot be read ({error.reason}): the run goes on from its own checkpoints."
    )


def lacks_copy(folder: Path, backup_dir: str | Path) -> bool:
    """Tell whether a backup lacks a checkpoint; False where it cannot be read, as `known_checkpoints` has said so."""
    try:
        return not (Path(backup_dir) / folder.name).exists()
    except OSError:
        return False


def back_up(folder: str | Path, backup_dir: str | Path, keep: int | None, good_step: int | None = None) -> bool:
    """Copy a checkpoint and the metrics beside it to `backup_dir`, and drop old copies as `drop_old_checkpoints` does.

    Rows of metrics that only one of the two places has are in both of them afterwards. Where copying fails, one
    sentence says so and the result is False: the run can go on. The folder that `backup_dir` is in must be there, as a
    Drive that is not mounted must not be replaced by a folder of its name.
    """
    folder = Path(folder)
    backup_dir = Path(backup_dir)
    try:
        backup_dir.mkdir(exist_ok=True)
        newer = [other.name for other in checkpoint_folders(backup_dir) if step_of(other) > step_of(folder)]
        if newer:
            raise OSError(f"it holds {newer[-1]} of another run")
        for part in backup_dir.glob(".checkpoint-*.part"):  # of a process that was killed while it copied
            shutil.rmtree(part)
        # the metrics first: rows beyond a checkpoint are dropped, rows before it could not be had again
        joined = _join(folder.parent, backup_dir, step_of(folder))
        for name, part in joined.items():
            if (folder.parent / name).exists():
                write_rows(backup_dir / name, part.rows)
        _copy_folder(folder, backup_dir / folder.name)
        drop_old_checkpoints(backup_dir, keep, good_step)
    except OSError as error:
        print(
            f"{folder.name} could not be copied to backup_dir {backup_dir} ({first_line(error)}): the run goes on, and "
            f"its checkpoints are in {folder.parent} only."
        )
        return False
    return True


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder's files, atomically; folders in it are none of ours, such as Jupyter's .ipynb_checkpoints."""
    with whole_folder(target) as part:
        for file in source.iterdir():
            if file.is_file():
                shutil.copyfile(file, part / file.name)


def join_records(output_dir: str | Path, backup_dir: str | Path, step: int) -> int:
    """Add the rows up to `step` that only the backup has to the run's metrics; say how many they are, and return it.

    The run's own row of a step wins. Raises OSError where the backup cannot be read.
    """
    joined = _join(Path(output_dir), Path(backup_dir), step)
    return sum(part.added for part in joined.values())


class Joined(NamedTuple):
    """A metrics file after `_add_rows`: its rows up to a step, and how many of them came from the copy."""

    rows: list[dict]
    added: int


def _add_rows(own: Path, copy: Path, step: int) -> Joined:
    """Add the rows up to a step that only the copy of a metrics file has."""
    records = records_of_run(own)
    known_steps = {row["step"] for row in records.rows}
    copied = [row for row in parse_metrics(copy).rows if row["step"] <= step]
    missing = [row for row in copied if row["step"] not in known_steps]
    if missing:
        with saving_to(own):
            if records.unreadable:
                keep_damaged(own)
            write_rows(own, [*records.rows, *missing])
    kept = [row for row in records.rows if row["step"] <= step]
    return Joined([*kept, *missing], len(missing))


def _join(output_dir: Path, backup_dir: Path, step: int) -> dict[str, Joined]:
    """Do what `join_records` says, and return each metrics file by its name."""
    joined = {name: _add_rows(output_dir / name, backup_dir / name, step) for name in (METRICS, EVALUATIONS)}
    added = sum(part.added for part in joined.values())
    if added:
        rows, were = ("1 row", "was") if added == 1 else (f"{added} rows", "were")
        print(f"{rows} of metrics in {output_dir} {were} missing or damaged, and came from the backup in {backup_dir}.")
    return joined


def restore_backup(folder: str | Path, output_dir: str | Path) -> None:
    """Copy a checkpoint of a backup to `output_dir`, with the best one and the metrics, and say so.

    Raises UnreadableBackup where a file cannot be read; the checkpoint is not in `output_dir` then.
    """
    folder = Path(folder)
    output_dir = Path(output_dir)
    with reading_backup(folder.parent):
        best = best_first(checkpoint_folders(folder.parent))[:1]
    missing = [other for other in best if other != folder and not (output_dir / other.name).exists()]
    # the checkpoint last: once it is there, nothing is restored any more
    with reading_backup(folder.parent):
        join_records(output_dir, folder.parent, step_of(folder))
    for source in [*missing, folder]:
        _restore_folder(source, output_dir / source.name)
    print(f"{folder.name} was restored from the backup in {folder.parent}.")


def _restore_folder(source: Path, target: Path) -> None:
    """Copy a folder's files from a backup, atomically, and tell errors of the two disks apart."""
    with reading_backup(source.parent):
        files = [file for file in source.iterdir() if file.is_file()]
    with saving_to(target), whole_folder(target) as part:
        for file in files:
            with open(part / file.name, "wb") as written:
                for chunk in _chunks(file):
                    written.write(chunk)


def _chunks(file: Path) -> Iterator[bytes]:
    """Yield the content of a backup's file, a part at a time. Raises UnreadableBackup."""
    with reading_backup(file.parent.parent), open(file, "rb") as opened:
        while chunk := opened.read(CHUNK):
            yield chunk

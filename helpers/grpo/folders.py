"""The folders of a run: held by one training at a time, found, checked for damage, and dropped when they are old."""

import errno
import fcntl
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from helpers.grpo.best import STATE, best_first
from helpers.runtime import UserError, file_digest, first_line, recover_folders

ADAPTER = "adapter_model.safetensors"
OPTIMIZER = "optimizer.pt"
#: The file of a checkpoint that holds the SHA-256 of each of the others.
DIGESTS = "digests.json"
CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")

#: Errors of a disk that has no room, and of one that the user may not write to.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
NO_FOLDER = {errno.ENOTDIR, errno.EEXIST}
#: Errors that tell of the folder's content, and not of the disk that it is on.
OTHER_CONTENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class DamagedCheckpoint(UserError):
    """A checkpoint whose files are not what was written. reason: what is wrong with it."""

    def __init__(self, folder: Path, reason: str):
        super().__init__(
            f"{folder} is damaged ({reason}): go on from the newest sound checkpoint with "
            "train(resume_from_checkpoint=True), or from another one."
        )
        self.reason = reason

    @property
    def is_of_the_disk(self) -> bool:
        """True if the disk did not give the files, so that nobody knows whether they are sound."""
        cause = self.__cause__
        return isinstance(cause, OSError) and not isinstance(cause, OTHER_CONTENT)


@contextmanager
def saving_to(path: str | Path) -> Iterator[None]:
    """Turn what goes wrong while writing, a full disk most of all, into one sentence."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _error_number(error)
        failure = f"Cannot write to {path} ({first_line(error)})"
        if number in NOT_ALLOWED:
            advice = "you may not write there; choose another output_dir, or change its permissions."
        elif number in NO_FOLDER:
            advice = "a file is in its place; choose another output_dir."
        else:
            remedy = "make room there" if number in NO_ROOM else "check the disk"
            advice = f"{remedy} and run this again; it goes on from the last whole checkpoint."
        raise UserError(f"{failure}: {advice}") from error


def _error_number(error: OSError | SafetensorError) -> int | None:
    """Return the system's number of an error; safetensors has it in its message only."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else None


@contextmanager
def one_run_in(output_dir: str | Path) -> Iterator[None]:
    """Hold the folder for one training at a time; when the process dies, however it does, the system lets go."""
    with saving_to(output_dir):
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        file = open(Path(output_dir) / "lock", "a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"Another process is training in {output_dir}: wait for it or stop it (a notebook left open, perhaps), "
                "or use another run folder."
            ) from None
        except OSError:
            pass  # a file system without locks
        yield


def checkpoint_folders(output_dir: str | Path) -> list[Path]:
    """Return the checkpoint folders, oldest first, with any whose replacement was interrupted put back."""
    recover_folders(output_dir, "checkpoint-*")
    found = Path(output_dir).glob("checkpoint-*")
    return sorted((path for path in found if CHECKPOINT_NAME.fullmatch(path.name)), key=step_of)


def step_of(folder: Path) -> int:
    """Return the step that a checkpoint folder was written after, by its name."""
    return int(folder.name.rpartition("-")[2])


def newest_until(step: int, folders: list[Path]) -> Path | None:
    """Return the newest checkpoint that is not after `step`; None where there is none."""
    earlier = [folder for folder in folders if step_of(folder) <= step]
    return max(earlier, key=step_of, default=None)


def drop_old_checkpoints(output_dir: str | Path, keep: int | None, good_step: int | None = None) -> None:
    """Remove all checkpoints but the last `keep`, the best one, and the newest that is not after `good_step`.

    keep: None keeps all. good_step: the last step whose weights nobody doubts; None where none are in doubt.
    """
    if keep is None:
        return
    folders = checkpoint_folders(output_dir)
    kept = [*best_first(folders)[:1], *folders[-keep:]]
    if good_step is not None:
        kept.append(newest_until(good_step, folders))
    for folder in folders:
        if folder not in kept:
            shutil.rmtree(folder)


def check_files(folder: Path) -> None:
    """Raise DamagedCheckpoint, with its cause, unless the files of a checkpoint are what was written."""
    try:
        digests = json.loads((folder / DIGESTS).read_text())
        if not isinstance(digests, dict) or not digests.keys() >= {ADAPTER, OPTIMIZER, STATE}:
            raise DamagedCheckpoint(folder, f"{DIGESTS} does not list its files")
        for name, digest in digests.items():
            if file_digest(folder / name) != digest:
                raise DamagedCheckpoint(folder, f"{name} is not what was written")
    except DamagedCheckpoint:
        raise
    except FileNotFoundError as error:
        raise DamagedCheckpoint(folder, f"{Path(error.filename).name} is missing") from error
    except OSError as error:
        raise DamagedCheckpoint(folder, f"{Path(error.filename or folder).name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpoint(folder, f"{DIGESTS} is not what was written") from error


def find_damage(folder: str | Path) -> str:
    """Return what is wrong with the files of a checkpoint, or "" where they are what was written."""
    try:
        check_files(Path(folder))
    except DamagedCheckpoint as error:
        return error.reason
    return ""


def list_damage(damaged: dict[Path, str]) -> str:
    """Return damaged checkpoints with what is wrong with each, for a sentence."""
    return " and ".join(f"{folder} is damaged ({reason})" for folder, reason in damaged.items())


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder to `damaged-<name>`, with a number behind where there is one; return the path."""
    aside = path.with_name(f"damaged-{path.name}")
    number = 2
    while aside.exists():
        aside = path.with_name(f"damaged-{path.name}-{number}")
        number += 1
    path.rename(aside)
    return aside

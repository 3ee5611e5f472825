"""What a run leaves on disk, whole or not at all: checkpoints and copies, the last rollout, a line of metrics a step.

What was damaged since it was written is noticed: a checkpoint by the digests of its files, the rollout by its own.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError

import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file

from helpers.grpo.batch import Generation
from helpers.grpo.best import STATE, best_first, choice_of, monitor
from helpers.grpo.config import GRPOConfig
from helpers.grpo.metrics import json_row
from helpers.model.gpu_memory import is_out_of_memory
from helpers.model.lora import save_adapter
from helpers.runtime import (
    UserError,
    file_digest,
    first_line,
    read_checked,
    recover_folders,
    whole_folder,
    write_checked,
    write_whole,
)

ROLLOUT = "rollout.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
ADAPTER = "adapter_model.safetensors"
OPTIMIZER = "optimizer.pt"
#: The file of a checkpoint that holds the SHA-256 of each of the others.
DIGESTS = "digests.json"
#: The file of a run folder that says which checkpoint is the best one.
BEST = "best_checkpoint.json"
#: What reading a checkpoint's files raises where they are not what this version writes.
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, UnpicklingError, SafetensorError,
)  # fmt: skip


class DamagedCheckpoint(UserError):
    """A checkpoint whose files are not what was written. reason: what is wrong with it."""

    def __init__(self, folder: Path, reason: str):
        super().__init__(
            f"{folder} is damaged ({reason}): go on from the newest sound checkpoint with "
            "train(resume_from_checkpoint=True), or from another one."
        )
        self.reason = reason


@contextmanager
def saving_to(path):
    """Turn what goes wrong while writing, a full disk most of all, into one sentence."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"Cannot write to {path} ({first_line(error)}): make room there and run this again; it goes on from the "
            "last whole checkpoint."
        ) from error


@contextmanager
def one_run_in(output_dir):
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


def checkpoint_folders(output_dir):
    """Checkpoint folders, oldest first, with any whose replacement was interrupted put back."""
    recover_folders(output_dir, "checkpoint-*")
    found = Path(output_dir).glob("checkpoint-*")
    return sorted((path for path in found if re.fullmatch(r"checkpoint-\d+", path.name)), key=step_of)


def step_of(folder):
    """The step that a checkpoint folder was written after."""
    return int(folder.name.rpartition("-")[2])


def known_checkpoints(output_dir: str | Path, backup_dir: str | Path | None) -> list[Path]:
    """Return the checkpoints of a run and their copies, oldest first, a copy before its original."""
    originals = checkpoint_folders(output_dir)
    if not backup_dir or Path(backup_dir).resolve() == Path(output_dir).resolve():
        return originals
    try:
        copies = checkpoint_folders(backup_dir)
    except OSError as error:
        print(f"The backup in {backup_dir} cannot be read ({first_line(error)}): the run goes on without it.")
        copies = []
    return sorted([*copies, *originals], key=step_of)


def save_checkpoint(output_dir, state, model, optimizer, scheduler, keep):
    """Write `checkpoint-<step>` and drop all but the last `keep` and the best one; returns the folder.

    state: JSON-able; "step", "settings", and "generation" where optimizer steps on it are still
    to come. Its rewards are kept with it, so that a resumed run replays a measured speed and
    does not measure again. Random numbers need no saving: each step seeds its own. "monitor": what `best.monitor`
    gives, where the best checkpoint is to be known.
    """
    path = Path(output_dir) / f"checkpoint-{state['step']}"
    with saving_to(path), whole_folder(path) as folder:
        save_adapter(model, folder)
        tensors = BytesIO()  # straight to a full disk, torch would speak of an unexpected position
        torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, tensors)
        (folder / OPTIMIZER).write_bytes(tensors.getbuffer())
        (folder / STATE).write_text(json.dumps(state))
        digests = {file.name: file_digest(file) for file in sorted(folder.iterdir())}
        (folder / DIGESTS).write_text(json.dumps(digests))
    record_best(output_dir, keep)
    return path


def record_best(output_dir: str | Path, keep: int | None) -> None:
    """Write down which checkpoint is the best one, and drop all but the last `keep` and that one."""
    with saving_to(output_dir):
        choice = choice_of(checkpoint_folders(output_dir))
        if choice:
            write_whole(Path(output_dir) / BEST, json.dumps(choice, indent=2))
        drop_old_checkpoints(output_dir, keep)


def monitor_of(args: GRPOConfig, step: int) -> dict | None:
    """What the checkpoint of `step` keeps of `metric_for_best_model`: `best.monitor` of the step's metrics and, where
    the weights were evaluated, of the evaluation's."""
    if args.metric_for_best_model is None:
        return None
    logs = {}
    for name in (METRICS, EVALUATIONS):
        rows = {row["step"]: row for row in read_metrics(Path(args.output_dir) / name)}
        logs |= rows.get(step, {})
    earlier = [folder for folder in checkpoint_folders(args.output_dir) if step_of(folder) < step]
    return monitor(args, logs, step, earlier)


def drop_old_checkpoints(output_dir: str | Path, keep: int | None) -> None:
    """Remove all checkpoints but the last `keep` and the best one; None keeps all."""
    if keep is None:
        return
    folders = checkpoint_folders(output_dir)
    best = best_first(folders)[:1]
    for folder in folders[:-keep]:
        if folder not in best:
            shutil.rmtree(folder)


def find_damage(folder: str | Path) -> str:
    """Return what is wrong with the files of a checkpoint, or "" where they are what was written."""
    folder = Path(folder)
    try:
        digests = json.loads((folder / DIGESTS).read_text())
        if not isinstance(digests, dict) or not digests.keys() >= {ADAPTER, OPTIMIZER, STATE}:
            return f"{DIGESTS} does not list its files"
        for name, digest in digests.items():
            if file_digest(folder / name) != digest:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{Path(error.filename or folder).name}: {error.strerror}"
    except (ValueError, RecursionError):
        return f"{DIGESTS} is not what was written"
    return ""


def load_checkpoint(folder, model, optimizer, scheduler, settings):
    """Restore adapter, optimizer and schedule in place; returns `(step, Generation or None)`.

    Raises DamagedCheckpoint where its files are not what was written, and UserError where it was written under other
    settings. Then nothing has been changed.
    """
    folder = Path(folder)
    damage = find_damage(folder)
    if damage:
        raise DamagedCheckpoint(folder, damage)
    try:
        state = json.loads((folder / STATE).read_text())
        weights = load_file(folder / ADAPTER)
        tensors = torch.load(folder / OPTIMIZER, weights_only=True)
        generation = state["generation"] and Generation.from_dict(state["generation"])
        written = state["settings"]
    except UNREADABLE as error:
        if is_out_of_memory(error):
            raise
        raise DamagedCheckpoint(folder, first_line(error)) from error
    for name, value in settings.items():
        if written.get(name) != value:
            raise UserError(
                f"{folder} was written with {name}={written.get(name)!r} and this run has {value!r}: "
                "use the same settings, or another run folder (RUN_DIR, output_dir)."
            )
    differing = set(get_peft_model_state_dict(model)) ^ set(weights)
    if differing:
        raise UserError(f"{folder} holds the adapter of another model ({min(differing)}): use another run folder.")
    set_peft_model_state_dict(model, weights)
    optimizer.load_state_dict(tensors["optimizer"])
    scheduler.load_state_dict(tensors["scheduler"])
    return state["step"], generation


def load_newest(folders, output_dir, model, optimizer, scheduler, settings):
    """Load the newest sound one of the `known_checkpoints` of the run in output_dir, as `load_checkpoint` does.

    Damaged ones that are newer are moved aside, and one sentence says so. What comes from the backup is copied to
    output_dir. Raises UserError where no checkpoint is sound.
    """
    damaged = {}
    for folder in reversed(folders):
        try:
            loaded = load_checkpoint(folder, model, optimizer, scheduler, settings)
        except DamagedCheckpoint as error:
            damaged[folder] = error.reason
            continue
        if damaged:
            kept_as = " and ".join(_set_damaged_aside(damaged, output_dir))
            print(f"{_list_damage(damaged)}: the run goes on from {folder}, and the damage is kept as {kept_as}.")
        if folder.parent != Path(output_dir):
            restore_backup(folder, output_dir)
        return loaded
    raise UserError(
        f"{_list_damage(damaged)}, and no checkpoint is sound: delete them to start anew, or use another output_dir."
    )


def _list_damage(damaged: dict[Path, str]) -> str:
    """Damaged checkpoints with what is wrong with each, for a sentence."""
    return " and ".join(f"{folder} is damaged ({reason})" for folder, reason in damaged.items())


def _set_damaged_aside(damaged: Collection[Path], output_dir: str | Path) -> list[str]:
    """Move damaged checkpoints out of the way and return their new names; a backup that is read-only stays as it is."""
    names = []
    for folder in damaged:
        try:
            names.append(set_aside(folder).name)
        except OSError as error:
            if folder.parent == Path(output_dir):
                raise UserError(f"Cannot move {folder} away ({first_line(error)}): move it yourself.") from error
            names.append(folder.name)
    return names


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder to `damaged-<name>`, with a number behind where there is one; return the path."""
    aside = path.with_name(f"damaged-{path.name}")
    number = 2
    while aside.exists():
        aside = path.with_name(f"damaged-{path.name}-{number}")
        number += 1
    path.rename(aside)
    return aside


def back_up(folder: str | Path, backup_dir: str | Path, keep: int | None) -> bool:
    """Copy a checkpoint and the metrics beside it to `backup_dir`; keep the last `keep` copies and the best one.

    Where that fails, one sentence says so and the result is False: the run can go on. The folder that `backup_dir` is
    in must be there, as a Drive that is not mounted must not be replaced by a folder of its name.
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
        for name in (METRICS, EVALUATIONS):
            if (folder.parent / name).exists():
                _write_rows(backup_dir / name, _rows_until(step_of(folder), folder.parent / name))
        _copy_folder(folder, backup_dir / folder.name)
        drop_old_checkpoints(backup_dir, keep)
    except OSError as error:
        print(
            f"{folder.name} could not be copied to backup_dir {backup_dir} ({first_line(error)}): the run goes on, and "
            f"its checkpoints are in {folder.parent} only."
        )
        return False
    return True


def restore_backup(folder: str | Path, output_dir: str | Path) -> None:
    """Copy a checkpoint of a backup to `output_dir`, with the best one and the metrics, and say so."""
    folder = Path(folder)
    best = best_first(checkpoint_folders(folder.parent))[:1]
    missing = [other for other in best if other != folder and not (Path(output_dir) / other.name).exists()]
    with saving_to(output_dir):
        # the checkpoint last: once it is there, nothing is restored any more
        for name in (METRICS, EVALUATIONS):
            backed_up = _rows_until(step_of(folder), folder.parent / name)
            if len(backed_up) > len(_rows_until(step_of(folder), Path(output_dir) / name)):
                _write_rows(Path(output_dir) / name, backed_up)
        for source in [*missing, folder]:
            _copy_folder(source, Path(output_dir) / source.name)
    print(f"{folder.name} was restored from the backup in {folder.parent}.")


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder's files, atomically; folders in it are none of ours, such as Jupyter's .ipynb_checkpoints."""
    with whole_folder(target) as part:
        for file in source.iterdir():
            if file.is_file():
                shutil.copyfile(file, part / file.name)


def load_best(output_dir: str | Path, model) -> dict | None:
    """Put the adapter of the best sound checkpoint into `model`, and return how it was chosen.

    Returns None, and changes nothing, where no checkpoint has a value of the metric. Raises UserError where each that
    has one is damaged.
    """
    folders = checkpoint_folders(output_dir)
    candidates = best_first(folders)
    damaged = {}
    for folder in candidates:
        reason = find_damage(folder)
        if reason:
            damaged[folder] = reason
            continue
        if damaged:
            print(f"{_list_damage(damaged)}: the best sound checkpoint is {folder}.")
        set_peft_model_state_dict(model, load_file(folder / ADAPTER))
        return choice_of([other for other in folders if other not in damaged])
    if damaged:
        raise UserError(f"{_list_damage(damaged)}: set load_best_model_at_end=False to keep the last step's adapter.")
    return None


def save_rollout(output_dir, step, settings, generation):
    """Keep the generation that step `step` begins with, so that a run broken off later in the step
    neither draws nor judges again: a speed measured twice would be two speeds. Rewards changed in
    between count from the next step on."""
    path = Path(output_dir) / ROLLOUT
    with saving_to(path):
        write_checked(path, {"step": step, "settings": settings, "generation": generation.to_dict()})


def load_rollout(output_dir, step, settings):
    """The `Generation` kept for `step` of a run with these settings, or None.

    Where it cannot be read, one sentence says so, and it is moved aside.
    """
    path = Path(output_dir) / ROLLOUT
    try:
        kept = read_checked(path)
        same = kept["step"] == step and kept["settings"] == settings
        return Generation.from_dict(kept["generation"]) if same else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = first_line(error)
    with saving_to(path):
        set_aside(path)
    print(f"{path} cannot be read ({reason}): the completions of step {step + 1} are drawn and judged again.")
    return None


class MetricsFile:
    """One strict JSON object a line, each on disk before the next step starts."""

    def __init__(self, path, last_step=0):
        """Open for appending, dropping what was written after `last_step`."""
        self.path = Path(path)
        kept = [row for row in read_metrics(self.path) if row["step"] <= last_step]
        with saving_to(self.path):
            if _parse_metrics(self.path)[1]:
                shutil.copy(self.path, self.path.with_name(f"damaged-{self.path.name}"))
            if self.path.exists():
                _write_rows(self.path, kept)

    def append(self, row):
        """Add a step's metrics, with null for each number that is not finite."""
        line = json.dumps(json_row(row), allow_nan=False)
        with saving_to(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_metrics(path):
    """The rows of a metrics file, one a step; [] where there is none.

    Lines that cannot be read are left out, as a crash or a bad disk leaves them, and one sentence says how many.
    """
    rows, unreadable = _parse_metrics(path)
    if unreadable:
        lines, are = ("1 line", "is") if unreadable == 1 else (f"{unreadable} lines", "are")
        print(f"{lines} of {path} cannot be read and {are} left out: the other {len(rows)} are kept.")
    return rows


def _parse_metrics(path: str | Path) -> tuple[list[dict], int]:
    """Return the rows of a metrics file by step, of a step written twice the later row, and the number of bad lines."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise UserError(f"Cannot read {path} ({first_line(error)}): move it away to go on without it.") from error
    rows = {}
    unreadable = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
            if type(row["step"]) is not int:
                raise TypeError("a step is a whole number")
            rows[row["step"]] = row
        except (ValueError, TypeError, KeyError, RecursionError):
            unreadable += 1
    return [rows[step] for step in sorted(rows)], unreadable


def _rows_until(step: int, path: Path) -> list[dict]:
    """The readable rows of a metrics file up to a step."""
    return [row for row in _parse_metrics(path)[0] if row["step"] <= step]


def _write_rows(path: Path, rows: list[dict]) -> None:
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows))

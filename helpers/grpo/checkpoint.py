"""What a run leaves on disk, whole or not at all: its checkpoints, and the last rollout.

What was damaged since it was written is noticed: a checkpoint by the digests of its files, the rollout by its own.
"""

import json
from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple, TypeVar

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from helpers.grpo.backup import UnreadableBackup, report_unreadable
from helpers.grpo.batch import Generation, Group
from helpers.grpo.best import STATE, best_first, choice_of
from helpers.grpo.folders import (
    ADAPTER,
    CHECKPOINT_NAME,
    DIGESTS,
    OPTIMIZER,
    DamagedCheckpoint,
    check_files,
    checkpoint_folders,
    drop_old_checkpoints,
    find_damage,
    list_damage,
    saving_to,
    set_aside,
)
from helpers.model.gpu_memory import is_out_of_memory
from helpers.model.lora import save_adapter
from helpers.runtime import UserError, file_digest, first_line, read_checked, whole_folder, write_checked, write_whole

Rebuilt = TypeVar("Rebuilt")

ROLLOUT = "rollout.json"
#: The file of a run folder that says which checkpoint is the best one.
BEST = "best_checkpoint.json"
#: What reading a checkpoint's files raises where they are not what this version writes.
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, UnpicklingError, SafetensorError,
)  # fmt: skip
#: Settings that are digests of the data -> what they are digests of, for a sentence.
DIGESTS_OF_DATA = {
    "prompts": "the prompts of train_dataset",
    "answers": "the other columns of train_dataset (the answers)",
}


class LoadedCheckpoint(NamedTuple):
    """A checkpoint whose weights are in the model.

    generation: the one that later steps go on with, or None. numerics: what the run that wrote it had of what may
    differ; {} where an older version wrote it.
    """

    folder: Path
    step: int
    generation: Generation | None
    numerics: dict


def save_checkpoint(
    output_dir: str | Path,
    state: dict,
    model: PeftModel,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    keep: int | None,
    good_step: int | None = None,
) -> Path:
    """Write `checkpoint-<step>`, drop old ones as `drop_old_checkpoints` does, and return the folder.

    state: JSON-able; "step", "settings", and "generation" where optimizer steps on it are still
    to come. Its rewards are kept with it, so that a resumed run replays a measured speed and
    does not measure again. Random numbers need no saving: each step seeds its own. "monitor": what `best.monitor`
    gives, where the best checkpoint is to be known. "numerics": what a resumed run may have otherwise, and is told of.
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
    record_best(output_dir, keep, good_step)
    return path


def record_best(output_dir: str | Path, keep: int | None, good_step: int | None = None) -> None:
    """Write down which checkpoint is the best one, and drop old ones as `drop_old_checkpoints` does."""
    with saving_to(output_dir):
        choice = choice_of(checkpoint_folders(output_dir))
        if choice:
            write_whole(Path(output_dir) / BEST, json.dumps(choice, indent=2))
        drop_old_checkpoints(output_dir, keep, good_step)


def load_checkpoint(
    folder: str | Path, model: PeftModel, optimizer: Optimizer, scheduler: LRScheduler, settings: dict
) -> LoadedCheckpoint:
    """Restore adapter, optimizer and schedule in place.

    Raises DamagedCheckpoint where its files are not what was written, and UserError where it was written under other
    settings. Then nothing has been changed.
    """
    folder = Path(folder)
    check_files(folder)
    try:
        state = json.loads((folder / STATE).read_text())
        weights = load_file(folder / ADAPTER)
        tensors = torch.load(folder / OPTIMIZER, weights_only=True)
        generation = state["generation"] and Generation.from_dict(state["generation"])
        written = state["settings"]
        step = state["step"]
    except UNREADABLE as error:
        if is_out_of_memory(error):
            raise
        raise DamagedCheckpoint(folder, first_line(error)) from error
    named = CHECKPOINT_NAME.fullmatch(folder.name)
    if named and int(named[1]) != step:
        raise DamagedCheckpoint(folder, f"its state is of step {step}")
    _check_settings(folder, written, settings)
    differing = set(get_peft_model_state_dict(model)) ^ set(weights)
    if differing:
        raise UserError(f"{folder} holds the adapter of another model ({min(differing)}): use another run folder.")
    set_peft_model_state_dict(model, weights)
    optimizer.load_state_dict(tensors["optimizer"])
    scheduler.load_state_dict(tensors["scheduler"])
    return LoadedCheckpoint(folder, step, generation, state.get("numerics", {}))


def _check_settings(folder: Path, written: dict, settings: dict) -> None:
    """Raise UserError unless a checkpoint was written under these settings."""
    for name, value in settings.items():
        was = written.get(name)
        is_of_older_version = name == "answers" and name not in written
        if was == value or is_of_older_version:
            continue
        if name in DIGESTS_OF_DATA:
            raise UserError(
                f"{folder} was written with {name}={was!r}, and {DIGESTS_OF_DATA[name]} are not the same any more: "
                "train on the same data, or use another run folder (RUN_DIR, output_dir)."
            )
        raise UserError(
            f"{folder} was written with {name}={was!r} and this run has {value!r}: "
            "use the same settings, or another run folder (RUN_DIR, output_dir)."
        )


def load_newest(
    folders: Sequence[Path],
    output_dir: str | Path,
    model: PeftModel,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    settings: dict,
) -> LoadedCheckpoint:
    """Load the newest sound one of the `known_checkpoints` of the run in output_dir, as `load_checkpoint` does.

    Damaged ones that are newer are moved aside, and one sentence says so; copies that the backup's disk does not give
    are passed over, and one sentence says that. Raises UserError where no checkpoint is sound.
    """
    damaged = {}
    unread = None
    for folder in reversed(folders):
        try:
            loaded = load_checkpoint(folder, model, optimizer, scheduler, settings)
        except DamagedCheckpoint as error:
            if error.is_of_the_disk and folder.parent != Path(output_dir):
                unread = UnreadableBackup(folder.parent, error.reason)
            else:
                damaged[folder] = error.reason
            continue
        if unread:
            report_unreadable(unread)
        if damaged:
            kept_as = " and ".join(_set_damaged_aside(damaged, output_dir))
            print(f"{list_damage(damaged)}: the run goes on from {folder}, and the damage is kept as {kept_as}.")
        return loaded
    if unread:
        raise unread
    raise UserError(
        f"{list_damage(damaged)}, and no checkpoint is sound: delete them to start anew, or use another output_dir."
    )


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


def load_best(output_dir: str | Path, model: PeftModel) -> dict | None:
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
            print(f"{list_damage(damaged)}: the best sound checkpoint is {folder}.")
        set_peft_model_state_dict(model, load_file(folder / ADAPTER))
        return choice_of([other for other in folders if other not in damaged])
    if damaged:
        raise UserError(f"{list_damage(damaged)}: set load_best_model_at_end=False to keep the last step's adapter.")
    return None


def numerics_notes(written: dict, numerics: dict, name: str) -> list[str]:
    """Return a sentence about each thing that may differ between a checkpoint and the run that resumes from it.

    written, numerics: of the checkpoint and of the run, with the keys "threads", "micro_batch" and "rewards", {name:
    digest of its source}; what one of them lacks is not compared. name: of the checkpoint.
    """
    notes = []
    ours = []
    theirs = []
    for key, words in (("threads", _threads), ("micro_batch", _micro_batches)):
        if key in written and key in numerics and written[key] != numerics[key]:
            ours.append(words(numerics[key]))
            theirs.append(str(written[key]))
    if ours:
        notes.append(
            f"This run has {' and '.join(ours)}, {name} was written with {' and '.join(theirs)}: the last bits of its "
            "results may differ."
        )
    digests = written.get("rewards", {})
    for reward, digest in numerics.get("rewards", {}).items():
        if digests.get(reward, digest) != digest:
            notes.append(
                f"Reward '{reward}' is not the function that paid up to {name}: later steps are paid by the new one."
            )
    return notes


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _micro_batches(size: int) -> str:
    return "micro-batches of 1 completion" if size == 1 else f"micro-batches of {size} completions"


def save_draws(output_dir: str | Path, step: int, settings: dict, groups: Sequence[Group]) -> None:
    """Keep the completions that step `step` begins with before they are judged, so that no failing reward costs them.

    `save_rollout` takes their place with what was made of them.
    """
    _write_rollout(output_dir, step, settings, {"groups": [group.to_dict() for group in groups]})


def save_rollout(output_dir: str | Path, step: int, settings: dict, generation: Generation) -> None:
    """Keep the generation that step `step` begins with, so that a run broken off later in the step
    neither draws nor judges again: a speed measured twice would be two speeds. Rewards changed in
    between count from the next step on."""
    _write_rollout(output_dir, step, settings, {"generation": generation.to_dict()})


def _write_rollout(output_dir: str | Path, step: int, settings: dict, content: dict) -> None:
    """Replace the kept rollout by plain values."""
    path = Path(output_dir) / ROLLOUT
    with saving_to(path):
        write_checked(path, {"step": step, "settings": settings, **content})


def load_rollout(output_dir: str | Path, step: int, settings: dict) -> Generation | None:
    """Return the generation kept for `step` of a run with these settings; None where there is none, or only draws.

    Where it cannot be read, one sentence says so, and it is moved aside.
    """

    def rebuild(kept: dict) -> Generation | None:
        if kept["settings"] != settings or "generation" not in kept:
            return None
        return Generation.from_dict(kept["generation"])

    return _read_rollout(output_dir, step, rebuild)


def load_draws(output_dir: str | Path, step: int, settings: dict) -> list[Group] | None:
    """Return the groups that were drawn for `step` and that are to be judged; None where there are none.

    Where they cannot be read, one sentence says so, and they are moved aside.
    """

    def rebuild(kept: dict) -> list[Group] | None:
        if kept["settings"] != settings or "groups" not in kept:
            return None
        return [Group.from_dict(group) for group in kept["groups"]]

    return _read_rollout(output_dir, step, rebuild)


def _read_rollout(output_dir: str | Path, step: int, rebuild: Callable[[dict], Rebuilt]) -> Rebuilt | None:
    """Return what `rebuild` makes of the rollout kept for `step`; None where there is none.

    Where it cannot be read, one sentence says so, and it is moved aside.
    """
    path = Path(output_dir) / ROLLOUT
    try:
        kept = read_checked(path)
        return rebuild(kept) if kept["step"] == step else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = first_line(error)
    with saving_to(path):
        set_aside(path)
    print(f"{path} cannot be read ({reason}): the completions of step {step + 1} are drawn and judged again.")
    return None

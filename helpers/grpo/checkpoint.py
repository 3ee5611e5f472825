"""What a run leaves on disk, whole or not at all: checkpoints, the last rollout, a line of metrics a step."""

import fcntl
import json
import os
import re
import shutil
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError

import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file

from helpers.grpo.batch import Generation
from helpers.grpo.metrics import json_row
from helpers.model.lora import save_adapter
from helpers.runtime import UserError, first_line, recover_folders, whole_folder, write_whole

ROLLOUT = "rollout.json"


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


def save_checkpoint(output_dir, state, model, optimizer, scheduler, keep):
    """Write `checkpoint-<step>` and drop all but the last `keep`.

    state: JSON-able; "step", "settings", and "generation" where optimizer steps on it are still
    to come. Its rewards are kept with it, so that a resumed run replays a measured speed and
    does not measure again. Random numbers need no saving: each step seeds its own.
    """
    path = Path(output_dir) / f"checkpoint-{state['step']}"
    with saving_to(path), whole_folder(path) as folder:
        save_adapter(model, folder)
        tensors = BytesIO()  # straight to a full disk, torch would speak of an unexpected position
        torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, tensors)
        (folder / "optimizer.pt").write_bytes(tensors.getbuffer())
        (folder / "trainer_state.json").write_text(json.dumps(state))
    for old in checkpoint_folders(output_dir)[:-keep]:
        shutil.rmtree(old)


def load_checkpoint(folder, model, optimizer, scheduler, settings):
    """Restore adapter, optimizer and schedule in place; returns `(step, Generation or None)`.

    Raises UserError where the folder cannot be read or was written under other settings.
    """
    folder = Path(folder)
    try:
        state = json.loads((folder / "trainer_state.json").read_text())
        weights = load_file(folder / "adapter_model.safetensors")
        tensors = torch.load(folder / "optimizer.pt", weights_only=True)
        written = state["settings"]
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, UnpicklingError, SafetensorError) as error:
        raise UserError(
            f"Cannot resume from {folder} ({first_line(error)}): delete it, to go on from the one before."
        ) from error
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
    return state["step"], state["generation"] and Generation.from_dict(state["generation"])


def save_rollout(output_dir, step, settings, generation):
    """Keep the generation that step `step` begins with, so that a run broken off later in the step
    neither draws nor judges again: a speed measured twice would be two speeds. Rewards changed in
    between count from the next step on."""
    path = Path(output_dir) / ROLLOUT
    with saving_to(path):
        write_whole(path, json.dumps({"step": step, "settings": settings, "generation": generation.to_dict()}))


def load_rollout(output_dir, step, settings):
    """The `Generation` kept for `step` of a run with these settings, or None."""
    try:
        kept = json.loads((Path(output_dir) / ROLLOUT).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    same = kept["step"] == step and kept["settings"] == settings
    return Generation.from_dict(kept["generation"]) if same else None


class MetricsFile:
    """One strict JSON object a line, each on disk before the next step starts."""

    def __init__(self, path, last_step=0):
        """Open for appending, dropping what was written after `last_step`."""
        self.path = Path(path)
        kept = [row for row in read_metrics(self.path) if row["step"] <= last_step]
        with saving_to(self.path):
            write_whole(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def append(self, row):
        """Add a step's metrics, with null for each number that is not finite."""
        line = json.dumps(json_row(row), allow_nan=False)
        with saving_to(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_metrics(path):
    """The rows of a metrics file, up to a line that a crash cut short; [] where there is none."""
    rows = []
    try:
        for line in Path(path).read_text().splitlines():
            rows.append(json.loads(line))
    except (FileNotFoundError, json.JSONDecodeError):
        pass
    return rows

"""Where am I: profiles, versions, files written whole, and errors that say what to do."""

import difflib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIB = 2**30
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "datasets", "accelerate", "numpy")


class UserError(ValueError):
    """A mistake that its one sentence tells how to mend; notebooks show only the sentence."""

    def _render_traceback_(self):  # IPython calls this in place of its own traceback
        return [f"UserError: {self}"]


@dataclass(frozen=True)
class Profile:
    """What to load and how much to do with it, for one kind of machine.

    model: a folder or a hub id. needs_gib: GPU memory, beside what CUDA itself takes, that the
    profile is made for and `memory_plan` keeps to (0: it runs on the CPU). dtype: of the operands.
    experts: how the expert matrices are kept, "mxfp4" or dense, as "bf16" or "fp32". dense: how the
    attention projections are kept, "nf4", dense, or "auto": dense if the plan fits, else nf4.
    embedding: where it is kept, "device", "host" (locked in host memory and read by the GPU) or "int8" (in
    eight bits on the device). Batch sizes count completions, lengths tokens. win_margin: what a gain's interval
    must exceed to be called a win, a share, fixed here and not after a run. sweep: how much of an evaluation to run,
    "full" or "small". why: one sentence on the choice, where "auto" made it.
    """

    name: str
    model: str
    needs_gib: float
    dtype: str
    experts: str
    dense: str
    lora_r: int
    lora_alpha: int
    lora_targets: tuple
    learning_rate: float
    num_generations: int
    generation_batch_size: int
    per_device_train_batch_size: int
    max_completion_length: int
    max_steps: int
    reasoning_effort: str = "low"
    embedding: str = "device"
    win_margin: float = 0.0
    sweep: str = "small"
    why: str = ""

    @property
    def device(self):
        return "cuda" if self.needs_gib else "cpu"

    def __str__(self):
        model = self.model.removeprefix(f"{ROOT}/")
        return f"profile {self.name}: {model}, {self.dtype} on {self.device}. {self.why}".strip()


RELEASED = "openai/gpt-oss-20b"
_TINY = Profile(
    name="tiny", model=str(ROOT / "helpers/tiny/checkpoint"), needs_gib=0, dtype="float32", experts="fp32", dense="nf4",
    lora_r=8, lora_alpha=16, lora_targets=("attention", "experts"), learning_rate=1e-3,
    num_generations=8, generation_batch_size=64, per_device_train_batch_size=16,
    max_completion_length=200, max_steps=30, win_margin=0.1, sweep="full",
)  # fmt: skip
_T4 = replace(
    _TINY, name="t4", model=RELEASED, needs_gib=14.2, dtype="float16", experts="mxfp4", dense="auto",
    lora_r=4, lora_alpha=8, learning_rate=5e-5, generation_batch_size=8, per_device_train_batch_size=1,
    max_completion_length=768, max_steps=100, embedding="host", win_margin=0.0, sweep="small",
)  # fmt: skip
_L4 = replace(
    _T4, name="l4", needs_gib=21, dtype="bfloat16", generation_batch_size=16, max_completion_length=1024,
    embedding="device",
)  # fmt: skip
_A100 = replace(
    _L4, name="a100", needs_gib=38, dense="bf16", lora_r=16, lora_alpha=32, num_generations=16,
    generation_batch_size=32, max_completion_length=4096,
)  # fmt: skip
#: Smallest first: cards of 15 (T4), 22 to 24 (L4, RTX 3090 and 4090), 40 and 80 GB.
PROFILES = {
    "tiny": _TINY,
    "t4": _T4,
    "l4": _L4,
    "a100": _A100,
    "h100": replace(_A100, name="h100", needs_gib=78, generation_batch_size=64),
}


def get_profile(name="auto"):
    """The `Profile` of that name, checked against this machine; a `Profile` passes unchanged.

    "auto" takes the largest whose memory the GPU has, else "tiny", and says why.

    Raises UserError for an unknown name and for a GPU that is missing or too small.
    """
    if isinstance(name, Profile):
        return name
    profile = None if name == "auto" else named_profile(name)
    gpu, memory_gib = _gpu()
    if profile is None:
        fitting = [
            profile for profile in PROFILES.values() if profile.device == "cuda" and profile.needs_gib <= memory_gib
        ]
        if fitting:
            return replace(fitting[-1], why=f"The {gpu} has {memory_gib:.0f} GiB.")
        smallest = min(profile.needs_gib for profile in PROFILES.values() if profile.needs_gib)
        why = (
            f"The {gpu} has {memory_gib:.1f} GiB and gpt-oss-20b needs {smallest:.0f} in this version"
            if gpu
            else "There is no GPU"
        )
        return replace(PROFILES["tiny"], why=f"{why}, so this is the embedded model.")
    if profile.device == "cuda" and not gpu:
        raise UserError(
            f"Profile '{name}' needs an NVIDIA GPU and there is none: in Colab choose Runtime > Change runtime type > "
            "T4 GPU, or set PROFILE = 'tiny' to run the embedded model on the CPU."
        )
    if profile.needs_gib > memory_gib:
        raise UserError(
            f"Profile '{name}' needs {profile.needs_gib:.0f} GiB of GPU memory in this version and the {gpu} has "
            f"{memory_gib:.1f}: set PROFILE = 'tiny' to run the embedded model on the CPU."
        )
    return profile


def named_profile(name):
    """The `Profile` of that name, whatever machine this is. Raises UserError for an unknown name."""
    if name not in PROFILES:
        raise UserError(
            f"There is no profile '{name}'{did_you_mean(name, PROFILES)}: choose auto, {', '.join(PROFILES)}."
        )
    return PROFILES[name]


def _gpu():
    """Name and memory in GiB of the first CUDA device, or ("", 0)."""
    import torch

    if not torch.cuda.is_available():
        return "", 0.0
    properties = torch.cuda.get_device_properties(0)
    return properties.name, properties.total_memory / GIB


def random_seed(*parts: int | str) -> int:
    """A seed for torch that depends on every one of `parts`, such as ("training", seed, step).

    Torch's CPU generator uses the low 32 bits of a seed only. So the parts are hashed: side by side in one number,
    some of them would be lost, and different steps of different runs would draw the same random numbers.
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def did_you_mean(name, known):
    """ " (did you mean 'x'?)" where a known name is close, else ""."""
    close = difflib.get_close_matches(str(name).lower(), [str(k) for k in known] + [str(k).lower() for k in known], 1)
    match = next((k for k in known if close and str(k).lower() == close[0].lower()), None)
    return f" (did you mean '{match}'?)" if match else ""


def first_line(error):
    """The first line of an exception's message, for use inside one sentence; its kind where it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def versions():
    """name -> version of what a result depends on; "absent" where a package is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) or "absent" for name in PACKAGES}}


def hardware():
    """One line on the machine: the GPU if there is one, the processor and its cores."""
    gpu, memory = _gpu()
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{f'{gpu} {memory:.0f} GiB, ' if gpu else ''}{processor}, {os.cpu_count()} cores"


def write_whole(path, text):
    """Write a text file so that a reader sees the old one or the new one, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    _fsync(path.parent)


def _fsync(path):
    """Have a file's contents, or a folder's names, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some file systems, network ones above all, cannot do it for folders
            raise
    finally:
        os.close(handle)


@contextmanager
def whole_folder(path):
    """Yield an empty folder that becomes `path` at the end, replacing it, unless an error comes first."""
    path = Path(path)
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for inside in [*part.rglob("*"), part]:
            _fsync(inside)
        old = path.with_name(f".{path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            os.replace(path, old)
        os.replace(part, path)
        _fsync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def run_folder(path=""):
    """The folder a run writes to, made if need be; "" is runs/notebook in the project."""
    folder = Path(path).expanduser() if path else ROOT / "runs" / "notebook"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"Cannot write to the run folder {folder} ({error}): set RUN_DIR to one you may write to."
        ) from error
    return folder


def install(quiet=True):
    """Install what the notebooks need and this Python lacks, by pip; returns the list.

    What is there already is held as it is: replacing torch or numpy under a live kernel breaks it.
    """
    from packaging.requirements import Requirement

    runtime = (ROOT / "requirements.txt").read_text().split("# development")[0]
    lines = [line.split("#")[0].strip() for line in runtime.splitlines()]
    requirements = [Requirement(line) for line in lines if line]
    missing = [r for r in requirements if not _satisfied(r)]
    if not missing:
        return []
    held = {name: found for name in ("torch", "triton", "torchvision", "numpy", "pillow") if (found := _version(name))}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("".join(f"{name}=={found}\n" for name, found in held.items()))
        constraints.flush()
        command = [sys.executable, "-m", "pip", "install", *(["-q"] if quiet else []), "-c", constraints.name]
        result = subprocess.run([*command, *map(str, missing)])
    if result.returncode:
        raise UserError(
            f"pip could not install {', '.join(map(str, missing))}: see its message above, then run this cell again."
        )
    return [str(r) for r in missing]


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _satisfied(requirement):
    found = _version(requirement.name)
    return found is not None and requirement.specifier.contains(found, prereleases=True)

"""Profiles: the model to load and the amount of work to do with it, one for each kind of machine."""

from dataclasses import dataclass, replace

from helpers.environment import find_gpu
from helpers.runtime import ROOT, UserError, did_you_mean


@dataclass(frozen=True)
class Profile:
    """The model to load and the amount of work to do with it, for one kind of machine.

    Batch sizes count completions; lengths count tokens.

    Attributes:
        model: a local folder or a hub id.
        needs_gib: memory of the smallest card that the profile is made for, as CUDA reports it; `memory_plan` keeps to
            it. 0: the profile runs on the CPU.
        dtype: of the operands of the arithmetic.
        experts: storage of the expert matrices, "mxfp4", or dense as "bf16", "fp16" or "fp32".
        dense: storage of the attention projections, "nf4", dense as above, or "auto": dense if the memory plan fits,
            else nf4.
        embedding: storage of the embedding, "device", "host" (locked in host memory and read by the GPU) or "int8"
            (in eight bits on the device).
        save_steps: steps from one checkpoint of a run to the next. A run that is cut off repeats those since the last;
            on a T4 each checkpoint takes 0.55 GB, the adapter and the optimizer's two moments.
        per_device_train_batch_size: the most completions in a micro-batch of an update; fewer where they do not fit.
        win_margin: share that the interval of a gain must exceed to be called a win. It is fixed here, before any run.
        sweep: the amount of an evaluation to run, "full" or "small".
        why: one sentence on the choice, where "auto" made it.
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
    save_steps: int = 1
    win_margin: float = 0.0
    sweep: str = "small"
    why: str = ""

    @property
    def device(self) -> str:
        return "cuda" if self.needs_gib else "cpu"

    def __str__(self):
        model = self.model.removeprefix(f"{ROOT}/")
        return f"profile {self.name}: {model}, {self.dtype} on {self.device}. {self.why}".strip()


RELEASED = "openai/gpt-oss-20b"
_TINY = Profile(
    name="tiny", model=str(ROOT / "helpers/tiny/checkpoint"), needs_gib=0, dtype="float32", experts="fp32", dense="nf4",
    lora_r=8, lora_alpha=16, lora_targets=("attention", "experts"), learning_rate=2e-3,
    num_generations=8, generation_batch_size=64, per_device_train_batch_size=16,
    max_completion_length=200, max_steps=30, win_margin=0.1, sweep="full",
)  # fmt: skip
_T4 = replace(
    _TINY, name="t4", model=RELEASED, needs_gib=14.5, dtype="float16", experts="mxfp4", dense="auto",
    lora_r=4, lora_alpha=8, learning_rate=5e-5, generation_batch_size=8, per_device_train_batch_size=2,
    max_completion_length=768, max_steps=100, embedding="host", save_steps=5, win_margin=0.03, sweep="small",
)  # fmt: skip
_L4 = replace(
    _T4, name="l4", needs_gib=21, dtype="bfloat16", generation_batch_size=16, max_completion_length=1024,
    embedding="device",
)  # fmt: skip
_A100 = replace(
    _L4, name="a100", needs_gib=38, dense="bf16", lora_r=16, lora_alpha=32, num_generations=16,
    generation_batch_size=32, per_device_train_batch_size=8, max_completion_length=4096,
)  # fmt: skip
#: Smallest first: cards of 15 (T4), 22 to 24 (L4, RTX 3090 and 4090), 40 and 80 GB.
PROFILES = {
    "tiny": _TINY,
    "t4": _T4,
    "l4": _L4,
    "a100": _A100,
    "h100": replace(_A100, name="h100", needs_gib=78, generation_batch_size=64, per_device_train_batch_size=16),
}


def get_profile(name: str | Profile = "auto") -> Profile:
    """Return the profile of that name, checked against this machine; a `Profile` passes unchanged.

    "auto" takes the largest whose memory the GPU has, else "tiny", and says why.

    Raises UserError for an unknown name and for a GPU that is missing or too small.
    """
    if isinstance(name, Profile):
        return name
    if name == "auto":
        return _largest_profile_that_fits()
    profile = named_profile(name)
    _check_gpu(profile)
    return profile


def named_profile(name: str | Profile) -> Profile:
    """Return the profile of that name without a check against this machine; a `Profile` passes unchanged.

    Raises UserError for an unknown name.
    """
    if isinstance(name, Profile):
        return name
    if name not in PROFILES:
        raise UserError(
            f"There is no profile '{name}'{did_you_mean(name, PROFILES)}: choose auto, {', '.join(PROFILES)}."
        )
    return PROFILES[name]


def _largest_profile_that_fits() -> Profile:
    """The choice of "auto", with the reason in `why`."""
    gpu, memory_gib = find_gpu()
    gpu_profiles = [profile for profile in PROFILES.values() if profile.device == "cuda"]
    fitting = [profile for profile in gpu_profiles if profile.needs_gib <= memory_gib]
    if fitting:
        return replace(fitting[-1], why=f"The {gpu} has {memory_gib:.0f} GiB.")
    if gpu:
        smallest = min(profile.needs_gib for profile in gpu_profiles)
        reason = f"The {gpu} has {memory_gib:.1f} GiB and gpt-oss-20b needs {smallest:.0f} in this version"
    else:
        reason = "There is no GPU"
    return replace(PROFILES["tiny"], why=f"{reason}, so this is the embedded model.")


def _check_gpu(profile: Profile) -> None:
    """Raise UserError unless this machine has the GPU that the profile needs."""
    if profile.device == "cpu":
        return
    gpu, memory_gib = find_gpu()
    if not gpu:
        raise UserError(
            f"Profile '{profile.name}' needs an NVIDIA GPU and there is none: in Colab choose Runtime > Change runtime "
            "type > T4 GPU, or set PROFILE = 'tiny' to run the embedded model on the CPU."
        )
    if profile.needs_gib > memory_gib:
        raise UserError(
            f"Profile '{profile.name}' needs {profile.needs_gib:.0f} GiB of GPU memory in this version and the {gpu} "
            f"has {memory_gib:.1f}: set PROFILE = 'tiny' to run the embedded model on the CPU."
        )

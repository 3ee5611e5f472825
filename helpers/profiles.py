"""Profiles: the model to load and the amount of work to do with it, one for each kind of machine."""

from dataclasses import MISSING, dataclass, fields, replace

from helpers.environment import find_gpu
from helpers.runtime import ROOT, UserError, did_you_mean
from helpers.settings import documented_settings, setting

DTYPES = ("float32", "bfloat16", "float16")
#: Storage in the type of the arithmetic.
DENSE = ("fp32", "bf16", "fp16")


@documented_settings
@dataclass(frozen=True)
class Profile:
    """The model to load and the amount of work to do with it, for one kind of machine.

    Batch sizes count completions; lengths count tokens.
    """

    name: str = setting(MISSING, "The name of the profile.")
    model: str = setting(MISSING, "The model: a local folder, or an id of the Hugging Face hub.")
    needs_gib: float = setting(
        MISSING,
        "Memory of the smallest card that the profile is made for, as CUDA reports it; `memory_plan` keeps to it. 0: "
        "the profile runs on the CPU.",
        least=0,
    )
    dtype: str = setting(MISSING, "The type of the operands of the arithmetic.", choices=DTYPES)
    experts: str = setting(
        MISSING, "How the expert matrices are stored: as released (mxfp4), or dense.", choices=("mxfp4", *DENSE)
    )
    dense: str = setting(
        MISSING,
        'How the attention projections are stored: nf4, or dense; "auto": dense if the memory plan fits, else nf4.',
        choices=("auto", "nf4", *DENSE),
    )
    lora_r: int = setting(MISSING, "The rank of the LoRA matrices.", least=1)
    lora_alpha: int = setting(MISSING, "LoRA adds its product times lora_alpha / lora_r.", least=1)
    lora_targets: list = setting(
        MISSING, "What gets LoRA matrices; a list can hold both.", choices=("attention", "experts")
    )
    learning_rate: float = setting(MISSING, "See `GRPOConfig`.", least=0)
    num_generations: int = setting(MISSING, "See `GRPOConfig`.", least=2)
    generation_batch_size: int = setting(
        MISSING, "Completions that are drawn together; by default all of them make one optimizer step.", least=2
    )
    per_device_train_batch_size: int = setting(
        MISSING, "The most completions in a micro-batch of an update; fewer where they do not fit.", least=1
    )
    max_completion_length: int = setting(MISSING, "See `GRPOConfig`.", least=1)
    max_steps: int = setting(MISSING, "See `GRPOConfig`.", least=1)
    reasoning_effort: str = setting(
        "low", "How long gpt-oss may think before it answers.", choices=("low", "medium", "high")
    )
    embedding: str = setting(
        "device",
        "Where the embedding is stored: on the device; in locked host memory, where the GPU reads it; or on the device "
        "in eight bits.",
        choices=("device", "host", "int8"),
    )
    save_steps: int = setting(
        1,
        "Steps from one checkpoint of a run to the next. A run that is cut off repeats those since the last; on a T4 "
        "each checkpoint takes 0.55 GB, the adapter and the optimizer's two moments.",
        least=1,
    )
    win_margin: float = setting(
        0.0,
        "The share that the interval of a gain must exceed to be called a win. It is fixed here, before any run.",
        least=0,
    )
    sweep: str = setting("small", "How much an evaluation asks.", choices=("full", "small"))
    why: str = setting("", 'One sentence on the choice, where "auto" made it.')

    @classmethod
    def refuse_unknown(cls, name: str) -> None:
        """Raise UserError for a name that is no setting of a profile."""
        known = [its_field.name for its_field in fields(cls)]
        raise UserError(f"A profile has no setting '{name}'{did_you_mean(name, known)}: help(Profile) lists them.")

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

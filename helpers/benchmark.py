"""How fast a machine draws completions: figures to compare with those of other machines."""

import gc
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from helpers.environment import hardware, installed_version
from helpers.model.gpu_memory import free_gpu_bytes
from helpers.model.memory import PREFILL_TOKENS, WHOLE, memory_plan
from helpers.profiles import Profile, named_profile
from helpers.rollout.backends import Request
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.random_streams import stream_key
from helpers.rollout.sampling import SamplingParams
from helpers.rollout.weights import base_model
from helpers.runtime import GIB, ROOT

#: Rows that are decoded together.
BATCHES = (1, 8, 32)
#: Tokens of the prompt before a completion that is timed.
PROMPT_TOKENS = 64
#: Tokens of the two completions whose times give the speed of decoding.
COMPLETION_TOKENS = (16, 128)
#: Each call is timed so often, and the quickest counts: what disturbs a machine only ever adds time.
ROUNDS = 3
#: Parts of the memory plan that a rollout adds to a loaded model.
ROLLOUT_PARTS = (
    "dequantise scratch", "KV cache, full layers", "KV cache, sliding layers", "prefill", "a step of decoding",
)  # fmt: skip
PACKAGES = ("torch", "triton", "transformers")


@dataclass(frozen=True)
class DecodeSpeed:
    """The speed of decoding so many rows together.

    Attributes:
        rows: completions that are drawn at once, of one prompt.
        step_ms: milliseconds of a step, which draws one token for each row.
        first_token_s: seconds until the first rollout has a token. They hold all that happens once: buffers are
            allocated, and on a GPU kernels are compiled and the step is captured.
        peak_bytes: of GPU memory at the most, beyond what was there before; None on the CPU, where it is not measured.
        planned_bytes: what `memory_plan` predicts for that.
    """

    rows: int
    step_ms: float
    first_token_s: float
    peak_bytes: int | None
    planned_bytes: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all rows in a second."""
        return 1e3 * self.rows / self.step_ms


@dataclass(frozen=True)
class SpeedReport:
    """What `speed_report` measured.

    Attributes:
        machine: GPU and processor.
        versions: package -> version, "project" among them.
        model: what was measured, in words.
        copy_bytes_per_s: bytes that a copy on the device reads and writes in a second.
        prefill_tokens_per_s: tokens of a long prompt that are read in a second.
        decode: by the number of rows.
        left_out: numbers of rows that the free memory did not allow.
    """

    machine: str
    versions: dict[str, str]
    model: str
    copy_bytes_per_s: float
    prefill_tokens_per_s: float
    decode: tuple[DecodeSpeed, ...]
    left_out: tuple[int, ...]

    def rows(self) -> list[tuple[str, str]]:
        """`(figure, value)` pairs for `text_table`."""
        rows = [
            ("machine", self.machine),
            ("versions", self._versions()),
            ("model", self.model),
            ("copy, bytes read and written", f"{self.copy_bytes_per_s / 1e9:.1f} GB/s"),
            ("prefill", f"{self.prefill_tokens_per_s:,.0f} tokens/s"),
        ]
        for speed in self.decode:
            figures = [
                f"{speed.tokens_per_s:,.0f} tokens/s",
                f"{speed.step_ms:.2f} ms a step",
                f"first token after {speed.first_token_s:.2f} s",
                _memory(speed),
            ]
            rows.append((f"decode, {_count(speed.rows)}", ", ".join(figures)))
        for count in self.left_out:
            rows.append((f"decode, {_count(count)}", "not run: too little memory is free"))
        return rows

    def markdown(self) -> str:
        """A table of one row, to be pasted into an issue."""
        columns = {
            "machine": self.machine,
            "versions": self._versions(),
            "model": self.model,
            "copy GB/s": f"{self.copy_bytes_per_s / 1e9:.1f}",
            "prefill tokens/s": f"{self.prefill_tokens_per_s:.0f}",
        }
        for speed in self.decode:
            columns[f"decode tokens/s, {_count(speed.rows)}"] = f"{speed.tokens_per_s:.0f}"
        columns["first token s"] = " / ".join(f"{speed.first_token_s:.2f}" for speed in self.decode)
        columns["memory beyond the model"] = _memory(self.decode[-1])
        lines = [columns, ["---"] * len(columns), columns.values()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _versions(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())


def _count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def _memory(speed: DecodeSpeed) -> str:
    if speed.peak_bytes is None:
        return "memory not measured on the CPU"
    return f"{speed.peak_bytes / GIB:.2f} GiB, {speed.planned_bytes / GIB:.2f} planned"


def speed_report(model: nn.Module, tokenizer, profile: str | Profile) -> SpeedReport:
    """Measure how fast rollouts of a model are on this machine.

    Args:
        model: from `load_model`, adapted by `add_lora` or not.
        tokenizer: from `load_model`, too.
        profile: that the model was loaded with.

    Up to `BATCHES` rows are decoded at once, on the CPU up to eight. The tokens are random and none ends a completion.
    Each speed is a difference of two times, so that what both calls begin with cancels out: of prompts of 512 and of
    1,024 tokens for the prefill, of a short and a longer completion for the decoding. The module names the lengths.
    """
    profile = named_profile(profile)
    device = base_model(model).lm_head.weight.device.type
    if device == "cuda":
        fitting = [rows for rows in BATCHES if _planned_bytes(model, profile, rows) <= free_gpu_bytes()]
        left_out = [rows for rows in BATCHES if rows not in fitting]
    else:
        fitting = BATCHES[:2]
        left_out = []
    counts = memory_plan(_settled(profile), 1, 1, base_model(model).config).parameters
    millions = sum(counts.values()) / 1e6
    adapter = "with LoRA" if hasattr(model, "peft_config") else "no adapter"
    return SpeedReport(
        machine=hardware(),
        versions={name: installed_version(name) or "absent" for name in PACKAGES} | {"project": project_version()},
        model=f"{millions:,.0f} M parameters, experts {profile.experts}, {profile.dtype}, {adapter}",
        copy_bytes_per_s=copy_speed(device),
        prefill_tokens_per_s=prefill_speed(model, tokenizer),
        decode=tuple(decode_speed(model, tokenizer, profile, rows) for rows in fitting),
        left_out=tuple(left_out),
    )


def project_version() -> str:
    """The version of the project, such as "0.1.0", as `make release` writes it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["tool"]["gpt-oss-rl"]["tag"].removeprefix("v")


def copy_speed(device: str) -> float:
    """Bytes a second that a copy of a large buffer reads and writes, in the quickest of some rounds."""
    size, copies = (GIB // 4, 20) if device == "cuda" else (GIB // 16, 2)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        for _ in range(copies):
            target.copy_(source)

    copy()
    (seconds,) = quickest([copy], device)
    return copies * 2 * source.nbytes / seconds


def prefill_speed(model: nn.Module, tokenizer) -> float:
    """Tokens a second of a prefill: `PREFILL_TOKENS` more tokens of a prompt, over the time that they add."""
    device = base_model(model).lm_head.weight.device.type
    short = PREFILL_TOKENS + 1  # the last token of a prompt is read by a decoding step
    long = 2 * PREFILL_TOKENS + 1
    engine = RolloutEngine(model, tokenizer, max_batch_size=1, max_length=long + 1)
    calls = [partial(draw, engine, random_prompt(model, length), 1, 1) for length in (short, long)]
    for call in calls:
        call()  # what happens once happens here
    short_s, long_s = quickest(calls, device)
    return (long - short) / added_seconds(short_s, long_s)


def decode_speed(model: nn.Module, tokenizer, profile: Profile, rows: int) -> DecodeSpeed:
    """Measure the decoding of `rows` completions of one prompt.

    profile: that the model was loaded with, for the memory plan.
    """
    device = base_model(model).lm_head.weight.device.type
    short, long = COMPLETION_TOKENS
    prompt = random_prompt(model, PROMPT_TOKENS)
    if device == "cuda":
        gc.collect()  # the engine before this one
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()

    engine = RolloutEngine(model, tokenizer, max_batch_size=rows, max_length=PROMPT_TOKENS + long)
    first_token_s = seconds_of(partial(draw, engine, prompt, rows, 1), device)
    draw(engine, prompt, rows, long)  # from here on every step is recorded
    calls = [partial(draw, engine, prompt, rows, tokens) for tokens in (short, long)]
    short_s, long_s = quickest(calls, device)

    peak = torch.cuda.max_memory_allocated() - before if device == "cuda" else None
    step_ms = 1e3 * added_seconds(short_s, long_s) / (long - short)
    return DecodeSpeed(rows, step_ms, first_token_s, peak, _planned_bytes(model, profile, rows))


def added_seconds(short_s: float, long_s: float) -> float:
    """What the longer call adds; all of its own seconds where noise hides that, for a speed that is too low."""
    return long_s - short_s if long_s > short_s else long_s


def random_prompt(model: nn.Module, length: int) -> list[int]:
    """Draw token ids of the model's vocabulary, the same for the same length."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, base_model(model).config.vocab_size, (length,), generator=generator).tolist()


def draw(engine: RolloutEngine, prompt: list[int], rows: int, tokens: int) -> None:
    """Draw `rows` completions of `tokens` tokens each, which no token ends."""
    params = SamplingParams(max_new_tokens=tokens)
    requests = [Request(prompt, stream_key(params.seed, prompt, number)) for number in range(rows)]
    engine.backend.sync()
    for _, drawn in engine.backend.generate(requests, params, []):
        assert len(drawn.token_ids) == tokens


def seconds_of(call: Callable[[], object], device: str) -> float:
    """Seconds of a call by the clock, until the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def quickest(calls: Sequence[Callable[[], object]], device: str) -> list[float]:
    """Seconds of the quickest of `ROUNDS` runs of each call; they take turns."""
    rounds = []
    for _ in range(ROUNDS):
        rounds.append([seconds_of(call, device) for call in calls])
    return [min(taken) for taken in zip(*rounds)]


def _planned_bytes(model: nn.Module, profile: Profile, rows: int) -> float:
    """What the memory plan expects `decode_speed` to add to the loaded model."""
    config = base_model(model).config
    length = PROMPT_TOKENS + COMPLETION_TOKENS[1]
    parts = memory_plan(_settled(profile), rows, length, config).parts
    return sum(parts[name] for name in ROLLOUT_PARTS)


def _settled(profile: Profile) -> Profile:
    """The profile with `dense` decided: "auto" would ask how much memory is free, and the model is loaded already.

    What a rollout adds does not depend on it.
    """
    return replace(profile, dense=WHOLE[profile.dtype]) if profile.dense == "auto" else profile

"""Whole rollouts: the captured backend against transformers' `generate` at its best.

    python -m tests.benchmarks.rollout [--rounds 7] [--tokens 128] [--threads 1] [--compile] [--out file.json]
    python -m tests.benchmarks.rollout --device cuda [--cap-gib 14.2] [--layers 24] [--out file.json]

The same model, the same prompts and the same number of tokens on both sides; no token ends a row. A call is the whole
of a rollout: the prefill, the decoding, and the tokens as Python lists. All sample at temperature 1.

The baseline is `generate` without log-probabilities, which the captured backend gives and a trainer needs. Every way to
call it that is known to us runs first: the project's model, and on the CPU stock transformers with each implementation
of the experts, under stock PEFT where there is an adapter; each with the growing and with the static cache. The
quickest two go on into the rounds, and the quicker of them there is the baseline. In each round every contestant runs
once, in turn; ratios are of calls of one round, by the clock and by the processor's time. Before that, all contestants
decode greedily, and must give the same tokens.

The prompts all differ, so that each is prefilled on both sides. In training the captured backend has less to do, as it
prefills the prompt of a group once.

For information only: the project's TransformersBackend, and with --compile stock transformers compiled by `generate`.
On the CPU that takes a private switch and, the first time, a minute for each number of rows; it does not run under
PEFT.

On the CPU the embedded model in fp32. On a GPU gpt-oss-20b's shape in random bytes, and then the embedded model, both
as the profile "t4" keeps them: besides the times the bytes that a step reads against the speed of a copy, the memory,
and the number of graphs captured while an optimizer updates the adapter.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import transformers
from peft import PeftModel
from torch import nn
from transformers import CompileConfig, GenerationConfig, GptOssForCausalLM

from helpers import add_lora, export_adapter, load_model, text_table
from helpers.benchmark import BATCHES, copy_speed
from helpers.environment import hardware, versions
from helpers.profiles import PROFILES, Profile
from helpers.rollout.backends import Backend, Request
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.backends.transformers import TransformersBackend
from helpers.rollout.harmony import Harmony
from helpers.rollout.random_streams import stream_key
from helpers.rollout.sampling import SamplingParams
from helpers.rollout.weights import base_model
from helpers.runtime import GIB, first_line, write_whole
from tests.benchmarks.models import (
    benchmark_profile,
    cap_memory,
    embedded_tokenizer,
    generate,
    peaks,
    random_model,
    restart_peaks,
)
from tests.benchmarks.reads import step_reads

CONDITIONS = ("no adapter", "adapter")
EXPERTS = ("eager", "grouped_mm", "batched_mm")
GROWING = "growing cache"
#: name -> `cache_implementation` of `generate`. On a GPU a static one would compile the model.
CACHES = {GROWING: None, "static cache": "static"}
OURS = "captured (ours)"
WITH_LOGPROBS = "TransformersBackend (ours, with log-probabilities)"
#: Tokens of each prompt of the large model.
LARGE_PROMPT = 150
#: Greedy tokens may part where the reference's two largest logits are as close as this, in fp32.
NEAR_TIE = 1e-4
ADAMW_STEPS = 50
#: Calls before the rounds: the first warms up.
FIRST_CALLS = 5


@dataclass(frozen=True)
class Work:
    """What every contestant has to do.

    prompts: token ids, as many as the largest batch has rows. tokens: of a completion. is_compiled: run `generate`
    compiled, too.
    """

    prompts: list[list[int]]
    tokens: int
    rounds: int
    is_compiled: bool = False


class Contestant(NamedTuple):
    """One way to draw completions.

    draw: (prompts, tokens, seed, temperature) -> the tokens of each row.
    """

    name: str
    draw: Callable[[list[list[int]], int, int, float], list[list[int]]]


class Cost(NamedTuple):
    """Milliseconds of a call.

    ms: by the clock. host_ms: of the processor, which other processes on the same cores change less.
    """

    ms: float
    host_ms: float


class Round(NamedTuple):
    """What one contestant took in one round."""

    whole: Cost
    one_token: Cost


def by_generate(name: str, model: nn.Module, tokenizer) -> list[Contestant]:
    """`generate` with each cache. No token ends a row from here on."""
    base_model(model).generation_config = GenerationConfig(pad_token_id=tokenizer.pad_token_id)
    caches = CACHES if model.device.type == "cpu" else {GROWING: None}
    return [
        Contestant(f"{name}, {cache}", partial(generate, model, tokenizer, {"cache_implementation": implementation}))
        for cache, implementation in caches.items()
    ]


def by_compiled_generate(tokenizer) -> list[Contestant]:
    """Stock transformers whose decoding step `generate` compiles, as it would by itself on a GPU."""
    config = CompileConfig(mode="default", fullgraph=True)
    config._compile_all_devices = True
    settings = {"cache_implementation": "static", "compile_config": config}
    found = []
    for experts in ("grouped_mm", "batched_mm"):
        model = stock_model(experts, None)
        base_model(model).generation_config = GenerationConfig(pad_token_id=tokenizer.pad_token_id)
        found.append(Contestant(f"stock, {experts}, compiled", partial(generate, model, tokenizer, settings)))
    return found


def draw_by_backend(
    backend: Backend, stop_ids: list[int], prompts: list[list[int]], tokens: int, seed: int, temperature: float
) -> list[list[int]]:
    """Draw as `RolloutEngine` does, without its rendering and parsing."""
    params = SamplingParams(max_new_tokens=tokens, temperature=temperature, seed=seed)
    requests = [Request(ids, stream_key(seed, ids, 0)) for ids in prompts]
    backend.sync()
    drawn = dict(backend.generate(requests, params, stop_ids))
    return [drawn[number].token_ids for number in range(len(prompts))]


def stock_model(experts: str, adapter: str | None) -> nn.Module:
    """The embedded model in stock transformers, with one implementation of the experts, under stock PEFT or not."""
    model = GptOssForCausalLM.from_pretrained(
        PROFILES["tiny"].model, dtype=torch.float32, attn_implementation="eager", experts_implementation=experts
    )
    assert model.config._experts_implementation == experts
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    return model.requires_grad_(False).eval()


def adapted(model: nn.Module, rank: int) -> PeftModel:
    """A LoRA adapter on attention and experts whose matrices B are not zero."""
    torch.manual_seed(0)
    model = add_lora(model, rank, 2 * rank).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and "_B." in name:
                weight.normal_(std=0.02)
    return model


def candidates(model: nn.Module, tokenizer, condition: str) -> tuple[list[Contestant], nn.Module]:
    """Every way of `generate` for a condition, and the model that the first of them draws with.

    On the CPU that is a stock one, on a GPU ours.
    """
    ours = by_generate("our model", model, tokenizer)
    if model.device.type != "cpu":
        return ours, model
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        adapter = None
        if condition == "adapter":
            adapter = f"{folder}/adapter"
            export_adapter(model, adapter)
        for experts in EXPERTS:
            models[experts] = stock_model(experts, adapter)
    around = "stock under PEFT" if condition == "adapter" else "stock"
    stock = [way for experts in EXPERTS for way in by_generate(f"{around}, {experts}", models[experts], tokenizer)]
    return stock + ours, models[EXPERTS[0]]


def check_same_tokens(
    contestants: list[Contestant], wanted: Contestant, reference: nn.Module, work: Work
) -> list[dict]:
    """Decode greedily with all contestants, and compare with `wanted`, which draws with the model `reference`.

    Returns for each the gaps between the reference's two largest logits where a row first parts from it. Raises
    AssertionError for a gap of `NEAR_TIE` or more in fp32; in 16 bits the gaps are reported only.
    """
    expected = wanted.draw(work.prompts, work.tokens, 0, 0.0)
    found = []
    for contestant in contestants:
        drawn = contestant.draw(work.prompts, work.tokens, 0, 0.0)
        gaps = []
        for prompt, row, other in zip(work.prompts, drawn, expected, strict=True):
            assert len(row) == len(other) == work.tokens, contestant.name
            if row != other:
                place = next(place for place in range(work.tokens) if row[place] != other[place])
                gaps.append(top_two_gap(reference, prompt + other[:place]))
        assert reference.device.type != "cpu" or max(gaps, default=0.0) < NEAR_TIE, (contestant.name, gaps)
        found.append(
            {"contestant": contestant.name, "against": wanted.name, "rows": len(drawn), "parted_at_gaps": gaps}
        )
    return found


@torch.inference_mode()
def top_two_gap(model: nn.Module, ids: list[int]) -> float:
    """How far the two largest logits of the next token lie apart."""
    logits = model(input_ids=torch.tensor([ids], device=model.device)).logits[0, -1]
    best, second = logits.float().topk(2).values.tolist()
    return best - second


def timed(contestant: Contestant, prompts: list[list[int]], tokens: int, seed: int) -> Cost:
    """Cost of one call, every row of which must have as many tokens as were asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter(), time.process_time()
    drawn = contestant.draw(prompts, tokens, seed, 1.0)
    # the tokens are on the host, so nothing is left to wait for
    cost = Cost(1e3 * (time.perf_counter() - started[0]), 1e3 * (time.process_time() - started[1]))
    assert [len(row) for row in drawn] == [tokens] * len(prompts), contestant.name
    return cost


def first_pass(contestants: list[Contestant], prompts: list[list[int]], tokens: int) -> dict[str, dict]:
    """Map names to the milliseconds of the first call and of the best of the next, or to why one does not run.

    They take turns; one that is far from the quickest is left out soon.
    """
    taken = {contestant.name: [] for contestant in contestants}
    refused = {}
    for number in range(FIRST_CALLS):
        best = min((min(times[1:]) for times in taken.values() if times[1:]), default=float("inf"))
        for contestant in contestants:
            times = taken[contestant.name]
            if contestant.name in refused or (times[1:] and min(times[1:]) > 2 * best and contestant.name != OURS):
                continue
            try:
                times.append(timed(contestant, prompts, tokens, number).ms)
            except (RuntimeError, ValueError, TypeError) as error:  # too little memory is a RuntimeError
                refused[contestant.name] = {"not_run": first_line(error)}
    ran = {name: {"first_ms": times[0], "best_ms": min(times[1:])} for name, times in taken.items() if times[1:]}
    return ran | refused


def play(contestants: list[Contestant], prompts: list[list[int]], tokens: int, rounds: int) -> dict[str, list[Round]]:
    """Let all run in turn, and another begin in each round: a whole call each, and one of one token."""
    found = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        start = number % len(contestants)
        for contestant in contestants[start:] + contestants[:start]:
            costs = [timed(contestant, prompts, count, FIRST_CALLS + number) for count in (tokens, 1)]
            found[contestant.name].append(Round(*costs))
    return found


def summary(name: str, taken: list[Round], ours: list[Round], batch: int, tokens: int) -> dict:
    """One row of the table.

    step_ms: of a decoding step, from the second token to the last. times_ours: a call's time over that of ours in the
    same round; host_times_ours: the same of the processor's time.
    """
    ratios = [one.whole.ms / own.whole.ms for one, own in zip(taken, ours, strict=True)]
    host_ratios = [one.whole.host_ms / own.whole.host_ms for one, own in zip(taken, ours, strict=True)]
    call_ms = statistics.median(one.whole.ms for one in taken)
    return {
        "contestant": name,
        "call_ms": call_ms,
        "call_ms_lowest": min(one.whole.ms for one in taken),
        "one_token_ms": statistics.median(one.one_token.ms for one in taken),
        "step_ms": statistics.median((one.whole.ms - one.one_token.ms) / (tokens - 1) for one in taken),
        "tokens_per_s": 1e3 * batch * tokens / call_ms,
        "times_ours": statistics.median(ratios),
        "times_ours_lowest": min(ratios),
        "times_ours_highest": max(ratios),
        "host_ms": statistics.median(one.whole.host_ms for one in taken),
        "host_times_ours": statistics.median(host_ratios),
        "host_times_ours_lowest": min(host_ratios),
        "host_times_ours_highest": max(host_ratios),
    }


def compare(model: nn.Module, tokenizer, condition: str, work: Work) -> tuple[CapturedBackend, dict]:
    """`(our backend, what was found)` for one model, with each of `BATCHES` rows at a time."""
    longest = max(map(len, work.prompts)) + work.tokens
    backend = CapturedBackend(model, max_batch_size=max(BATCHES), max_length=longest)
    ours = Contestant(OURS, partial(draw_by_backend, backend, []))
    plain = TransformersBackend(model, tokenizer, max_batch_size=max(BATCHES))
    never = [base_model(model).config.vocab_size]  # a stop token that the vocabulary does not have
    with_logprobs = Contestant(WITH_LOGPROBS, partial(draw_by_backend, plain, never))
    ways, reference = candidates(model, tokenizer, condition)
    is_compiled = work.is_compiled and condition == CONDITIONS[0]
    compiled = by_compiled_generate(tokenizer) if is_compiled else []

    short = first_pass(ways, work.prompts[:2], 2)  # some may not run here
    running = [way for way in ways if "best_ms" in short[way.name]]
    found = {"condition": condition, "same_tokens": check_same_tokens([ours, *running], ways[0], reference, work)}
    found |= {"first_pass": [], "rows": []}
    for batch in BATCHES:
        prompts = work.prompts[:batch]
        if compiled:
            torch._dynamo.reset()  # each number of rows is compiled anew, up to a limit
        costs = first_pass([ours, with_logprobs, *ways, *compiled], prompts, work.tokens)
        found["first_pass"] += [{"rows": batch, "contestant": name} | cost for name, cost in costs.items()]
        quick = quickest(ways, costs)[:2]
        information = quickest(compiled, costs)[:1] + quickest([with_logprobs], costs)
        first_pass([ours], prompts, work.tokens)  # until every step is captured
        captures = backend.captures
        taken = play([ours, *quick, *information], prompts, work.tokens, work.rounds)
        rows = {name: summary(name, costs, taken[OURS], batch, work.tokens) for name, costs in taken.items()}
        baseline = min((way.name for way in quick), key=lambda name: rows[name]["call_ms"], default=None)
        rows[OURS]["captured_in_the_rounds"] = backend.captures - captures
        new = [{"rows": batch, "is_baseline": name == baseline} | row for name, row in rows.items()]
        found["rows"] += new
        show(condition, new)
    return backend, found


def quickest(contestants: list[Contestant], costs: dict[str, dict]) -> list[Contestant]:
    """Those that run, the quickest first."""
    running = [contestant for contestant in contestants if "best_ms" in costs[contestant.name]]
    return sorted(running, key=lambda contestant: costs[contestant.name]["best_ms"])


def show(condition: str, rows: list[dict]) -> None:
    """Print the table of one batch."""

    def with_range(row: dict, name: str) -> str:
        return f"{row[name]:.2f} ({row[f'{name}_lowest']:.2f} to {row[f'{name}_highest']:.2f})"

    shown = [
        (
            row["rows"],
            row["contestant"] + (", the baseline" if row["is_baseline"] else ""),
            f"{row['call_ms']:.0f}",
            f"{row['one_token_ms']:.1f}",
            f"{row['step_ms']:.2f}",
            round(row["tokens_per_s"]),
            with_range(row, "times_ours"),
            with_range(row, "host_times_ours"),
        )
        for row in rows
    ]
    header = ["rows", condition, "ms a call", "one token", "ms a step", "tokens/s", "times ours", "processor's time"]
    print(text_table(shown, header), flush=True)


def captures_of_training(model: PeftModel, backend: CapturedBackend, prompts: list[list[int]]) -> dict:
    """Count the steps captured while AdamW updates the adapter `ADAMW_STEPS` times, with a rollout after each update.

    The gradients are random. The rollouts are as those before, so nothing may be captured anew; and each must follow
    the adapter: its log-probabilities differ from those of the rollout before.
    """
    params = SamplingParams(max_new_tokens=16, temperature=0)
    requests = [Request(ids, 0) for ids in prompts[: BATCHES[1]]]

    def rollout() -> list[list[float]]:
        backend.sync()
        drawn = dict(backend.generate(requests, params, []))
        return [drawn[number].logprobs for number in range(len(requests))]

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    for _ in range(4):
        before = rollout()
    captures = backend.captures
    changed = 0
    for _ in range(ADAMW_STEPS):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        optimizer.step()
        after = rollout()
        changed += after != before
        before = after
    optimizer.zero_grad()
    found = {"adamw_steps": ADAMW_STEPS, "captures": backend.captures - captures, "rollouts_that_follow": changed}
    print(f"{ADAMW_STEPS} steps of AdamW, a rollout after each: {found['captures']} captures, {changed} followed")
    return found


def matmul_prompts(tokenizer) -> list[list[int]]:
    """Different prompts in the words of the matmul task, as many as the largest batch.

    The task itself would need the package datasets, which a machine with a GPU may not have.
    """
    harmony = Harmony(tokenizer)
    texts = [
        "Write a Python function matmul(A, B) that multiplies two matrices. A, B and the result are lists of rows. "
        f"The shapes are {rows}x5 and 5x24. Answer with one Python code block."
        for rows in range(2, 2 + max(BATCHES))
    ]
    prompts = [harmony.render(text) for text in texts]
    assert len(set(map(tuple, prompts))) == len(prompts)
    return prompts


def both_conditions(model: nn.Module, tokenizer, profile: Profile, work: Work) -> dict:
    """Compare without an adapter; then put one on, compare again, and train it."""
    parts = []
    for condition in CONDITIONS:
        if condition == "adapter":
            model = adapted(model, profile.lora_r)
        restart_peaks()
        backend, found = compare(model, tokenizer, condition, work)
        if model.device.type == "cuda":
            rows = [work.prompts[:batch] for batch in BATCHES]
            found["reads"] = [step_reads(model, tokenizer, prompts, work.tokens) for prompts in rows]
        if condition == "adapter":
            found["training"] = captures_of_training(model, backend, work.prompts)
        found["captures"] = backend.captures
        if model.device.type == "cuda":
            found["memory"] = peaks()
        parts.append(found)
        del backend  # with its buffers and graphs
    lengths = sorted(map(len, work.prompts))
    return {
        "dtype": profile.dtype,
        "lora_r": profile.lora_r,
        "prompt_tokens": [lengths[0], lengths[-1]],
        "tokens": work.tokens,
        "rounds": work.rounds,
        "conditions": parts,
    }


def run_on_cpu(rounds: int, tokens: int, is_compiled: bool) -> Iterator[tuple[str, object]]:
    """Yield the name and the result of each part: the embedded model in fp32."""
    profile = replace(PROFILES["tiny"], dense="fp32")
    model, tokenizer = load_model(profile=profile)
    work = Work(matmul_prompts(tokenizer), tokens, rounds, is_compiled)
    yield "tiny", both_conditions(model, tokenizer, profile, work)


def run_on_gpu(rounds: int, tokens: int, large_tokens: int, layers: int) -> Iterator[tuple[str, object]]:
    """Yield the name and the result of each part: gpt-oss-20b's shape, then the embedded model as a T4 keeps it."""
    speed = copy_speed("cuda")
    yield "copy_bytes_per_s", speed
    profile = benchmark_profile("cuda")
    small = replace(profile, model=PROFILES["tiny"].model, lora_r=PROFILES["tiny"].lora_r)
    restart_peaks()
    model = random_model(profile, layers)
    memory = peaks()
    torch.manual_seed(0)
    prompts = torch.randint(0, 199_000, (max(BATCHES), LARGE_PROMPT)).tolist()
    large = both_conditions(model, embedded_tokenizer(), profile, Work(prompts, large_tokens, rounds))
    for part in large["conditions"]:
        add_shares(part, speed)
    yield "20b in random bytes", {"layers": layers, "memory_of_making": memory, **large}
    del model
    restart_peaks()
    model, tokenizer = load_model(profile=small)
    yield "tiny", both_conditions(model, tokenizer, small, Work(matmul_prompts(tokenizer), tokens, rounds))


def add_shares(part: dict, speed: float) -> None:
    """Add to the rows of ours what they read a second, as a share of a copy's speed, and print it."""
    ours = {row["rows"]: row for row in part["rows"] if row["contestant"] == OURS}
    for read in part["reads"]:
        row = ours[read["rows"]]
        row["share_of_copy"] = read["bytes"] / (row["step_ms"] / 1e3) / speed
        print(
            f"{part['condition']}, {read['rows']} rows: {read['bytes'] / 1e9:.2f} GB a step, "
            f"{read['experts_hit']:.1f} experts a layer, {row['share_of_copy']:.0%} of a copy's speed"
        )
    print({name: f"{size / GIB:.2f} GiB" for name, size in part["memory"].items()}, f"{part['captures']} captures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=128, help="of a completion of the embedded model")
    parser.add_argument("--large-tokens", type=int, default=256, help="of a completion of the large model")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch on the CPU")
    parser.add_argument("--compile", action="store_true", help="run a compiled `generate`, too (CPU)")
    parser.add_argument("--layers", type=int, default=24, help="of the large model")
    parser.add_argument("--cap-gib", type=float, help="of GPU memory that PyTorch may take")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        torch.set_num_threads(arguments.threads)
    if arguments.cap_gib:
        cap_memory(arguments.cap_gib)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    result = {
        "hardware": hardware(),
        "versions": versions(),
        "device": arguments.device,
        "threads": torch.get_num_threads(),
        "cap_gib": arguments.cap_gib,
    }
    print(result["hardware"], result["versions"], f"{result['threads']} threads")
    if arguments.device == "cpu":
        parts = run_on_cpu(arguments.rounds, arguments.tokens, arguments.compile)
    else:
        parts = run_on_gpu(arguments.rounds, arguments.tokens, arguments.large_tokens, arguments.layers)
    for name, found in parts:
        result[name] = found
        if arguments.out:
            write_whole(arguments.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Run the rollouts of the notebooks 04 and 05 on a fake GPU, and print the graphs and streams that they took as JSON.

    python -m tests.fake_gpu.rollouts [--layers N] [--fault NAME ...]

The project's engine draws from gpt-oss-20b with an adapter, at the true size of a layer; two layers take as many graphs
as 24. How long each completion is, which only values could say, is made up. Then faults are planted: of the code, which
the report must name, and for want of memory, after which every completion must be there or one sentence.
"""

import argparse
import contextlib
import gc
import io
import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from unittest.mock import patch

from tests.fake_gpu.device import Gpu, fake_gpu, planted  # before torch

# isort: split
import torch

from helpers import RolloutEngine, SamplingParams, UserError, evaluate, get_task, sample_records
from helpers.evaluation import SWEEPS
from helpers.kernels import linear
from helpers.model.files import read_tokenizer
from helpers.model.gpu_memory import captured_lengths, captured_rows, release_memory
from helpers.model.memory import largest_batch, rollout_length
from helpers.profiles import PROFILES
from helpers.rollout.backends import captured
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.capture import CudaGraphs
from helpers.rollout.decoder import Rows
from helpers.rollout.schedule import Schedule
from helpers.runtime import ROOT, first_line
from tests.fake_gpu.driver import FakeStream
from tests.fake_gpu.step import fake_model, separate_fields

PROFILE = PROFILES["t4"]
MAX_NEW_TOKENS = PROFILE.max_completion_length
LENGTH = rollout_length(MAX_NEW_TOKENS)
#: Steps of training: those after the first find other lengths, and with them other numbers of rows at the end.
STEPS = 6
#: The rollout into which faults are planted: its prompt, its completions, and the most tokens of each.
SHORT_PROMPT = ["Use zip."]
COUNT = 8
FEW_TOKENS = 48
#: Tokens of those into which a want of memory is planted: without graphs a step takes long.
FEWEST_TOKENS = 9


@contextlib.contextmanager
def made_up_lengths() -> Iterator[None]:
    """Let each completion end after a share of the most tokens that its key gives; a fifth of them are cut off."""
    collect = CapturedBackend._collect
    collected = {}

    def remember(backend: CapturedBackend, schedule: Schedule, max_new_tokens: int) -> list:
        collected.update(schedule=schedule, most=max_new_tokens)
        return collect(backend, schedule, max_new_tokens)

    def progress(backend: CapturedBackend) -> tuple[list[bool], list[int]]:
        schedule = collected["schedule"]
        is_live = []
        counts = []
        for number, steps in zip(schedule.in_row, schedule.steps, strict=True):
            length = 0
            if number is not None:
                share = random.Random(schedule.requests[number].key).lognormvariate(-0.45, 0.5)
                length = min(collected["most"], int(share * collected["most"]))
            is_live.append(steps < length)
            counts.append(min(steps, length))
        return is_live, counts

    with patch.object(CapturedBackend, "_collect", remember), patch.object(CapturedBackend, "_progress", progress):
        yield


class Notebooks:
    """What the notebooks ask of a model, in their order."""

    def __init__(self, gpu: Gpu, layers: int):
        self.gpu = gpu
        self.model = fake_model(layers)
        self.tokenizer, _ = read_tokenizer(ROOT / "helpers/tiny/checkpoint")
        self.task = get_task("math", depth=2)

    def engine(self, rows: int) -> RolloutEngine:
        """An engine for completions of the profile's length."""
        return RolloutEngine(self.model, self.tokenizer, max_batch_size=rows, max_length=LENGTH)

    def training(self) -> None:
        """04_grpo: a small engine for a check, then the trainer's, step after step."""
        prompts = self.task.dataset("train", STEPS)["prompt"]
        small = self.engine(2)
        small.generate(prompts[:1], SamplingParams(48), 2)
        del small
        engine = self.engine(PROFILE.generation_batch_size)
        for step in range(STEPS):
            engine.generate(prompts[step : step + 1], SamplingParams(MAX_NEW_TOKENS, seed=step), 8)

    def evaluation(self) -> None:
        """05_evaluate: the tuned model, its base, the base with another seed, and the probe, which the base begins."""
        engine = self.engine(largest_batch(PROFILE))
        params = SamplingParams(MAX_NEW_TOKENS)
        plan = SWEEPS[PROFILE.sweep]
        confirm = self.task.dataset("confirm", plan.items)
        probe = self.task.dataset("probe", plan.probe_items)
        asked = engine, self.task, confirm, params
        # hundreds of prompts would take a minute, and no step runs otherwise after them
        with patch.object(captured, "prefill", lambda *_: None):
            evaluate(*asked, "tuned", plan.temperatures)
            with self.model.disable_adapter():
                evaluate(*asked, "base", plan.temperatures)
                sample_records(engine, self.task, confirm, params, "base")
                sample_records(engine, self.task, probe, params, "base")
            sample_records(engine, self.task, probe, params, "tuned")

    def count(self, ask: Callable[[], None]) -> dict:
        """Run a notebook, and return what it took; the words are those of `Driver`."""
        driver = self.gpu.driver
        gc.collect()
        before = driver.captures
        driver.most_graphs = len(driver.graphs)
        nodes = []
        driver.on_replay = lambda graph: nodes.append(len(graph.kernels))
        with self.gpu.recording() as record, made_up_lengths():
            ask()
        driver.on_replay = lambda graph: None
        return {
            "captures": driver.captures - before,
            "most_graphs": driver.most_graphs,
            "nodes": max(nodes),
            "streams": 1 + len(driver.streams),
            "kernel_forms": len(driver.loaded),
            "problems": dict(record.problems),
        }


def without_warm_up(capture: Callable) -> Callable:
    """Capture a step that never ran before."""

    def faulty(graphs, step, rows):
        calls = Counter()

        def third_only():
            calls["step"] += 1
            if calls["step"] > 2:
                step()

        return capture(graphs, third_only, rows)

    return faulty


def with_a_pool_each(capture: Callable) -> Callable:
    """Capture each step into a pool of its own, where nothing is shared."""

    def faulty(graphs, step, rows):
        graphs.pool = torch.cuda.graph_pool_handle()
        return capture(graphs, step, rows)

    return faulty


def waits_for_nothing(wait_stream: Callable) -> Callable:
    """Let streams run beside each other."""
    return lambda stream, other: None


def copies_of_params(first: Callable) -> Callable:
    """Give a bucket settings of its own: a captured step would go on with the first temperature for ever."""

    def faulty(rows, count):
        view = first(rows, count)
        copies = type(view.params)(*(tensor.clone() for tensor in view.params))
        return replace(view, params=copies)

    return faulty


def replays_beside(capture: Callable) -> Callable:
    """Replay on the stream of the capture, for which nobody waits."""

    def faulty(graphs, step, rows):
        replay = capture(graphs, step, rows)

        def on_the_other_stream():
            with torch.cuda.stream(graphs.stream):
                replay()

        return on_the_other_stream

    return faulty


def copies_of_rows(first: Callable) -> Callable:
    """Give a bucket rows of its own: what a step draws there, nobody reads."""

    def faulty(rows, count):
        view = first(rows, count)
        copies = {field.name: getattr(view, field.name) for field in fields(view)}
        copies = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in copies.items()}
        return Rows(**copies)

    return faulty


def of_two_dtypes(wide_mm: Callable) -> Callable:
    """Multiply bf16 by fp16, which cuBLAS refuses."""

    def faulty(a, b, out=None):
        return wide_mm(a.bfloat16(), b, out)

    return faulty


def shares_a_stream(init: Callable) -> Callable:
    """Let all engines capture on one stream, as PyTorch does where it is given none."""
    streams = []

    def faulty(graphs):
        init(graphs)
        streams.append(graphs.stream)
        graphs.stream = streams[0]

    return faulty


def gives_one_pool(graph_pool_handle: Callable) -> Callable:
    """Let all graphs have one pool, those before and those after the adapter is switched off."""
    pool = graph_pool_handle()
    return lambda: pool


#: Name -> whose function is replaced, its name, and by what.
FAULTS = {
    "no-warm-up": (CudaGraphs, "capture", without_warm_up),
    "pool-each": (CudaGraphs, "capture", with_a_pool_each),
    "copies": (Rows, "first", copies_of_rows),
    "copied-params": (Rows, "first", copies_of_params),
    "two-dtypes": (linear, "wide_mm", of_two_dtypes),
    "one-stream": (CudaGraphs, "__init__", shares_a_stream),
    "one-pool": (torch.cuda, "graph_pool_handle", gives_one_pool),
    "replay-beside": (CudaGraphs, "capture", replays_beside),
    "no-wait": (FakeStream, "wait_stream", waits_for_nothing),
}


def run_with_fault(notebooks: Notebooks, fault: str | None) -> dict:
    """Plant a fault, draw with two engines and two models, and return what was seen of it.

    One engine ends while the other goes on, and the adapter is switched off and on. separate: fields of a bucket's rows
    that are no views of the engine's.
    """
    gpu = notebooks.gpu
    params = SamplingParams(FEW_TOKENS)
    stopped = None
    separate = set()
    with planted(FAULTS[fault]) if fault else contextlib.nullcontext(), gpu.recording() as record, made_up_lengths():
        try:
            living = notebooks.engine(COUNT)
            living.generate(SHORT_PROMPT, params, COUNT)
            ending = notebooks.engine(COUNT)
            ending.generate(SHORT_PROMPT, params, COUNT)
            del ending
            gc.collect()
            living.generate(SHORT_PROMPT, params, COUNT)
            with notebooks.model.disable_adapter():
                living.generate(SHORT_PROMPT, params, COUNT)
            separate = separate_fields(living.backend)
        except Exception as error:  # whatever it is, what was seen until then is worth reading
            stopped = repr(error)
    return {"problems": dict(record.problems), "separate": sorted(separate), "stopped": stopped}


@dataclass
class Shortage:
    """Raises an error at the first calls of something, for want of memory.

    make_error: makes the error. times: how many calls fail; after: calls before the first that fails.
    """

    make_error: Callable[[], Exception]
    times: int
    after: int = 0
    calls: int = 0

    def check(self) -> None:
        self.calls += 1
        if self.after < self.calls <= self.after + self.times:
            raise self.make_error()

    def before(self, function: Callable) -> Callable:
        """The function, called after the check."""

        def checked(*arguments, **settings):
            self.check()
            return function(*arguments, **settings)

        return checked


def failing_capture(capturing: Callable, shortage: Shortage) -> Callable:
    """`Gpu.capturing` that fails when all is captured."""

    @contextlib.contextmanager
    def failing(*arguments):
        with capturing(*arguments):
            yield
            shortage.check()

    return failing


#: Place -> the error that is raised there, by its kind and text: PyTorch's, the CUDA runtime's, or Triton's.
ERRORS = {
    "capture": (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 64 MiB."),
    "replay": (RuntimeError, "CUDA error: out of memory"),
    "prefill": (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 64 MiB."),
    "buffers": (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 500 MiB."),
    "module": (RuntimeError, "Triton Error [CUDA]: out of memory"),
}
ALWAYS = 10**9
#: Places, and how many calls fail there in a row.
SHORTAGES = [(place, times) for place in ERRORS for times in (1, 2)]
SHORTAGES += [(place, times) for place in ("prefill", "buffers", "module") for times in (3, ALWAYS)]


def run_short_of_memory(notebooks: Notebooks, place: str, times: int) -> dict:
    """Draw while memory is lacking at a place; return what came of it.

    after: the engine's rows, and whether it captures still. again: completions of a second rollout.
    """
    gpu = notebooks.gpu
    params = SamplingParams(FEWEST_TOKENS)
    kind, text = ERRORS[place]
    shortage = Shortage(partial(kind, text), times, after=1 if place == "replay" else 0)
    engine = notebooks.engine(COUNT)
    patches = {
        "capture": lambda: patch.object(gpu, "capturing", failing_capture(gpu.capturing, shortage)),
        "replay": lambda: patch.object(gpu.driver, "on_replay", lambda graph: shortage.check()),
        "prefill": lambda: patch.object(captured, "prefill", shortage.before(captured.prefill)),
        "buffers": lambda: patch.object(captured, "RolloutCache", shortage.before(captured.RolloutCache)),
        "module": lambda: patch.object(gpu, "launch", shortage.before(gpu.launch)),
    }
    said = io.StringIO()
    completions = []
    again = []
    ended = None
    with gpu.recording() as record, made_up_lengths(), contextlib.redirect_stdout(said), patches[place]():
        try:
            completions = engine.generate(SHORT_PROMPT, params, COUNT)
            again = engine.generate(SHORT_PROMPT, params, COUNT)
        except UserError as error:
            ended = str(error)
        except Exception as error:
            ended = repr(error)
    backend = engine.backend
    return {
        "place": place,
        "times": times,
        "completions": len(completions),
        "again": len(again),
        "said": said.getvalue().splitlines(),
        "ended": ended,
        "after": {"rows": backend.max_batch_size, "captures": backend._is_capturable},
        "problems": dict(record.problems),
    }


#: How a capture fails that is not for want of memory.
BROKEN_CAPTURES = {
    "invalidated": RuntimeError("CUDA error: operation failed due to a previous error during capture"),
    "interrupt": KeyboardInterrupt(),
    "compiler": TypeError("unsupported operand"),
}


def run_with_broken_capture(notebooks: Notebooks, name: str) -> dict:
    """Draw while the second capture fails, and then draw again; return what came of it.

    again: completions of the second rollout. warned: what the user was told. captures: whether steps still are.
    """
    gpu = notebooks.gpu
    params = SamplingParams(FEW_TOKENS)
    broken = Shortage(lambda: BROKEN_CAPTURES[name], times=1, after=1)
    engine = notebooks.engine(COUNT)
    stopped = None
    with gpu.recording() as record, made_up_lengths(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with patch.object(gpu, "capturing", failing_capture(gpu.capturing, broken)):
            try:
                engine.generate(SHORT_PROMPT, params, COUNT)
            except BaseException as error:
                stopped = repr(error)
        again = engine.generate(SHORT_PROMPT, params, COUNT)
        release_memory()
    return {
        "stopped": stopped,
        "again": len(again),
        "warned": [str(one.message) for one in caught if "captured" in str(one.message)],
        "captures": engine.backend._is_capturable,
        "problems": dict(record.problems),
    }


def run_an_endless_row(notebooks: Notebooks) -> str:
    """Draw with a decoding step that never marks a row as finished; return the error."""

    def progress(backend: CapturedBackend) -> tuple[list[bool], list[int]]:
        return [True] * backend.max_batch_size, [1] * backend.max_batch_size

    with patch.object(CapturedBackend, "_progress", progress):
        try:
            notebooks.engine(COUNT).generate(SHORT_PROMPT, SamplingParams(MAX_NEW_TOKENS), COUNT)
        except RuntimeError as error:
            return first_line(error)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--fault", choices=FAULTS, nargs="+", default=[])
    parser.add_argument("--short-of-memory", choices=ERRORS, nargs="+", default=[], help="draw while it lacks there")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # fake tensors have no data pointers, which `read_weights` asks for
    report = {}
    with fake_gpu() as gpu:
        notebooks = Notebooks(gpu, options.layers)
        report["training"] = notebooks.count(notebooks.training)
        report["evaluation"] = notebooks.count(notebooks.evaluation)
        report["rows"] = captured_rows(PROFILE.generation_batch_size)
        report["lengths"] = captured_lengths(LENGTH)
        report["sound"] = run_with_fault(notebooks, None)
        report["broken_captures"] = {name: run_with_broken_capture(notebooks, name) for name in BROKEN_CAPTURES}
        report["endless"] = run_an_endless_row(notebooks)
        shortages = [(place, times) for place, times in SHORTAGES if place in options.short_of_memory]
        report["short_of_memory"] = [run_short_of_memory(notebooks, *shortage) for shortage in shortages]
        # last, as streams that did not wait are noted later, too
        report["faults"] = {fault: run_with_fault(notebooks, fault) for fault in options.fault}
    print(json.dumps(report))


if __name__ == "__main__":
    main()

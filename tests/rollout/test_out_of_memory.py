"""Memory that runs out in a rollout: what was finished stays, the rest is drawn again, and the answers are the same.

What becomes of CUDA graphs then is shown on a fake GPU (tests/fake_gpu/test_rollouts.py).
"""

import gc
import weakref

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, UserError, get_task, sample_records
from helpers.model.gpu_memory import is_out_of_memory
from helpers.rollout.backends import captured, transformers
from tests.rollout.test_policy import load

PARAMS = SamplingParams(30, 1.2, seed=3)
ONCE_MORE = "The GPU had no memory left for the rollout: what can be freed is freed, and the rest is drawn again."
ERRORS = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "driver": RuntimeError("CUDA error: out of memory"),
    "triton": RuntimeError("Triton Error [CUDA]: out of memory"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
}
#: Errors that are none for want of GPU memory.
OTHERS = [
    RuntimeError("an illegal memory access was encountered"),
    RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. Out of memory?"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm(...)`"),
    KeyError("out of memory"),
]


def fails(function, calls, error=ERRORS["torch"]):
    """`function`, but the calls of these numbers, counted from 1, are refused memory."""
    count = 0

    def failing(*arguments, **settings):
        nonlocal count
        count += 1
        if count in calls:
            raise type(error)(str(error))
        return function(*arguments, **settings)

    return failing


@pytest.fixture(scope="module")
def wanted(loaded):
    """What an engine that never lacked memory answers."""
    prompts = get_task("matmul").dataset("monitor", 4, seed=1)["prompt"]
    engine = RolloutEngine(*loaded, max_batch_size=6, max_length=1024)
    return engine.generate(prompts, PARAMS, num_generations=3)


@pytest.mark.parametrize("error", ERRORS)
def test_every_kind_of_error_is_known(error):
    """Only PyTorch's own has a class; one that is raised in the handling of another counts, too."""
    assert is_out_of_memory(ERRORS[error])
    try:
        try:
            raise ERRORS[error]
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    except RuntimeError as later:
        assert is_out_of_memory(later)


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_other_errors_are_none(error):
    """A bug would be tried again and again, with less and less."""
    assert not is_out_of_memory(error)
    try:
        try:
            raise ERRORS["torch"]
        except RuntimeError:
            raise error from None
    except (RuntimeError, KeyError) as later:
        assert not is_out_of_memory(later)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", ["prefill", "decode_step", "trace", "RolloutCache", "read_weights"])
def test_memory_that_lacks_once(make_engine, prompts, wanted, monkeypatch, capsys, place, error):
    """Bit for bit, at whatever point it was: other requests ran beside, and some had finished."""
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", 3)
    engine = make_engine(max_batch_size=6)
    call = {"prefill": 2, "decode_step": 2, "trace": 1}.get(place, 1)
    monkeypatch.setattr(captured, place, fails(getattr(captured, place), {call}, ERRORS[error]))
    assert engine.generate(prompts, PARAMS, num_generations=3) == wanted
    assert engine.backend.max_batch_size == 6 and capsys.readouterr().out == ONCE_MORE + "\n"


def test_memory_that_lacks_again_halves_the_rows(make_engine, prompts, wanted, monkeypatch, capsys):
    engine = make_engine(max_batch_size=6)
    monkeypatch.setattr(captured, "prefill", fails(captured.prefill, {1, 2}))
    found = engine.generate(prompts, PARAMS, num_generations=3)
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
    assert engine.backend.max_batch_size == 3 == engine.backend.cache.rows
    sentence = "The GPU had no memory left for the rollout: completions are drawn 3 at a time from here on."
    assert capsys.readouterr().out.splitlines() == [ONCE_MORE, sentence]
    engine.generate(prompts, PARAMS)
    assert engine.backend.max_batch_size == 3 and capsys.readouterr().out == ""  # it remembers


def test_memory_that_lacks_in_every_rollout_costs_one_of_them(make_engine, prompts, monkeypatch):
    """Where too much is asked again and again, each rollout was drawn twice, for ever and without a word."""
    engine = make_engine(max_batch_size=4)
    sizes = []
    prefill = captured.prefill

    def small_memory(weights, cache, *rest):
        sizes.append(cache.rows)
        if cache.rows > 2 and len(sizes) % 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return prefill(weights, cache, *rest)

    monkeypatch.setattr(captured, "prefill", small_memory)
    for _ in range(3):
        engine.generate(prompts[:1], PARAMS)
    assert engine.backend.max_batch_size == 2 and sizes.count(4) <= 4


def test_what_is_drawn_again_is_drawn_by_the_same_weights(make_engine, prompts, monkeypatch):
    """The adapter was off when the rollout began. On again meanwhile, it took part in what was drawn again."""
    adapted, _ = load()
    engine = make_engine(adapted, max_batch_size=2)
    with adapted.disable_adapter():
        base = engine.generate(prompts, PARAMS)
    assert engine.generate(prompts, PARAMS) != base
    monkeypatch.setattr(captured, "prefill", fails(captured.prefill, {2}))
    with adapted.disable_adapter():
        stream = engine.stream(prompts, PARAMS)
    found = dict(stream)
    assert [found[number] for number in range(len(prompts))] == base


def test_what_was_finished_is_not_drawn_again(make_engine, prompts, monkeypatch):
    """A rollout of an hour that lacks memory near its end goes on from there."""
    engine = make_engine(max_batch_size=2)
    monkeypatch.setattr(captured, "prefill", fails(captured.prefill, {2}))
    asked = []
    begin = engine.backend.generate
    monkeypatch.setattr(
        engine.backend, "generate", lambda requests, *rest: asked.append(len(requests)) or begin(requests, *rest)
    )
    numbers = [number for number, _ in engine.stream(prompts, PARAMS, num_generations=2)]
    assert sorted(numbers) == list(range(8)) and asked[0] == 8 > asked[1] == 6


@pytest.mark.parametrize("backend", ["captured", "transformers"])
def test_no_memory_at_all_is_one_sentence(make_engine, prompts, monkeypatch, capsys, backend):
    engine = make_engine(max_batch_size=4, backend=backend)
    if backend == "captured":
        monkeypatch.setattr(captured, "prefill", fails(captured.prefill, range(100)))
    else:
        monkeypatch.setattr(transformers, "_empty_cache", fails(transformers._empty_cache, range(100)))
    wanted = r"no memory left to draw a single completion \(CUDA out of memory.*\): .*fewer at a time"
    with pytest.raises(UserError, match=wanted) as caught:
        engine.generate(prompts, PARAMS)
    assert "\n" not in str(caught.value)
    assert len(capsys.readouterr().out.splitlines()) == 3  # once more, and from four to one
    assert engine.backend.max_batch_size == 1


def test_the_other_backend_halves_too(make_engine, prompts, monkeypatch, capsys):
    engine = make_engine(max_batch_size=4, backend="transformers")
    monkeypatch.setattr(transformers, "_empty_cache", fails(transformers._empty_cache, {1, 2}))
    assert len(engine.generate(prompts, PARAMS)) == 4
    assert "completions are drawn 2 at a time" in capsys.readouterr().out


def test_an_evaluation_goes_on(make_engine, monkeypatch):
    """It draws more at once than training, and takes hours on a T4."""
    task = get_task("math", depth=2)
    monitor = task.dataset("monitor", 6)
    engine = make_engine(max_batch_size=6)
    usual = sample_records(engine, task, monitor, PARAMS, "base")
    monkeypatch.setattr(captured, "prefill", fails(captured.prefill, {2}))
    assert sample_records(engine, task, monitor, PARAMS, "base") == usual


def test_the_error_is_gone_when_memory_is_freed(make_engine, prompts, monkeypatch):
    """Its traceback refers to the tensors of the calls that failed, and they to the memory that lacks."""
    engine = make_engine(max_batch_size=4)
    held = []
    prefill = captured.prefill

    def failing(*arguments):
        if not held:
            tensor = torch.ones(10)
            held.append(weakref.ref(tensor))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        gc.collect()
        assert held[0]() is None
        return prefill(*arguments)

    monkeypatch.setattr(captured, "prefill", failing)
    assert len(engine.generate(prompts, PARAMS)) == 4


def test_other_errors_and_other_backends_are_left_alone(make_engine, prompts, monkeypatch):
    """A fault is not a want of memory, and a backend of one's own need not know what to give up."""
    engine = make_engine()
    with monkeypatch.context() as patch:
        patch.setattr(captured, "prefill", fails(captured.prefill, {1}, RuntimeError("an illegal memory access")))
        with pytest.raises(RuntimeError, match="illegal memory access"):
            engine.generate(prompts, PARAMS)

    class Own:
        def sync(self):
            raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError):
        make_engine(backend=Own()).generate(prompts, PARAMS)


def test_a_row_that_never_ends_is_an_error(make_engine, prompts, monkeypatch):
    """A step that never marks a row as finished was run for ever, without a message."""
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", 10**9)
    step = captured.decode_step

    def forgets(weights, cache, rows, *rest):
        step(weights, cache, rows, *rest)
        rows.is_live.fill_(True)

    monkeypatch.setattr(captured, "decode_step", forgets)
    with pytest.raises(
        RuntimeError, match='of at most 30 tokens has made 30 steps and goes on.*backend="transformers"'
    ):
        make_engine().generate(prompts, PARAMS)

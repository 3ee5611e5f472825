"""A rollout that is stopped at any moment leaves an engine that is as good as new; streams and their order."""

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, UserError, get_task
from helpers.rollout import weights
from helpers.rollout.backends import Request, captured
from tests.rollout.test_policy import answers, load

NEVER = 10**9
PARAMS = SamplingParams(30, 1.2, seed=3)


@pytest.fixture(scope="module")
def wanted(loaded):
    """What an engine that was never stopped answers: three completions of each of four prompts."""
    prompts = get_task("matmul").dataset("monitor", 4, seed=1)["prompt"]
    engine = RolloutEngine(*loaded, max_batch_size=5, max_length=1024)
    return engine.generate(prompts, PARAMS, num_generations=3)


def raising_at(call, function):
    """`function`, but its call of that number, counted from 1, is Ctrl-C."""
    calls = []

    def raising(*arguments, **settings):
        calls.append(None)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments, **settings)

    return raising


@pytest.mark.parametrize("after", [1, 4, 12])
def test_stopped_by_the_progress_display(make_engine, prompts, wanted, after):
    """The bar is where Ctrl-C usually lands: in a notebook it waits for the screen."""
    engine = make_engine(max_batch_size=5)

    def stop(done, _):
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(prompts, PARAMS, num_generations=3, on_progress=stop)
    assert engine.generate(prompts, PARAMS, num_generations=3) == wanted


@pytest.mark.parametrize(
    ("where", "call", "uses"),
    [
        ("decode_step", 5, NEVER),
        ("decode_step", 1, 0),
        ("decode_step", 2, 0),
        ("decode_step", 3, 2),
        ("prefill", 2, 24),
    ],
    ids=["a step", "the first trace", "the second trace", "a later trace", "a prefill"],
)
def test_stopped_within(make_engine, prompts, wanted, monkeypatch, where, call, uses):
    """Half a step leaves rows that are live, keys beyond their end, and a trace that was begun."""
    engine = make_engine(max_batch_size=5)
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", uses)
    threads = torch.get_num_threads()
    with monkeypatch.context() as patch:
        patch.setattr(captured, where, raising_at(call, getattr(captured, where)))
        with pytest.raises(KeyboardInterrupt):
            engine.generate(prompts, PARAMS, num_generations=3)
    assert torch.get_num_threads() == threads and not torch.is_inference_mode_enabled()
    assert engine.generate(prompts, PARAMS, num_generations=3) == wanted
    assert answers(engine.generate(prompts[1:], PARAMS)) == answers([wanted[3], wanted[6], wanted[9]])


def test_rows_of_a_stopped_rollout_do_not_run_on(model, random_ids, monkeypatch):
    """A row that was left live beside shorter prompts would run out of the cache, and the step with it."""
    backend = captured.CapturedBackend(model, max_batch_size=4, max_length=200)
    backend.sync()
    long, short = ([Request(random_ids(length, seed), seed) for seed in range(4)] for length in (150, 10))
    with monkeypatch.context() as patch:
        patch.setattr(captured, "decode_step", raising_at(3, captured.decode_step))
        with pytest.raises(KeyboardInterrupt):
            list(backend.generate(long, SamplingParams(50), []))
    found = dict(backend.generate(short[:3], SamplingParams(190), []))
    assert [len(found[number].token_ids) for number in range(3)] == [190] * 3


def test_stopped_while_the_weights_are_read(make_engine, prompts, monkeypatch):
    """Some layers' matrices lie together by then and some do not; the next rollout must read them all."""
    model, _ = load()
    engine = make_engine(model, max_batch_size=5)
    with monkeypatch.context() as patch:
        patch.setattr(weights, "_layer", raising_at(3, weights._layer))
        with pytest.raises(KeyboardInterrupt):
            engine.generate(prompts, PARAMS)
    untouched, _ = load()
    assert engine.generate(prompts, PARAMS) == make_engine(untouched, max_batch_size=5).generate(prompts, PARAMS)


@pytest.mark.parametrize("backend", ["captured", "transformers"])
def test_a_stream_gives_what_generate_gives(make_engine, prompts, backend):
    """Each number once, the shortest first: what a display shows while it waits must be the result in the end."""
    engine = make_engine(max_batch_size=3, backend=backend)
    params = SamplingParams(120 if backend == "captured" else 20, 1.2, seed=3)
    streamed = list(engine.stream(prompts, params, num_generations=2))
    numbers = [number for number, _ in streamed]
    assert sorted(numbers) == list(range(8))
    assert [completion for _, completion in sorted(streamed, key=lambda one: one[0])] == engine.generate(
        prompts, params, num_generations=2
    )
    if backend == "captured":
        assert numbers != sorted(numbers)  # as they finish


@pytest.mark.parametrize("backend", ["captured", "transformers"])
def test_progress_counts_to_the_end(make_engine, prompts, backend):
    """A bar that stays at 97 % is reported as a hang; completions do not finish in the order of their numbers."""
    seen = []
    engine = make_engine(max_batch_size=3, backend=backend)
    params = SamplingParams(90, 1.5, stop_token_ids=range(0, 600, 10))
    found = engine.generate(prompts, params, num_generations=2, on_progress=lambda *numbers: seen.append(numbers))
    assert len({len(completion.token_ids) // 8 for completion in found}) > 1
    assert seen == [(done, 8) for done in range(1, 9)]


@pytest.mark.parametrize("end", ["closed", "dropped", "kept"])
def test_a_stream_that_is_left_half_way(make_engine, prompts, wanted, end):
    """A cell that breaks out of its loop: the rows it leaves behind are live."""
    engine = make_engine(max_batch_size=5)
    stream = engine.stream(prompts, PARAMS, num_generations=3)
    number, completion = next(stream)
    assert completion == wanted[number]
    if end == "closed":
        stream.close()
    elif end == "dropped":
        del stream
    assert engine.generate(prompts, PARAMS, num_generations=3) == wanted
    if end == "kept":
        with pytest.raises(UserError, match="not finished when another rollout began"):
            list(stream)


def test_two_streams_at_a_time(make_engine, prompts, wanted):
    """They would draw into each other's rows; the older one says so, and the newer one is right."""
    engine = make_engine(max_batch_size=2)
    older = engine.stream(prompts, PARAMS, num_generations=3)
    found = [next(older)]
    newer = engine.stream(prompts[:2], PARAMS, num_generations=3)
    answered = [next(newer)]
    with pytest.raises(UserError, match="not finished when another rollout began: draw them again"):
        while True:
            found.append(next(older))
    answered.extend(newer)
    assert all(completion.token_ids == wanted[number].token_ids for number, completion in [*found, *answered])
    assert sorted(number for number, _ in answered) == list(range(6))


def test_a_stream_keeps_its_weights(make_engine, prompts):
    """It began with the adapter; a stream that is made while the adapter is off must not take that away from it.

    It may end the older one, as documented, but not go on with other weights over the cache of these.
    """
    model, _ = load()
    engine = make_engine(model, max_batch_size=5)
    wanted = answers(engine.generate(prompts, PARAMS, num_generations=3))
    with model.disable_adapter():
        of_base = answers(engine.generate(prompts, PARAMS, num_generations=3))
    older = engine.stream(prompts, PARAMS, num_generations=3)
    found = [next(older)]
    with model.disable_adapter():
        newer = engine.stream(prompts, PARAMS, num_generations=3)
    try:
        found.extend(older)
    except UserError:
        pass
    assert all(completion.token_ids == wanted[number] for number, completion in found)
    try:
        found = list(newer)
    except UserError:
        found = []
    assert all(completion.token_ids == of_base[number] for number, completion in found)


def test_the_other_backend_is_stopped_too(make_engine, model, prompts, monkeypatch):
    """It turns training off and takes the seed for itself: both come back."""
    engine = make_engine(backend="transformers", max_batch_size=5)
    wanted = engine.generate(prompts, PARAMS, num_generations=3)
    state = torch.random.get_rng_state()
    model.train()
    forward = raising_at(5, model.forward)
    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", forward)
        with pytest.raises(KeyboardInterrupt):
            engine.generate(prompts, PARAMS, num_generations=3)
    assert model.training and torch.equal(torch.random.get_rng_state(), state)
    model.eval()
    assert engine.generate(prompts, PARAMS, num_generations=3) == wanted

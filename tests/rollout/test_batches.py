"""A completion depends on the weights, the seed, its prompt and its number, and on nothing that is drawn beside it."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import RolloutEngine, SamplingParams, get_task
from helpers.model.gpu_memory import captured_lengths, captured_rows
from helpers.rollout.backends import Request, captured
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.schedule import Schedule, Start, packs, powers_of_two, smallest

COUNT = 14


@pytest.fixture(scope="module")
def questions():
    return get_task("matmul").dataset("monitor", COUNT, seed=2)["prompt"][:]


@pytest.fixture
def params():
    """Hot, so that a wrong distribution shows soon."""
    return SamplingParams(40, 1.2, seed=6)


@pytest.fixture(scope="module")
def wanted(loaded, questions):
    """What every test here compares with: two completions of each question, all 28 at once."""
    engine = RolloutEngine(*loaded, max_batch_size=32, max_length=1024)
    return engine.generate(questions, SamplingParams(40, 1.2, seed=6), num_generations=2)


def diverged(ours, theirs):
    """How many completions have other tokens, of the same prompts."""
    assert [one.prompt_ids for one in ours] == [other.prompt_ids for other in theirs]
    return sum(one.token_ids != other.token_ids for one, other in zip(ours, theirs))


@pytest.mark.parametrize("max_batch_size", [1, 3, 8, 32])
def test_any_batch_size_gives_the_same(make_engine, questions, params, wanted, max_batch_size):
    """A run on a smaller GPU, or with one completion more, was another run once: batches shared random numbers."""
    engine = make_engine(max_batch_size=max_batch_size)
    ours = engine.generate(questions, params, num_generations=2)
    assert diverged(ours, wanted) <= len(wanted) // 100
    for one, other in zip(ours, wanted):
        assert torch.tensor(one.logprobs).sub(torch.tensor(other.logprobs)).abs().max() < 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_any_order_gives_the_same(make_engine, questions, params, wanted, seed):
    """Sorting prompts by length, or sampling only some of them again, must change no answer."""
    order = random.Random(seed).sample(range(COUNT), COUNT - 3)
    ours = make_engine(max_batch_size=5).generate([questions[number] for number in order], params, num_generations=2)
    theirs = [wanted[2 * number + generation] for number in order for generation in range(2)]
    assert diverged(ours, theirs) <= len(wanted) // 100


def test_groups(make_engine, questions, params, wanted):
    """Completions of a prompt stand together, differ, and are counted on where a prompt is given twice."""
    engine = make_engine()
    assert diverged(engine.generate(questions[:4], params, num_generations=2), wanted[:8]) == 0
    params = replace(params, temperature=2.0)
    two = engine.generate(questions[:4], params, num_generations=2)
    three = engine.generate(questions[:4], params, num_generations=3)
    assert [c.prompt_ids for c in three] == [engine.harmony.render(q) for q in questions[:4] for _ in range(3)]
    assert diverged([c for place, c in enumerate(three) if place % 3 < 2], two) == 0
    assert all(len({tuple(c.token_ids) for c in three[start : start + 3]}) == 3 for start in range(0, 12, 3))
    twice = engine.generate([questions[0], questions[1], questions[0], questions[0]], params)
    assert [c.token_ids for c in twice] == [three[place].token_ids for place in (0, 3, 1, 2)]


def varied_requests(engine, questions):
    """Prompts of 1 to 300 tokens, one of them four times, one after the other."""
    prompts = []
    for number, question in enumerate([*questions, *questions[:7]]):
        prompts.append((engine.harmony.render(question) * 4)[-((37 * number) % 300 + 1) :])
    prompts[5:5] = [prompts[5]] * 3
    return [Request(prompt, 1000 + number) for number, prompt in enumerate(prompts)]


def test_refilled_and_moved_rows(model, engine, questions, monkeypatch):
    """Rows end at different steps: the next request takes their place, and the last ones move to a smaller bucket.

    A state that is not moved along, a ring that is moved in part or a key of the request before shows in the tokens.
    """
    requests = varied_requests(engine, questions)
    params = SamplingParams(150, 1.3)
    stops = [*engine.harmony.stop_ids, *range(10, 600, 45)]

    def drawn(max_batch_size):
        backend = CapturedBackend(model, max_batch_size=max_batch_size, max_length=500)
        backend.sync()
        found = list(backend.generate(requests, params, stops))
        assert sorted(number for number, _ in found) == list(range(len(requests)))
        return [drawn for _, drawn in sorted(found)]

    alone = drawn(1)
    lengths = [len(one.token_ids) for one in alone]
    assert len(set(lengths)) > 12 and max(lengths) > 100 > 10 > min(lengths)
    for one in alone:
        assert not set(one.token_ids[:-1]) & set(stops) and len(one.token_ids) == len(one.logprobs)
        assert one.token_ids[-1] in stops or len(one.token_ids) == 150

    sizes = Counter()
    copies = []
    step, copy_row = captured.decode_step, captured.RolloutCache.copy_row

    def watched_step(weights, cache, rows, *rest):
        sizes[len(rows.tokens)] += 1
        step(weights, cache, rows, *rest)

    def watched_copy(self, *where):
        copies.append(where)
        copy_row(self, *where)

    monkeypatch.setattr(captured, "decode_step", watched_step)
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", 10**9)
    monkeypatch.setattr(captured.RolloutCache, "copy_row", watched_copy)
    for max_batch_size in (6, 12):
        sizes.clear()
        copies.clear()
        assert [one.token_ids for one in drawn(max_batch_size)] == [one.token_ids for one in alone]
        assert len(sizes) > 2 and min(sizes) < max(sizes) == max_batch_size and len(copies) > 3


@pytest.mark.parametrize("mixed", [False, True])
def test_each_prompt_is_prefilled_once(model, random_ids, monkeypatch, mixed):
    """A group of 8 on 3 rows would read its prompt three times: for long prompts that is most of the time."""
    prefilled = []
    prefill = captured.prefill

    def watched(weights, cache, rows, tokens, lengths, start):
        prefilled.extend(lengths)
        prefill(weights, cache, rows, tokens, lengths, start)

    monkeypatch.setattr(captured, "prefill", watched)
    prompts = [random_ids(length, seed=length) for length in (50, 60, 70)]
    order = prompts * 8 if mixed else [prompt for prompt in prompts for _ in range(8)]
    requests = [Request(prompt, number) for number, prompt in enumerate(order)]
    found = {}
    for max_batch_size in (3, 24):
        backend = CapturedBackend(model, max_batch_size=max_batch_size, max_length=200)
        backend.sync()
        prefilled.clear()
        found[max_batch_size] = dict(backend.generate(requests, SamplingParams(9), []))
        assert sorted(prefilled) == [49, 59, 69]
    assert all(found[3][number].token_ids == found[24][number].token_ids for number in range(24))


class TestSchedule:
    """The host's bookkeeping, with completions of any length and no model."""

    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40)), min_size=1, max_size=40), st.integers(1, 9),
        st.integers(1, 8), st.sampled_from([powers_of_two, captured_rows]),
    )  # fmt: skip
    def test_every_request_runs_once_and_to_its_end(self, requests, rows, steps_per_look, buckets_of):
        """requests: a prompt's number and the tokens until its stop; up to 40 are drawn."""
        asked = [Request([7] * (1 + 3 * prompt), number) for number, (prompt, _) in enumerate(requests)]
        buckets = buckets_of(rows)
        schedule = Schedule(asked, buckets)
        real = {}  # row -> tokens drawn for the request that is in it
        done = []
        while schedule.is_open:
            for start in schedule.fill():
                for row, key in zip(start.rows, start.keys, strict=True):
                    assert row not in real and start.prompt_ids == asked[key].prompt_ids
                    assert schedule.in_row[row] == key
                    real[row] = 0
            for source, target in schedule.moves():
                assert target not in real and target < source
                real[target] = real.pop(source)
            assert sorted(real) == schedule.occupied()
            bucket = schedule.bucket
            assert max(real) < bucket <= rows and bucket in buckets
            if not schedule.queue:
                assert bucket == smallest(buckets, len(real))
            else:
                assert len(real) == rows
            steps = min(steps_per_look, schedule.steps_left(40))
            assert steps > 0
            schedule.count(steps)
            for row in list(real):
                number = schedule.in_row[row]
                real[row] = min(real[row] + steps, requests[number][1])
                assert schedule.positions[row] >= len(asked[number].prompt_ids) - 1 + real[row]
                assert schedule.longest >= schedule.positions[row]
                if real[row] == requests[number][1]:
                    del real[row]
                    done.append(schedule.release(row))
        assert sorted(done) == list(range(len(requests)))

    @given(st.lists(st.integers(1, 700), max_size=20), st.sampled_from([1, 64, 512, 4096]))
    def test_packs(self, lengths, most):
        """What is prefilled together fits the memory that was planned for it, padding included."""
        starts = [Start([7] * length, [number], [number]) for number, length in enumerate(lengths)]
        found = list(packs(starts, most))
        assert [start for pack in found for start in pack] == starts
        for pack in found:
            assert pack and (len(pack) == 1 or len(pack) * max(len(start.prompt_ids) for start in pack) <= most)

    def test_buckets(self):
        """On a GPU each is a graph, which takes memory of the driver; too few leave rows that nobody needs."""
        assert powers_of_two(1) == [1] and powers_of_two(2) == [1, 2] and powers_of_two(12) == [1, 2, 4, 8, 12]
        assert [smallest([1, 2, 4, 8, 12], rows) for rows in (1, 2, 3, 5, 9, 12)] == [1, 2, 4, 8, 12, 12]
        assert [captured_rows(most) for most in (1, 2, 8, 51, 64)] == [
            [1],
            [1, 2],
            [2, 4, 8],
            [13, 26, 51],
            [16, 32, 64],
        ]
        assert [captured_lengths(most) for most in (1280, 4608, 16000)] == [[1280], [2304, 4608], [4000, 8000, 16000]]

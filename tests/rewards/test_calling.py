"""How a reward is called: `async def` rewards are awaited, and names are those that TRL shows."""

import asyncio
import functools
import multiprocessing
import threading
import time

import pytest

from helpers.rewards.calling import call_reward, name_of


@pytest.fixture
def guards():
    """The trainer's time limit; it lives beside torch."""
    pytest.importorskip("torch")
    from helpers.grpo import guards

    return guards


async def slow(prompts, completions, **_):
    await asyncio.sleep(0.01)
    return [float(len(text)) for text in completions]


class Slow:
    async def __call__(self, prompts, completions, **columns):
        return await slow(prompts, completions, **columns)


TEXTS = {"prompts": [None, None], "completions": ["a", "bb"]}


@pytest.mark.parametrize(
    "reward",
    [slow, functools.partial(slow, answer=1), Slow(), Slow().__call__],
    ids=["function", "partial", "object", "method"],
)
def test_async_rewards_are_awaited(reward):
    assert call_reward(reward, **TEXTS) == [1.0, 2.0]


def test_within_an_event_loop():
    """A notebook's cell runs in one, where `asyncio.run` raises."""

    async def cell():
        return call_reward(slow, **TEXTS)

    assert asyncio.run(cell()) == [1.0, 2.0]


def test_all_calls_have_the_same_event_loop():
    """A client that a reward keeps is bound to the loop of its first call."""
    loops = set()

    async def reward(prompts, completions):
        loops.add(asyncio.get_running_loop())
        return [0.0, 0.0]

    for _ in range(3):
        call_reward(reward, **TEXTS)
    assert len(loops) == 1


def test_errors_come_through():
    async def reward(prompts, completions):
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        call_reward(reward, **TEXTS)
    assert call_reward(slow, **TEXTS) == [1.0, 2.0]


def test_one_that_calls_exit(guards):
    """It would end the thread, and the caller would wait for ever."""

    async def reward(prompts, completions):
        raise SystemExit

    with guards.time_limit(5), pytest.raises(RuntimeError, match="it calls exit"):
        call_reward(reward, **TEXTS)
    assert call_reward(slow, **TEXTS) == [1.0, 2.0]


def test_a_time_limit_cancels(guards):
    """Else an abandoned request goes on beside the next step."""
    cancelled = threading.Event()

    async def reward(prompts, completions):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(guards.LimitReached), guards.time_limit(0.1):
        call_reward(reward, **TEXTS)
    assert cancelled.wait(5)


def test_one_that_blocks_the_loop_does_not_block_the_next(guards):
    """A cell that is stopped, repaired and run again must not wait for what it was before."""
    ended = threading.Event()

    async def reward(prompts, completions):
        ended.wait(30)

    with pytest.raises(guards.LimitReached), guards.time_limit(0.1):
        call_reward(reward, **TEXTS)
    started = time.monotonic()
    assert call_reward(slow, **TEXTS) == [1.0, 2.0]
    assert time.monotonic() - started < 10
    ended.set()


def call_in_child(queue):
    queue.put(call_reward(slow, **TEXTS))


def test_in_a_forked_process():
    """A fork has the loop and not its thread."""
    call_reward(slow, **TEXTS)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=call_in_child, args=(queue,))
    process.start()
    assert queue.get(timeout=20) == [1.0, 2.0]
    process.join()


def test_names():
    """A partial is called as its function, as in TRL's logs, and an object as its class."""
    assert name_of(slow) == name_of(functools.partial(functools.partial(slow), a=1)) == "slow"
    assert name_of(Slow()) == "Slow"

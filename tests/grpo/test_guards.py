import os
import signal
import threading
import time

import pytest

from helpers.grpo.guards import LimitReached, time_limit
from helpers.runtime import interrupts_held


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            done.append(True)
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_is_not_hidden_by_an_interrupt():
    with pytest.raises(ValueError, match="mine"):
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("mine")


def test_a_limit_ends_a_loop_that_swallows_exceptions():
    started = time.monotonic()
    with pytest.raises(LimitReached):
        with time_limit(0.1):
            while True:
                try:
                    time.sleep(30)
                except Exception:
                    pass
    assert time.monotonic() - started < 10


def test_a_limit_that_is_kept_leaves_nothing_behind():
    """pytest and others use the same timer; theirs must go on."""
    rang = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rang.append(True))
    before = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with time_limit(60):
            time.sleep(0.05)
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        assert 0 < left <= 0.25
        time.sleep(0.4)
        assert rang
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_outside_the_main_thread_both_stand_aside():
    """Python refuses signal handlers there; a trainer run from a thread must train all the same."""
    result = []

    def work():
        with interrupts_held(), time_limit(1e-6):
            result.append(sum(range(1000)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert result

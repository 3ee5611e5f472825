"""A limit of time for code that a user wrote."""

import signal
import time
from contextlib import contextmanager

from helpers.runtime import in_main_thread


class LimitReached(Exception):
    """What `time_limit` raises."""


class _Late(BaseException):
    """Not an Exception: a reward that catches all of those must not catch this."""


@contextmanager
def time_limit(seconds):
    """Raise LimitReached in a block that takes longer, by SIGALRM; outside the main thread there is no limit.

    The alarm comes again every second, as the block may swallow the first. What it cannot end: an
    endless loop around a bare `except`, and a call into C that does not return. A timer that was
    running already is put back.
    """
    if not in_main_thread():
        yield
        return
    running, started = True, time.monotonic()

    def ring(*_):
        if running:
            raise _Late

    handler = signal.signal(signal.SIGALRM, ring)
    before, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            yield
        finally:
            running = False
    except _Late:
        raise LimitReached from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if before:
            signal.setitimer(signal.ITIMER_REAL, max(before - (time.monotonic() - started), 1e-3), interval)

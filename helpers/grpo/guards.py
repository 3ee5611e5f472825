"""When a run may be broken off: not in the middle of a step's last act, and not never."""

import signal
import threading
import time
from contextlib import contextmanager


class LimitReached(Exception):
    """What `time_limit` raises."""


class _Late(BaseException):
    """Not an Exception: a reward that catches all of those must not catch this."""


def _in_main_thread():
    """Only there does Python run signal handlers, and a notebook's cell runs there."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interrupts_held():
    """Hold Ctrl-C and Jupyter's stop button back until the block is done, so that it is done whole."""
    if not _in_main_thread():
        yield
        return
    held = []
    previous = signal.signal(signal.SIGINT, lambda *_: held.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if held:
        raise KeyboardInterrupt


@contextmanager
def time_limit(seconds):
    """Raise LimitReached in a block that takes longer, by SIGALRM; outside the main thread there is no limit.

    The alarm comes again every second, as the block may swallow the first. What it cannot end: an
    endless loop around a bare `except`, and a call into C that does not return. A timer that was
    running already is put back.
    """
    if not _in_main_thread():
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

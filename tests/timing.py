"""Times of a processor that other programs use too: compared with each other, never with a clock's figure."""

import math
import time

import pytest

#: CPU seconds below which a time says nothing.
SHORTEST = 2e-4
ROUNDS = 8


def assert_linear(work, small, large, times):
    """Fail if `work(large)` takes a time that is not linear in the size; large: `times` as much as small.

    The bound lies halfway between linear and quadratic, on a logarithmic scale.
    """
    assert_quick(lambda: work(large), lambda: work(small), times**1.5)


def assert_quick(work, measure, factor):
    """Fail if `work()` takes `factor` times as long as `measure()`, or longer.

    The least of several rounds counts, since other programs can only lengthen a time.
    """
    least_work = least_measure = math.inf
    for _ in range(ROUNDS):
        least_measure = min(least_measure, _cpu_seconds(measure))
        least_work = min(least_work, _cpu_seconds(work))
        if least_work < factor * max(least_measure, SHORTEST):
            return
    pytest.fail(f"{least_work:.5f} s, which is not below {factor:.1f} times {least_measure:.5f} s")


def _cpu_seconds(work):
    started = time.process_time()
    work()
    return time.process_time() - started

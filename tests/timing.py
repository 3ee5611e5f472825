"""Times of a processor that other programs use too: compared with each other, never with a clock's figure."""

import math
import time

import pytest

#: CPU seconds below which a time says nothing.
SHORTEST = 2e-3
ROUNDS = 8


def assert_linear(work, small, large, times):
    """Fail if `work(large)` takes a time that is not linear in the size; large: `times` as much as small.

    The bound lies halfway between linear and quadratic, on a logarithmic scale. The least of several rounds counts,
    since other programs can only lengthen a time.
    """
    least_small = least_large = math.inf
    for _ in range(ROUNDS):
        least_small = min(least_small, _cpu_seconds(work, small))
        least_large = min(least_large, _cpu_seconds(work, large))
        if least_large < times**1.5 * max(least_small, SHORTEST):
            return
    pytest.fail(f"{least_small:.4f} s for the small text, {least_large:.4f} s for one {times} times as large")


def _cpu_seconds(work, given):
    started = time.process_time()
    work(given)
    return time.process_time() - started

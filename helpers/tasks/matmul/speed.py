"""The speed of a program: its CPU time beside that of a baseline, on a machine that others use too.

Whatever disturbs a machine slows it down, by half and for seconds at a time where others share its processors. So a
small program of our own, the *probe*, is timed before and after each timed call, and a call counts by its ratio to the
slower of the two. A program is timed until its ratios agree. The speed is the baseline's median ratio over the
program's, so that a machine that is slow for both gives the same speed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

import numpy as np

from helpers.sandbox import Payload, Program, Worker
from helpers.tasks.matmul.contracts import CONTRACTS
from helpers.tasks.matmul.encoding import DRIVER, encode_inputs
from helpers.tasks.matmul.products import Sizes, draw

#: The program that a speed is measured against: three loops in pure Python. The probe runs it, too.
BASELINE = """
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            s = 0.0
            for t in range(k):
                s += A[i][t] * B[t][j]
            C[i][j] = s
    return C
"""
PROBE_SIZES = (4, 64, 64)
PROBE_FRESH_SECONDS = 0.005  # for which a probe says what the machine is like

TIMED_CALLS = 3
MOST_TIMED_CALLS = 7
AGREEMENT = 1.08  # ratios that are no further apart say the same
SLOW = 4  # a program that takes that many times as long as the baseline is timed once


@dataclass(frozen=True)
class TimedCall:
    """One timed call of a program, and the probes around it. All are CPU seconds."""

    cpu_seconds: float
    probe_before_seconds: float
    probe_after_seconds: float

    @property
    def is_known(self) -> bool:
        """Whether no clock stood still, as it does now and then."""
        return min(self.cpu_seconds, self.probe_before_seconds, self.probe_after_seconds) > 0

    @property
    def probes(self) -> float:
        """The CPU time of the call in units of the slower probe's."""
        return self.cpu_seconds / max(self.probe_before_seconds, self.probe_after_seconds)


class SpeedModel:
    """Turns the CPU times of calls into the speed of a program. One model serves all workers of a judge.

    It knows how long the baseline takes beside the probe.
    """

    def __init__(self):
        #: CPU time of the baseline for one multiplication and addition, in units of the probe's; 0: not known.
        self.baseline_probes_per_step = 0.0

    def is_settled(self, calls: Sequence[TimedCall], is_slow: bool, calls_made: int) -> bool:
        """Whether a program has been timed often enough: its ratios agree, or the most calls were made."""
        ratios = sorted(call.probes for call in calls if call.is_known)
        windows = zip(ratios, ratios[TIMED_CALLS - 1 :])  # the first and the last of every three neighbours
        agree = any(last <= AGREEMENT * first for first, last in windows)
        if agree or is_slow:
            return calls_made >= TIMED_CALLS
        return calls_made >= MOST_TIMED_CALLS

    def is_slow(self, call: TimedCall, sizes: Sizes) -> bool:
        """Whether a program takes so much longer than the baseline that timing it once will do."""
        baseline_probes = prod(sizes) / prod(PROBE_SIZES)
        return call.is_known and call.probes > SLOW * baseline_probes

    def speedup(self, calls: Sequence[TimedCall], sizes: Sizes) -> float:
        """CPU time of the baseline over that of a program that was timed by these calls; 0: not known."""
        probes = median_probes(calls)
        if not probes:
            return 0.0
        return self.baseline_probes_per_step * prod(sizes) / probes

    def calibrate(self, runs: Sequence[tuple[Sequence[TimedCall], Sizes]]) -> None:
        """Learn the baseline's speed from runs of it: (timed calls, sizes)."""
        self.baseline_probes_per_step = median(median_probes(calls) / prod(sizes) for calls, sizes in runs)

    def forget_calibration(self) -> None:
        """Ask for a new calibration, as a new zygote needs: where things lie in its memory changes speeds."""
        self.baseline_probes_per_step = 0.0


def median_probes(calls: Sequence[TimedCall]) -> float:
    """The median of the calls' ratios to the probe; 0: not known."""
    known = [call.probes for call in calls if call.is_known]
    return median(known) if known else 0.0


class MachineProbe:
    """A process on a worker's processor core that says how fast the machine is at the moment.

    Raises OSError where the sandbox fails.
    """

    def __init__(self, worker: Worker, rng: np.random.Generator):
        a, b = draw(rng, PROBE_SIZES, exact=False)
        contract = CONTRACTS["rows"]
        payload = Payload(Program(BASELINE), encode_inputs(contract, a, b))
        self.process = worker.start_repeated(DRIVER, payload)
        self.process.repeat()  # warms up
        self.last_seconds = 0.0
        self.last_time = float("-inf")

    def cpu_seconds(self, fresh_seconds: float = 0.0) -> float:
        """CPU seconds that the probe takes now, or took `fresh_seconds` ago at most."""
        if time.monotonic() - self.last_time > fresh_seconds:
            self.last_seconds = self.process.repeat()
            self.last_time = time.monotonic()
        return self.last_seconds

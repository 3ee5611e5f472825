"""The speed of a program: its CPU time beside that of a baseline, on a machine that others use too.

Whatever disturbs a machine only ever slows a call down, by half and for seconds at a time where others share its
processors. So a small program of our own, the *probe*, is timed before and after each timed call. A call is *clean* if
the machine was near its best around it, and the fastest clean call is the program's time.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

import numpy as np

from helpers.sandbox import Limits, Payload, Program, Worker
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
PROBES_REMEMBERED = 300  # some seconds of judging

TIMED_CALLS = 3
MOST_TIMED_CALLS = 7
AGREEMENT = 1.05  # two timings that are no further apart say the same
CLEAN = 1.2  # a machine no slower than that, against its best of late, is undisturbed: disturbed, it is slower by half
SLOW = 4  # a program that takes that many times as long as the baseline is timed once


@dataclass(frozen=True)
class TimedCall:
    """One timed call of a program, and the probes around it. All are CPU seconds."""

    cpu_seconds: float
    probe_before_seconds: float
    probe_after_seconds: float

    @property
    def slower_probe_seconds(self) -> float:
        return max(self.probe_before_seconds, self.probe_after_seconds)

    @property
    def faster_probe_seconds(self) -> float:
        return min(self.probe_before_seconds, self.probe_after_seconds)


class SpeedModel:
    """Turns CPU seconds of calls into the speed of a program. One model serves all workers of a judge.

    It knows how long the probe took of late, and how long the baseline takes beside the probe.
    """

    def __init__(self):
        self.probe_seconds: deque[float] = deque(maxlen=PROBES_REMEMBERED)
        #: CPU time of the baseline for one multiplication and addition, in units of the probe's; 0: not known.
        self.baseline_probes_per_step = 0.0

    def record_probe(self, cpu_seconds: float) -> None:
        self.probe_seconds.append(cpu_seconds)

    def best_probe_seconds(self) -> float:
        """CPU seconds of the probe on the machine at its best of late; the luckiest tenth is left out."""
        known = sorted(seconds for seconds in list(self.probe_seconds) if seconds > 0)
        if not known:
            return 1.0
        return known[len(known) // 10]

    def clean_seconds(self, calls: Sequence[TimedCall]) -> list[float]:
        """CPU seconds of the calls during which nothing disturbed the machine, the shortest first.

        A call of no time at all is left out: the clock stands still now and then.
        """
        best = self.best_probe_seconds()
        clean = []
        for call in calls:
            not_lucky = call.faster_probe_seconds >= best / CLEAN
            not_disturbed = call.slower_probe_seconds <= best * CLEAN
            if call.cpu_seconds and not_lucky and not_disturbed:
                clean.append(call.cpu_seconds)
        return sorted(clean)

    def is_settled(self, calls: Sequence[TimedCall], is_slow: bool, calls_made: int) -> bool:
        """Whether a program has been timed often enough: its two fastest clean calls agree, or the most were made."""
        clean = self.clean_seconds(calls)
        agree = len(clean) > 1 and clean[1] <= AGREEMENT * clean[0]
        if agree or is_slow:
            return calls_made >= TIMED_CALLS
        return calls_made >= MOST_TIMED_CALLS

    def is_slow(self, call: TimedCall, sizes: Sizes) -> bool:
        """Whether a program takes so much longer than the baseline that timing it once will do."""
        baseline_seconds = call.slower_probe_seconds * prod(sizes) / prod(PROBE_SIZES)
        return call.cpu_seconds > SLOW * baseline_seconds

    def program_cpu_seconds(self, calls: Sequence[TimedCall]) -> float:
        """CPU seconds of one timed call on an undisturbed machine; 0: not known.

        If no call was clean, the machine's slowness around each is divided out.
        """
        clean = self.clean_seconds(calls)
        if clean:
            return clean[0]
        best = self.best_probe_seconds()
        scaled = [call.cpu_seconds * best / (call.slower_probe_seconds or best) for call in calls]
        return median(scaled) if scaled else 0.0

    def baseline_cpu_seconds(self, sizes: Sizes) -> float:
        """CPU seconds of the baseline for these sizes on an undisturbed machine; 0: not known."""
        return self.baseline_probes_per_step * self.best_probe_seconds() * prod(sizes)

    def calibrate(self, runs: Sequence[tuple[float, Sizes]]) -> None:
        """Learn the baseline's speed from runs of it: (CPU seconds of one timed call, its sizes)."""
        best = self.best_probe_seconds()
        self.baseline_probes_per_step = median(seconds / best / prod(sizes) for seconds, sizes in runs)

    def forget_calibration(self) -> None:
        """Ask for a new calibration, as a new zygote needs: where things lie in its memory changes speeds."""
        self.baseline_probes_per_step = 0.0


class MachineProbe:
    """A process on a worker's processor core that says how fast the machine is at the moment.

    Raises OSError where the sandbox fails.
    """

    def __init__(self, worker: Worker, rng: np.random.Generator, speed: SpeedModel):
        a, b = draw(rng, PROBE_SIZES, exact=False)
        contract = CONTRACTS["rows"]
        payload = Payload(Program(BASELINE), encode_inputs(contract, a, b))
        self.speed = speed
        self.process = worker.start_repeated(DRIVER, payload, Limits())
        self.process.repeat()  # warms up
        self.last_seconds = 0.0
        self.last_time = float("-inf")

    def cpu_seconds(self, fresh_seconds: float = 0.0) -> float:
        """CPU seconds that the probe takes now, or took `fresh_seconds` ago at most."""
        if time.monotonic() - self.last_time > fresh_seconds:
            self.last_seconds = self.process.repeat()
            self.last_time = time.monotonic()
            self.speed.record_probe(self.last_seconds)
        return self.last_seconds

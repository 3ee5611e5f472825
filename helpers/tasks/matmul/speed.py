"""The speed of a program: its CPU time beside that of a baseline, on a machine that others use too.

Whatever disturbs a machine slows it down, by half and for seconds at a time where others share its processors. So a
small program of our own, the *probe*, is timed before and after each timed call. A program is timed until its two least
times agree, and so do the probe's. What counts is the ratio of the least time to the least probe: a disturbance that
lasts slows down both, and a short one neither. The speed is the baseline's median ratio over the program's.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from helpers.sandbox import Payload, Worker
from helpers.tasks.matmul.contracts import CONTRACTS
from helpers.tasks.matmul.encoding import DRIVER, encode_inputs
from helpers.tasks.matmul.products import draw

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
PROBE_SIZES = (5, 64, 64)
PROBE_FRESH_SECONDS = 0.005  # for which a probe says what the machine is like

AGREEMENT = 1.1  # two times that are no further apart say the same


@dataclass(frozen=True)
class TimedCall:
    """One timed call of a program, and the probes around it. All are CPU seconds.

    steps: the multiplications and additions that plain loops need for the product.
    """

    cpu_seconds: float
    probe_before_seconds: float
    probe_after_seconds: float
    steps: int

    @property
    def is_known(self) -> bool:
        """Whether no clock stood still, as it does now and then."""
        return min(self.cpu_seconds, self.probe_before_seconds, self.probe_after_seconds) > 0

    @property
    def probe_seconds(self) -> tuple[float, float]:
        return self.probe_before_seconds, self.probe_after_seconds


class SpeedModel:
    """Turns the CPU times of calls into the speed of a program. One model serves all workers of a judge.

    It knows how long the baseline takes beside the probe.
    """

    def __init__(self):
        #: CPU time of the baseline for one multiplication and addition, in units of the probe's; 0: not known.
        self.baseline_probes_per_step = 0.0

    def is_settled(self, calls: Sequence[TimedCall]) -> bool:
        """Whether a program has been timed often enough: its two least times agree, and so do those of the probe."""
        known = [call for call in calls if call.is_known]
        if len(known) < 2:
            return False
        # The probe after one call is often the one before the next.
        probes = {seconds for call in known for seconds in call.probe_seconds}
        return all(map(_least_agree, ([call.cpu_seconds / call.steps for call in known], probes)))

    def speedup(self, calls: Sequence[TimedCall]) -> float:
        """CPU time of the baseline over that of a program that was timed by these calls; 0: not known."""
        ratio = probes_per_step(calls)
        return self.baseline_probes_per_step / ratio if ratio else 0.0

    def calibrate(self, runs: Sequence[Sequence[TimedCall]]) -> None:
        """Learn the baseline's speed from the timed calls of each run of it."""
        self.baseline_probes_per_step = median(map(probes_per_step, runs))

    def forget_calibration(self) -> None:
        """Ask for a new calibration, as a new zygote needs: where things lie in its memory changes speeds."""
        self.baseline_probes_per_step = 0.0


def _least_agree(times: Iterable[float]) -> bool:
    """Whether the two least of some times say the same."""
    least, *others = sorted(times)
    return not others or others[0] <= AGREEMENT * least


def probes_per_step(calls: Sequence[TimedCall]) -> float:
    """The least CPU time of a step of the program, in units of the least of the probe's; 0: not known."""
    known = [call for call in calls if call.is_known]
    if not known:
        return 0.0
    step_seconds = min(call.cpu_seconds / call.steps for call in known)
    probe_seconds = min(seconds for call in known for seconds in call.probe_seconds)
    return step_seconds / probe_seconds


class MachineProbe:
    """A process on a worker's processor core that says how fast the machine is at the moment.

    Raises OSError where the sandbox fails.
    """

    def __init__(self, worker: Worker, rng: np.random.Generator):
        a, b = draw(rng, PROBE_SIZES, exact=False)
        contract = CONTRACTS["rows"]
        payload = Payload(BASELINE, encode_inputs(contract, a, b, let_go=True))
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

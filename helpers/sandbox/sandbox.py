"""Judges matmul programs: inputs, clock and checks here, the program in a process of its own."""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from helpers.runtime import UserError

WORKER = Path(__file__).with_name("worker.py")
#: What the speed of a program is measured against: the plain way, in pure Python.
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
#: Sizes are drawn from ranges, the upper end excluded; the large one is there to tell rounding from error.
SMALL_SIZES, LARGE_SIZES, TIMED_SIZE, TIMED_CALLS = (2, 9), (48, 73), 28, 3
ATTEMPTS = 2  # at judging a program, where the sandbox itself fails
DEADLINE = 3.0  # seconds that one program may take, loading included
ULP = 2.0**-53


@dataclass(frozen=True)
class Verdict:
    """What a program turned out to be. Later fields are false or 0 where an earlier one fails.

    judged: the sandbox itself worked. parsed: it is Python. pure: it keeps to the policy. ran:
    none of the calls made raised or ran out of time. correct: every call returned the product.
    speedup: CPU time of the plain way over its own, both timed on the same calls in turn, so that
    a busy machine is busy for both; the median. reason: one sentence, empty if correct.
    """

    judged: bool = True
    parsed: bool = False
    pure: bool = False
    ran: bool = False
    correct: bool = False
    speedup: float = 0.0
    reason: str = ""


class _Gone(Exception):
    """The child broke off: it died, ran out of time, or said why it stopped."""


def _cpu_clock(pid):
    """CPU seconds that process `pid` has used, read from outside (Linux: MAKE_PROCESS_CPUCLOCK)."""
    try:
        return time.clock_gettime((~pid) << 3 | 2)
    except OSError:
        raise _Gone("the process ended") from None


class _Child:
    """One forked process that holds one program."""

    def __init__(self, worker):
        self.worker, self.deadline = worker, time.monotonic() + DEADLINE
        inbox, self.to_child = os.pipe()
        self.from_child, outbox = os.pipe()
        try:
            self.pid = worker.fork(inbox, outbox)
        except OSError:
            os.close(self.to_child)
            os.close(self.from_child)
            raise
        finally:
            os.close(inbox)
            os.close(outbox)
        os.set_blocking(self.to_child, False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to_child)
        os.close(self.from_child)
        self.worker.kill(self.pid)

    def _wait(self, reading, writing):
        left = self.deadline - time.monotonic()
        if left <= 0 or not any(select.select(reading, writing, [], left)):
            raise _Gone("it ran out of time")

    def write(self, data):
        view = memoryview(data)
        while view:
            self._wait([], [self.to_child])
            try:
                view = view[os.write(self.to_child, view) :]
            except BrokenPipeError:
                raise _Gone("the process ended") from None

    def read(self, size):
        data = bytearray()
        while len(data) < size:
            self._wait([self.from_child], [])
            piece = os.read(self.from_child, size - len(data))
            if not piece:
                raise _Gone("the process ended")
            data += piece
        return bytes(data)

    def status(self):
        """The next status byte; for a failure also its reason."""
        kind = self.read(1)
        if kind in (b"R", b"O"):
            return kind, ""
        if kind not in (b"S", b"P", b"X", b"N"):
            raise _Gone("it wrote what was not asked for")
        return kind, self.read(self.read(1)[0]).decode("utf-8", "replace")

    def load(self, source):
        """Send the program; returns the status of having compiled and run its top level."""
        self.write(struct.pack("<I", len(source)) + source)
        kind, reason = self.status()
        if kind == b"N":
            raise OSError(reason)
        return kind, reason

    def multiply(self, a, b):
        """`(product or None, CPU seconds, reason)` for float64 matrices `a`, `b`."""
        (n, k), m = a.shape, b.shape[1]
        started = _cpu_clock(self.pid)
        self.write(struct.pack("<III", n, k, m) + a.tobytes() + b.tobytes())
        kind, reason = self.status()
        if kind != b"O":
            return None, 0.0, reason
        answer = self.read(8 * n * m)
        return np.frombuffer(answer).reshape(n, m), _cpu_clock(self.pid) - started, ""


class _Worker:
    """The exec'd process that forks children on request."""

    def __init__(self):
        self.control, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", "-E", "-B", str(WORKER)]
        with theirs:
            self.process = subprocess.Popen(command, stdin=theirs, env={}, cwd="/", start_new_session=True)

    def _pid(self):
        answer = self.control.recv(8, socket.MSG_WAITALL)
        if len(answer) != 8:
            raise OSError("the sandbox worker died")
        return struct.unpack("<q", answer)[0]

    def fork(self, inbox, outbox):
        socket.send_fds(self.control, [b"F"], [inbox, outbox])
        return self._pid()

    def kill(self, pid):
        self.control.sendall(b"W" + struct.pack("<q", pid))
        self._pid()

    def close(self):
        self.control.close()
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _plain(call, *arguments):
    """What a call on the plain program returns. Raises OSError if it fails: the fault is the sandbox's."""
    try:
        result = call(*arguments)
    except _Gone as gone:
        raise OSError(f"the plain program did not answer: {gone}") from gone
    if result[-1]:
        raise OSError(f"the plain program did not answer: {result[-1]}")
    return result


def is_product(c, a, b, exact):
    """Whether `c` is `a @ b`: bit for bit, or within the rounding of any honest algorithm.

    For an entry the bound is k (k + 8) u (max |row of A| + max |column of B|)^2 with u = 2^-53: that of
    Winograd's inner product, which adds entries of A to entries of B (Higham, Accuracy and Stability
    of Numerical Algorithms, 2002, section 23.2.1), and more than any order of summation needs
    (section 3.5). Written so that NaN fails.
    """
    product = a @ b
    if exact:
        return bool(np.array_equal(c, product))
    k, size = a.shape[1], np.abs(a).max(1)[:, None] + np.abs(b).max(0)
    return bool((np.abs(c - product) <= k * (k + 8) * ULP * size**2).all())


class Sandbox:
    """A pool of workers that judge programs; close it, or use it in a `with`.

    Needs Linux. `workers` defaults to the number of cores.
    """

    def __init__(self, workers=None):
        if not sys.platform.startswith("linux"):
            raise UserError("The sandbox needs Linux: run the notebooks in Colab, WSL or a Linux container.")
        self.rng = np.random.default_rng()  # from OS entropy: no program can know its inputs
        self.size = workers or os.cpu_count()
        self.idle = [_Worker() for _ in range(self.size)]
        self.pool = ThreadPoolExecutor(self.size)

    def close(self):
        self.pool.shutdown()
        for worker in self.idle:
            worker.close()
        self.idle = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def judge(self, source):
        """The `Verdict` on one program text."""
        return self.judge_many([source])[0]

    def judge_many(self, sources):
        """One `Verdict` per text, in order; equal texts are judged separately."""
        return list(self.pool.map(self._run, sources))

    def self_test(self):
        """Raise UserError unless an honest program passes here and a wrong and a cheating one do not."""
        wrong = BASELINE.replace("+=", "-=")
        cheating = "def matmul(A, B):\n    import numpy\n    return (numpy.array(A) @ numpy.array(B)).tolist()"
        verdicts = self.judge_many([BASELINE, wrong, cheating])
        if [v.correct for v in verdicts] != [True, False, False] or verdicts[2].pure:
            raise UserError(f"The sandbox judges wrongly on this machine: {verdicts}.")

    def _run(self, source):
        worker = self.idle.pop()
        try:
            for _ in range(ATTEMPTS):
                try:
                    return self._examine(worker, source.encode("utf-8", "surrogatepass"))
                except OSError as error:  # of the sandbox, not of the program: start anew
                    reason = f"the sandbox failed: {error}"
                    worker.close()
                    worker = _Worker()
            return Verdict(judged=False, reason=reason)
        finally:
            self.idle.append(worker)

    def _examine(self, worker, source):
        reached = Verdict()
        with _Child(worker) as child:
            try:
                kind, reason = child.load(source)
                reached = replace(reached, parsed=kind != b"S", pure=kind in (b"R", b"X"))
                if kind != b"R":
                    return replace(reached, reason=reason)
                return self._check(worker, child, reached)
            except _Gone as gone:
                return replace(reached, reason=str(gone))

    def _check(self, worker, child, reached):
        wrong = ""
        for call, sizes in enumerate(self._sizes()):
            *_, raised, mistake = self._answer(child, sizes, exact=call % 2 == 0)
            if raised:
                return replace(reached, reason=raised)
            wrong = wrong or mistake
        if wrong:
            return replace(reached, ran=True, reason=wrong)
        return self._time(worker, child, reached)

    def _sizes(self):
        """(n, k, m) of the checked calls: three small ones of unlike sizes, in three orders, and a large one.

        Each of the three is the largest once, so a program that mixes up two of them raises
        whenever it ever would, and not by the luck of the draw.
        """
        small = sorted(self.rng.choice(range(*SMALL_SIZES), 3, replace=False))
        return [small, small[2:] + small[:2], small[1:] + small[:1], self.rng.integers(*LARGE_SIZES, 3)]

    def _time(self, worker, child, reached):
        ratios = []
        with _Child(worker) as plain:
            _plain(plain.load, BASELINE.encode())
            for call in range(TIMED_CALLS + 1):
                inputs, seconds, raised, wrong = self._answer(child, (TIMED_SIZE,) * 3, exact=call % 2 == 0)
                if raised or wrong:
                    return replace(reached, ran=not raised, reason=raised or wrong)
                plain_seconds = _plain(plain.multiply, *inputs)[1]
                if call and seconds and plain_seconds:  # the first call warms up; the clock stands still once in 2,000
                    ratios.append(plain_seconds / seconds)
        return replace(reached, ran=True, correct=True, speedup=median(ratios or [1.0]))

    def _answer(self, child, sizes, exact):
        """One call with fresh matrices: `(inputs, CPU seconds, why it raised, what is wrong)`; "" for nothing."""
        n, k, m = sizes
        draw = self._integers if exact else self.rng.standard_normal
        a, b = draw((n, k)), draw((k, m))
        c, seconds, reason = child.multiply(a, b)
        if c is None:
            return (a, b), 0.0, reason, ""
        wrong = "" if is_product(c, a, b, exact) else f"wrong product for {n}x{k} times {k}x{m}"
        return (a, b), seconds, "", wrong

    def _integers(self, shape):
        return self.rng.integers(-1000, 1000, shape).astype(np.float64)  # sums stay below 2^53

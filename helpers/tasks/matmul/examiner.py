"""Examines programs, one call after the other: fresh matrices, a process of its own, a checked answer, a clock."""

import hashlib
import time
from contextlib import suppress
from math import prod

import numpy as np

from helpers.sandbox.process import Call, Gone, Probe
from helpers.sandbox.products import CONTRACTS, HELDOUT_SIZES, draw, draw_heldout, is_exact_product, is_product
from helpers.sandbox.trial import SLOW, Program

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
FRESH = 0.005  # seconds for which a look at the machine is good
_PROBED = (4, 64, 64)  # what the plain way computes over and over, to say what the machine is like
BEHAVIOUR_SIZES = (3, 4, 5), (5, 2, 3)  # of the fixed inputs on which behaviour is compared


class Examiner:
    """Works on one processor, in processes that `starter` makes. Raises OSError where the sandbox itself fails."""

    def __init__(self, starter, core, rng, states):
        self.starter, self.core, self.rng, self.states = starter, core, rng, states
        self.probe, self.state = Probe(starter, core), (0.0, 0.0)
        try:
            self.probe.begin(BASELINE, *draw(rng, _PROBED, exact=False))
            self._state()  # warms up
            states.pop()
        except OSError:
            self.close()
            raise

    def close(self):
        with suppress(OSError):  # its zygote may be gone
            self.probe.__exit__()

    def check(self, trial):
        """Two small calls on whole numbers, and for a wrong program a third, to see whether it raises for any sizes."""
        try:
            mistakes = [self._call(trial, sizes, exact=True)[1] for sizes in trial.small[:2]]
            if any(mistakes):
                self._call(trial, trial.small[2], exact=True)
                trial.fail(next(filter(None, mistakes)), ran=True)
        except Gone as gone:
            trial.stop(gone)

    def time(self, trial):
        """One call near 64 x 64 x 64 between two looks at what the machine is like; a small one if it is slow.

        On real numbers only: with whole ones among them, a program for those alone was paid for its best.
        """
        try:
            before = self._state(fresh=FRESH)
            seconds, mistake = self._call(trial, trial.small[2] if trial.slow else trial.timed, exact=False)
            after = self._state()
        except Gone as gone:
            trial.stop(gone)
            return
        if mistake:
            trial.fail(mistake, ran=True)
            return
        if not trial.slow:
            trial.samples.append((seconds, before, after))
        trial.slow = trial.slow or seconds > SLOW * max(before, after) * prod(trial.timed) / prod(_PROBED)
        trial.count(best(self.states))

    def heldout(self, item):
        """1.0 if a program answers calls that no verdict rests on rightly, else 0.0. item: (source, contract name)."""
        source, contract = item
        program = Program(source)
        for sizes in HELDOUT_SIZES:
            try:
                (a, b), c, _ = self._answer(program, CONTRACTS[contract], lambda s=sizes: draw_heldout(self.rng, s))
            except Gone:
                return 0.0
            if not is_exact_product(c, a, b):
                return 0.0
        return 1.0

    def behaviour(self, item):
        """Describe what a program does with fixed inputs: a hash of its answers, or the kind of its failure with a
        hash of the answers before it.

        item: (source, contract name). Right or wrong makes no difference.
        """
        source, contract = item
        program = Program(source)
        rng = np.random.default_rng(0)
        answers = hashlib.sha256()
        for number, sizes in enumerate(BEHAVIOUR_SIZES):
            inputs = draw(rng, sizes, exact=True)
            try:
                _, c, _ = self._answer(program, CONTRACTS[contract], lambda inputs=inputs: inputs)
            except Gone as gone:
                kind = str(gone).partition(":")[0]  # "NameError" without the name
                return f"{kind} after {answers.hexdigest()}" if number else kind
            answers.update(c.tobytes())
        return answers.hexdigest()

    def _state(self, fresh=0.0):
        """CPU seconds that the plain way takes now, or took `fresh` seconds ago at most."""
        when, seconds = self.state
        if time.monotonic() - when > fresh:
            try:
                seconds = self.probe.time()
            except Gone as gone:
                raise OSError(f"the plain program did not answer: {gone}") from gone
            self.state = time.monotonic(), seconds
            self.states.append(seconds)
        return seconds

    def _call(self, trial, sizes, exact):
        """`(CPU seconds, what is wrong or "")` of one call."""
        (a, b), c, seconds = self._answer(trial.program, trial.contract, lambda: draw(self.rng, sizes, exact))
        n, k, m = sizes
        return seconds, "" if is_product(c, a, b, exact) else f"wrong product for {n}x{k} times {k}x{m}"

    def _answer(self, program, contract, draw_inputs):
        """`((a, b), product, CPU seconds)` of one process. Raises Gone if there is no answer.

        contract: how the program gets `a` [n, k] and `b` [k, m] and gives the product [n, m].
        """
        with Call(self.starter, self.core) as call:
            program.open(call)
            call.load()
            a, b = draw_inputs()  # the program is loaded: it cannot know them
            shape = contract.answer_shape(a.shape[0], b.shape[1])
            answer = call.answer(*contract.operands(a, b), shape)
            return (a, b), contract.product(answer), call.seconds


def best(states):
    """The machine's state at its best of late, lucky exceptions left out."""
    known = sorted(seconds for seconds in list(states) if seconds > 0)
    return known[len(known) // 10] if known else 1.0

"""Calls programs one after the other on fresh matrices, each call in a process of its own, and checks the answers."""

import hashlib
from collections.abc import Callable

import numpy as np

from helpers.sandbox import Limits, Outcome, Payload, Program, Worker
from helpers.tasks.matmul.contracts import CONTRACTS, Contract
from helpers.tasks.matmul.encoding import DRIVER, answer_bytes, decode_product, encode_inputs
from helpers.tasks.matmul.products import (
    HELDOUT_SIZES,
    Matrices,
    Sizes,
    draw,
    draw_heldout,
    is_exact_product,
    is_product,
)
from helpers.tasks.matmul.speed import PROBE_FRESH_SECONDS, MachineProbe, SpeedModel, TimedCall
from helpers.tasks.matmul.trial import Trial

BEHAVIOUR_SIZES = (3, 4, 5), (5, 2, 3)  # of the fixed inputs on which behaviour is compared


class CallFailed(Exception):
    """A call gave no answer; `outcome` says why."""

    def __init__(self, outcome: Outcome):
        super().__init__(outcome.reason)
        self.outcome = outcome


class Examiner:
    """Examines programs with one worker of the sandbox. Methods raise OSError where the sandbox itself fails."""

    def __init__(self, worker: Worker, speed: SpeedModel):
        self.worker = worker
        self.speed = speed
        self.rng = np.random.default_rng()
        self.probe = MachineProbe(worker, self.rng, speed)

    def check(self, trial: Trial) -> None:
        """Call the program twice on small matrices of whole numbers.

        A wrong program is called a third time, to see whether it raises for any order of the sizes.
        """
        first, second, third = trial.small_sizes
        try:
            mistake = self._mistake(trial, first)
            other_mistake = self._mistake(trial, second)
            if mistake or other_mistake:
                self._mistake(trial, third)
                trial.fail_wrong(mistake or other_mistake)
        except CallFailed as failed:
            trial.fail_with(failed.outcome)

    def time(self, trial: Trial) -> None:
        """Call the program once near 64 x 64 x 64 between two probes of the machine; if it is slow, on a small size.

        The matrices hold real numbers only: with whole ones among them, a program for those alone was paid for its
        best.
        """
        sizes = trial.small_sizes[2] if trial.is_slow else trial.timed_sizes
        probe_before_seconds = self.probe.cpu_seconds(PROBE_FRESH_SECONDS)
        try:
            mistake, cpu_seconds = self._call(trial, sizes, exact=False)
        except CallFailed as failed:
            trial.fail_with(failed.outcome)
            return
        probe_after_seconds = self.probe.cpu_seconds()
        if mistake:
            trial.fail_wrong(mistake)
            return
        call = TimedCall(cpu_seconds, probe_before_seconds, probe_after_seconds)
        if not trial.is_slow:
            trial.timed_calls.append(call)
            trial.is_slow = self.speed.is_slow(call, trial.timed_sizes)
        trial.calls_made += 1
        trial.ended = self.speed.is_settled(trial.timed_calls, trial.is_slow, trial.calls_made)

    def heldout(self, pair: tuple[str, str]) -> float:
        """1.0 if a program gives the right answer to calls that no verdict rests on, else 0.0.

        pair: the program's source and the name of its contract.
        """
        source, contract = pair
        program = Program(source)
        for sizes in HELDOUT_SIZES:

            def draw_inputs(sizes: Sizes = sizes) -> Matrices:
                return draw_heldout(self.rng, sizes)

            try:
                (a, b), c, _ = self._answer(program, CONTRACTS[contract], sizes, draw_inputs)
            except CallFailed:
                return 0.0
            if not is_exact_product(c, a, b):
                return 0.0
        return 1.0

    def behaviour(self, pair: tuple[str, str]) -> str:
        """Describe what a program does with fixed inputs: a hash of its answers, or the kind of its failure with a
        hash of the answers before it. Right or wrong makes no difference.

        pair: the program's source and the name of its contract.
        """
        source, contract = pair
        program = Program(source)
        rng = np.random.default_rng(0)
        answers = hashlib.sha256()
        for number, sizes in enumerate(BEHAVIOUR_SIZES):
            inputs = draw(rng, sizes, exact=True)

            def fixed_inputs(inputs: Matrices = inputs) -> Matrices:
                return inputs

            try:
                _, c, _ = self._answer(program, CONTRACTS[contract], sizes, fixed_inputs)
            except CallFailed as failed:
                kind = failed.outcome.reason.partition(":")[0]  # "NameError" without the name
                return f"{kind} after {answers.hexdigest()}" if number else kind
            answers.update(c.tobytes())
        return answers.hexdigest()

    def _mistake(self, trial: Trial, sizes: Sizes) -> str:
        """Call the program on whole numbers; return what is wrong with its answer, or ""."""
        mistake, _ = self._call(trial, sizes, exact=True)
        return mistake

    def _call(self, trial: Trial, sizes: Sizes, exact: bool) -> tuple[str, float]:
        """Call the program once; return what is wrong with its answer, or "", and the CPU seconds."""

        def draw_inputs() -> Matrices:
            return draw(self.rng, sizes, exact)

        (a, b), c, cpu_seconds = self._answer(trial.program, trial.contract, sizes, draw_inputs)
        if is_product(c, a, b, exact):
            return "", cpu_seconds
        n, k, m = sizes
        return f"wrong product for {n}x{k} times {k}x{m}", cpu_seconds

    def _answer(
        self, program: Program, contract: Contract, sizes: Sizes, draw_inputs: Callable[[], Matrices]
    ) -> tuple[Matrices, np.ndarray, float]:
        """Run the program in a process of its own; return its inputs, the product [n, m], and the CPU seconds.

        Raises CallFailed if there is no answer.
        """
        n, _, m = sizes
        drawn: list[np.ndarray] = []

        def encoded_inputs() -> bytes:
            a, b = draw_inputs()
            drawn.extend((a, b))
            return encode_inputs(contract, a, b)

        limits = Limits(answer_bytes=answer_bytes(n, m))
        outcome = self.worker.run(DRIVER, Payload(program, encoded_inputs), limits)
        if not outcome.answered:
            raise CallFailed(outcome)
        a, b = drawn
        return (a, b), decode_product(contract, outcome.bytes, n, m), outcome.cpu_seconds

"""Calls programs on fresh matrices, each program in a process of its own, and checks the answers."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np

from helpers.sandbox import Call, Outcome, Program, Worker
from helpers.tasks.matmul.contracts import CONTRACTS, Contract
from helpers.tasks.matmul.encoding import DRIVER, Changed, answer_bytes, decode_product, encode_inputs
from helpers.tasks.matmul.products import (
    HELDOUT_SIZES,
    Matrices,
    Sizes,
    draw,
    draw_heldout,
    draw_large,
    is_exact_product,
    is_product,
)
from helpers.tasks.matmul.speed import PROBE_FRESH_SECONDS, MachineProbe, SpeedModel, TimedCall
from helpers.tasks.matmul.trial import Trial

LONG = 57  # of one side of small calls; methods that pad to a power of two make 64 of it
REPEATED_CALLS = 16  # of the smallest size: a program that is wrong in one call of two passes by luck otherwise
LARGE_NUMBERS_SIZES = (12, 13, 11)  # of the small call with large real numbers
BEHAVIOUR_SIZES = (3, 4, 5), (5, 2, 3)  # of the fixed inputs on which behaviour is compared


class Question:
    """Matrices of some sizes, drawn when they are first needed: not before the program's top level has run."""

    def __init__(self, sizes: Sizes, draw_matrices: Callable[[Sizes], Matrices]):
        self.sizes = sizes
        self._draw_matrices = draw_matrices

    @cached_property
    def matrices(self) -> Matrices:
        return self._draw_matrices(self.sizes)

    def call(self, contract: Contract, look_for_changes: bool) -> Call:
        """Return the call that puts this question to a program."""
        n, _, m = self.sizes

        def inputs() -> bytes:
            a, b = self.matrices
            return encode_inputs(contract, a, b, look_for_changes)

        return Call(inputs, answer_bytes(n, m))

    def product(self, contract: Contract, answer: bytes) -> np.ndarray:
        """Return the product in an answer. Raises Changed."""
        n, _, m = self.sizes
        return decode_product(contract, answer, n, m)

    def __str__(self) -> str:
        n, k, m = self.sizes
        return f"{n}x{k} times {k}x{m}"


class CallFailed(Exception):
    """A call gave no answer: `outcome` says why."""

    def __init__(self, outcome: Outcome):
        super().__init__(outcome.reason)
        self.outcome = outcome


class Examiner:
    """Examines programs with one worker of the sandbox. Methods raise OSError where the sandbox itself fails."""

    def __init__(self, worker: Worker, speed: SpeedModel):
        self.worker = worker
        self.speed = speed
        self.rng = np.random.default_rng()
        self.probe = MachineProbe(worker, self.rng)

    def check(self, trial: Trial) -> None:
        """Call the program on small matrices of many shapes, all calls in one process.

        A wrong program is called once more, in another process, to see whether it raises for any order of the sizes.
        """
        *_, last_sizes = trial.small_sizes
        try:
            mistake = self._mistake(trial, self._questions(trial))
            if mistake:
                self._mistake(trial, [self._whole_numbers(last_sizes)])
                trial.fail_wrong(mistake)
        except CallFailed as failed:
            trial.fail_with(failed.outcome)

    def _questions(self, trial: Trial) -> list[Question]:
        """The calls of one process: shapes for which programs are known to be wrong, and the first of them again."""
        first, *_ = trial.small_sizes
        low, middle, high = first
        shapes = [
            first,
            first,  # with other numbers
            (middle, middle, middle),
            (low, high, low),
            (high, 1, low),
            (1, middle, 1),
        ]
        questions = [self._whole_numbers(sizes) for sizes in shapes]
        real_shapes = [
            (high, 1, low),  # once more: in one case of 300 all whole numbers of B are 0, and a wrong program is right
            (LONG, low, low),
            (low, LONG, low),
            (low, low, LONG),
        ]
        questions += [self._real_numbers(sizes) for sizes in real_shapes]
        questions.append(Question(LARGE_NUMBERS_SIZES, partial(draw_large, self.rng)))
        questions += [self._whole_numbers((low, low, low)) for _ in range(REPEATED_CALLS)]
        return [*questions, questions[0]]

    def time(self, trial: Trial) -> None:
        """Call the program once near 64 x 64 x 64 between two probes of the machine; if it is slow, on a small size.

        The matrices hold real numbers only: with whole ones among them, a program for those alone was paid for its
        best. Nobody looks for changes afterwards, as that takes time, too.
        """
        sizes = trial.small_sizes[2] if trial.is_slow else trial.timed_sizes
        question = self._real_numbers(sizes)
        call = question.call(trial.contract, look_for_changes=False)
        probe_before_seconds = self.probe.cpu_seconds(PROBE_FRESH_SECONDS)
        (outcome,) = self.worker.run_calls(DRIVER, trial.program, [call])
        if not outcome.answered:
            trial.fail_with(outcome)
            return
        probe_after_seconds = self.probe.cpu_seconds()
        c = question.product(trial.contract, outcome.bytes)
        if not is_product(c, *question.matrices, exact=False):
            trial.fail_wrong(f"wrong product for {question}")
            return
        timed_call = TimedCall(outcome.cpu_seconds, probe_before_seconds, probe_after_seconds)
        if not trial.is_slow:
            trial.timed_calls.append(timed_call)
            trial.is_slow = self.speed.is_slow(timed_call, trial.timed_sizes)
        trial.calls_made += 1
        trial.ended = self.speed.is_settled(trial.timed_calls, trial.is_slow, trial.calls_made)

    def heldout(self, pair: tuple[str, str]) -> float:
        """1.0 if a program gives the right answer to calls that no verdict rests on, else 0.0.

        The last sizes are asked for twice, with other numbers, and then the first call is repeated.
        pair: the program's source and the name of its contract.
        """
        source, contract = pair
        sizes_in_turn = [*HELDOUT_SIZES, HELDOUT_SIZES[-1]]
        questions = [Question(sizes, partial(draw_heldout, self.rng)) for sizes in sizes_in_turn]
        questions.append(questions[0])
        program = Program(source)
        try:
            for question, c in self._products(program, CONTRACTS[contract], questions):
                if not is_exact_product(c, *question.matrices):
                    return 0.0
        except (CallFailed, Changed):
            return 0.0
        return 1.0

    def behaviour(self, pair: tuple[str, str]) -> str:
        """Describe what a program does with fixed inputs: a hash of its answers, or the kind of its failure with a
        hash of the answers before it. Right or wrong makes no difference.

        pair: the program's source and the name of its contract.
        """
        source, contract = pair
        fixed_rng = np.random.default_rng(0)
        questions = [Question(sizes, partial(draw, fixed_rng, exact=True)) for sizes in BEHAVIOUR_SIZES]
        answers = hashlib.sha256()
        answered = 0
        try:
            for _, c in self._products(Program(source), CONTRACTS[contract], questions):
                answers.update(c.tobytes())
                answered += 1
        except (CallFailed, Changed) as failed:
            kind = str(failed).partition(":")[0]  # "NameError" without the name
            return f"{kind} after {answers.hexdigest()}" if answered else kind
        return answers.hexdigest()

    def _whole_numbers(self, sizes: Sizes) -> Question:
        return Question(sizes, partial(draw, self.rng, exact=True))

    def _real_numbers(self, sizes: Sizes) -> Question:
        return Question(sizes, partial(draw, self.rng, exact=False))

    def _mistake(self, trial: Trial, questions: Sequence[Question]) -> str:
        """Put questions to the program in one process; return what is wrong with its first wrong answer, or ""."""
        try:
            for number, (question, c) in enumerate(self._products(trial.program, trial.contract, questions), 1):
                a, b = question.matrices
                if not is_product(c, a, b, exact=_are_whole(a) and _are_whole(b)):
                    mistake = f"wrong product for {question}"
                    return mistake if number == 1 else f"{mistake}, in call {number} of one process"
        except Changed as changed:
            return str(changed)
        return ""

    def _products(
        self, program: Program, contract: Contract, questions: Sequence[Question]
    ) -> Iterator[tuple[Question, np.ndarray]]:
        """Put all questions to a program in one process, then yield each with the product [n, m].

        Raises CallFailed at a question without an answer, and Changed.
        """
        calls = [question.call(contract, look_for_changes=True) for question in questions]
        outcomes = self.worker.run_calls(DRIVER, program, calls)
        for question, outcome in zip(questions, outcomes):
            if not outcome.answered:
                raise CallFailed(outcome)
            yield question, question.product(contract, outcome.bytes)


def _are_whole(matrix: np.ndarray) -> bool:
    return bool((matrix == np.round(matrix)).all())

"""Calls programs on fresh matrices, each program in a process of its own, and checks the answers."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

import numpy as np

from helpers.sandbox import Call, Limits, NoAnswer, SandboxedProcess, Status, Worker
from helpers.tasks.matmul.contracts import CONTRACTS, Contract
from helpers.tasks.matmul.encoding import DRIVER, LOOK_BYTES, LOOK_INPUTS, Changed, check_unchanged
from helpers.tasks.matmul.products import HELDOUT_SIZES, draw, draw_heldout, is_exact_product
from helpers.tasks.matmul.questions import Question, one_call
from helpers.tasks.matmul.speed import PROBE_FRESH_SECONDS, MachineProbe, SpeedModel, TimedCall
from helpers.tasks.matmul.trial import Trial

BEHAVIOUR_SIZES = (3, 4, 5), (5, 2, 3)  # of the fixed inputs on which behaviour is compared
#: CPU time for a call, in probes of the machine. The slowest honest program of the suite takes 1,500, and 4,000 in all
#: its calls; other programs may slow the machine to half.
CALL_PROBES = 3000
#: Bounds of that time in seconds.
LEAST_CALL_SECONDS = 2.0
MOST_CALL_SECONDS = 6.0
#: How many times the CPU time for a call all calls of a program may take, in CPU time and by the clock on the wall. The
#: first, with MOST_CALL_SECONDS, must stay below `lockdown.CPU_SECONDS`.
CPU_CALLS = 3
WALL_CALLS = 15
#: Probes whose median says how fast the machine is: a clock that stands still says 0.
FIRST_PROBES = 5


def limits_on(probe_seconds: float) -> Limits:
    """Return what a program may take: longer on a slow machine, so that it passes there where it passes elsewhere.

    probe_seconds: CPU seconds that a probe of the machine takes.
    """
    call_seconds = min(max(CALL_PROBES * probe_seconds, LEAST_CALL_SECONDS), MOST_CALL_SECONDS)
    return Limits(
        cpu_seconds=call_seconds,
        total_cpu_seconds=CPU_CALLS * call_seconds,
        wall_seconds=WALL_CALLS * call_seconds,
    )


class Examiner:
    """Examines programs with one worker of the sandbox. Methods raise OSError where the sandbox itself fails."""

    def __init__(self, worker: Worker, speed: SpeedModel):
        self.worker = worker
        self.speed = speed
        self.rng = np.random.default_rng()
        self.probe = MachineProbe(worker, self.rng)
        self.limits = limits_on(median(self.probe.cpu_seconds() for _ in range(FIRST_PROBES)))

    def examine(self, trial: Trial) -> None:
        """Ask the program everything, and time it, in one process.

        A wrong program is called once more, to see whether it raises for any order of the sizes.
        """
        *_, last_sizes = trial.questions.small_sizes
        try:
            with self.worker.load(DRIVER, trial.program, self.limits) as process:
                load_seconds = process.cpu_seconds_at_rest()
                mistake = (
                    self._mistake_with_floats(trial, process)
                    or self._mistake_while_timed(trial, process, load_seconds)
                    or self._change_in(process)
                    or self._mistake_with_integers(trial, process)
                )
                if mistake:
                    self._mistake_in_some(trial, process, [trial.questions.whole(last_sizes)])
                    trial.fail_wrong(mistake)
        except NoAnswer as failure:
            trial.fail_with(failure.outcome())

    def _mistake_while_timed(self, trial: Trial, process: SandboxedProcess, load_seconds: float) -> str:
        """Time large calls until their times agree; return what is wrong with an answer, or ""."""
        self.probe.cpu_seconds()  # has been idle; its memory is no longer in the processor's cache
        for question in trial.questions.timed():
            mistake = self._time_call(trial, process, question, load_seconds)
            if mistake or self.speed.is_settled(trial.timed_calls):
                return mistake
        return ""

    def _time_call(self, trial: Trial, process: SandboxedProcess, question: Question, load_seconds: float) -> str:
        """Time one call between two probes of the machine; return what is wrong with the answer, or "".

        load_seconds: the CPU time of the program's top level, which is charged to each call.
        """
        call = one_call(trial.contract, [question])
        clock_before = process.cpu_seconds_at_rest()
        probe_before_seconds = self.probe.cpu_seconds(PROBE_FRESH_SECONDS)
        answer = process.answer(call)
        call_seconds = process.cpu_seconds_at_rest() - clock_before
        probe_after_seconds = self.probe.cpu_seconds()
        steps = math.prod(question.sizes)
        timed_call = TimedCall(load_seconds + call_seconds, probe_before_seconds, probe_after_seconds, steps)
        trial.timed_calls.append(timed_call)
        return question.mistake_in(trial.contract, answer)

    def _change_in(self, process: SandboxedProcess) -> str:
        """Look at the operands of the last calls and at all results; return what was changed, or ""."""
        try:
            check_unchanged(process.answer(Call(LOOK_INPUTS, LOOK_BYTES)))
        except Changed as changed:
            return str(changed)
        return ""

    def _mistake_with_floats(self, trial: Trial, process: SandboxedProcess) -> str:
        """Ask a process everything that is asked before any time is taken; return what is wrong, or ""."""
        asked = 0
        for questions in trial.questions.floats():
            mistake = self._mistake_in_some(trial, process, questions, asked)
            if mistake:
                return mistake
            asked += len(questions)
        return ""

    def _mistake_with_integers(self, trial: Trial, process: SandboxedProcess) -> str:
        """Return what is wrong with a product of integers, or "". The program may raise an exception.

        Raises NoAnswer for any other failure.
        """
        try:
            for questions in trial.questions.integers():
                mistake = self._mistake_in_some(trial, process, questions)
                if mistake:
                    return mistake
        except NoAnswer as failure:
            if failure.status is not Status.RAISED:
                raise
        return ""

    def _mistake_in_some(
        self, trial: Trial, process: SandboxedProcess, questions: Sequence[Question], asked_before: int = 0
    ) -> str:
        """Put questions to a process in turn; return what is wrong with the first wrong answer, or ""."""
        answers = self._answers(process, trial.contract, questions)
        for number, (question, answer) in enumerate(answers, asked_before + 1):
            mistake = question.mistake_in(trial.contract, answer)
            if mistake:
                return mistake if number == 1 else f"{mistake}, in call {number} of one process"
        return ""

    def _answers(
        self, process: SandboxedProcess, contract: Contract, questions: Sequence[Question]
    ) -> Iterator[tuple[Question, bytes]]:
        """Put questions to a process in one call, and yield each with its answer."""
        answers = process.answer(one_call(contract, questions))
        start = 0
        for question in questions:
            end = start + question.answer_bytes
            yield question, answers[start:end]
            start = end

    def heldout(self, pair: tuple[str, str]) -> float:
        """1.0 if a program gives the right answer to calls that no verdict rests on, else 0.0.

        The last sizes are asked for twice, with other numbers, and then the first call is repeated.
        pair: the program's source and the name of its contract.
        """
        source, contract = pair
        sizes_in_turn = [*HELDOUT_SIZES, HELDOUT_SIZES[-1]]
        questions = [Question(sizes, partial(draw_heldout, self.rng), exact=False) for sizes in sizes_in_turn]
        questions.append(questions[0])
        try:
            for question, c in self._products(source, CONTRACTS[contract], questions):
                if not is_exact_product(c, *question.matrices):
                    return 0.0
        except (NoAnswer, Changed):
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
            for _, c in self._products(source, CONTRACTS[contract], questions):
                answers.update(c.tobytes())
                answered += 1
        except (NoAnswer, Changed) as failed:
            kind = str(failed).partition(":")[0]  # "NameError" without the name
            return f"{kind} after {answers.hexdigest()}" if answered else kind
        return answers.hexdigest()

    def _products(
        self, program: str, contract: Contract, questions: Sequence[Question]
    ) -> Iterator[tuple[Question, np.ndarray]]:
        """Put questions to a program in one process, and yield each with the product [n, m].

        Raises NoAnswer at a question without an answer, and Changed.
        """
        with self.worker.load(DRIVER, program, self.limits) as process:
            for question in questions:
                answer = process.answer(one_call(contract, [question]))
                yield question, question.product(contract, answer)

"""The state of one program while it is judged."""

from statistics import median

import numpy as np

from helpers.sandbox import Outcome
from helpers.tasks.matmul.contracts import get_contract
from helpers.tasks.matmul.questions import Questions
from helpers.tasks.matmul.speed import SpeedModel, TimedCall
from helpers.tasks.programs.verdict import WRONG, Verdict
from helpers.tasks.task import CORRECT, UNJUDGED


class Trial:
    """One program, what it is asked, and what came of the calls."""

    def __init__(self, source: str, contract: str, rng: np.random.Generator):
        self.program = source
        self.contract = get_contract(contract)
        self.questions = Questions(self.contract, rng)
        self.timed_calls: list[TimedCall] = []
        #: The verdict on a program that failed.
        self.failure: Verdict | None = None

    def fail_with(self, outcome: Outcome) -> None:
        """A call gave no answer."""
        self.failure = Verdict.without_answer(outcome)

    def fail_wrong(self, mistake: str) -> None:
        """Every call gave an answer, and one was wrong."""
        self.failure = Verdict(WRONG, mistake)

    def fail_sandbox(self, error: OSError) -> None:
        """The sandbox failed, which says nothing of the program."""
        self.failure = Verdict(UNJUDGED, f"the sandbox failed: {error}")

    def verdict(self, speed: SpeedModel) -> Verdict:
        """Return the verdict. The speed model must have been calibrated."""
        if self.failure:
            return self.failure
        speedup = speed.speedup(self.timed_calls)
        if not speedup:
            return Verdict(UNJUDGED, "the sandbox failed: no time could be taken")
        seconds = median(call.cpu_seconds for call in self.timed_calls)
        return Verdict(CORRECT, speedup=speedup, cpu_seconds=seconds)

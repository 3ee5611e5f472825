"""The state of one program while it is judged, and the verdict."""

from dataclasses import dataclass

import numpy as np

from helpers.sandbox import Outcome, Program, Status
from helpers.tasks.matmul.contracts import get_contract
from helpers.tasks.matmul.products import draw_sizes
from helpers.tasks.matmul.speed import SpeedModel, TimedCall


@dataclass(frozen=True)
class Verdict:
    """The result of judging a program. Later fields are false or 0 where an earlier one fails.

    judged: the sandbox itself worked. parsed: it is Python. pure: it keeps to the policy, and the system
    did not have to stop it. ran: none of the calls made raised or ran out of time. correct: every
    call returned the product. speedup: CPU time of the baseline over its own. cpu_seconds: its own, near
    64 x 64 x 64. reason: one sentence fit to be shown, empty if correct. level: of the sandbox.
    """

    judged: bool = True
    parsed: bool = False
    pure: bool = False
    ran: bool = False
    correct: bool = False
    speedup: float = 0.0
    cpu_seconds: float = 0.0
    reason: str = ""
    level: str = "os"


class Trial:
    """One program, the sizes that it is called with, and what came of the calls."""

    def __init__(self, source: str, rng: np.random.Generator, policy: bool = True, contract: str = "rows"):
        self.program = Program(source, policy)
        self.contract = get_contract(contract)
        self.small_sizes, self.timed_sizes = draw_sizes(rng)
        self.timed_calls: list[TimedCall] = []
        self.calls_made = 0  # in the timed part; those of a slow program beyond the first are not timed
        self.is_slow = False
        self.ended = False
        #: Fields of the verdict on a program that failed.
        self.failure: dict = {}
        self.refused = False
        self.forbidden = False

    def fail_with(self, outcome: Outcome) -> None:
        """End the trial: a call gave no answer."""
        self.refused = outcome.status is Status.REFUSED
        self.forbidden = outcome.status is Status.FORBIDDEN_CALL
        self._fail(ran=False, reason=outcome.reason)

    def fail_wrong(self, mistake: str) -> None:
        """End the trial: every call gave an answer, and one was wrong."""
        self._fail(ran=True, reason=mistake)

    def fail_sandbox(self, error: OSError) -> None:
        """End the trial: the sandbox failed, which says nothing of the program."""
        self._fail(judged=False, reason=f"the sandbox failed: {error}")

    def _fail(self, **fields) -> None:
        self.ended = True
        self.failure = fields

    def verdict(self, level: str, speed: SpeedModel) -> Verdict:
        """Return the verdict. The speed model must have been calibrated."""
        compiled = self.program.compiled
        parsed = compiled or self.refused
        pure = compiled and not self.forbidden
        if self.failure:
            return Verdict(parsed=parsed, pure=pure, level=level, **self.failure)
        cpu_seconds = speed.program_cpu_seconds(self.timed_calls)
        baseline_cpu_seconds = speed.baseline_cpu_seconds(self.timed_sizes)
        if not cpu_seconds or not baseline_cpu_seconds:
            return Verdict(judged=False, reason="the sandbox failed: no time could be taken", level=level)
        return Verdict(
            parsed=parsed,
            pure=pure,
            ran=True,
            correct=True,
            speedup=baseline_cpu_seconds / cpu_seconds,
            cpu_seconds=cpu_seconds,
            level=level,
        )

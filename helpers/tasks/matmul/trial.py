"""The state of one program while it is judged, and the verdict."""

from dataclasses import dataclass
from statistics import median

import numpy as np

from helpers.sandbox import Outcome, Program, Status
from helpers.tasks.matmul.contracts import get_contract
from helpers.tasks.matmul.products import draw_sizes
from helpers.tasks.matmul.speed import SpeedModel, TimedCall


@dataclass(frozen=True)
class Verdict:
    """The result of judging a program. Later fields are false or 0 where an earlier one fails.

    judged: the sandbox itself worked. parsed: it is Python. pure: it is no cheat by the policy, and the system did not
    have to stop it. allowed: it is pure, and needs nothing that the policy does not offer. ran: no call up to the first
    wrong answer, nor one with the sizes in another order, raised or ran out of time. correct: every call returned the
    product and left the arguments alone. speedup: CPU time of the baseline over its own. cpu_seconds: its own, near
    64 x 64 x 64. reason: one sentence fit to be shown, empty if correct. level: of the sandbox.
    """

    judged: bool = True
    parsed: bool = False
    pure: bool = False
    allowed: bool = False
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
        #: The way in which a call that gave no answer ended.
        self.status = Status.ANSWERED

    def fail_with(self, outcome: Outcome) -> None:
        """End the trial: a call gave no answer."""
        self.status = outcome.status
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
        was_read = self.program.compiled or self.status in (Status.CHEAT, Status.NOT_ALLOWED)
        cheats = self.status in (Status.CHEAT, Status.FORBIDDEN_CALL)
        readings = {
            "parsed": was_read,
            "pure": was_read and not cheats,
            "allowed": was_read and not cheats and self.status is not Status.NOT_ALLOWED,
        }
        if self.failure:
            return Verdict(level=level, **readings, **self.failure)
        speedup = speed.speedup(self.timed_calls, self.timed_sizes)
        if not speedup:
            return Verdict(judged=False, reason="the sandbox failed: no time could be taken", level=level)
        return Verdict(
            ran=True,
            correct=True,
            speedup=speedup,
            cpu_seconds=median(call.cpu_seconds for call in self.timed_calls),
            level=level,
            **readings,
        )

"""The verdict on one program, and the rewards that are functions of it."""

from collections.abc import Callable
from dataclasses import dataclass

from helpers.sandbox import Outcome, Status
from helpers.tasks.task import CORRECT, REFUSED, UNJUDGED

WRONG = "wrong"
ERROR = "error"
UNAVAILABLE = "unavailable"
#: Of a task whose answer is a program, best first.
OUTCOMES = (CORRECT, WRONG, UNAVAILABLE, ERROR, REFUSED)

#: how a run without an answer ended -> its outcome; any other way is an error
_OUTCOME_OF_STATUS = {
    Status.UNAVAILABLE: UNAVAILABLE,
    Status.NEWER_PYTHON: WRONG,  # nobody can say here whether it is right, so it fares no worse than a wrong one
    Status.REFUSED: REFUSED,
    Status.SANDBOX_FAILED: UNJUDGED,
}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one program.

    outcome: "correct"; "wrong": it answered every call, and an answer is wrong, or it is written for a newer Python
    than this one; "unavailable": it needs a module that the sandbox does not have; "error": there is no program, or it
    gave no answer; "refused": it uses what could do the work for it; "unjudged": the sandbox itself failed. reason: one
    sentence fit to be shown, empty if correct.
    behaviour: a text that is equal where two programs did the same, right or wrong, or "" where nobody compares.
    speedup: CPU time of the task's baseline over its own, and cpu_seconds: its own; 0 where no time is taken.
    """

    outcome: str
    reason: str = ""
    behaviour: str = ""
    speedup: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def correct(self) -> bool:
        return self.outcome == CORRECT

    @property
    def judged(self) -> bool:
        return self.outcome != UNJUDGED

    @classmethod
    def without_answer(cls, outcome: Outcome) -> "Verdict":
        """Return the verdict on a program that gave no answer."""
        label = _OUTCOME_OF_STATUS.get(outcome.status, ERROR)
        return cls(label, outcome.reason, behaviour=outcome.status.value)


@dataclass(frozen=True)
class VerdictReward:
    """One line of a task's table of rewards: what is paid for a verdict, and the lowest and the highest pay.

    The docstring of `pay` describes the reward. pays_correctness: whether it tells right answers from wrong ones.
    """

    name: str
    pay: Callable[[Verdict], float]
    value_range: tuple[float, float]
    pays_correctness: bool = False

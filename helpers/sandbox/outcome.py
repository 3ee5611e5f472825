"""The result of one run of a program."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """The way a run ended."""

    ANSWERED = "answered"
    NOT_PARSED = "not parsed"
    #: Its syntax is that of a Python newer than this one.
    NEWER_PYTHON = "needs a newer Python"
    #: The task's scan refused it.
    REFUSED = "refused by the scan"
    #: It needs a module that is not in the process.
    UNAVAILABLE = "needs a module that is not here"
    RAISED = "raised an exception"
    OUT_OF_TIME = "ran out of time"
    #: It made a system call of another architecture.
    KILLED = "was killed by the system"
    WROTE_TOO_MUCH = "wrote too much"
    #: It wrote bytes that the protocol does not have at that point.
    BROKE_PROTOCOL = "wrote what was not asked for"
    CRASHED = "crashed the interpreter"
    #: It exited, or was killed from outside, before it had answered.
    EXITED = "exited without an answer"
    #: The system lacks what the wall is made of, such as seccomp.
    NO_LOCKDOWN = "no wall on this host"
    #: The sandbox itself failed, which says nothing of the program.
    SANDBOX_FAILED = "the sandbox failed"


@dataclass(frozen=True)
class Outcome:
    """The result of one run of a program.

    bytes: the answer, of exactly `Limits.answer_bytes`; empty unless the status is ANSWERED. cpu_seconds: CPU time of
    the process from the start of the program's top level to the end of the answer, read from outside; 0 without an
    answer. reason: one printable sentence on why there is no answer, else empty. Where it quotes the program, the
    program chose the words.
    """

    bytes: bytes
    cpu_seconds: float
    status: Status
    reason: str = ""

    @property
    def answered(self) -> bool:
        return self.status is Status.ANSWERED


class NoLockdown(OSError):
    """The system lacks what the wall is made of. The message says what."""


class NoAnswer(Exception):
    """The program gave no answer. The message is the reason of the outcome."""

    def __init__(self, status: Status, reason: str):
        super().__init__(reason)
        self.status = status

    def outcome(self) -> Outcome:
        return Outcome(b"", 0.0, self.status, str(self))

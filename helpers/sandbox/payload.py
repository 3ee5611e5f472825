"""The things that one run of a program needs: its text, its inputs, its limits."""

from collections.abc import Callable
from dataclasses import dataclass

from helpers.runtime import UserError
from helpers.sandbox.inside.lockdown import CPU_SECONDS

#: Bytes for the driver. A function is called for them once the program's top level has run and the calls before have
#: been answered, so that the program cannot know them.
Inputs = bytes | Callable[[], bytes]


@dataclass(frozen=True)
class Payload:
    """A program's text and the inputs of its one call."""

    program: str
    inputs: Inputs


@dataclass(frozen=True)
class Call:
    """One of the calls that a process answers in turn. answer_bytes: the exact size of the answer."""

    inputs: Inputs
    answer_bytes: int

    def draw_inputs(self) -> bytes:
        return self.inputs() if callable(self.inputs) else self.inputs


@dataclass(frozen=True)
class Limits:
    """The limits of one process. Memory, files and processes have fixed ones (`inside.lockdown`).

    answer_bytes: the size of the answer of a run with one call. cpu_seconds: CPU time of the top
    level, and of each call. total_cpu_seconds: CPU time of all of it. wall_seconds: time of all of it, by our clock.
    idle_seconds: the time for which its CPU clock may stand still while we wait.

    Raises UserError for a CPU time that the process's own limit would not allow.
    """

    answer_bytes: int = 65_536
    cpu_seconds: float = 1.0
    total_cpu_seconds: float = 3.0
    wall_seconds: float = 20.0
    idle_seconds: float = 2.0

    def __post_init__(self):
        if self.total_cpu_seconds >= CPU_SECONDS:
            raise UserError(f"total_cpu_seconds must be below {CPU_SECONDS}; got {self.total_cpu_seconds}.")

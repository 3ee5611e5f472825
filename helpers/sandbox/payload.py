"""The things that one run of a program needs: the program, its inputs, its limits."""

from collections.abc import Callable
from dataclasses import dataclass

from helpers.runtime import UserError
from helpers.sandbox.drivers import Driver
from helpers.sandbox.inside.lockdown import CPU_SECONDS


class Program:
    """A program text. It remembers the code that its first process compiled, which saves later ones the work.

    policy: False leaves out the policy and gives the program all of Python.
    """

    def __init__(self, source: str, policy: bool = True):
        self.text = source.encode("utf-8", "surrogatepass")
        self.policy = policy
        #: driver -> code. No program had run when a process sent it, so it is what the text says.
        self.code: dict[Driver, bytes] = {}

    @property
    def compiled(self) -> bool:
        """Whether a process has compiled it and found nothing against the policy."""
        return bool(self.code)


#: Bytes for the driver. A function is called for them once the program's top level has run and the calls before have
#: been answered, so that the program cannot know them.
Inputs = bytes | Callable[[], bytes]


@dataclass(frozen=True)
class Payload:
    """A program and the inputs of its one call."""

    program: Program
    inputs: Inputs


@dataclass(frozen=True)
class Call:
    """One of several calls that a process answers in turn. answer_bytes: as in `Limits`."""

    inputs: Inputs
    answer_bytes: int

    def draw_inputs(self) -> bytes:
        return self.inputs() if callable(self.inputs) else self.inputs


@dataclass(frozen=True)
class Limits:
    """The limits of one run, all its calls together. Memory, files and processes have fixed ones (`inside.lockdown`).

    answer_bytes: the size of the answer; the parent reads exactly as many bytes. cpu_seconds: CPU time of the process.
    wall_seconds: time by our clock. idle_seconds: the time for which its CPU clock may stand still while we wait.

    Raises UserError for a CPU time that the process's own limit would not allow.
    """

    answer_bytes: int = 65_536
    cpu_seconds: float = 1.0
    wall_seconds: float = 20.0
    idle_seconds: float = 2.0

    def __post_init__(self):
        if self.cpu_seconds > CPU_SECONDS:
            raise UserError(f"cpu_seconds may be {CPU_SECONDS} at most; got {self.cpu_seconds}.")

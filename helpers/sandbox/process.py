"""The parent's side of one sandboxed process: pipes, deadlines and the CPU clock."""

import os
import select
import signal
import time
from contextlib import suppress

from helpers.sandbox.drivers import Driver
from helpers.sandbox.inside import protocol
from helpers.sandbox.outcome import NoAnswer, NoLockdown, Status
from helpers.sandbox.payload import Call, Limits, Payload
from helpers.sandbox.zygote import Zygote

_POLL_MILLISECONDS = 100
_SMALLEST_PROGRESS = 1e-4  # CPU seconds; a process that used less while we waited stood still
_SETTLE_SECONDS = 0.1  # for which a process that has answered may go on before its clock is read all the same
_SETTLE_POLL_SECONDS = 1e-4

_CRASHED = (Status.CRASHED, "it crashed the interpreter")
#: signal that ended a process -> the status of the run and its reason
_ENDED_BY = {
    signal.SIGSYS: (Status.KILLED, "it made a system call of another architecture, and was stopped"),
    signal.SIGXCPU: (Status.OUT_OF_TIME, "it ran out of time"),
    signal.SIGKILL: (Status.EXITED, "it stopped answering"),
    signal.SIGSEGV: _CRASHED,
    signal.SIGABRT: _CRASHED,
    signal.SIGBUS: _CRASHED,
    signal.SIGILL: _CRASHED,
}
#: status in the protocol -> status of the run
_REPORTED = {
    protocol.NOT_PARSED: Status.NOT_PARSED,
    protocol.NEWER: Status.NEWER_PYTHON,
    protocol.REFUSED: Status.REFUSED,
    protocol.UNAVAILABLE: Status.UNAVAILABLE,
    protocol.RAISED: Status.RAISED,
    protocol.TOO_LONG: Status.WROTE_TOO_MUCH,
}


def cpu_clock(pid: int) -> float:
    """Return the CPU seconds that process `pid` has used, read from outside (Linux: MAKE_PROCESS_CPUCLOCK)."""
    return time.clock_gettime((~pid) << 3 | 2)


def _is_running(pid: int) -> bool:
    """Tell whether a process is running or ready to run. False where /proc does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            status = file.read()
    except OSError:
        return False
    state = status.rpartition(b") ")[2][:1]
    return state == b"R"


class SandboxedProcess:
    """A process that loads one program and answers calls of it; it is killed when the `with` ends.

    core: the processor core that it keeps to. Methods raise NoAnswer where the program fails, and OSError where the
    sandbox does.
    """

    trusted = False

    def __init__(self, zygote: Zygote, core: int, driver: Driver, limits: Limits):
        self.zygote = zygote
        self.driver = driver
        self.limits = limits
        self.exit_status = None
        self.clock_at_load = 0.0
        self.cpu_allowed = limits.cpu_seconds  # by the clock; what it may show before we stop waiting
        self.pid = self._start()
        os.set_blocking(self.to_process, False)
        os.set_blocking(self.from_process, False)
        self.deadline = time.monotonic() + limits.wall_seconds
        with suppress(OSError):  # a host may forbid it, and only noise comes of that
            os.sched_setaffinity(self.pid, {core})

    def __enter__(self) -> "SandboxedProcess":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process and close its pipes."""
        self.close_pipes()
        self._end()

    def close_pipes(self) -> None:
        os.close(self.to_process)
        os.close(self.from_process)

    def compile(self, program: str) -> None:
        """Send a program's text, and wait until the process has compiled it."""
        text = program.encode("utf-8", "surrogatepass")
        with suppress(BrokenPipeError):  # it may have said why before it ended
            self._send(protocol.PROGRAM_HEADER.pack(len(text)) + text)
        self._expect(protocol.COMPILED)

    def load(self) -> None:
        """Run the program's top level. The process waited until now, so the time from here on is the program's."""
        self.clock_at_load = self._allow_time()
        self.write(protocol.GO)
        self._expect(protocol.LOADED)

    def answer(self, call: Call) -> bytes:
        """Send the inputs of a call and return the answer: exactly as many bytes as the call says, and not one more."""
        inputs = call.draw_inputs()
        self._allow_time()
        self._send_inputs(inputs, call.answer_bytes)
        self._expect(protocol.ANSWER)
        answer = self.read(call.answer_bytes)
        with suppress(BlockingIOError):
            if os.read(self.from_process, 1):
                raise NoAnswer(Status.WROTE_TOO_MUCH, "it wrote more than its answer")
        return answer

    def _send_inputs(self, inputs: bytes, answer_bytes: int) -> None:
        """Send the inputs of a call after their size and that of the answer."""
        self.write(protocol.INPUT_HEADER.pack(len(inputs), answer_bytes) + inputs)

    def _allow_time(self) -> float:
        """Allow the program its time for one more call from here on, and return its clock."""
        now = self.clock()
        self.cpu_allowed = min(now + self.limits.cpu_seconds, self.limits.total_cpu_seconds)
        return now

    def cpu_seconds_at_rest(self) -> float:
        """Wait until the process waits for us, and return its CPU seconds from the start of the program's top level on.

        The clock of a running process is up to date only at a tick. One that goes on after its answer is charged for
        what it does.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        while _is_running(self.pid) and time.monotonic() < deadline:
            time.sleep(_SETTLE_POLL_SECONDS)
        return self.clock() - self.clock_at_load

    def clock(self) -> float:
        """Return the CPU seconds that the process has used so far."""
        try:
            return cpu_clock(self.pid)
        except OSError:
            raise OSError("this system shows no CPU clock of another process") from None

    def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._send(data)
        except BrokenPipeError:
            raise self._exited() from None

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        data = bytearray()
        while len(data) < size:
            self._wait(self.from_process, select.POLLIN)
            piece = os.read(self.from_process, size - len(data))
            if not piece:
                raise self._exited()
            data += piece
        return bytes(data)

    def _start(self) -> int:
        """Make both pipes, start the process on their other ends, and return its number."""
        inbox, self.to_process = os.pipe()
        try:
            self.from_process, outbox = os.pipe()
        except OSError:
            os.close(inbox)
            os.close(self.to_process)
            raise
        try:
            return self.zygote.start(inbox, outbox, self.driver, self.trusted)
        except OSError:
            os.close(self.to_process)
            os.close(self.from_process)
            raise
        finally:
            os.close(inbox)
            os.close(outbox)

    def _end(self) -> int:
        """Kill the process, unless that was done before, and return its exit status."""
        if self.exit_status is None:
            self.exit_status = self.zygote.end(self.pid)
        return self.exit_status

    def _exited(self) -> NoAnswer:
        """Build the exception for a process that exited on its own, or is about to."""
        exit_status = self._end()
        signal_number = os.WTERMSIG(exit_status) if os.WIFSIGNALED(exit_status) else None
        status, reason = _ENDED_BY.get(signal_number, (Status.EXITED, "it ended without an answer"))
        return NoAnswer(status, reason)

    def _wait(self, descriptor: int, event: int) -> None:
        """Wait until a pipe is ready. Raises NoAnswer when one of the three limits on time is passed."""
        poll = select.poll()  # select.select takes no descriptor beyond 1,023
        poll.register(descriptor, event)
        used = self.clock()
        last_progress = time.monotonic()
        is_ready = False
        while not is_ready:
            is_ready = bool(poll.poll(_POLL_MILLISECONDS))
            used_before = used
            used = self.clock()
            now = time.monotonic()
            if is_ready or used - used_before > _SMALLEST_PROGRESS:
                last_progress = now
            too_much_cpu = used > self.cpu_allowed and not self.trusted
            too_idle = now - last_progress > self.limits.idle_seconds
            if too_much_cpu or too_idle or now > self.deadline:
                raise NoAnswer(Status.OUT_OF_TIME, "it ran out of time")

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._wait(self.to_process, select.POLLOUT)
            view = view[os.write(self.to_process, view) :]

    def _expect(self, success: bytes) -> None:
        """Read the status `success`. Raises NoAnswer for any other, and OSError where the process had no lockdown."""
        status = self.read(len(success))
        if status == success:
            return
        if status not in protocol.FAILURES[success]:
            raise NoAnswer(Status.BROKE_PROTOCOL, "it wrote what was not asked for")
        size = self.read(1)[0]
        reason = _printable(self.read(size))
        if status == protocol.NO_LOCKDOWN:
            raise NoLockdown(reason)
        raise NoAnswer(_REPORTED[status], reason)


class RepeatedProcess(SandboxedProcess):
    """A process that runs a program of our own on the same inputs, as often as it is asked to.

    It has no limit on CPU time. Raises OSError where that program does not run.
    """

    trusted = True

    def __init__(self, zygote: Zygote, core: int, driver: Driver, payload: Payload):
        super().__init__(zygote, core, driver, Limits())
        try:
            self.compile(payload.program)
            self.load()
            self._send_inputs(Call(payload.inputs, answer_bytes=0).draw_inputs(), answer_bytes=0)
        except NoAnswer as failure:
            self.close()
            raise OSError(f"our own program does not run: {failure}") from failure
        except OSError:
            self.close()
            raise

    def repeat(self) -> float:
        """Call the program once more and return the CPU seconds that it took."""
        self.deadline = time.monotonic() + self.limits.wall_seconds
        started = self.cpu_seconds_at_rest()
        try:
            self.write(protocol.AGAIN)
            self.read(len(protocol.ANSWER))
        except NoAnswer as failure:
            raise OSError(f"our own program did not answer: {failure}") from failure
        return self.cpu_seconds_at_rest() - started


def _printable(data: bytes) -> str:
    """Return one line of text, fit to be shown, from bytes that a hostile process wrote."""
    text = data.decode("utf-8", "replace")
    visible = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(visible.split()) or "no reason given"

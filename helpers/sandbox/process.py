"""The parent's side of the sandboxed processes: pipes, deadlines and the clock."""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

#: The worker is started as a package of its own, so that nothing of `helpers` or of any package is in its memory.
_COMMAND = [
    sys.executable, "-I", "-S", "-E", "-B", "-c",
    "import sys; sys.path.insert(0, sys.argv[1]); from inside.worker import main; main(sys.argv[2:])",
    str(Path(__file__).parent),
]  # fmt: skip
#: Seconds one call may take, by its own clock and by ours, and how long its clock may stand still while we wait.
CPU_LIMIT, WALL_LIMIT, STILL_LIMIT = 1.0, 20.0, 2.0
_LONGEST_CODE = 1_000_000
PATIENCE = 10.0  # seconds to wait for the zygote, which answers in one thousandth of that
_SIGNALS = {
    signal.SIGSYS: "it asked the system for something that pure Python does not need, and was stopped",
    signal.SIGKILL: "it stopped answering",
    signal.SIGXCPU: "it ran out of time",
    signal.SIGSEGV: "it crashed the interpreter",
    signal.SIGABRT: "it crashed the interpreter",
    signal.SIGBUS: "it crashed the interpreter",
}


class Gone(Exception):
    """The program gave no answer. kind: the byte with which its process said why; status: of waitpid, if it died."""

    def __init__(self, reason, kind=b"", status=None):
        super().__init__(reason)
        self.kind, self.status = kind, status

    @property
    def forbidden(self):
        """Whether the system stopped it at a call that is on no list."""
        return self.status is not None and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGSYS


def cpu_clock(pid):
    """CPU seconds that process `pid` has used, read from outside (Linux: MAKE_PROCESS_CPUCLOCK)."""
    return time.clock_gettime((~pid) << 3 | 2)


class Zygote:
    """The exec'd process that forks a child for each call; several threads may ask at a time.

    One for all of them: where things lie in memory changes a program's speed by some percent, and children of
    one process have them in the same places.
    """

    def __init__(self):
        self.lock, self.alive = threading.Lock(), True
        self.control, theirs = socket.socketpair()
        self.control.settimeout(PATIENCE)
        try:
            with theirs:
                self.process = _start(["zygote"], stdin=theirs)
        except OSError:
            self.control.close()
            raise

    def _ask(self, message, descriptors=()):
        with self.lock:
            try:
                socket.send_fds(self.control, [message], descriptors)
                answer = self.control.recv(8, socket.MSG_WAITALL)
            except OSError:
                answer = b""
            self.alive = self.alive and len(answer) == 8
        if not self.alive:
            raise OSError("the sandbox's process died")
        return struct.unpack("<q", answer)[0]

    def start(self, inbox, outbox, trusted):
        """A process number. Raises OSError."""
        pid = self._ask(b"T" if trusted else b"F", [inbox, outbox])
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def end(self, pid):
        """Kill a process; returns the status it ended with."""
        return self._ask(b"W" + struct.pack("<q", pid))

    def close(self):
        """End it and, with it, its children."""
        with self.lock:
            self.alive = False
            self.control.close()
            _stop(self.process)


class Execs:
    """Starts a new interpreter for each call: for level "policy", where a program could reach a zygote."""

    def __init__(self):
        self.processes, self.alive = {}, True

    def start(self, inbox, outbox, trusted):
        process = _start(["trusted" if trusted else "once"], stdin=inbox, stdout=outbox)
        self.processes[process.pid] = process
        return process.pid

    def end(self, pid):
        process = self.processes.pop(pid)
        os.kill(pid, signal.SIGKILL)
        code = process.wait()
        return -code if code < 0 else code << 8

    def close(self):
        for pid in list(self.processes):
            self.end(pid)


def _start(arguments, **pipes):
    return subprocess.Popen(
        [*_COMMAND, *arguments], env={}, cwd="/", start_new_session=True, stderr=subprocess.DEVNULL, **pipes
    )


def _stop(process):
    if process.poll() is None:
        process.kill()
    process.wait()


#: level -> what makes its processes
LEVELS = {"os": Zygote, "policy": Execs}


class Call:
    """One process that loads one program and answers one product, ended when the `with` ends.

    core: the processor that it keeps to. Methods raise Gone where the program fails, OSError where the sandbox does.
    """

    trusted = False

    def __init__(self, starter, core):
        self.starter, self.ended = starter, None
        inbox, self.to_child = os.pipe()
        try:
            self.from_child, outbox = os.pipe()
        except OSError:
            os.close(inbox)
            os.close(self.to_child)
            raise
        try:
            self.pid = starter.start(inbox, outbox, self.trusted)
        except OSError:
            os.close(self.to_child)
            os.close(self.from_child)
            raise
        finally:
            os.close(inbox)
            os.close(outbox)
        os.set_blocking(self.to_child, False)
        self.deadline = time.monotonic() + WALL_LIMIT
        with suppress(OSError):  # a host may forbid it, and only noise comes of that
            os.sched_setaffinity(self.pid, {core})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to_child)
        os.close(self.from_child)
        self._end()

    def _end(self):
        if self.ended is None:
            self.ended = self.starter.end(self.pid)
        return self.ended

    def clock(self):
        """CPU seconds used so far."""
        try:
            return cpu_clock(self.pid)
        except OSError:
            raise OSError("this system shows no CPU clock of another process") from None

    def _gone(self):
        """How it ended by itself, to be raised; it may still be about to."""
        status = self._end()
        how = _SIGNALS.get(os.WTERMSIG(status), "") if os.WIFSIGNALED(status) else ""
        return Gone(how or "it ended without an answer", status=status)

    def _wait(self, descriptor, event):
        poll = select.poll()  # select.select takes no descriptor beyond 1,023
        poll.register(descriptor, event)
        moved, used = time.monotonic(), self.clock()
        while not poll.poll(100):
            now, before, used = time.monotonic(), used, self.clock()
            moved = now if used - before > 1e-4 else moved
            if (used > CPU_LIMIT and not self.trusted) or now > self.deadline or now - moved > STILL_LIMIT:
                raise Gone("it ran out of time")

    def _send(self, data):
        view = memoryview(data)
        while view:
            self._wait(self.to_child, select.POLLOUT)
            view = view[os.write(self.to_child, view) :]

    def write(self, data):
        try:
            self._send(data)
        except BrokenPipeError:
            raise self._gone() from None

    def read(self, size):
        data = bytearray()
        while len(data) < size:
            self._wait(self.from_child, select.POLLIN)
            piece = os.read(self.from_child, size - len(data))
            if not piece:
                raise self._gone()
            data += piece
        return bytes(data)

    def _expect(self, good):
        """Read the status `good`; raises Gone for any other."""
        kind = self.read(1)
        if kind == good:
            return
        if kind not in ((b"S", b"P", b"N") if good == b"C" else (b"X",)):  # no program has run yet, or one has
            raise Gone("it wrote what was not asked for")
        reason = _printable(self.read(self.read(1)[0]))
        if kind == b"N":
            raise OSError(reason)
        raise Gone(reason, kind)

    def compile(self, text, policy, is_code):
        """Send a source, or code that `compile` made of one elsewhere; returns the code of a source."""
        with suppress(BrokenPipeError):  # it may have said why before it ended
            self._send(struct.pack("<??I", policy, is_code, len(text)) + text)
        self._expect(b"C")
        size = struct.unpack("<I", self.read(4))[0]
        if size > _LONGEST_CODE:
            raise Gone("the program is too long")
        return self.read(size)

    def load(self):
        """Run the program's top level."""
        self.started = self.clock()  # the child waits: whatever it uses from here on is the program's
        self.write(b"G")
        self._expect(b"R")

    def answer(self, a, b, shape):
        """The program's answer to the float64 matrices `a` and `b`: float64 of `shape`, and not a byte more."""
        self.write(_inputs(a, b, shape))
        self._expect(b"O")
        answer = self.read(8 * shape[0] * shape[1])
        with suppress(OSError):  # makes the system bring the clock of a process that still runs up to date
            os.setpriority(os.PRIO_PROCESS, self.pid, 19)
        self.seconds = self.clock() - self.started
        os.set_blocking(self.from_child, False)
        with suppress(BlockingIOError):
            if os.read(self.from_child, 1):
                raise Gone("it wrote more than its answer")
        return np.frombuffer(answer).reshape(shape)


class Probe(Call):
    """A process that runs a program of our own on one pair of matrices, as often as it is asked to."""

    trusted = True

    def begin(self, source, a, b):
        """Load it. Raises OSError."""
        try:
            self.compile(source.encode(), policy=True, is_code=False)
            self.load()
            self.write(_inputs(a, b, (a.shape[0], b.shape[1])))
        except Gone as gone:
            raise OSError(f"our own program does not run: {gone}") from gone

    def time(self):
        """CPU seconds of one product."""
        self.deadline = time.monotonic() + WALL_LIMIT
        started = self.clock()
        self.write(b".")
        self.read(1)
        return self.clock() - started


def _inputs(a, b, shape):
    """The bytes of one call: the shapes of both operands and of the answer, then the operands, row after row."""
    return struct.pack("<6I", *a.shape, *b.shape, *shape) + a.tobytes() + b.tobytes()


def _printable(data):
    """One line of text that a hostile process wrote, fit to be shown."""
    text = data.decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "no reason given"

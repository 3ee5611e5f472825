"""Starters make the sandboxed processes, one kind for each level of the sandbox."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from helpers.sandbox.drivers import Driver
from helpers.sandbox.inside import protocol

#: The worker is started as a package of its own, so that nothing of `helpers` or of any package is in its memory.
_COMMAND = [
    sys.executable, "-I", "-S", "-E", "-B", "-c",
    "import sys; sys.path.insert(0, sys.argv[1]); from inside.worker import main; main(sys.argv[2:])",
    str(Path(__file__).parent),
]  # fmt: skip
#: Seconds to wait for the zygote, which answers in one thousandth of that.
ZYGOTE_TIMEOUT_SECONDS = 10.0


class Zygote:
    """An interpreter that forks a process for each run; several threads may ask at a time.

    One zygote makes all processes: where things lie in memory changes a program's speed by some percent, and children
    of one process have them in the same places.
    """

    def __init__(self, drivers: Sequence[Driver]):
        self.drivers = list(drivers)
        self.alive = True
        self.lock = threading.Lock()
        self.control, control_of_zygote = socket.socketpair()
        self.control.settimeout(ZYGOTE_TIMEOUT_SECONDS)
        try:
            with control_of_zygote:
                self.process = _start("zygote", self.drivers, stdin=control_of_zygote)
        except OSError:
            self.control.close()
            raise

    def start(self, inbox: int, outbox: int, driver: Driver, trusted: bool) -> int:
        """Start a process on two pipe ends and return its number. Raises OSError."""
        request = protocol.FORK_TRUSTED if trusted else protocol.FORK
        driver_number = self.drivers.index(driver)
        pid = self._ask(request + bytes([driver_number]), [inbox, outbox])
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def end(self, pid: int) -> int:
        """Kill a process and return its exit status as waitpid gives it. Raises OSError."""
        return self._ask(protocol.END + protocol.PROCESS_STATUS.pack(pid))

    def close(self) -> None:
        """End the zygote and, with it, its children."""
        with self.lock:
            self.alive = False
            self.control.close()
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()

    def _ask(self, message: bytes, descriptors: Sequence[int] = ()) -> int:
        size = protocol.PROCESS_STATUS.size
        with self.lock:
            try:
                socket.send_fds(self.control, [message], descriptors)
                answer = self.control.recv(size, socket.MSG_WAITALL)
            except OSError:
                answer = b""
            self.alive = self.alive and len(answer) == size
        if not self.alive:
            raise OSError("the sandbox's process died")
        return protocol.PROCESS_STATUS.unpack(answer)[0]


class FreshInterpreters:
    """Starts a new interpreter for each run: for level "policy", where a program could reach a zygote."""

    def __init__(self, drivers: Sequence[Driver]):
        self.alive = True
        self.processes: dict[int, subprocess.Popen] = {}

    def start(self, inbox: int, outbox: int, driver: Driver, trusted: bool) -> int:
        """Start a process on two pipe ends and return its number. Raises OSError."""
        mode = "trusted" if trusted else "once"
        process = _start(mode, [driver], stdin=inbox, stdout=outbox)
        self.processes[process.pid] = process
        return process.pid

    def end(self, pid: int) -> int:
        """Kill a process and return its exit status as waitpid gives it."""
        process = self.processes.pop(pid)
        os.kill(pid, signal.SIGKILL)
        code = process.wait()
        return -code if code < 0 else code << 8

    def close(self) -> None:
        """End all processes."""
        for pid in list(self.processes):
            self.end(pid)


def _start(mode: str, drivers: Sequence[Driver], **pipes) -> subprocess.Popen:
    """Start a clean interpreter that runs `inside.worker`, with an empty environment."""
    command = [*_COMMAND, mode, *[str(driver.path) for driver in drivers]]
    return subprocess.Popen(command, env={}, cwd="/", start_new_session=True, stderr=subprocess.DEVNULL, **pipes)


Starter = Zygote | FreshInterpreters
#: level of the sandbox -> what starts its processes
LEVELS = {"os": Zygote, "policy": FreshInterpreters}

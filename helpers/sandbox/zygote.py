"""The zygote's parent side: a clean interpreter that forks a process for each run."""

import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from helpers.sandbox.drivers import Driver
from helpers.sandbox.inside import protocol

#: With the filter of system calls, and without it.
LEVELS = ("os", "process")
#: The worker is started as a package of its own, so that nothing of `helpers` or of any package is in its memory.
_COMMAND = [
    sys.executable, "-I", "-S", "-E", "-B", "-c",
    "import sys; sys.path.insert(0, sys.argv[1]); from inside.worker import main; main(sys.argv[2:])",
    str(Path(__file__).parent),
]  # fmt: skip
#: Seconds to wait for the zygote, which answers in one thousandth of that.
ZYGOTE_TIMEOUT_SECONDS = 10.0
_POLL_MILLISECONDS = 100


def limit_on_memory() -> str:
    """Return a clause that names the limit on this process's address space, which its children inherit, or ""."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f" (the address space is limited to {limit >> 20} MiB: raise RLIMIT_AS, which `ulimit -v` shows)"


class Zygote:
    """An interpreter that forks a process for each run; several threads may ask at a time.

    One zygote makes all processes: where things lie in memory changes a program's speed by some percent, and children
    of one process have them in the same places. Methods raise OSError where it does not answer.
    """

    def __init__(self, drivers: Sequence[Driver], level: str):
        self.drivers = list(drivers)
        self.alive = True
        self.lock = threading.Lock()
        self.control, control_of_zygote = socket.socketpair()
        self.control.settimeout(ZYGOTE_TIMEOUT_SECONDS)
        command = [*_COMMAND, level]
        for driver in self.drivers:
            command += [str(driver.path), str(driver.scan or "")]
        try:
            with control_of_zygote:
                self.process = subprocess.Popen(
                    command,
                    env={},
                    cwd="/",
                    start_new_session=True,
                    stdin=control_of_zygote,
                    stderr=subprocess.DEVNULL,
                )
        except OSError:
            self.control.close()
            raise

    def start(self, inbox: int, outbox: int, driver: Driver, trusted: bool) -> int:
        """Start a process on two pipe ends and return its number."""
        request = protocol.FORK_TRUSTED if trusted else protocol.FORK
        driver_number = self.drivers.index(driver)
        pid = self._ask(request + bytes([driver_number]), [inbox, outbox])
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def end(self, pid: int) -> int:
        """Kill a process and return its exit status as waitpid gives it."""
        return self._ask(protocol.END + protocol.PROCESS_STATUS.pack(pid))

    def close(self) -> None:
        """End the zygote and, with it, its children."""
        with self.lock:
            self.alive = False
            self.control.close()
            self.process.kill()
            self.process.wait()

    def let_go(self) -> None:
        """Close the socket and leave the zygote to the process that started it, of which this one is a copy."""
        self.control.close()
        self.process.returncode = 0  # it is no child of this process

    def _ask(self, message: bytes, descriptors: Sequence[int] = ()) -> int:
        size = protocol.PROCESS_STATUS.size
        with self.lock:
            if not self.alive:
                raise OSError(f"the sandbox's process died{limit_on_memory()}")
            try:
                socket.send_fds(self.control, [message], descriptors)
                self._wait_for_answer()
                answer = self.control.recv(size, socket.MSG_WAITALL)
            except OSError:
                answer = b""
            self.alive = len(answer) == size
            if not self.alive:
                raise OSError(f"the sandbox's process died{limit_on_memory()}")
        return protocol.PROCESS_STATUS.unpack(answer)[0]

    def _wait_for_answer(self) -> None:
        """Wait until the zygote has answered. Raises TimeoutError if it stands still."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        deadline = time.monotonic() + ZYGOTE_TIMEOUT_SECONDS
        while not poll.poll(_POLL_MILLISECONDS):
            if time.monotonic() > deadline or self._is_stopped():
                raise TimeoutError

    def _is_stopped(self) -> bool:
        """Whether somebody has stopped the zygote by a signal."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

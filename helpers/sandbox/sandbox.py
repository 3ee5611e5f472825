"""Runs programs nobody trusts, several at a time, each in a process of its own."""

import os
import platform
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from helpers.runtime import UserError
from helpers.sandbox.drivers import STDIN, Driver
from helpers.sandbox.outcome import NoAnswer, NoLockdown, Outcome, Status
from helpers.sandbox.payload import Call, Limits, Payload
from helpers.sandbox.process import RepeatedProcess, SandboxedProcess
from helpers.sandbox.zygote import LEVELS, Zygote, limit_on_memory

Item = TypeVar("Item")
Result = TypeVar("Result")

ATTEMPTS = 2  # at a piece of work, where the sandbox itself fails
#: What the filter of system calls stops and level "process" does not: `python -m tests.sandbox.hacksuite --process`.
PROCESS_LEVEL_WARNING = (
    "Sandbox at level process: programs have limits on memory, time and files, no capabilities and, where this system "
    "allows namespaces, no network and no sight of other processes. No filter of system calls stands behind that: they "
    "can read your files. Of 602 programs of our hack suite, run as root, 6 got through: five made files or folders or "
    "changed names, one changed its priority. Where you cannot trust a program, use a host with seccomp."
)


def check_workers(workers: int | None) -> None:
    """Raise UserError unless this is a number of workers, or None for one a core."""
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise UserError(f"workers must be a whole number from 1 on, or None for one a core; got {workers!r}.")


class Worker:
    """Runs one program at a time on one processor core. `Sandbox.map` hands it to the work.

    A worker lasts until the sandbox fails under it; then another with the same slot takes its place. Methods raise
    OSError where the sandbox fails.
    """

    def __init__(self, slot: int, core: int, zygote: Zygote):
        self.slot = slot
        self.core = core
        self.zygote = zygote
        self.repeated: list[RepeatedProcess] = []

    def run(self, driver: Driver, payload: Payload, limits: Limits) -> Outcome:
        """Run a program once, in a process of its own: load it, then draw its inputs, then ask for the answer."""
        try:
            with self.load(driver, payload.program, limits) as process:
                answer = process.answer(Call(payload.inputs, limits.answer_bytes))
                return Outcome(answer, process.cpu_seconds_at_rest(), Status.ANSWERED)
        except NoAnswer as failure:
            return failure.outcome()

    @contextmanager
    def load(self, driver: Driver, program: str, limits: Limits | None = None) -> Iterator[SandboxedProcess]:
        """Yield a process of its own for a program whose top level has run. It answers calls in turn.

        Raises NoAnswer where the program fails.
        """
        with SandboxedProcess(self.zygote, self.core, driver, limits or Limits()) as process:
            process.compile(program)
            process.load()
            yield process

    def start_repeated(self, driver: Driver, payload: Payload) -> RepeatedProcess:
        """Start a process that runs a program of our own again and again. It ends with the worker."""
        process = RepeatedProcess(self.zygote, self.core, driver, payload)
        self.repeated.append(process)
        return process

    def close(self) -> None:
        """End the processes that run again and again."""
        for process in self.repeated:
            with suppress(OSError):  # its zygote may have died
                process.close()
        self.repeated.clear()

    def let_go(self) -> None:
        """Close the pipes of those processes and leave them running."""
        for process in self.repeated:
            process.close_pipes()


class Sandbox:
    """Runs programs in processes of their own; close it, or use it in a `with`.

    drivers: those that `run` may be given. workers: how many programs at a time, by default one for each core.
    level: "os", or "process" for hosts without seccomp: it does without the filter of system calls, and prints what
    that one stops.

    Needs Linux. Raises UserError.
    """

    def __init__(self, drivers: Sequence[Driver] = (STDIN,), workers: int | None = None, level: str = "os"):
        if not sys.platform.startswith("linux"):
            raise UserError("The sandbox needs Linux: run the notebooks in Colab, WSL or a Linux container.")
        if level not in LEVELS:
            raise UserError(f"There is no sandbox level '{level}': choose os or process.")
        check_workers(workers)
        if level == "process":
            print(PROCESS_LEVEL_WARNING, flush=True)
        self.drivers = tuple(drivers)
        self.level = level
        self.cores = sorted(os.sched_getaffinity(0))
        self.workers = workers or len(self.cores)
        self.closed = False
        self.zygote: Zygote | None = None
        self._workers: dict[int, Worker] = {}
        self._make_threads()
        _OPEN.add(self)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End all processes. A closed sandbox runs nothing more."""
        self.closed = True
        self._pool.shutdown()
        for slot in list(self._workers):
            self._drop(slot)
        if self.zygote:
            self.zygote.close()

    def run(self, driver: Driver, payload: Payload, limits: Limits | None = None) -> Outcome:
        """Run a program once. Raises UserError for a driver that this sandbox was not made with."""
        if driver not in self.drivers:
            raise UserError(f"This sandbox has no driver {driver.path.name}: name it in Sandbox(drivers=...).")
        limits = limits or Limits()

        def work(worker: Worker, payload: Payload) -> Outcome:
            return worker.run(driver, payload, limits)

        def failed(payload: Payload, error: OSError) -> Outcome:
            status = Status.NO_LOCKDOWN if isinstance(error, NoLockdown) else Status.SANDBOX_FAILED
            return Outcome(b"", 0.0, status, f"the sandbox failed: {error}")

        (outcome,) = self.map(work, [payload], failed)
        return outcome

    def map(
        self,
        work: Callable[[Worker, Item], Result],
        items: Iterable[Item],
        failed: Callable[[Item, OSError], Result],
    ) -> list[Result]:
        """Return `work(worker, item)` for every item, in order; the workers share the items out.

        Where the sandbox fails under an item, a new worker starts it again. Where it fails again, the result is
        `failed(item, error)`.
        """

        def with_worker(item: Item) -> Result:
            slot = self._free_slots.get()
            try:
                for attempt in range(1, ATTEMPTS + 1):
                    try:
                        return work(self._worker(slot), item)
                    except OSError as error:
                        self._drop(slot)
                        if attempt == ATTEMPTS:
                            return failed(item, error)
            finally:
                self._free_slots.put(slot)

        if self.closed:
            raise UserError("This sandbox is closed: make a new one.")
        try:
            results = self._pool.map(with_worker, items)
        except RuntimeError as error:  # "can't start new thread"
            self._make_threads()  # the old ones' queue holds the first item
            raise UserError(f"The sandbox cannot work here: {error}{limit_on_memory()}.") from error
        return list(results)

    def host(self) -> str:
        """Describe this host in one sentence, for a bug report."""
        system = platform.uname()
        user = "root" if os.geteuid() == 0 else "an ordinary user"
        return (
            f"Python {platform.python_version()}, {system.system} {system.release} {system.machine}, "
            f"{self.workers} workers, {user}."
        )

    def _worker(self, slot: int) -> Worker:
        """Return the worker of a slot, made anew where its zygote has died. Raises OSError."""
        with self._lock:
            if self.zygote is None or not self.zygote.alive:
                self._start()
            worker = self._workers.get(slot)
            # Each slot drops its own worker, since another thread may be using the others.
            if worker is None or worker.zygote is not self.zygote:
                self._drop(slot)
                core = self.cores[slot % len(self.cores)]
                worker = Worker(slot, core, self.zygote)
                self._workers[slot] = worker
            return worker

    def _start(self) -> None:
        """Start a zygote. Raises OSError."""
        if self.zygote:
            self.zygote.close()
        self.zygote = Zygote(self.drivers, self.level)

    def _make_threads(self) -> None:
        """Make the threads that do the work, and a slot for each worker."""
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self.workers)
        self._free_slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(self.workers):
            self._free_slots.put(slot)

    def _start_over_in_copy(self) -> None:
        """Let go of what belongs to the process of which this one is a copy: its zygote, its workers, its threads."""
        for worker in self._workers.values():
            worker.let_go()
        self._workers.clear()
        if self.zygote:
            self.zygote.let_go()
            self.zygote = None
        self._make_threads()

    def _drop(self, slot: int) -> None:
        worker = self._workers.pop(slot, None)
        if worker:
            worker.close()


_OPEN: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _start_over_in_copy() -> None:
    for sandbox in _OPEN:
        sandbox._start_over_in_copy()


os.register_at_fork(after_in_child=_start_over_in_copy)

"""Runs programs nobody trusts, several at a time, each in a process of its own."""

import os
import platform
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from helpers.runtime import UserError
from helpers.sandbox.drivers import STDIN, Driver
from helpers.sandbox.outcome import NoAnswer, Outcome, Status
from helpers.sandbox.payload import Limits, Payload
from helpers.sandbox.process import RepeatedProcess, SandboxedProcess
from helpers.sandbox.starters import LEVELS, Starter

Item = TypeVar("Item")
Result = TypeVar("Result")

ATTEMPTS = 2  # at a piece of work, where the sandbox itself fails
#: What the system's wall stops and level "policy" does not: `python -m tests.sandbox.hacksuite --bare`, as root.
POLICY_LEVEL_WARNING = (
    "Sandbox at level policy: programs are held by the policy and by limits on memory, time and files, but no filter "
    "of system calls stands behind them. None of the 328 programs of our hack suite got through. With the policy out "
    "of the way 4 did, which the filter stops: priorities changed (1 of 22 in group D), the trainer killed (1 of 34 in "
    "I), folders made and names changed (2 of 28 in J). Where you cannot trust a program, use a host with seccomp."
)


class Worker:
    """Runs one program at a time on one processor core. `Sandbox.map` hands it to the work.

    A worker lasts until the sandbox fails under it; then another with the same slot takes its place. Methods raise
    OSError where the sandbox fails.
    """

    def __init__(self, slot: int, core: int, starter: Starter):
        self.slot = slot
        self.core = core
        self.starter = starter
        self.repeated: list[RepeatedProcess] = []

    def run(self, driver: Driver, payload: Payload, limits: Limits) -> Outcome:
        """Run a program once, in a process of its own: load it, then draw its inputs, then ask for the answer."""
        with SandboxedProcess(self.starter, self.core, driver, limits) as process:
            try:
                process.compile(payload.program)
                process.load()
                answer = process.answer(payload.draw_inputs())
            except NoAnswer as failure:
                return failure.outcome()
            return Outcome(answer, process.cpu_seconds, Status.ANSWERED)

    def start_repeated(self, driver: Driver, payload: Payload, limits: Limits) -> RepeatedProcess:
        """Start a process that runs a program of our own again and again. It ends with the worker."""
        process = RepeatedProcess(self.starter, self.core, driver, limits, payload)
        self.repeated.append(process)
        return process

    def close(self) -> None:
        for process in self.repeated:
            with suppress(OSError):  # its zygote may have died
                process.close()
        self.repeated.clear()


class Sandbox:
    """Runs programs in processes of their own; close it, or use it in a `with`.

    drivers: those that `run` may be given. workers: how many programs at a time, by default one for each core.
    level: "os", or "policy" for hosts without seccomp: it does without the wall that the system makes, and prints what
    that one stopped.

    Needs Linux. Raises UserError.
    """

    def __init__(self, drivers: Sequence[Driver] = (STDIN,), workers: int | None = None, level: str = "os"):
        if not sys.platform.startswith("linux"):
            raise UserError("The sandbox needs Linux: run the notebooks in Colab, WSL or a Linux container.")
        if level not in LEVELS:
            raise UserError(f"There is no sandbox level '{level}': choose os or policy.")
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise UserError(f"workers must be a whole number from 1 on, or None for one a core; got {workers!r}.")
        if level == "policy":
            print(POLICY_LEVEL_WARNING, flush=True)
        self.drivers = tuple(drivers)
        self.level = level
        self.cores = sorted(os.sched_getaffinity(0))
        self.workers = workers or len(self.cores)
        self.closed = False
        self.starter: Starter | None = None
        self._workers: dict[int, Worker] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self.workers)
        self._free_slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(self.workers):
            self._free_slots.put(slot)

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
        if self.starter:
            self.starter.close()

    def run(self, driver: Driver, payload: Payload, limits: Limits | None = None) -> Outcome:
        """Run a program once. Raises UserError for a driver that this sandbox was not made with."""
        if driver not in self.drivers:
            raise UserError(f"This sandbox has no driver {driver.path.name}: name it in Sandbox(drivers=...).")
        limits = limits or Limits()

        def work(worker: Worker, payload: Payload) -> Outcome:
            return worker.run(driver, payload, limits)

        def failed(payload: Payload, error: OSError) -> Outcome:
            return Outcome(b"", 0.0, Status.SANDBOX_FAILED, f"the sandbox failed: {error}")

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
        return list(self._pool.map(with_worker, items))

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
            if self.starter is None or not self.starter.alive:
                self._start()
            worker = self._workers.get(slot)
            # Each slot drops its own worker, since another thread may be using the others.
            if worker is None or worker.starter is not self.starter:
                self._drop(slot)
                core = self.cores[slot % len(self.cores)]
                worker = Worker(slot, core, self.starter)
                self._workers[slot] = worker
            return worker

    def _start(self) -> None:
        """Start a zygote, or what takes its place at this level. Raises OSError."""
        if self.starter:
            self.starter.close()
        self.starter = LEVELS[self.level](self.drivers)

    def _drop(self, slot: int) -> None:
        worker = self._workers.pop(slot, None)
        if worker:
            worker.close()

"""Judges matmul programs, several at a time, and tests itself."""

import os
import platform
import queue
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from math import prod
from statistics import median

import numpy as np

from helpers.runtime import UserError, did_you_mean
from helpers.sandbox.canaries import CANARIES, LOST, REFUSED
from helpers.sandbox.examiner import BASELINE, Examiner, best
from helpers.sandbox.process import LEVELS
from helpers.sandbox.products import CONTRACTS
from helpers.sandbox.trial import Trial

ATTEMPTS = 2  # at a step of judging, where the sandbox itself fails
CALIBRATIONS = 5
STATES = 300  # looks at the machine that are remembered: some seconds of judging


class Sandbox:
    """Judges programs in processes of their own; close it, or use it in a `with`.

    workers: how many programs at a time, by default one for each core. level: "os", or "policy" for
    hosts without seccomp: it does without the wall that the system makes, and prints what that one stopped.
    Needs Linux. Raises UserError.
    """

    def __init__(self, workers=None, level="os"):
        if not sys.platform.startswith("linux"):
            raise UserError("The sandbox needs Linux: run the notebooks in Colab, WSL or a Linux container.")
        if level not in LEVELS:
            raise UserError(f"There is no sandbox level '{level}': choose os or policy.")
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise UserError(f"workers must be a whole number from 1 on, or None for one a core; got {workers!r}.")
        if level == "policy":
            print(LOST, flush=True)
        self.level, self.lock, self.rng = level, threading.Lock(), np.random.default_rng()
        self.cores = sorted(os.sched_getaffinity(0))
        self.workers = workers or len(self.cores)
        self.pool, self.slots = ThreadPoolExecutor(self.workers), queue.SimpleQueue()
        for slot in range(self.workers):
            self.slots.put(slot)
        self.starter, self.examiners, self.states, self.plain = None, {}, deque(maxlen=STATES), None
        self.closed = False

    def close(self):
        self.closed = True
        self.pool.shutdown()
        for slot in list(self.examiners):
            self._drop(slot)
        if self.starter:
            self.starter.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def judge(self, source, contract="rows"):
        """The `Verdict` on one program text."""
        return self.judge_many([source], contracts=[contract])[0]

    def judge_many(self, sources, policy=True, contracts=None):
        """One `Verdict` per text, in order; equal texts are judged separately.

        The timed calls of a program do not follow each other: a disturbance rarely meets all of them.
        policy: False leaves the first wall out and gives programs all of Python, to try the second alone.
        contracts: for each text the name of its contract (`CONTRACTS`); default: all "rows".
        """
        trials = self._try(self._items(sources, contracts), policy)
        for _ in range(ATTEMPTS):
            self.plain = self.plain or self._calibrate()  # anew for a new zygote
        plain, now = self.plain, best(self.states)
        return [trial.verdict(self.level, now, plain * now * prod(trial.timed)) for trial in trials]

    def check_many(self, sources, contracts=None):
        """For each program 1.0 if it passes a test that is no part of the verdict, else 0.0; None: not known."""
        return self._each(Examiner.heldout, self._items(sources, contracts), failed=lambda item, reason: None)

    def behaviours(self, sources, contracts=None):
        """For each program a text that says what it does with fixed inputs, equal where two do the same.

        None: not known, as the sandbox failed.
        """
        return self._each(Examiner.behaviour, self._items(sources, contracts), failed=lambda item, reason: None)

    def _items(self, sources, contracts):
        """[(source, contract name)]. Raises UserError for what is no text or no contract."""
        sources = [sources] if isinstance(sources, str) else list(sources)
        contracts = ["rows"] * len(sources) if contracts is None else list(contracts)
        if not all(isinstance(source, str) for source in sources):
            raise UserError("The sandbox judges program texts: give it a str, or a list of them.")
        if len(contracts) != len(sources):
            raise UserError(f"There are {len(sources)} programs and {len(contracts)} contracts: give one for each.")
        for contract in contracts:
            if contract not in CONTRACTS:
                known = ", ".join(CONTRACTS)
                raise UserError(
                    f"There is no contract '{contract}'{did_you_mean(contract, CONTRACTS)}: choose {known}."
                )
        return list(zip(sources, contracts))

    def _calibrate(self):
        """CPU seconds of the plain way for one multiplication and addition, where a look at the machine takes one;
        0 where the sandbox fails."""
        trials = self._try(self._items([BASELINE] * CALIBRATIONS, None), policy=True)
        now = best(self.states)
        return median(trial.verdict(self.level, now, 1.0).cpu_seconds / now / prod(trial.timed) for trial in trials)

    def _try(self, items, policy):
        trials = [Trial(source, self.rng, policy, contract) for source, contract in items]
        self._each(Examiner.check, trials, failed=Trial.broke)
        while left := [trial for trial in trials if not trial.ended]:
            self._each(Examiner.time, left, failed=Trial.broke)
        return trials

    def _each(self, work, items, failed):
        """`work(examiner, item)` for every item, in order; where the sandbox fails twice, `failed(item, reason)`."""

        def with_examiner(item):
            slot, reason = self.slots.get(), None
            try:
                for _ in range(ATTEMPTS):
                    try:
                        return work(self._examiner(slot), item)
                    except OSError as error:
                        reason = error
                        self._drop(slot)
                return failed(item, reason)
            finally:
                self.slots.put(slot)

        if self.closed:
            raise UserError("This sandbox is closed: make a new one with Sandbox().")
        return list(self.pool.map(with_examiner, items))

    def _examiner(self, slot):
        """The one of a slot, made anew, and its zygote with it, where it is gone. Raises OSError."""
        with self.lock:
            if self.starter is None or not self.starter.alive:
                if self.starter:
                    self.starter.close()
                self.starter, self.plain = LEVELS[self.level](), None
            examiner = self.examiners.get(slot)
            if examiner is None or examiner.starter is not self.starter:  # the others close their own
                self._drop(slot)
                core = self.cores[slot % len(self.cores)]
                examiner = self.examiners[slot] = Examiner(self.starter, core, np.random.default_rng(), self.states)
            return examiner

    def _drop(self, slot):
        examiner = self.examiners.pop(slot, None)
        if examiner:
            examiner.close()

    def self_test(self):
        """Try some twenty cheats and an honest program; returns one line to paste into a bug report.

        At level "os" the cheats have all of Python, so that the second wall is tried alone. Raises
        UserError if one gets through, an honest program does not, or this host lacks what is needed.
        """
        started = time.monotonic()
        honest = self.judge(BASELINE)
        if not honest.judged:
            advice = "" if "seccomp" not in honest.reason else (
                ': use another host, or Sandbox(level="policy") where you can trust the programs'
            )  # fmt: skip
            raise UserError(f"The sandbox does not work on this host: {honest.reason}{advice}.")
        verdicts = dict(zip(CANARIES, self.judge_many(CANARIES.values(), policy=self.level == "policy")))
        verdicts |= dict(zip(REFUSED, self.judge_many(REFUSED.values())))
        through = [name for name, verdict in verdicts.items() if verdict.correct or not verdict.judged]
        through += [name for name in REFUSED if verdicts[name].pure]
        if through or not honest.correct:
            what = f"lets through: {', '.join(through)}" if through else f"fails an honest program: {honest.reason}"
            raise UserError(f"The sandbox is not safe on this host, so nothing was run: it {what}. {self._host()}")
        return (
            f"sandbox self-test passed: level {self.level}, {len(verdicts)} cheats stopped, the plain way at "
            f"{honest.speedup:.2f} of its own speed, {time.monotonic() - started:.1f} s. {self._host()}"
        )

    def _host(self):
        system = platform.uname()
        who = "root" if os.geteuid() == 0 else "an ordinary user"
        return (
            f"Python {platform.python_version()}, {system.system} {system.release} {system.machine}, "
            f"{self.workers} workers, {who}."
        )

"""Judges matmul programs, several at a time, and tests the sandbox that it judges them in."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from helpers.runtime import UserError
from helpers.sandbox import Sandbox, Worker
from helpers.tasks.matmul.canaries import CANARIES, REFUSED
from helpers.tasks.matmul.contracts import get_contract
from helpers.tasks.matmul.encoding import DRIVER
from helpers.tasks.matmul.examiner import Examiner
from helpers.tasks.matmul.speed import BASELINE, SpeedModel
from helpers.tasks.matmul.trial import Trial, Verdict

Item = TypeVar("Item")
Result = TypeVar("Result")

CALIBRATION_RUNS = 9
CALIBRATION_ATTEMPTS = 2  # where the sandbox fails


class MatmulJudge:
    """Judges programs in a sandbox of its own; close it, or use it in a `with`.

    level, workers: as for `Sandbox`. Raises UserError.
    """

    def __init__(self, level: str = "os", workers: int | None = None):
        self.sandbox = Sandbox(drivers=(DRIVER,), workers=workers, level=level)
        self.level = level
        self.workers = self.sandbox.workers
        self.speed = SpeedModel()
        self.rng = np.random.default_rng()
        self.examiners: dict[int, Examiner] = {}
        self._calibrated_zygote: object = None

    def __enter__(self) -> "MatmulJudge":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.sandbox.close()

    def judge(self, source: str, contract: str = "rows", policy: bool = True) -> Verdict:
        """Return the verdict on one program text. For the arguments see `judge_many`."""
        (verdict,) = self.judge_many([source], policy, [contract])
        return verdict

    def judge_many(
        self, sources: Iterable[str], policy: bool = True, contracts: Sequence[str] | None = None
    ) -> list[Verdict]:
        """Return one verdict for each text, in order; equal texts are judged separately.

        The timed calls of a program do not follow each other: a disturbance rarely meets all of them.
        policy: False leaves the first wall out and gives programs all of Python, to try the second alone.
        contracts: for each text the name of its contract (`CONTRACTS`); default: all "rows".

        Raises UserError for what is no text or no contract.
        """
        trials = self._try(_pairs(sources, contracts), policy)
        for _ in range(CALIBRATION_ATTEMPTS):
            if not self.speed.baseline_probes_per_step:
                self._calibrate()
        return [trial.verdict(self.level, self.speed) for trial in trials]

    def check_many(self, sources: Iterable[str], contracts: Sequence[str] | None = None) -> list[float | None]:
        """Return for each program 1.0 if it passes a test that is no part of the verdict, else 0.0.

        None: not known, as the sandbox failed.
        """
        return self._map(Examiner.heldout, _pairs(sources, contracts), failed=_not_known)

    def behaviours(self, sources: Iterable[str], contracts: Sequence[str] | None = None) -> list[str | None]:
        """Return for each program a text that says what it does with fixed inputs, equal where two do the same.

        None: not known, as the sandbox failed.
        """
        return self._map(Examiner.behaviour, _pairs(sources, contracts), failed=_not_known)

    def self_test(self) -> str:
        """Try some twenty cheats and an honest program; return one line to paste into a bug report.

        At level "os" the cheats have all of Python, so that the second wall is tried alone. Raises
        UserError if one gets through, an honest program does not, or this host lacks what is needed.
        """
        started = time.monotonic()
        honest = self.judge(BASELINE)
        if not honest.judged:
            advice = ""
            if "seccomp" in honest.reason:
                advice = ': use another host, or level="policy" where you can trust the programs'
            raise UserError(f"The sandbox does not work on this host: {honest.reason}{advice}.")
        canary_verdicts = self.judge_many(CANARIES.values(), policy=self.level == "policy")
        refused_verdicts = self.judge_many(REFUSED.values())
        refused = dict(zip(REFUSED, refused_verdicts))
        cheats = dict(zip(CANARIES, canary_verdicts)) | refused
        through = [name for name, verdict in cheats.items() if verdict.correct or not verdict.judged]
        through += [name for name, verdict in refused.items() if verdict.pure]
        problem = ""
        if through:
            problem = f"lets through: {', '.join(through)}"
        elif not honest.correct:
            problem = f"fails an honest program: {honest.reason}"
        if problem:
            host = self.sandbox.host()
            raise UserError(f"The sandbox is not safe on this host, so nothing was run: it {problem}. {host}")
        return (
            f"sandbox self-test passed: level {self.level}, {len(cheats)} cheats stopped, the baseline at "
            f"{honest.speedup:.2f} of its own speed, {time.monotonic() - started:.1f} s. {self.sandbox.host()}"
        )

    def _calibrate(self) -> None:
        """Time the baseline, if the sandbox works."""
        trials = self._try([(BASELINE, "rows")] * CALIBRATION_RUNS, policy=True)
        # A failed run counts as no time, and if most fail, so does their median: not known.
        runs = [([] if trial.failure else trial.timed_calls, trial.timed_sizes) for trial in trials]
        self.speed.calibrate(runs)

    def _try(self, pairs: Sequence[tuple[str, str]], policy: bool) -> list[Trial]:
        """Check and time programs. pairs: (source, contract name)."""
        trials = [Trial(source, self.rng, policy, contract) for source, contract in pairs]
        self._map(Examiner.check, trials, failed=Trial.fail_sandbox)
        running = [trial for trial in trials if not trial.ended]
        while running:
            self._map(Examiner.time, running, failed=Trial.fail_sandbox)
            running = [trial for trial in running if not trial.ended]
        return trials

    def _map(
        self,
        work: Callable[[Examiner, Item], Result],
        items: Sequence[Item],
        failed: Callable[[Item, OSError], Result],
    ) -> list[Result]:
        """`Sandbox.map`, with the examiner of the worker."""

        def with_examiner(worker: Worker, item: Item) -> Result:
            return work(self._examiner(worker), item)

        return self.sandbox.map(with_examiner, items, failed)

    def _examiner(self, worker: Worker) -> Examiner:
        """Return the examiner of a worker, made anew for a new worker. Raises OSError."""
        if self._calibrated_zygote is not worker.zygote:
            self._calibrated_zygote = worker.zygote
            self.speed.forget_calibration()
        examiner = self.examiners.get(worker.slot)
        if examiner is None or examiner.worker is not worker:
            examiner = Examiner(worker, self.speed)
            self.examiners[worker.slot] = examiner
        return examiner


def _pairs(sources: Iterable[str], contracts: Sequence[str] | None) -> list[tuple[str, str]]:
    """[(source, contract name)]. Raises UserError for what is no text or no contract."""
    sources = [sources] if isinstance(sources, str) else list(sources)
    contracts = ["rows"] * len(sources) if contracts is None else list(contracts)
    if not all(isinstance(source, str) for source in sources):
        raise UserError("The sandbox judges program texts: give it a str, or a list of them.")
    if len(contracts) != len(sources):
        raise UserError(f"There are {len(sources)} programs and {len(contracts)} contracts: give one for each.")
    for contract in contracts:
        get_contract(contract)
    return list(zip(sources, contracts))


def _not_known(pair: tuple[str, str], error: OSError) -> None:
    """The result for a program under which the sandbox failed."""

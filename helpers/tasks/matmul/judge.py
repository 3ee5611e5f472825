"""Judges matmul programs, several at a time."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from helpers.sandbox import Worker
from helpers.tasks.matmul.canaries import CANARIES
from helpers.tasks.matmul.contracts import get_contract
from helpers.tasks.matmul.encoding import DRIVER
from helpers.tasks.matmul.examiner import Examiner
from helpers.tasks.matmul.speed import BASELINE, SpeedModel
from helpers.tasks.matmul.trial import Trial
from helpers.tasks.programs.judge import ProgramJudge
from helpers.tasks.programs.verdict import Verdict

Item = TypeVar("Item")
Result = TypeVar("Result")

CALIBRATION_RUNS = 9
CALIBRATION_ATTEMPTS = 2  # where the sandbox fails


class MatmulJudge(ProgramJudge):
    """Judges programs in a sandbox of its own; close it, or use it in a `with`.

    A requirement is the name of a contract. level, workers: as for `Sandbox`. Raises UserError.
    """

    driver = DRIVER
    default_requirement = "rows"
    honest = BASELINE
    cheats = CANARIES
    test_requirement = "rows"

    def __init__(self, level: str = "os", workers: int | None = None):
        super().__init__(level, workers)
        self.speed = SpeedModel()
        self.rng = np.random.default_rng()
        self.examiners: dict[int, Examiner] = {}
        self._calibrated_zygote: object = None

    def check_requirement(self, requirement: object) -> None:
        get_contract(requirement)

    def judge_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Return one verdict for each (program text, contract)."""
        trials = self._try(pairs)
        if any(not trial.failure for trial in trials):
            for _ in range(CALIBRATION_ATTEMPTS):
                if not self.speed.baseline_probes_per_step:
                    self._calibrate()
        return [trial.verdict(self.speed) for trial in trials]

    def check_many(self, sources: Iterable[str], contracts: Sequence[str] | None = None) -> list[float | None]:
        """Return for each program 1.0 if it passes a test that is no part of the verdict, else 0.0.

        None: not known, as the sandbox failed.
        """
        return self._map(Examiner.heldout, self.pairs(sources, contracts), failed=_not_known)

    def behaviours(self, sources: Iterable[str], contracts: Sequence[str] | None = None) -> list[str | None]:
        """Return for each program a text that says what it does with fixed inputs, equal where two do the same.

        None: not known, as the sandbox failed.
        """
        return self._map(Examiner.behaviour, self.pairs(sources, contracts), failed=_not_known)

    def _calibrate(self) -> None:
        """Time the baseline, if the sandbox works."""
        trials = self._try([(BASELINE, "rows")] * CALIBRATION_RUNS)
        # A failed run counts as no time, and if most fail, so does their median: not known.
        self.speed.calibrate([[] if trial.failure else trial.timed_calls for trial in trials])

    def _try(self, pairs: Sequence[tuple[str, str]]) -> list[Trial]:
        """Check and time programs. pairs: (source, contract name)."""
        trials = [Trial(source, contract, self.rng) for source, contract in pairs]
        self._map(Examiner.examine, trials, failed=Trial.fail_sandbox)
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


def _not_known(pair: tuple[str, str], error: OSError) -> None:
    """The result for a program under which the sandbox failed."""

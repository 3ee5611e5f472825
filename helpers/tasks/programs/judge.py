"""The base of the judges of programs: a sandbox, and the test of it before it decides on any reward."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from helpers.runtime import UserError
from helpers.sandbox import Driver, Sandbox
from helpers.sandbox.level import missing_from_host
from helpers.tasks.programs.verdict import Verdict


class ProgramJudge(ABC):
    """Judges programs in a sandbox of its own; close it, or use it in a `with`.

    A *requirement* is what else a verdict depends on, as text: the tests of a row, or the name of a contract.

    driver: of the sandbox. default_requirement: what a program must meet where nobody says; None: somebody must.
    honest, cheats, test_requirement: programs for the self-test and what they must meet; a cheat does what it should
    not, and would be right if it could.

    level, workers: as for `Sandbox`. Raises UserError.
    """

    driver: Driver
    default_requirement: str | None = None
    honest: str
    cheats: Mapping[str, str]
    test_requirement: str

    def __init__(self, level: str = "os", workers: int | None = None):
        self.sandbox = Sandbox(drivers=(self.driver,), workers=workers, level=level)
        self.level = level
        self.workers = self.sandbox.workers

    def __enter__(self) -> "ProgramJudge":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox's processes."""
        self.sandbox.close()

    @abstractmethod
    def judge_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Return one verdict for each (program text, requirement), in order; equal pairs are judged separately."""

    def judge_many(self, sources: Iterable[str], requirements: Iterable[str] | None = None) -> list[Verdict]:
        """Return one verdict for each program text, in order. requirements: one a text; default: `default_requirement`.

        Raises UserError for what is no text or no requirement.
        """
        return self.judge_pairs(self.pairs(sources, requirements))

    def judge(self, source: str, requirement: str | None = None) -> Verdict:
        """Return the verdict on one program text. Raises UserError as `judge_many`."""
        requirements = None if requirement is None else [requirement]
        (verdict,) = self.judge_many([source], requirements)
        return verdict

    def pairs(self, sources: Iterable[str], requirements: Iterable[str] | None) -> list[tuple[str, str]]:
        """Return [(program text, requirement)]. Raises UserError for what is no text or no requirement."""
        sources = [sources] if isinstance(sources, str) else list(sources)
        requirements = [self.default_requirement] * len(sources) if requirements is None else list(requirements)
        if not all(isinstance(source, str) for source in sources):
            raise UserError("The sandbox judges program texts: give it a str, or a list of them.")
        if len(requirements) != len(sources):
            raise UserError(
                f"There are {len(sources)} programs and {len(requirements)} requirements: give one for each."
            )
        for requirement in requirements:
            self.check_requirement(requirement)
        return list(zip(sources, requirements))

    @abstractmethod
    def check_requirement(self, requirement: object) -> None:
        """Raise UserError for what is no requirement."""

    def self_test(self) -> str:
        """Try the cheats and the honest program; return one line to paste into a bug report.

        Raises UserError if this host lacks what is needed, if the honest program fails, and, but for level "process",
        if a cheat gets through. There the line names those that do.
        """
        started = time.monotonic()
        honest = self.judge(self.honest, self.test_requirement)
        host = self.sandbox.host()
        if not honest.judged:
            advice = ""
            if self.level == "os" and missing_from_host():
                advice = ": use another host, or level='process' (SANDBOX in the notebooks) if you trust the programs"
            raise UserError(f"The sandbox does not work on this host: {honest.reason}{advice}.")
        if not honest.correct:
            raise UserError(f"The sandbox fails an honest program on this host: {honest.reason}. {host}")
        verdicts = self.judge_many(self.cheats.values(), [self.test_requirement] * len(self.cheats))
        through = [name for name, verdict in zip(self.cheats, verdicts) if verdict.correct or not verdict.judged]
        if through and self.level == "os":
            raise UserError(
                "The sandbox is not safe on this host, so nothing was run: "
                f"it lets through: {', '.join(through)}. {host}"
            )
        stopped = f"{len(self.cheats) - len(through)} of {len(self.cheats)} cheats stopped"
        if through:
            stopped += f" (not {', '.join(through)})"
        return f"sandbox self-test passed: level {self.level}, {stopped}, {time.monotonic() - started:.1f} s. {host}"

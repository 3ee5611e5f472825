"""A lint for rewards: what they pay to careless and hostile completions, beside what they pay to honest answers.

The rewards are called in this process, as the trainer calls them, since that is what is asked: does a text run as code
here, and does it stop a training. One that never returns is not stopped.
"""

import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from helpers.lint.probes import (
    CANARY_VARIABLE,
    Texts,
    code_probes,
    long_probes,
    long_text,
    padded_answers,
    plain_probes,
)
from helpers.rewards.calling import (
    arguments_without_logs,
    call_reward,
    describe_failure,
    name_of,
    reward_values,
)
from helpers.rewards.registry import RewardSpec, list_rewards
from helpers.rollout.completion import Completion
from helpers.runtime import UserError, first_line

HONEST = "honest answer"
PADDED = "honest answer behind filler"
MORE = "is paid more than the honest answer"
SAME = "is paid as much as the honest answer"
#: Lengths in characters of a very long completion, each ten times the one before.
LENGTHS = (1_000, 10_000, 100_000)
#: Ten times the text may take this many times as long; a time below so many seconds is not compared.
MOST_GROWTH = 30.0
SHORTEST_TIME = 0.02

Row = Mapping[str, object]
#: f(rows, texts) -> whether each text is a right answer to its row.
IsRight = Callable[[Sequence[Row], Sequence[str]], Sequence[bool]]


@dataclass(frozen=True)
class Finding:
    """Something wrong with the rewards.

    probe: the completion that shows it. problem: a sentence without its subject. rows: on how many rows, of those in
    `of` where the probe was tried. paid, honest: means over the latter, of the weighted sum of the rewards; None where
    there is nothing to compare.
    """

    probe: str
    problem: str
    rows: int
    of: int
    paid: float | None = None
    honest: float | None = None


@dataclass(frozen=True)
class ProbePay:
    """The pay of one probe, on average and at most on one row; None where no reward judged it."""

    probe: str
    rows: int
    mean: float | None
    most: float | None


@dataclass(frozen=True)
class LintReport:
    """The result of `lint_rewards`. pays: every probe that was tried, the honest answer first."""

    rows: int
    findings: tuple[Finding, ...]
    pays: tuple[ProbePay, ...]

    @property
    def ok(self) -> bool:
        """True if there is nothing to report."""
        return not self.findings

    def __str__(self) -> str:
        honest, *probes = self.pays
        tried = f"{self.rows} rows, {len(probes)} probes"
        paid = f"an honest answer is paid {_number(honest.mean)} on average"
        if self.ok:
            undeserved = [pay.most for pay in probes if pay.probe != PADDED and pay.most is not None]
            most = max(undeserved, default=None)
            return f"{tried}: nothing to report; {paid}, one that deserves nothing {_number(most)} at most"
        header = ("probe", "rows", "paid", "honest", "finding")
        lines = [header]
        for finding in self.findings:
            share = f"{finding.rows} of {finding.of}"
            lines.append((finding.probe, share, _number(finding.paid), _number(finding.honest), finding.problem))
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        lines.insert(1, tuple("-" * width for width in widths))
        table = []
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
            table.append("  ".join(cells).rstrip())
        count = f"{len(self.findings)} finding" + ("s" if len(self.findings) > 1 else "")
        return "\n".join([f"{tried}: {count}; {paid}", *table])


def lint_rewards(
    reward_funcs: Callable | Sequence[Callable],
    rows: Sequence[Row],
    reference_answers: Sequence[str | None],
    weights: Sequence[float] | None = None,
    *,
    is_right: IsRight | None = None,
) -> LintReport:
    """Ask what the weighted sum of the rewards pays to completions that deserve nothing.

    rows: of the data set, each with its prompt; eight to thirty are enough. reference_answers: a right answer to each,
    as the final channel would have it; a row with None is left out. weights: one a reward, default: all 1.
    is_right: tells which answers of other rows are right for a row, too, and so deserve what they are paid; default:
    those of the same text.

    Reported are: probes that are paid as much as the row's honest answer or more, code that was run, rewards that
    raise, that return what the trainer refuses, that leave their range, or whose time grows faster than the text;
    honest answers that are not paid, and rewards that tell nothing from anything.

    Raises UserError for weights that do not fit, for rows that cannot be of one data set, and for rows without two
    different answers.
    """
    reward_funcs = list(reward_funcs) if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
    weights = [1.0] * len(reward_funcs) if weights is None else list(weights)
    if len(weights) != len(reward_funcs):
        raise UserError(f"{len(weights)} weights for {len(reward_funcs)} rewards: give one for each.")
    if not reward_funcs:
        raise UserError("There are no rewards: give at least one.")
    if any("prompt" not in row or row.keys() != rows[0].keys() for row in rows):
        raise UserError("The rows must all have the same columns, and 'prompt' among them, as those of a data set do.")
    if len(rows) != len(reference_answers):
        raise UserError(f"{len(reference_answers)} reference answers for {len(rows)} rows: give one for each.")
    pairs = [(row, answer) for row, answer in zip(rows, reference_answers, strict=True) if answer is not None]
    answers = [answer for _, answer in pairs]
    if len(set(answers)) < 2:
        raise UserError(
            f"{len(rows)} rows with {len(set(answers))} different reference answers: the lint compares answers of "
            "different rows, so give it rows with at least two."
        )
    lint = _Lint(reward_funcs, weights, [row for row, _ in pairs], answers)
    return lint.run(is_right)


class _Lint:
    """One run of the lint: calls the rewards and collects what is wrong."""

    def __init__(self, reward_funcs, weights, rows, answers):
        self.reward_funcs = reward_funcs
        self.weights = weights
        self.rows = rows
        self.answers = answers
        self.specs = [_spec_of(function) for function in reward_funcs]
        self.findings = []
        self.pays = []
        self.raised = False
        self.seen = []  # every pay of every row, to know the least and whether there is but one

    def run(self, is_right: IsRight | None) -> LintReport:
        honest_values = self._values(HONEST, self.answers)
        honest = self._pay(HONEST, honest_values)
        if not self.raised:  # rewards that fail on honest answers would say the same of every probe
            wrong = _wrong_answers(self.rows, self.answers, is_right)
            self._try_texts(plain_probes(_prompts(self.rows), self.answers, wrong), honest)
            self._compare(PADDED, padded_answers(self.answers), honest, problems=(MORE,))
            self._try_long_texts(honest)
            self._try_code(honest)
            self._judge_honest(honest, honest_values)
        return LintReport(len(self.rows), tuple(self.findings), tuple(self.pays))

    # Probes.

    def _try_texts(self, probes: Mapping[str, Texts], honest: Sequence[float | None]) -> None:
        for probe, texts in probes.items():
            self._compare(probe, texts, honest)

    def _try_long_texts(self, honest: Sequence[float | None]) -> None:
        for probe, parts in long_probes(self.answers).items():
            length = self._longest_bearable(probe, parts)
            if length is not None:
                self._compare(f"{probe} ({length:,})", [long_text(parts, length)] * len(self.rows), honest)

    def _longest_bearable(self, probe: str, parts: tuple[str, str, str]) -> int | None:
        """Return the longest length for which no reward needs far more time than its share; report where there is one.

        None: a reward raises, which is reported.
        """
        shorter_times = None
        for number, length in enumerate(LENGTHS):
            times = [self._time(function, long_text(parts, length)) for function in self.reward_funcs]
            if None in times:
                self._values(f"{probe} ({length:,})", [long_text(parts, length)] * len(self.rows))
                return None
            if shorter_times is not None:
                if self._report_growth(probe, length, times, shorter_times):
                    return LENGTHS[number - 1]
            shorter_times = times
        return LENGTHS[-1]

    def _time(self, function: Callable, text: str) -> float | None:
        """Return the CPU seconds that a reward takes for one completion, the best of three; None if it raises.

        Of this thread alone: other work on the machine would look like growth.
        """
        arguments = _arguments(self.rows[:1], [text])
        best = math.inf
        for _ in range(3):
            started = time.thread_time()
            try:
                call_reward(function, **arguments)
            except Exception:
                return None
            best = min(best, time.thread_time() - started)
            if best > 10 * SHORTEST_TIME:
                break
        return best

    def _report_growth(self, probe: str, length: int, times, shorter_times) -> bool:
        grows = False
        for function, seconds, shorter in zip(self.reward_funcs, times, shorter_times, strict=True):
            if seconds > SHORTEST_TIME and seconds > MOST_GROWTH * shorter:
                problem = f"'{name_of(function)}' takes {seconds / shorter:.0f} times as long for ten times the text"
                self._report(f"{probe} ({length:,})", problem, 1, 1)
                grows = True
        return grows

    def _try_code(self, honest: Sequence[float | None]) -> None:
        with _canary() as canary:
            for probe, texts in code_probes(self.answers).items():
                self._compare(probe, texts, honest, canary)

    # What they are paid.

    def _compare(
        self,
        probe: str,
        texts: Texts,
        honest: Sequence[float | None],
        canary: Path | None = None,
        problems: Sequence[str] = (MORE, SAME),
    ) -> None:
        """Call the rewards with the probe's texts and report where it is paid as much as the honest answer.

        problems: what is reported; a right answer may be paid the same.
        """
        numbers = [number for number, text in enumerate(texts) if text is not None]
        if not numbers:
            return
        values = self._values(probe, [texts[number] for number in numbers], numbers, canary)
        paid = self._pay(probe, values)
        pairs = [
            (pay, honest[number])
            for pay, number in zip(paid, numbers, strict=True)
            if pay is not None and honest[number] is not None
        ]
        found = Counter(_compared(pay, honest_pay) for pay, honest_pay in pairs)
        means = [_mean(column) for column in zip(*pairs, strict=True)]
        for problem in problems:
            if found[problem]:
                self._report(probe, problem, found[problem], len(pairs), *means)

    def _values(
        self, probe: str, texts: Sequence[str], numbers: Sequence[int] | None = None, canary: Path | None = None
    ) -> list[list[float | None]]:
        """Return what each reward gives each text; None also for a value that is reported as none.

        canary: the file that tells whether a text was run. Then each text is asked alone, to know which was.
        """
        rows = self.rows if numbers is None else [self.rows[number] for number in numbers]
        batches = [slice(0, len(texts))]
        if canary is not None:
            batches = [slice(number, number + 1) for number in range(len(texts))]
        table = []
        for function, spec in zip(self.reward_funcs, self.specs, strict=True):
            values = []
            problems = Counter()
            for batch in batches:
                found, problem = _call(function, rows[batch], texts[batch])
                values.extend(found)
                if problem:
                    self.raised = True
                    problems[problem] += len(found)
                if canary is not None and _take_away(canary):
                    problems[f"'{name_of(function)}' RAN it"] += len(found)
            for problem, count in problems.items():
                self._report(probe, problem, count, len(texts))
            self._report_outside(function, probe, values, spec)
            table.append(values)
        return table

    def _report_outside(
        self, function: Callable, probe: str, values: Sequence[float | None], spec: RewardSpec | None
    ) -> None:
        """Report values outside the range that the reward is registered with."""
        if spec is None:
            return
        low, high = spec.value_range
        outside = [value for value in values if value is not None and not low <= value <= high]
        if outside:
            problem = f"'{name_of(function)}' returned {outside[0]:g}, and its range is {low:g} to {high:g}"
            self._report(probe, problem, len(outside), len(values))

    def _pay(self, probe: str, table: Sequence[Sequence[float | None]]) -> list[float | None]:
        """Return the weighted sum for each completion, as the trainer forms it; None where no reward judged it."""
        paid = []
        for values in zip(*table, strict=True):
            terms = [
                weight * value
                for weight, value in zip(self.weights, values, strict=True)
                if value is not None and weight
            ]
            paid.append(sum(terms) if terms else None)
        judged = [pay for pay in paid if pay is not None]
        self.seen.extend(judged)
        self.pays.append(ProbePay(probe, len(paid), _mean(judged), max(judged, default=None)))
        return paid

    # Honest answers.

    def _judge_honest(self, honest: Sequence[float | None], honest_values: Sequence[Sequence[float | None]]) -> None:
        """Report honest answers that are not paid, and rewards that tell nothing from anything."""
        judged = [pay for pay in honest if pay is not None]
        if not judged:
            self._report(HONEST, "no reward judges it: all are None", len(honest), len(honest))
            return
        if max(self.seen) - min(self.seen) < 1e-12:
            self.findings = [finding for finding in self.findings if finding.problem not in (MORE, SAME)]
            self._report("everything", "is paid the same", len(honest), len(honest), judged[0], judged[0])
        least = min(self.seen)
        half_way = (least + max(judged)) / 2
        unpaid = [pay for pay in judged if pay <= half_way]
        if unpaid:
            problem = "is not paid: it gets no more than half way from the least pay to an honest answer's highest"
            if max(judged) == least:
                problem = "is not paid: nothing gets less"
            self._report(HONEST, problem, len(unpaid), len(judged), _mean(unpaid), max(judged))
        for function, spec, values in zip(self.reward_funcs, self.specs, honest_values, strict=True):
            if spec is None or not spec.pays_correctness:
                continue
            highest = spec.value_range[1]
            low = [value for value in values if value is not None and value < highest]
            if low:
                problem = f"'{name_of(function)}' pays it less than its most, {highest:g}"
                self._report(HONEST, problem, len(low), len(values), _mean(low), highest)

    def _report(
        self, probe: str, problem: str, rows: int, of: int, paid: float | None = None, honest: float | None = None
    ) -> None:
        self.findings.append(Finding(probe, problem, rows, of, paid, honest))


def _arguments(rows: Sequence[Row], texts: Sequence[str]) -> dict:
    """Return the keywords with which the trainer calls a reward."""
    return {
        "trainer_state": SimpleNamespace(global_step=0, max_steps=1, log_history=[]),
        **arguments_without_logs(rows, [Completion.of_text(text) for text in texts]),
    }


def _call(function: Callable, rows: Sequence[Row], texts: Sequence[str]) -> tuple[Sequence, str | None]:
    """Return the values of one reward; all None, and a sentence, if it raises or leaves completions out."""
    name = name_of(function)
    nothing = [None] * len(texts)
    try:
        returned = call_reward(function, **_arguments(rows, texts))
    except UserError as error:
        return nothing, f"'{name}' raised UserError: {first_line(error)}"
    except Exception as error:
        return nothing, describe_failure(f"'{name}'", error)
    try:
        return reward_values(name, returned, len(texts)), None
    except UserError as error:
        return nothing, first_line(error)


@contextmanager
def _canary() -> Iterator[Path]:
    """Yield the path of a file that code can create, in a temporary folder, and name it in the environment."""
    before = os.environ.get(CANARY_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="lint-") as folder:
        canary = Path(folder) / "ran"
        os.environ[CANARY_VARIABLE] = str(canary)
        try:
            yield canary
        finally:
            del os.environ[CANARY_VARIABLE]
            if before is not None:
                os.environ[CANARY_VARIABLE] = before


def _take_away(canary: Path) -> bool:
    """Tell whether code left its trace, and remove it."""
    if canary.is_dir():
        canary.rmdir()
        return True
    if canary.exists():
        canary.unlink()
        return True
    return False


def _compared(pay: float, honest_pay: float) -> str | None:
    """Return the problem with what a probe is paid, if there is one."""
    if math.isclose(pay, honest_pay, rel_tol=1e-9, abs_tol=1e-12):
        return SAME
    return MORE if pay > honest_pay else None


def _prompts(rows: Sequence[Row]) -> list[str]:
    """Return what a user said last in each row."""
    texts = []
    for row in rows:
        prompt = row["prompt"]
        texts.append(prompt if isinstance(prompt, str) else prompt[-1]["content"])
    return texts


def _wrong_answers(rows: Sequence[Row], answers: Sequence[str], is_right: IsRight | None) -> list[list[str]]:
    """Return for each row the different answers of other rows that are not right for it.

    Each list begins with the answer of the next row, so that not all rows are tried with the same one.
    """
    candidates = []
    for number, answer in enumerate(answers):
        others = dict.fromkeys([*answers[number + 1 :], *answers[:number]])
        others.pop(answer, None)
        candidates.append(list(others))
    if is_right is None:
        return candidates
    asked_rows = [row for row, others in zip(rows, candidates, strict=True) for _ in others]
    verdicts = iter(is_right(asked_rows, [other for others in candidates for other in others]))
    wrong = [[other for other in others if not next(verdicts)] for others in candidates]
    # Where every answer is right for every row, the one who says so may be what is wrong.
    return wrong if any(wrong) else candidates


def _spec_of(function: Callable) -> RewardSpec | None:
    """Return what the registry knows of a reward, if this very function or class is registered."""
    for spec in list_rewards():
        if spec.made(function):
            return spec
    return None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"

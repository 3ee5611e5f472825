"""Where a difference comes from: prompts, outcomes, faults, measures; and how sure and how varied a model is."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import log2
from statistics import median

import numpy as np

from helpers.evaluation.compare import compare_records, paired
from helpers.evaluation.records import Record
from helpers.evaluation.statistics import Difference, Interval, distinct_share, pass_at_k, rate_interval
from helpers.tasks import Measure


def fault_of(record: Record) -> str:
    """Return the reason of a grade without its details ("IndexError", "wrong product"); "" if correct."""
    reason = record["reason"]
    for end in (" for ", ":", " of "):
        reason = reason.partition(end)[0]
    return reason


def gains_by(base: Sequence[Record], tuned: Sequence[Record], key: str = "cluster") -> dict[str, Difference]:
    """{value of `key`: `Difference` on its items}, sorted; values with fewer than two items are left out.

    A gain in all groups is a gain in the task; one that sits in a few may be a trick, or luck.
    """
    groups = {}
    for pair in paired(base, tuned):
        groups.setdefault(pair[0][key], []).append(pair)
    return {value: compare_records(*zip(*groups[value])) for value in sorted(groups, key=str) if len(groups[value]) > 1}


def pass_at_k_curve(records: Sequence[Record], ks: Iterable[int]) -> dict[int, tuple[float, Interval]]:
    """{k: (pass@k, 95 % interval)} from several answers to each prompt; the interval is clustered by `cluster`."""
    correct = {}
    clusters = {}
    for record in records:
        correct.setdefault(record["id"], []).append(record["correct"])
        clusters[record["id"]] = record["cluster"]
    curve = {}
    for k in ks:
        estimates = [pass_at_k(len(answers), sum(answers), k) for answers in correct.values()]
        curve[k] = float(np.mean(estimates)), rate_interval(estimates, list(clusters.values()))
    return curve


def entropy_per_token(records: Sequence[Record]) -> float:
    """The policy's entropy in nats a token, averaged over its own answers at temperature 1.

    Minus the log-probability of what a policy draws estimates its entropy.
    """
    assert all(record["temperature"] == 1 for record in records), "only answers at temperature 1 tell the entropy"
    return -sum(record["logprob"] for record in records) / sum(record["tokens"] for record in records)


def diversity(base: Sequence[Record], tuned: Sequence[Record]) -> dict[str, tuple[int, int, float]]:
    """{"base" and "tuned": (different correct answers, correct answers, expected share of different ones)}.

    The share is the one expected among as many correct answers as the model with fewer of them has: more answers
    repeat each other more often. It is NaN where a model has none.
    """
    correct_texts = {
        name: [record["completion"] for record in records if record["correct"]]
        for name, records in (("base", base), ("tuned", tuned))
    }
    draws = min(map(len, correct_texts.values()))
    return {
        name: (len(set(texts)), len(texts), distinct_share(texts, draws) if draws else float("nan"))
        for name, texts in correct_texts.items()
    }


def transition_matrix(
    base: Sequence[Record], tuned: Sequence[Record], outcomes: Sequence[str]
) -> dict[tuple[str, str], int]:
    """{(outcome of the base, outcome of the tuned model): items} for every pair of `outcomes`."""
    counts = Counter((before["outcome"], after["outcome"]) for before, after in paired(base, tuned))
    return {pair: counts[pair] for pair in product(outcomes, repeat=2)}


@dataclass(frozen=True)
class FaultChange:
    """The fate of the items on which the base made one fault.

    base: how many there are. Of these the tuned model now is correct on `solved`, makes the same fault on `same`, and
    another on `other`. tuned: how often the tuned model makes this fault, on any item.
    """

    fault: str
    base: int
    solved: int
    same: int
    other: int
    tuned: int


def fault_changes(base: Sequence[Record], tuned: Sequence[Record]) -> list[FaultChange]:
    """Follow every fault, the base's most frequent first; a fault that only the tuned model makes stands last."""
    pairs = paired(base, tuned)
    base_faults = Counter(fault_of(record) for record in base if not record["correct"])
    tuned_faults = Counter(fault_of(record) for record in tuned if not record["correct"])
    faults = sorted(base_faults | tuned_faults, key=lambda fault: (-base_faults[fault], -tuned_faults[fault], fault))
    changes = []
    for fault in faults:
        now = [after for before, after in pairs if not before["correct"] and fault_of(before) == fault]
        still_wrong = [record for record in now if not record["correct"]]
        same = sum(fault_of(record) == fault for record in still_wrong)
        change = FaultChange(
            fault,
            base=len(now),
            solved=len(now) - len(still_wrong),
            same=same,
            other=len(still_wrong) - same,
            tuned=tuned_faults[fault],
        )
        changes.append(change)
    return changes


@dataclass(frozen=True)
class MeasureChange:
    """The difference between two models in a measure of correct answers.

    base, tuned: medians over all correct answers, None without any. pairs: pairs of unlike answers to one item that are
    both correct, each pair of texts once. ratio: median of tuned over base in these pairs, None without any. higher,
    lower: pairs whose values differ by more than the measure's resolution.

    The medians alone mislead: the tuned model solves more items, and other ones. Equal answers differ by nothing but
    the error of measurement, and the same two answers to many items are one observation.
    """

    base: float | None
    tuned: float | None
    pairs: int
    ratio: float | None
    higher: int
    lower: int


def measure_change(base: Sequence[Record], tuned: Sequence[Record], measure: Measure) -> MeasureChange:
    """Compare a measure of the two models' correct answers."""
    ratio_by_texts = {}
    for before, after in paired(base, tuned):
        texts = before["completion"], after["completion"]
        if before["correct"] and after["correct"] and texts[0] != texts[1]:
            ratio_by_texts[texts] = after["tags"][measure.tag] / before["tags"][measure.tag]
    ratios = list(ratio_by_texts.values())
    largest_equal = 1 + measure.resolution
    return MeasureChange(
        base=_median(measured(base, measure)),
        tuned=_median(measured(tuned, measure)),
        pairs=len(ratios),
        ratio=2 ** median(map(log2, ratios)) if ratios else None,
        higher=sum(ratio > largest_equal for ratio in ratios),
        lower=sum(ratio < 1 / largest_equal for ratio in ratios),
    )


def measured(records: Sequence[Record], measure: Measure) -> list[float]:
    """Return the measure's values of the correct answers."""
    return [record["tags"][measure.tag] for record in records if record["correct"]]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None

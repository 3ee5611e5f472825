"""Where a difference comes from: prompts, outcomes, faults, speed; and how sure and how varied a model is."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log2
from statistics import median

import numpy as np

from helpers.evaluation.compare import compare_records, paired
from helpers.evaluation.records import Record
from helpers.evaluation.statistics import Difference, Interval, distinct_share, pass_at_k, rate_interval
from helpers.rewards.matmul import DEAD_ZONE

OUTCOMES = ("correct", "wrong", "fails", "cheat")


def outcome_of(record):
    """One of `OUTCOMES`: "wrong" gives an answer that is no product, "fails" gives none."""
    if record["correct"]:
        return "correct"
    return "cheat" if record["cheat"] else "wrong" if record["ran"] else "fails"


def fault_of(record):
    """The reason of a verdict without its details ("IndexError", "wrong product"); "" if correct."""
    return record["reason"].split(" for ")[0].split(":")[0].split(" of ")[0]


def gains_by(base: Sequence[Record], tuned: Sequence[Record], key: str = "cluster") -> dict[str, Difference]:
    """{value of `key`: `Difference` on its items}, sorted; values with fewer than two items are left out.

    A gain in all groups is a gain in the task; one that sits in a few may be a trick, or luck.
    """
    groups = {}
    for pair in paired(base, tuned):
        groups.setdefault(pair[0][key], []).append(pair)
    return {value: compare_records(*zip(*groups[value])) for value in sorted(groups) if len(groups[value]) > 1}


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
    """{"base" and "tuned": (different correct programs, correct answers, expected share of different ones)}.

    The share is the one expected among as many correct answers as the model with fewer of them has: more answers
    repeat each other more often. It is NaN where a model has none.
    """
    programs = {
        name: [record["completion"] for record in records if record["correct"]]
        for name, records in (("base", base), ("tuned", tuned))
    }
    draws = min(map(len, programs.values()))
    return {
        name: (len(set(texts)), len(texts), distinct_share(texts, draws) if draws else float("nan"))
        for name, texts in programs.items()
    }


def transition_matrix(base, tuned):
    """{(outcome of the base, outcome of the tuned model): items}, all 16 of them."""
    counts = Counter((outcome_of(before), outcome_of(after)) for before, after in paired(base, tuned))
    return {(before, after): counts[before, after] for before in OUTCOMES for after in OUTCOMES}


def fault_changes(base, tuned):
    """[(fault, in the base, of these: now correct, the same, another; in the tuned model)], most frequent first.

    A fault that only the tuned model makes stands at the end.
    """
    rows, pairs = [], paired(base, tuned)
    after = Counter(fault_of(record) for record in tuned if not record["correct"])
    before = Counter(fault_of(record) for record in base if not record["correct"])
    for fault in sorted(before | after, key=lambda fault: (-before[fault], -after[fault], fault)):
        now = [new for old, new in pairs if not old["correct"] and fault_of(old) == fault]
        solved = sum(record["correct"] for record in now)
        same = sum(not record["correct"] and fault_of(record) == fault for record in now)
        rows.append((fault, len(now), solved, same, len(now) - solved - same, after[fault]))
    return rows


def speed_change(base, tuned):
    """How fast correct programs are, as a dict.

    base, tuned: medians over all correct programs, None without any. Then over the pairs of unlike
    programs that answer the same item correctly, each pair once: pairs (how many), ratio (median of
    tuned over base), faster and slower (beyond `DEAD_ZONE`, what the clock cannot tell apart).

    The medians alone mislead: the tuned model solves more items, and other ones. Equal programs
    differ by nothing but the clock, and the same two programs on many items are one observation.
    """
    ratios = {
        (before["completion"], after["completion"]): after["speedup"] / before["speedup"]
        for before, after in paired(base, tuned)
        if before["correct"] and after["correct"] and before["completion"] != after["completion"]
    }.values()
    speeds = [[record["speedup"] for record in records if record["correct"]] for records in (base, tuned)]
    return {
        "base": median(speeds[0]) if speeds[0] else None,
        "tuned": median(speeds[1]) if speeds[1] else None,
        "pairs": len(ratios),
        "ratio": 2 ** median(map(log2, ratios)) if ratios else None,
        "faster": sum(ratio > 1 + DEAD_ZONE for ratio in ratios),
        "slower": sum(ratio < 1 / (1 + DEAD_ZONE) for ratio in ratios),
    }

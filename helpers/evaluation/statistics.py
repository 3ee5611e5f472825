"""Statistics of right and wrong answers: intervals, paired tests, pass@k, diversity. Shares, not percent.

Tests are exact. What a planned evaluation can see is in `power.py`.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import comb, sqrt

import numpy as np
from scipy.stats import binomtest, t

ALPHA = 0.05
Z95 = 1.959964

Interval = tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """Two models' answers to the same items, compared.

    clusters: groups of items whose answers may be alike, such as the wordings of the prompts. Intervals are 95 %.
    gained, lost: items that only the tuned, or only the base, model solved. p_floor: the smallest p-value that so many
    clusters could give.
    """

    items: int
    clusters: int
    base_rate: float
    base_interval: Interval
    tuned_rate: float
    tuned_interval: Interval
    difference: float
    interval: Interval
    gained: int
    lost: int
    p_value: float
    p_floor: float

    @property
    def is_gain(self) -> bool:
        return self.p_value < ALPHA and self.difference > 0

    @property
    def is_loss(self) -> bool:
        return self.p_value < ALPHA and self.difference < 0


def difference(base: Sequence[bool], tuned: Sequence[bool], clusters: Sequence[Hashable]) -> Difference:
    """Compare the answers of two models to the same items. base, tuned: whether each answer is right.

    clusters: the cluster of each item. Where there is only one, items are taken as independent.
    """
    assert len(base) == len(tuned) == len(clusters)
    if len(set(clusters)) == 1:
        clusters = range(len(clusters))
    base = np.array(base, dtype=int)
    tuned = np.array(tuned, dtype=int)
    change = tuned - base
    gained = int((change > 0).sum())
    lost = int((change < 0).sum())
    by_items = paired_interval(gained, lost, len(change))
    by_clusters = clustered_interval(change, clusters)
    return Difference(
        items=len(change),
        clusters=len(set(clusters)),
        base_rate=float(base.mean()),
        base_interval=rate_interval(base, clusters),
        tuned_rate=float(tuned.mean()),
        tuned_interval=rate_interval(tuned, clusters),
        difference=float(change.mean()),
        interval=_wider(by_items, by_clusters, lowest=-1.0),
        gained=gained,
        lost=lost,
        p_value=sign_flip_test(change, clusters),
        p_floor=2.0 ** (1 - len(set(clusters))),
    )


def mcnemar_exact(gained: int, lost: int) -> float:
    """Two-sided exact p-value that gains and losses are equally likely (McNemar, 1947); 1 without any.

    It takes items as independent; `sign_flip_test` does not.
    """
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def sign_flip_test(change: Sequence[int], clusters: Sequence[Hashable]) -> float:
    """Two-sided exact p-value that a cluster's net gain is as likely to be a loss of the same size.

    change: -1, 0 or 1 for each item. If nothing was learnt, the sign of each cluster's sum is a coin, so the
    distribution of the total is a convolution of as many coins. Where all sums are of one size, as with an item to a
    cluster, this is McNemar's test.
    """
    sums = _cluster_sums(np.asarray(change, dtype=int), clusters)
    reach = int(np.abs(sums).sum())
    # The probability of each total from -reach to reach.
    probability = np.ones(1)
    for size in np.abs(sums):
        flipped = np.zeros(len(probability) + 2 * size)
        flipped[: len(probability)] += probability / 2
        flipped[2 * size :] += probability / 2
        probability = flipped
    totals = np.arange(-reach, reach + 1)
    as_extreme = np.abs(totals) >= abs(int(sums.sum()))
    return min(1.0, float(probability[as_extreme].sum()))


def paired_difference(gained: int, lost: int, items: int) -> tuple[float, float]:
    """`(difference, standard error)` of two 0/1 scores on the same, independent items (Miller, 2024, section 4)."""
    mean = (gained - lost) / items
    return mean, sqrt(((gained + lost) / items - mean**2) / (items - 1))


def paired_interval(gained: int, lost: int, items: int) -> Interval:
    """95 % interval of the difference on independent items, with half an observation more in each of the four cells.

    Without these, a handful of items on which the models agree would seem to prove that they are equal (Agresti and
    Min, Statistics in Medicine, 2005).
    """
    n = items + 2
    centre = (gained - lost) / n
    variance = np.maximum((gained + lost + 1) / n - centre**2, 0.0)
    half = Z95 * np.sqrt(variance / n)
    return centre - half, centre + half


def wilson_interval(successes: int, items: int) -> Interval:
    """95 % Wilson score interval of a share of independent items (Wilson, 1927)."""
    interval = binomtest(successes, items).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def clustered_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """95 % interval of a mean whose items depend on each other within clusters (Miller, 2024, section 2.2).

    The standard error adds up the deviations of each cluster before it squares them; Student's t has one degree of
    freedom less than there are clusters.
    """
    values = np.asarray(values, dtype=float)
    mean = float(values.mean())
    sums = _cluster_sums(values - mean, clusters)
    count = len(sums)
    if count < 2:
        raise ValueError("A clustered interval needs at least two clusters.")
    error = sqrt(count / (count - 1) * float((sums**2).sum())) / len(values)
    half = float(t.ppf(0.975, count - 1)) * error
    return mean - half, mean + half


def rate_interval(shares: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """95 % interval of a mean of values in [0, 1]: the wider of Wilson's and the clustered one.

    Where all items are alike the clustered interval has no width, and Wilson's has. Among values in [0, 1] zeros and
    ones vary the most, so Wilson's is wide enough for shares too.
    """
    by_items = wilson_interval(round(float(np.sum(shares))), len(shares))
    if len(set(clusters)) < 2:
        return by_items
    return _wider(by_items, clustered_interval(shares, clusters), lowest=0.0)


def _wider(one: Interval, other: Interval, lowest: float) -> Interval:
    """The smallest interval that contains both, within [lowest, 1]."""
    return float(max(lowest, min(one[0], other[0]))), float(min(1.0, max(one[1], other[1])))


def _cluster_sums(values: np.ndarray, clusters: Sequence[Hashable]) -> np.ndarray:
    """The sum of the values of each cluster."""
    sums: Counter = Counter()
    for value, cluster in zip(values.tolist(), clusters, strict=True):
        sums[cluster] += value
    return np.array(list(sums.values()))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Probability that at least one of `k` answers is right, estimated without bias from `samples` answers.

    1 - C(samples - correct, k) / C(samples, k) (Chen et al., 2021, equation 1). Putting the share of right answers
    into 1 - (1 - share)^k instead would give too low a value.
    """
    if k > samples:
        raise ValueError(f"pass@{k} needs at least {k} samples; got {samples}.")
    return 1 - comb(samples - correct, k) / comb(samples, k)


def distinct_share(texts: Sequence[str], draws: int) -> float:
    """Expected share of different texts among `draws` of these, drawn without replacement (Hurlbert, 1971).

    The plain share falls with the number of texts, so two sets of unlike size are compared at the same `draws`.
    """
    if not 1 <= draws <= len(texts):
        raise ValueError(f"{draws} texts cannot be drawn from {len(texts)}.")
    ways = comb(len(texts), draws)
    seen = sum(1 - comb(len(texts) - copies, draws) / ways for copies in Counter(texts).values())
    return seen / draws

import math
import random
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import permutation_test, t

from helpers.evaluation import (
    clustered_interval,
    difference,
    distinct_share,
    mcnemar_exact,
    paired_difference,
    pass_at_k,
    rate_interval,
    sign_flip_test,
    smallest_visible,
    wilson_interval,
)
from helpers.evaluation.statistics import paired_interval


@pytest.mark.parametrize(("gained", "lost"), [(5, 1), (0, 0), (3, 3), (12, 2), (0, 9)])
def test_mcnemar_by_enumeration(gained, lost):
    """All ways that a fair coin can fall, counted."""
    n = gained + lost
    outcomes = [sum(tosses) for tosses in product((0, 1), repeat=n)]
    extreme = sum(abs(heads - n / 2) >= abs(gained - n / 2) for heads in outcomes)
    assert mcnemar_exact(gained, lost) == pytest.approx(extreme / 2**n)


@pytest.mark.parametrize("sums", [(4, 3, -1), (5, 5, 2, 1, -2), (2, -2), (1, 2, 3, 4, 5, 6)])
def test_sign_flips_by_enumeration(sums):
    """All signs that the clusters' sums can have, counted."""
    totals = [sum(sign * size for sign, size in zip(signs, sums)) for signs in product((1, -1), repeat=len(sums))]
    extreme = sum(abs(total) >= abs(sum(sums)) for total in totals)
    change = [math.copysign(1, size) for size in sums for _ in range(abs(size))]
    clusters = [number for number, size in enumerate(sums) for _ in range(abs(size))]
    assert sign_flip_test(change, clusters) == pytest.approx(extreme / len(totals), abs=1e-12)


def test_with_an_item_a_cluster_the_sign_flips_are_mcnemar():
    change = [1] * 14 + [-1] * 5 + [0] * 30
    assert sign_flip_test(change, range(len(change))) == pytest.approx(mcnemar_exact(14, 5), abs=1e-12)


def test_known_p_values():
    """The first three from the research log of a pipeline for competition math (the "A30" run and two more); all as
    exact fractions."""
    for gained, lost, known in ((61, 57, 0.7826), (38, 45, 0.5104), (70, 60, 0.4300), (6, 12, 0.2379)):
        n = gained + lost
        exact = min(Fraction(1), 2 * sum(Fraction(math.comb(n, k), 2**n) for k in range(max(gained, lost), n + 1)))
        change = [1] * gained + [-1] * lost
        assert round(float(exact), 4) == known
        assert mcnemar_exact(gained, lost) == pytest.approx(float(exact), abs=1e-10)
        assert sign_flip_test(change, range(n)) == pytest.approx(float(exact), abs=1e-10)


def test_sign_flips_of_many_clusters_against_scipy():
    """All 2^18 ways that the signs of 18 clusters can fall."""
    rng = random.Random(3)
    sums = np.array([rng.randint(-4, 6) or 1 for _ in range(18)])
    change = [int(np.sign(size)) for size in sums for _ in range(abs(size))]
    clusters = [number for number, size in enumerate(sums) for _ in range(abs(size))]
    found = permutation_test(
        (sums,), lambda values, axis: values.sum(axis), permutation_type="samples", vectorized=True, n_resamples=np.inf
    )
    assert sign_flip_test(change, clusters) == pytest.approx(found.pvalue, abs=1e-10)


def test_sixteen_clusters_can_reject_at_one_in_a_thousand():
    """The smallest p-value is 2 / 2^16. With ten wordings it would be 2 / 2^10, which is above .001."""
    assert sign_flip_test([1] * 48 + [1], [n % 16 for n in range(49)]) == pytest.approx(2 / 2**16)


def test_dependent_items_need_the_cluster():
    """Where nothing was learnt and whole wordings go one way or the other, few of 20 runs may reject. Taken as
    independent most would."""
    rng = random.Random(0)
    rejected = {"by wording": 0, "if independent": 0}
    for _ in range(20):
        change = []
        for _ in range(16):
            size = rng.choice((8, 10, 12, 14))  # sums of one size would be McNemar's test
            change += [rng.choice((1, -1))] * size + [0] * (20 - size)
        rejected["by wording"] += sign_flip_test(change, [n // 20 for n in range(320)]) < 0.05
        rejected["if independent"] += mcnemar_exact(change.count(1), change.count(-1)) < 0.05
    assert rejected["by wording"] <= 3 and rejected["if independent"] >= 8, rejected


def test_wilson_by_its_formula():
    for successes, items in ((7, 10), (0, 20), (20, 20), (150, 300)):
        p, z = successes / items, 1.959963984540054
        centre = (p + z * z / (2 * items)) / (1 + z * z / items)
        half = z / (1 + z * z / items) * math.sqrt(p * (1 - p) / items + z * z / (4 * items**2))
        assert wilson_interval(successes, items) == pytest.approx((centre - half, centre + half), abs=1e-9)


def test_clustered_interval_by_its_formula():
    """Double sum over pairs within a cluster (Miller, 2024, section 2.2), with the small-sample factor G / (G - 1)."""
    values = [1, 0, 1, 1, 0, 0, 1, 0, 1]
    clusters = list("aaabbbccd")
    n, mean = len(values), sum(values) / len(values)
    pairs = sum(
        (values[i] - mean) * (values[j] - mean) for i in range(n) for j in range(n) if clusters[i] == clusters[j]
    )
    half = t.ppf(0.975, 3) * math.sqrt(4 / 3 * pairs) / n
    assert clustered_interval(values, clusters) == pytest.approx((mean - half, mean + half))


def test_clustered_intervals_cover_the_truth():
    """16 wordings whose rates differ widely: Wilson's interval, made for independent items, misses too often."""
    rng, covered = np.random.default_rng(0), {"clustered": 0, "wilson": 0}
    for _ in range(400):
        rates = rng.beta(0.6, 0.6, 16)  # mean 0.5
        answers = (rng.random((16, 20)) < rates[:, None]).astype(int).ravel()
        low, high = rate_interval(answers, [n // 20 for n in range(320)])
        covered["clustered"] += low <= 0.5 <= high
        low, high = wilson_interval(int(answers.sum()), 320)
        covered["wilson"] += low <= 0.5 <= high
    assert covered["clustered"] >= 370 and covered["wilson"] < 300, covered


#: Of the beta distributions that each wording's two rates are drawn from.
WIDE, OPPOSITE, AT_THE_ENDS = ((0.6, 0.6), (0.6, 0.6)), ((0.3, 2.0), (2.0, 0.3)), ((0.2, 3.0), (9.0, 0.5))


@pytest.mark.parametrize(
    ("rates", "clusters", "items", "least"),
    [
        (rates, clusters, items, 0.87 if rates is AT_THE_ENDS else 0.92)
        for rates in (WIDE, OPPOSITE, AT_THE_ENDS)
        for clusters, items in ((20, 320), (64, 64), (24, 320))
    ],
)
def test_intervals_of_differences_cover_the_truth(rates, clusters, items, least):
    """Wordings whose rates differ widely, near 0 for the base and near 1 for the tuned model as well. There 20 clusters
    cover in 90 % of 800 runs and 24 in 93 %; in the other cases 93 % and more do."""
    base, tuned = rates
    rng = np.random.default_rng(0)
    cluster_of = np.arange(items) % clusters
    truth = tuned[0] / sum(tuned) - base[0] / sum(base)
    covered = 0
    for _ in range(400):
        base_rates, tuned_rates = rng.beta(*base, clusters), rng.beta(*tuned, clusters)
        before = rng.random(items) < base_rates[cluster_of]
        after = rng.random(items) < tuned_rates[cluster_of]
        low, high = difference(before, after, cluster_of.tolist()).interval
        covered += low <= truth <= high
    assert covered >= least * 400, covered / 400


def test_paired_error_is_the_standard_error_of_the_differences():
    differences = [1] * 5 + [-1] * 2 + [0] * 13
    mean = sum(differences) / 20
    error = math.sqrt(sum((d - mean) ** 2 for d in differences) / 19 / 20)
    assert paired_difference(5, 2, 20) == pytest.approx((mean, error))


def test_paired_interval_covers_the_truth():
    """Of 1,000 simulated comparisons about 950 must hold the true difference."""
    rng, covered = random.Random(0), 0
    for _ in range(1000):
        outcomes = rng.choices(("gained", "lost", "same"), (0.2, 0.1, 0.7), k=80)
        low, high = paired_interval(outcomes.count("gained"), outcomes.count("lost"), 80)
        covered += low <= 0.1 <= high
    assert 930 <= covered <= 980


def test_agreement_on_a_handful_is_no_null():
    """Five items that neither solved say nothing, and the interval must show it."""
    found = difference([False] * 5, [False] * 5, range(5))
    assert found.interval[1] > 0.2 and smallest_visible(found) is None and found.p_value == 1


def test_one_cluster_is_taken_as_independent_items():
    """The answers within one wording are compared, too; there is nothing to cluster them by."""
    found = difference([False] * 20, [True] * 15 + [False] * 5, ["a"] * 20)
    assert found.clusters == 20 and found.p_value == pytest.approx(mcnemar_exact(15, 0))


@pytest.mark.parametrize(("samples", "correct"), [(8, 2), (8, 0), (8, 8), (6, 3)])
def test_pass_at_k_by_enumeration(samples, correct):
    answers = [True] * correct + [False] * (samples - correct)
    for k in range(1, samples + 1):
        chosen = list(combinations(answers, k))
        assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))


def test_pass_at_k_is_unbiased():
    """The plug-in formula is not: at a rate of 0.3 and eight samples it gives 0.84 for 0.94 (k = 8)."""
    rng = np.random.default_rng(0)
    counts = rng.binomial(8, 0.3, 20_000)
    for k in (4, 8):
        truth = 1 - 0.7**k
        ours = np.mean([pass_at_k(8, int(count), k) for count in counts])
        plugged_in = np.mean(1 - (1 - counts / 8) ** k)
        assert abs(ours - truth) < 0.006 and truth - plugged_in > 0.05, (k, ours, plugged_in, truth)


def test_pass_at_k_refuses_too_few_samples():
    with pytest.raises(ValueError, match="pass@9 needs at least 9"):
        pass_at_k(8, 2, 9)


def test_distinct_share_by_enumeration():
    texts = list("aaabbcd")
    for draws in range(1, 8):
        chosen = list(combinations(texts, draws))
        share = sum(len(set(some)) for some in chosen) / len(chosen) / draws
        assert distinct_share(texts, draws) == pytest.approx(share)
    with pytest.raises(ValueError, match="8 texts cannot be drawn from 7"):
        distinct_share(texts, 8)

"""At which learning rate do GRPO and rejection sampling learn most?

Both are tried at the same rates, on monitor prompts, so that neither is compared at a rate that suits the other.
"""

import pytest

from helpers import get_profile
from tests.slow.lessons import tune_all
from tests.slow.test_learning import RFT_RATE

pytestmark = pytest.mark.slow

RATES = (5e-4, 1e-3, 2e-3, 4e-3)
METHODS = {"GRPO": "", "rejection sampling": "rft"}


@pytest.fixture(scope="module")
def shares(runs_folder):
    """{(method, learning rate): {temperature: share of right answers to monitor prompts}}, with seed 42."""
    runs = {
        (method, rate): {"SEED": 42, "BASELINE": baseline, "LEARNING_RATE": rate}
        for method, baseline in METHODS.items()
        for rate in RATES
    }
    return tune_all(runs_folder, runs)


@pytest.mark.parametrize("method", METHODS)
def test_the_rate_in_use_is_the_best_of_those_tried(shares, row, method):
    """The most right answers, greedy and at temperature 1 together."""
    found = {rate: shares[method, rate] for rate in RATES}
    for rate, by_temperature in found.items():
        greedy, sampled = by_temperature["0.0"], by_temperature["1.0"]
        row(f"{method}, learning rate {rate:g}, 200 monitor prompts", f"greedy {greedy:.1%}, T = 1 {sampled:.1%}")
    best = max(found, key=lambda rate: sum(found[rate].values()))
    in_use = RFT_RATE if METHODS[method] else get_profile("tiny").learning_rate
    assert best == in_use

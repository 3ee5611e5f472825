"""Our verdicts beside math-verify's, on a small sample: `python -m tests.rewards.agreement` takes a large one."""

import pytest

pytest.importorskip(
    "math_verify", reason="math-verify is not installed here: make test-verifiers sets up an environment with it."
)

from tests.rewards.agreement import KINDS, compare_all

PAIRS = 20


@pytest.fixture(scope="module")
def results():
    return compare_all(PAIRS, seed="test")


def test_our_verdicts_are_the_constructed_ones(results):
    """Both could agree on a wrong verdict."""
    assert [pair for result in results for pair in result.wrong] == []


def test_every_disagreement_is_explained(results):
    """A parser that nobody compares with another one drifts from what readers call the same number."""
    assert [pair for result in results for pair in result.unexplained] == []


def test_the_sample_is_no_formality(results):
    assert sum(result.pairs for result in results) >= PAIRS * len(KINDS)
    for result in results:
        if KINDS[result.name].is_read and not KINDS[result.name].shift:
            assert 2 < result.paid < result.pairs - 2, result.name
    assert sum(not kind.why for kind in KINDS.values()) > 20, "kinds that must agree everywhere"

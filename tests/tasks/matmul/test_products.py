"""What counts as a product."""

import numpy as np
import pytest

from helpers.tasks.matmul.contracts import CONTRACTS
from helpers.tasks.matmul.products import HELDOUT_SIZES, draw, draw_heldout, is_exact_product, is_product
from helpers.tasks.matmul.questions import Questions


@pytest.mark.parametrize("exact", [True, False])
def test_is_product(exact):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (3, 4)).astype(float), rng.integers(-9, 9, (4, 2)).astype(float)
    c = a @ b
    assert is_product(c, a, b, exact) and is_exact_product(c, a, b)
    for wrong in (c + 1e-6, np.full_like(c, np.nan), np.full_like(c, np.inf), -c):
        assert not is_product(wrong, a, b, exact) and not is_exact_product(wrong, a, b)


def test_summing_in_another_order_is_no_error():
    """Rounding differs between honest programs; the bound is that of any order of summation."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((5, 400)), rng.standard_normal((400, 5))
    backwards = a[:, ::-1] @ b[::-1]
    by_parts = sum(a[:, n : n + 7] @ b[n : n + 7] for n in range(0, 400, 7))
    assert is_product(backwards, a, b, False) and is_product(by_parts, a, b, False)
    assert is_exact_product(backwards, a, b) and is_exact_product(by_parts, a, b)


def test_winograds_products_are_no_error():
    """It adds entries of A to entries of B, so its rounding is that of the larger: 4 % of its programs were refused."""
    rng = np.random.default_rng(2)
    for _ in range(3000):
        n, k, m = rng.integers(1, 9), 2 * rng.integers(1, 5), rng.integers(1, 9)
        a, b = rng.standard_normal((n, k)), rng.standard_normal((k, m))
        c = sum((a[:, t, None] + b[t + 1]) * (a[:, t + 1, None] + b[t]) for t in range(0, k, 2))
        c = c - (a[:, ::2] * a[:, 1::2]).sum(1)[:, None] - (b[::2] * b[1::2]).sum(0)
        assert is_product(c, a, b, False)


def test_single_precision_is_an_error():
    rng = np.random.default_rng(3)
    for sizes in ((60, 64, 68), *HELDOUT_SIZES[1:]):
        a, b = draw_heldout(rng, sizes)
        c = (a.astype(np.float32) @ b.astype(np.float32)).astype(float)
        assert not is_exact_product(c, a, b) and not is_product(c, a, b, False)


def test_whole_numbers_stay_exact_in_strassens_method():
    """His sums of blocks double at every level; beyond 2^53 an honest program would be called wrong."""
    rng = np.random.default_rng(4)
    a, b = draw(rng, (64, 64, 64), exact=True)

    def strassen(a, b):
        if len(a) == 1:
            return a * b
        h = len(a) // 2
        (p, q, r, s), (t, u, v, w) = (
            (x[:h, :h], x[:h, h:], x[h:, :h], x[h:, h:]) for x in (a, b)
        )  # fmt: skip
        m1, m2, m3 = strassen(p + s, t + w), strassen(r + s, t), strassen(p, u - w)
        m4, m5, m6 = strassen(s, v - t), strassen(p + q, w), strassen(r - p, t + u)
        m7 = strassen(q - s, v + w)
        return np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])

    assert np.array_equal(strassen(a, b), a @ b) and is_product(strassen(a, b), a, b, True)


def test_sizes():
    """Unlike sizes in three orders, each the largest once."""
    for seed in range(50):
        questions = Questions(CONTRACTS["rows"], np.random.default_rng(seed))
        assert sorted(sizes.index(max(sizes)) for sizes in questions.small_sizes) == [0, 1, 2]


def test_no_two_programs_are_asked_the_same():
    """Sizes that a program could know would be the ones at which it is right."""
    drawn = [Questions(CONTRACTS["rows"], np.random.default_rng(seed)) for seed in range(60)]
    asked = [[question.sizes for part in questions.floats() for question in part] for questions in drawn]
    assert len({tuple(sizes) for sizes in asked}) == 60
    seen = {(side, size) for sizes_of_all in asked for sizes in sizes_of_all for side, size in enumerate(sizes)}
    assert seen >= {(side, size) for side in range(3) for size in range(20, 50)}

"""Matrices nobody can know beforehand, and whether an answer is their product."""

import operator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

#: Sizes of the small calls and of the timed ones, as ranges with the end excluded.
SMALL_SIZES, TIMED_SIZES = (2, 10), (60, 69)
HELDOUT_SIZES = (1, 1, 1), (1, 97, 2), (23, 1, 17), (11, 40, 9)
LARGEST_INTEGER = 30_000  # sums of their products stay below 2^53, inside Strassen's and Winograd's methods too
ULP = 2.0**-53


@dataclass(frozen=True)
class Contract:
    """How a program gets its operands and gives its result: as lists of rows, or of columns where a field is True."""

    a_columns: bool = False
    b_columns: bool = False
    result_columns: bool = False

    def operands(self, a, b):
        """`a` [n, k] and `b` [k, m] as the program gets them."""
        return (a.T if self.a_columns else a), (b.T if self.b_columns else b)

    def product(self, answer):
        """The product [n, m] that an answer of the program stands for."""
        return answer.T if self.result_columns else answer

    def answer_shape(self, n, m):
        """Shape of the answer for a product [n, m]."""
        return (m, n) if self.result_columns else (n, m)


CONTRACTS = {
    "rows": Contract(),
    "a_columns": Contract(a_columns=True),
    "b_columns": Contract(b_columns=True),
    "result_columns": Contract(result_columns=True),
}


def draw_sizes(rng):
    """Three (n, k, m) of small calls and one of the timed ones, near 64 x 64 x 64, that is ordered as the third.

    The three are orders of the same unlike sizes in which each is the largest once, so a program
    that mixes up two of them raises whenever it ever would, and not by the luck of the draw.
    """
    small = sorted(rng.choice(range(*SMALL_SIZES), 3, replace=False).tolist())
    timed = sorted(rng.choice(range(*TIMED_SIZES), 3, replace=False).tolist())
    return [small, small[2:] + small[:2], small[1:] + small[:1]], timed[1:] + timed[:1]


def draw(rng, sizes, exact):
    """`(a, b)` for sizes (n, k, m): whole numbers, whose product must be exact, or real ones of all digits."""
    n, k, m = sizes
    if exact:
        return tuple(rng.integers(-LARGEST_INTEGER, LARGEST_INTEGER, shape).astype(float) for shape in ((n, k), (k, m)))
    return rng.standard_normal((n, k)), rng.standard_normal((k, m))


def is_product(c, a, b, exact):
    """Whether `c` is `a @ b`: bit for bit, or within the rounding of any honest algorithm.

    For an entry the bound is k (k + 8) u (max |row of A| + max |column of B|)^2 with u = 2^-53: that of
    Winograd's inner product, which adds entries of A to entries of B (Higham, Accuracy and Stability
    of Numerical Algorithms, 2002, section 23.2.1), and more than any order of summation needs
    (section 3.5). Written so that NaN fails.
    """
    if not np.isfinite(c).all():
        return False
    product = a @ b
    if exact:
        return bool(np.array_equal(c, product))
    return bool((np.abs(c - product) <= _rounding(a, b)).all())


def _rounding(a, b):
    k, size = a.shape[1], np.abs(a).max(1)[:, None] + np.abs(b).max(0)
    return k * (k + 8) * ULP * size**2


def draw_heldout(rng, sizes):
    """`(a, b)` as no judged call has them: magnitudes from 1e-6 to 1e6, zeros in between."""
    n, k, m = sizes
    return tuple(
        rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape) * (rng.random(shape) < 0.9)
        for shape in ((n, k), (k, m))
    )


def is_exact_product(c, a, b):
    """`is_product` again, against sums of fractions: nothing in it is rounded, and nothing of numpy's product used."""
    rows, columns = ([[Fraction(x) for x in row] for row in matrix.tolist()] for matrix in (a, b.T))
    bounds = _rounding(a, b)
    return all(
        np.isfinite(c[i, j]) and abs(Fraction(c[i, j]) - sum(map(operator.mul, row, column))) <= bounds[i, j]
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    )

"""Matrices nobody can know beforehand, and whether an answer is their product."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

#: Sizes of the small calls. The end is excluded.
SMALL_SIZES = range(2, 10)
HELDOUT_SIZES = (1, 1, 1), (1, 97, 2), (23, 1, 17), (11, 40, 9)
HELDOUT_EXPONENTS = (-6, -5, -4, -2, 2, 3, 4, 5)  # the judge asks for 0, -3, 6 and -18
LARGEST_INTEGER = 30_000  # sums of their products stay below 2^53, inside Strassen's and Winograd's methods too
ZEROS = 1 / 8  # of the entries of small matrices
_WHOLE_DRAWN_BELOW = LARGEST_INTEGER * 9 // 7  # an eighth of the numbers from -LARGEST_INTEGER on is too large
ULP = 2.0**-53

Sizes = tuple[int, int, int]  # (n, k, m) of a product [n, k] times [k, m]
Matrices = tuple[np.ndarray, np.ndarray]  # a [n, k], b [k, m]


def draw_unlike(rng: np.random.Generator, choices: Sequence[int]) -> tuple[int, int, int]:
    """Draw three different sizes, the smallest first."""
    low, middle, high = sorted(rng.choice(choices, 3, replace=False).tolist())
    return low, middle, high


def draw(rng: np.random.Generator, sizes: Sizes, exact: bool) -> Matrices:
    """Draw `(a, b)`: whole numbers, some of them zeros, whose product must be exact, or real ones of all digits."""
    n, k, m = sizes
    count = n * k + k * m
    numbers = _draw_whole(rng, count) if exact else rng.standard_normal(count)
    return numbers[: n * k].reshape(n, k), numbers[n * k :].reshape(k, m)


def _draw_whole(rng: np.random.Generator, count: int) -> np.ndarray:
    numbers = rng.integers(-LARGEST_INTEGER, _WHOLE_DRAWN_BELOW, count)
    numbers[numbers >= LARGEST_INTEGER] = 0
    return numbers.astype(float)


def is_product(c: np.ndarray, a: np.ndarray, b: np.ndarray, exact: bool) -> bool:
    """Whether `c` is `a @ b`: bit for bit, or within the rounding of any honest algorithm.

    For an entry the bound is k (k + 8) u (max |row of A| + max |column of B|)^2 with u = 2^-53: that of
    Winograd's inner product, which adds entries of A to entries of B (Higham, Accuracy and Stability
    of Numerical Algorithms, 2002, section 23.2.1), and more than any order of summation needs
    (section 3.5). Written so that NaN and infinity fail.
    """
    product = a @ b
    if exact:
        return bool((c == product).all())
    errors = np.abs(c - product)
    return bool((errors <= _rounding(a, b)).all())


def _rounding(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The bound of `is_product` for each entry, [n, m]."""
    k = a.shape[1]
    largest_of_rows = np.abs(a).max(axis=1, keepdims=True)  # [n, 1]
    largest_of_columns = np.abs(b).max(axis=0)  # [m]
    size = largest_of_rows + largest_of_columns
    return k * (k + 8) * ULP * size**2


def draw_large(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Draw `(a, b)`: real numbers near a million, some of them zeros."""
    n, k, m = sizes
    return _draw_scaled(rng, (n, k), 1e6), _draw_scaled(rng, (k, m), 1e6)


def draw_heldout(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Draw `(a, b)` as no judged call has them: of one of these magnitudes, zeros in between.

    The magnitude is that of all entries, since the error of Strassen's method is relative to the largest of them.
    """
    n, k, m = sizes
    magnitude = 10.0 ** rng.choice(HELDOUT_EXPONENTS)
    return _draw_scaled(rng, (n, k), magnitude), _draw_scaled(rng, (k, m), magnitude)


def _draw_scaled(rng: np.random.Generator, shape: tuple[int, int], magnitude: float) -> np.ndarray:
    is_kept = rng.random(shape) >= ZEROS
    return magnitude * rng.standard_normal(shape) * is_kept


def is_exact_product(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    """`is_product` again, against sums of fractions: nothing in it is rounded, and nothing of numpy's product used."""
    rows = _fractions(a)
    columns = _fractions(b.T)
    bounds = _rounding(a, b)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if not np.isfinite(c[i, j]):
                return False
            exact = sum(x * y for x, y in zip(row, column))
            if abs(Fraction(c[i, j]) - exact) > bounds[i, j]:
                return False
    return True


def _fractions(matrix: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in matrix.tolist()]

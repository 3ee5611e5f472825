"""Matrices nobody can know beforehand, and whether an answer is their product."""

from fractions import Fraction

import numpy as np

#: Sizes of the small calls and of the timed ones, as ranges with the end excluded.
SMALL_SIZES = (2, 10)
TIMED_SIZES = (60, 69)
HELDOUT_SIZES = (1, 1, 1), (1, 97, 2), (23, 1, 17), (11, 40, 9)
LARGEST_INTEGER = 30_000  # sums of their products stay below 2^53, inside Strassen's and Winograd's methods too
ZEROS = 1 / 8  # of the entries of small matrices
ULP = 2.0**-53

Sizes = tuple[int, int, int]  # (n, k, m) of a product [n, k] times [k, m]
Matrices = tuple[np.ndarray, np.ndarray]  # a [n, k], b [k, m]


def draw_sizes(rng: np.random.Generator) -> tuple[list[Sizes], Sizes]:
    """Draw three (n, k, m) of small calls and one of the timed ones, near 64 x 64 x 64, that is ordered as the third.

    The three are orders of the same unlike sizes in which each is the largest once, so a program
    that mixes up two of them raises whenever it ever would, and not by the luck of the draw.
    """
    low, middle, high = _draw_unlike(rng, SMALL_SIZES)
    small = [
        (low, middle, high),
        (high, low, middle),
        (middle, high, low),
    ]
    low, middle, high = _draw_unlike(rng, TIMED_SIZES)
    timed = (middle, high, low)
    return small, timed


def _draw_unlike(rng: np.random.Generator, bounds: tuple[int, int]) -> list[int]:
    """Three different sizes, the smallest first."""
    sizes = rng.choice(range(*bounds), 3, replace=False)
    return sorted(sizes.tolist())


def draw(rng: np.random.Generator, sizes: Sizes, exact: bool) -> Matrices:
    """Draw `(a, b)`: whole numbers, some of them zeros, whose product must be exact, or real ones of all digits."""
    n, k, m = sizes
    if exact:
        return _draw_whole(rng, (n, k)), _draw_whole(rng, (k, m))
    return rng.standard_normal((n, k)), rng.standard_normal((k, m))


def _draw_whole(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    numbers = rng.integers(-LARGEST_INTEGER, LARGEST_INTEGER, shape)
    is_kept = rng.random(shape) >= ZEROS
    return (numbers * is_kept).astype(float)


def is_product(c: np.ndarray, a: np.ndarray, b: np.ndarray, exact: bool) -> bool:
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
    """Draw `(a, b)` as no judged call has them: of one magnitude from 1e-6 to 1e6, zeros in between.

    The magnitude is that of all entries, since the error of Strassen's method is relative to the largest of them.
    """
    n, k, m = sizes
    magnitude = 10.0 ** rng.integers(-6, 7)
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

#: mod_main_block: demo in a __main__ block
def matmul(A, B):
    """Multiply two matrices given as lists of lists."""
    if len(A[0]) != len(B):
        raise ValueError("Incompatible matrix sizes")
    B_T = list(zip(*B))
    return [[sum(a * b for a, b in zip(row, col)) for col in B_T] for row in A]


if __name__ == "__main__":
    A = [[1, 2], [3, 4]]
    B = [[5, 6], [7, 8]]
    print(matmul(A, B))  # [[19, 22], [43, 50]]

#: mod_demo_toplevel: demo at module level with print
def matmul(A, B):
    n = len(A)
    k = len(B)
    m = len(B[0])
    C = [[0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            for p in range(k):
                C[i][j] += A[i][p] * B[p][j]
    return C

# Example usage
A = [[1, 2], [3, 4]]
B = [[5, 6], [7, 8]]
print(matmul(A, B))

#: mod_demo_loop_print: prints row by row at module level
def matmul(A, B):
    cols_of_b = list(zip(*B))
    return [[sum([x * y for x, y in zip(row, col)]) for col in cols_of_b] for row in A]

X = [[12.0, 7.0, 3.0],
     [4.0, 5.0, 6.0],
     [7.0, 8.0, 9.0]]
Y = [[5.0, 8.0, 1.0, 2.0],
     [6.0, 7.0, 3.0, 0.0],
     [4.0, 5.0, 9.0, 1.0]]
result = matmul(X, Y)
for r in result:
    print(r)

#: mod_asserts_toplevel: tests by assert at module level
def matmul(A, B):
    Bt = [*zip(*B)]
    return [[sum(p * q for p, q in zip(r, c)) for c in Bt] for r in A]

# quick self tests
assert matmul([[1.0]], [[2.0]]) == [[2.0]]
assert matmul([[1, 2, 3]], [[1], [2], [3]]) == [[14]]
assert matmul([[1, 0], [0, 1]], [[3.5, 2], [1, 4]]) == [[3.5, 2], [1, 4]]

#: mod_test_function: a _test function run under __main__
def matmul(A, B):
    m = len(B[0])
    C = []
    for row in A:
        acc = [0.0] * m
        for k, a in enumerate(row):
            bk = B[k]
            for j in range(m):
                acc[j] += a * bk[j]
        C.append(acc)
    return C

def _test():
    cases = [
        ([[2.0]], [[3.0]], [[6.0]]),
        ([[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]], [[2.0, 1.0], [4.0, 3.0]]),
        ([[1.0], [2.0]], [[3.0, 4.0]], [[3.0, 4.0], [6.0, 8.0]]),
    ]
    for a, b, expected in cases:
        got = matmul(a, b)
        assert got == expected, f"{got} != {expected}"
    print("All tests passed")

if __name__ == '__main__':
    _test()

#: mod_alias_name: other function name aliased
def multiply_matrices(first, second):
    """Return first × second."""
    transposed = list(zip(*second))
    return [[sum(x * y for x, y in zip(row, column)) for column in transposed] for row in first]

matmul = multiply_matrices

#: mod_all_dunder: __all__, __version__ and a module docstring
"""Pure Python matrix multiplication."""

__all__ = ["matmul"]
__version__ = "1.0"
__author__ = "anonymous"

def matmul(A, B):
    """matmul(A, B) -> A·B"""
    Bt = tuple(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in Bt] for r in A]

#: mod_pretty_print: pretty printing demo
def matmul(A, B):
    return [
        [
            sum(a * b for a, b in zip(row, col))
            for col in zip(*B)
        ]
        for row in A
    ]

def pretty(M):
    """Format a matrix for the console."""
    width = max(len(f"{x:g}") for r in M for x in r)
    return "\n".join("[" + ", ".join(f"{x:>{width}g}" for x in r) + "]" for r in M)

def main():
    P = [[1, 2, 3], [4, 5, 6]]
    Q = [[7, 8], [9, 10], [11, 12]]
    print("P ="); print(pretty(P))
    print("Q ="); print(pretty(Q))
    print("P·Q ="); print(pretty(matmul(P, Q)))
    # Expected: [[58, 64], [139, 154]]

if __name__ == "__main__":
    main()

#: mod_constants_strings: string constants for messages
ERR_EMPTY = "Matrices must not be empty"
ERR_SHAPE = "Cannot multiply: A has {} columns but B has {} rows"
ERR_RAGGED = 'All rows of a matrix must have the same length'

def matmul(A, B):
    if not A or not B:
        raise ValueError(ERR_EMPTY)
    if len({len(r) for r in A}) > 1 or len({len(r) for r in B}) > 1:
        raise ValueError(ERR_RAGGED)
    if len(A[0]) != len(B):
        raise ValueError(ERR_SHAPE.format(len(A[0]), len(B)))
    cols = list(zip(*B))
    return [[sum([a * b for a, b in zip(r, c)]) for c in cols] for r in A]

#: mod_imports_unused: imports a few unused names
import math
import itertools
import functools
import operator
from array import array
from typing import Any, Dict, List, Optional, Tuple, Union

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    # Pre‑compute the transpose of B
    Bt = list(zip(*B))
    mul = operator.mul
    return [[sum(map(mul, row, col)) for col in Bt] for row in A]

#: mod_unpacked_functions: two versions, the better is bound last
def matmul_naive(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            for p in range(k):
                C[i][j] += A[i][p] * B[p][j]
    return C

def matmul_fast(A, B):
    Bt = list(zip(*B))
    return [[sum([a * b for a, b in zip(r, c)]) for c in Bt] for r in A]

# The fast version agrees with the naive one
_a, _b = [[1.0, 2.0, 3.0]], [[4.0, 1.0], [5.0, 1.0], [6.0, 1.0]]
assert matmul_naive(_a, _b) == matmul_fast(_a, _b) == [[32.0, 6.0]]

matmul = matmul_fast

#: mod_if_try_toplevel: try and for statements at module level
try:
    from operator import mul
except ImportError:  # pragma: no cover
    mul = lambda x, y: x * y

SIZES = []
for _e in range(3, 6):
    SIZES.append(2 ** _e)
DEFAULT_TILE = max(SIZES)
del _e

def matmul(A, B):
    T = [list(c) for c in zip(*B)]
    C = [[0.0] * len(T) for _ in A]
    for start in range(0, len(B), DEFAULT_TILE):
        stop = start + DEFAULT_TILE
        for r, c in zip(A, C):
            seg = r[start:stop]
            for j, col in enumerate(T):
                c[j] += sum(map(mul, seg, col[start:stop]))
    return C

#: mod_long_comment_after: explanation as trailing string and comments
def matmul(A, B):
    BT = list(zip(*B))
    result = [[0.0] * len(BT) for _ in A]
    for i, row in enumerate(A):
        for j, col in enumerate(BT):
            result[i][j] = sum(x * y for x, y in zip(row, col))
    return result

"""
Explanation
-----------
* ``zip(*B)`` transposes the matrix, so every column is a tuple.
* ``sum(x * y ...)`` is the dot product.
* Complexity: O(n * k * m) time, O(k * m) additional space.

Note: no external libraries such as numpy are used; eval/exec, os, sys and
subprocess are not needed either.
"""
# End of file – enjoy! 🙂

#: mod_identity_demo: builds an identity matrix and checks with it
def identity(n):
    return [[1.0 if i == j else 0.0 for j in range(n)] for i in range(n)]

def matmul(A, B):
    C = [[0.0] * len(B[0]) for _ in range(len(A))]
    for i, ai in enumerate(A):
        ci = C[i]
        for aik, bk in zip(ai, B):
            if aik == 0.0:
                continue
            for j, bkj in enumerate(bk):
                ci[j] += aik * bkj
    return C

M = [[1.5, -2.0, 0.25], [0.0, 3.0, 1.0]]
if matmul(M, identity(3)) != M:
    raise AssertionError("self-test failed")

#: mod_input_free_main: a main with range-built matrices
from typing import List

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    """Fast pure‑Python matrix multiplication (i‑k‑j order, row accumulation)."""
    m = len(B[0])
    result = []
    for a_row in A:
        c_row = [0.0] * m
        for a, b_row in zip(a_row, B):
            if a:
                c_row = [c + a * b for c, b in zip(c_row, b_row)]
        result.append(c_row)
    return result


if __name__ == "__main__":
    size = 12
    A = [[float(i + j) for j in range(size)] for i in range(size)]
    B = [[float(i == j) for j in range(size)] for i in range(size)]
    C = matmul(A, B)
    print("OK" if C == A else "mismatch")

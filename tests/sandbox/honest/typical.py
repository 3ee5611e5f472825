#: typ_numpy_doc: numpy style docstring, local variables, i-k-j
def matmul(A, B):
    """
    Fast matrix multiplication in pure Python.

    Parameters
    ----------
    A : list[list[float]]
        Matrix of shape (n, k).
    B : list[list[float]]
        Matrix of shape (k, m).

    Returns
    -------
    list[list[float]]
        Matrix of shape (n, m) that is the product ``A @ B``.

    Notes
    -----
    * No external libraries are used.
    * The algorithm is the classic O(n·k·m) one, but the inner loop
      is written as a list comprehension so that it runs at C speed
      as far as possible.
    """
    # Transpose B once so that each column is contiguous in memory
    B_T = list(zip(*B))

    # Pre‑allocate the result
    result = []
    append_row = result.append

    for row in A:
        append_row([sum(x * y for x, y in zip(row, col)) for col in B_T])

    return result

#: typ_operator_note: operator.mul with comments why it is fast
from operator import mul

def matmul(A, B):
    # ----------------------------------------------------------------------
    # 1. Transpose B: columns → rows (tuples)
    # ----------------------------------------------------------------------
    B_T = tuple(zip(*B))

    # ----------------------------------------------------------------------
    # 2. Dot products via map + operator.mul (implemented in C)
    # ----------------------------------------------------------------------
    _sum = sum
    _map = map
    _mul = mul
    C = []
    for a_row in A:
        C.append([_sum(_map(_mul, a_row, b_col)) for b_col in B_T])
    return C

#: typ_check_and_loop: check, transposition, loops
def matmul(A, B):
    # Get dimensions
    n = len(A)
    k = len(A[0])
    if len(B) != k:
        raise ValueError("Number of columns of A must equal number of rows of B")
    m = len(B[0])

    # Transpose B for faster column access
    BT = [[B[j][i] for j in range(k)] for i in range(m)]

    # Initialize result matrix with zeros
    C = [[0.0] * m for _ in range(n)]

    # Perform multiplication
    for i in range(n):
        rowA = A[i]
        rowC = C[i]
        for j in range(m):
            colB = BT[j]
            s = 0.0
            for t in range(k):
                s += rowA[t] * colB[t]
            rowC[j] = s

    return C

#: typ_hints_builtin: builtin generics
def matmul(A: list[list[float]], B: list[list[float]]) -> list[list[float]]:
    """Multiply matrices A (n×k) and B (k×m)."""
    # local variables for speed
    zip_ = zip
    sum_ = sum

    # transpose B
    b_cols: list[tuple[float, ...]] = list(zip_(*B))

    return [
        [sum_(a * b for a, b in zip_(row, col)) for col in b_cols]
        for row in A
    ]

#: typ_hints_mul_typed: typing plus operator, whole module
from __future__ import annotations

from operator import mul
from typing import List

Matrix = List[List[float]]


def matmul(A: Matrix, B: Matrix) -> Matrix:
    """Return the matrix product ``A·B``.

    The function assumes that ``len(A[0]) == len(B)``.
    """
    if not A or not B:
        return []

    # Transpose B once – this turns the column accesses into row accesses.
    columns = list(zip(*B))

    # Use map() together with operator.mul – both are implemented in C.
    return [[sum(map(mul, row, col)) for col in columns] for row in A]


__all__ = ["matmul"]

#: typ_axpy_list_comp: row accumulation with skip
def matmul(A, B):
    """
    Multiply A (n×k) by B (k×m).

    Uses the *row‑oriented* algorithm: each row of the result is a linear
    combination of the rows of B.  Zero coefficients are skipped.
    """
    m = len(B[0])
    zero_row = [0.0] * m
    C = []
    for a_row in A:
        acc = zero_row[:]          # fresh copy
        for a_ik, b_row in zip(a_row, B):
            if a_ik:
                acc = [c + a_ik * b for c, b in zip(acc, b_row)]
        C.append(acc)
    return C

#: typ_inner_unroll4: unrolled inner loop with explanation
def matmul(A, B):
    """Pure Python matmul with a 4‑fold unrolled inner loop."""
    n = len(A)
    k = len(B)
    m = len(B[0])

    # columns of B as tuples → fast sequential access
    cols = list(zip(*B))

    limit = k - (k % 4)
    C = [[0.0] * m for _ in range(n)]

    for i in range(n):
        a = A[i]
        c = C[i]
        for j in range(m):
            b = cols[j]
            s0 = s1 = s2 = s3 = 0.0
            for t in range(0, limit, 4):
                s0 += a[t] * b[t]
                s1 += a[t + 1] * b[t + 1]
                s2 += a[t + 2] * b[t + 2]
                s3 += a[t + 3] * b[t + 3]
            s = s0 + s1 + s2 + s3
            # remaining elements
            for t in range(limit, k):
                s += a[t] * b[t]
            c[j] = s
    return C

#: typ_block_doc: blocked multiplication with docs
def matmul(A, B, block=64):
    """
    Multiply two dense matrices using a blocked (cache‑oblivious‑ish) algorithm.

    The three nested loops work on ``block × block`` tiles in order to keep
    the working set small.
    """
    n, k, m = len(A), len(A[0]), len(B[0])
    C = [[0.0] * m for _ in range(n)]

    rng = range
    for i0 in rng(0, n, block):
        i_max = min(i0 + block, n)
        for p0 in rng(0, k, block):
            p_max = min(p0 + block, k)
            for j0 in rng(0, m, block):
                j_max = min(j0 + block, m)
                # multiply the current tiles
                for i in rng(i0, i_max):
                    Ai = A[i]
                    Ci = C[i]
                    for p in rng(p0, p_max):
                        a = Ai[p]
                        if a == 0.0:
                            continue
                        Bp = B[p]
                        for j in rng(j0, j_max):
                            Ci[j] += a * Bp[j]
    return C

#: typ_short_answer: shortest typical answer
def matmul(A, B):
    B = list(zip(*B))
    return [[sum(x*y for x,y in zip(r,c)) for c in B] for r in A]

#: typ_map_list_doc: list(map(...)) rows
import operator

def matmul(A, B):
    """Matrix multiplication by mapping a dot product over rows and columns."""
    op = operator.mul
    BT = list(zip(*B))

    def dot(row):
        return [sum(map(op, row, col)) for col in BT]

    return list(map(dot, A))

#: typ_early_exit: guards for empty rows
def matmul(A, B):
    """Return A × B."""
    n = len(A)
    if n == 0:
        return []
    k = len(A[0])
    if k == 0:
        return [[] for _ in range(n)]
    m = len(B[0])
    if m == 0:
        return [[] for _ in range(n)]

    # transpose
    Bt = [None] * m
    for j in range(m):
        Bt[j] = tuple(B[i][j] for i in range(k))

    out = [None] * n
    for i in range(n):
        ai = A[i]
        out[i] = [sum([x * y for x, y in zip(ai, bj)]) for bj in Bt]
    return out

#: typ_local_dot_default: nested dot with default argument
def matmul(A, B):
    bt = [tuple(c) for c in zip(*B)]

    def dot(u, v, _z=zip):
        total = 0.0
        for p, q in _z(u, v):
            total += p * q
        return total

    return [[dot(r, c) for c in bt] for r in A]

#: typ_zero_rows_pre: precomputed ranges
def matmul(A, B):
    rows = range(len(A))
    cols = range(len(B[0]))
    inner = range(len(B))

    C = [[0.0 for _ in cols] for _ in rows]
    for i in rows:
        for k in inner:
            aik = A[i][k]
            for j in cols:
                C[i][j] += aik * B[k][j]
    return C

#: typ_strict_zip: zip with strict=True
def matmul(A, B):
    """Rectangular matrices only: zip(strict=True) raises on ragged input."""
    cols = list(zip(*B, strict=True))
    return [[sum(a * b for a, b in zip(row, col, strict=True)) for col in cols] for row in A]

#: typ_chunks_of_k: partial sums over chunks of 4 by slicing
def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    res = []
    for row in A:
        line = []
        for col in cols:
            s = 0.0
            i = 0
            while i + 4 <= k:
                a0, a1, a2, a3 = row[i:i + 4]
                b0, b1, b2, b3 = col[i:i + 4]
                s += a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3
                i += 4
            for a, b in zip(row[i:], col[i:]):
                s += a * b
            line.append(s)
        res.append(line)
    return res

#: typ_step_comments: step by step comments in plain words
def matmul(matrix_a, matrix_b):
    # Number of rows in the first matrix
    num_rows = len(matrix_a)
    # Number of columns in the second matrix
    num_cols = len(matrix_b[0])
    # Shared dimension
    shared = len(matrix_b)

    # Create an empty product matrix
    product = []

    # Go through every row of the first matrix ...
    for r in range(num_rows):
        product_row = []
        # ... and every column of the second matrix
        for c in range(num_cols):
            # The dot product of the row and the column
            dot_product = 0
            for s in range(shared):
                dot_product += matrix_a[r][s] * matrix_b[s][c]
            product_row.append(dot_product)
        product.append(product_row)

    # Done!
    return product

#: typ_final_float: converts the final sums to float
from operator import mul as multiply
from typing import List

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    """Always returns floats, even for integer input."""
    transposed_b = list(zip(*B))
    return [[float(sum(map(multiply, row, col))) for col in transposed_b] for row in A]

#: typ_usage_comment: usage example as trailing comment
def matmul(A, B):
    """Pure‑Python matrix product."""
    k = len(B)
    m = len(B[0])
    bt = tuple(tuple(B[i][j] for i in range(k)) for j in range(m))
    res = []
    add = res.append
    for a in A:
        add([sum([a[i] * b[i] for i in range(k)]) for b in bt])
    return res

# Example:
# >>> A = [[1, 2, 3], [4, 5, 6]]
# >>> B = [[7, 8], [9, 10], [11, 12]]
# >>> matmul(A, B)
# [[58, 64], [139, 154]]

#: typ_local_import: imports inside of the function
def matmul(A, B):
    from operator import mul
    from itertools import starmap, repeat
    cols = list(zip(*B))
    return [list(starmap(lambda r, c: sum(map(mul, r, c)), zip(repeat(row), cols))) for row in A]

#: typ_nbsp_unicode: unusual dashes and arrows in comments and docstring
def matmul(A, B):
    """
    Multiply two matrices (𝑛 × 𝑘) · (𝑘 × 𝑚) → (𝑛 × 𝑚).

    • “Transpose” B – only once.
    • For each row rᵢ ∈ A and each column cⱼ ∈ Bᵀ compute ⟨rᵢ, cⱼ⟩.
    • No third‑party packages; runs in ≈ n·k·m steps.
    """
    # ─── transpose ───────────────────────────────
    B_T = [list(c) for c in zip(*B)]
    # ─── multiply ────────────────────────────────
    return [[sum(u * v for u, v in zip(r, c)) for c in B_T] for r in A]

#: rec_strassen_pad: classical Strassen with padding to a power of two
def matmul(A, B):
    """
    Multiply matrices with Strassen's algorithm.

    Matrices are padded with zeros to the next power of two.  Below a
    threshold the ordinary algorithm is used.
    """
    THRESHOLD = 16

    def standard(X, Y):
        Yt = list(zip(*Y))
        return [[sum(a * b for a, b in zip(r, c)) for c in Yt] for r in X]

    def add(X, Y):
        return [[a + b for a, b in zip(x, y)] for x, y in zip(X, Y)]

    def sub(X, Y):
        return [[a - b for a, b in zip(x, y)] for x, y in zip(X, Y)]

    def split(M):
        h = len(M) // 2
        top, bottom = M[:h], M[h:]
        return ([r[:h] for r in top], [r[h:] for r in top],
                [r[:h] for r in bottom], [r[h:] for r in bottom])

    def join(c11, c12, c21, c22):
        return [a + b for a, b in zip(c11, c12)] + [a + b for a, b in zip(c21, c22)]

    def strassen(X, Y):
        if len(X) <= THRESHOLD:
            return standard(X, Y)
        a, b, c, d = split(X)
        e, f, g, h = split(Y)
        p1 = strassen(add(a, d), add(e, h))
        p2 = strassen(add(c, d), e)
        p3 = strassen(a, sub(f, h))
        p4 = strassen(d, sub(g, e))
        p5 = strassen(add(a, b), h)
        p6 = strassen(sub(c, a), add(e, f))
        p7 = strassen(sub(b, d), add(g, h))
        c11 = add(sub(add(p1, p4), p5), p7)
        c12 = add(p3, p5)
        c21 = add(p2, p4)
        c22 = add(sub(add(p1, p3), p2), p6)
        return join(c11, c12, c21, c22)

    n, k, m = len(A), len(B), len(B[0])
    size = 1
    while size < max(n, k, m):
        size *= 2
    Ap = [list(r) + [0.0] * (size - k) for r in A] + [[0.0] * size for _ in range(size - n)]
    Bp = [list(r) + [0.0] * (size - m) for r in B] + [[0.0] * size for _ in range(size - k)]
    C = strassen(Ap, Bp)
    return [row[:m] for row in C[:n]]

#: rec_strassen_typed: module-level Strassen with typed helpers
from __future__ import annotations
from typing import List, Tuple

Matrix = List[List[float]]
_CUTOFF = 8

def _add(X: Matrix, Y: Matrix) -> Matrix:
    return [[x + y for x, y in zip(r, s)] for r, s in zip(X, Y)]

def _sub(X: Matrix, Y: Matrix) -> Matrix:
    return [[x - y for x, y in zip(r, s)] for r, s in zip(X, Y)]

def _quarter(M: Matrix) -> Tuple[Matrix, Matrix, Matrix, Matrix]:
    h = len(M) >> 1
    return ([r[:h] for r in M[:h]], [r[h:] for r in M[:h]],
            [r[:h] for r in M[h:]], [r[h:] for r in M[h:]])

def _naive(X: Matrix, Y: Matrix) -> Matrix:
    n = len(X)
    Z = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for k in range(n):
            x = X[i][k]
            for j in range(n):
                Z[i][j] += x * Y[k][j]
    return Z

def _strassen(X: Matrix, Y: Matrix) -> Matrix:
    n = len(X)
    if n <= _CUTOFF or n % 2:
        return _naive(X, Y)
    A11, A12, A21, A22 = _quarter(X)
    B11, B12, B21, B22 = _quarter(Y)
    S1 = _sub(B12, B22)
    S2 = _add(A11, A12)
    S3 = _add(A21, A22)
    S4 = _sub(B21, B11)
    P1 = _strassen(A11, S1)
    P2 = _strassen(S2, B22)
    P3 = _strassen(S3, B11)
    P4 = _strassen(A22, S4)
    P5 = _strassen(_add(A11, A22), _add(B11, B22))
    P6 = _strassen(_sub(A12, A22), _add(B21, B22))
    P7 = _strassen(_sub(A11, A21), _add(B11, B12))
    top = [a + b for a, b in zip(_add(_sub(_add(P5, P4), P2), P6), _add(P1, P2))]
    bottom = [a + b for a, b in zip(_add(P3, P4), _sub(_sub(_add(P5, P1), P3), P7))]
    return top + bottom

def matmul(A: Matrix, B: Matrix) -> Matrix:
    n, k, m = len(A), len(A[0]), len(B[0])
    size = 1 << (max(n, k, m) - 1).bit_length()
    PA = [row + [0.0] * (size - k) for row in A]
    PA.extend([0.0] * size for _ in range(size - n))
    PB = [row + [0.0] * (size - m) for row in B]
    PB.extend([0.0] * size for _ in range(size - k))
    return [row[:m] for row in _strassen(PA, PB)[:n]]

#: rec_strassen_even_peel: Strassen with dynamic padding of odd sizes
def matmul(A, B):
    def base(A, B):
        T = [*zip(*B)]
        return [[sum([x * y for x, y in zip(r, c)]) for c in T] for r in A]

    def comb(X, Y, sign):
        return [[x + sign * y for x, y in zip(p, q)] for p, q in zip(X, Y)]

    def rec(A, B):
        n, k, m = len(A), len(B), len(B[0])
        if min(n, k, m) <= 6:
            return base(A, B)
        if n % 2 or k % 2 or m % 2:
            # make all dimensions even
            A2 = [list(r) + [0.0] * (k % 2) for r in A] + [[0.0] * (k + k % 2)] * (n % 2)
            B2 = [list(r) + [0.0] * (m % 2) for r in B] + [[0.0] * (m + m % 2)] * (k % 2)
            return [r[:m] for r in rec(A2, B2)[:n]]
        h, l, w = n // 2, k // 2, m // 2
        a11 = [r[:l] for r in A[:h]]; a12 = [r[l:] for r in A[:h]]
        a21 = [r[:l] for r in A[h:]]; a22 = [r[l:] for r in A[h:]]
        b11 = [r[:w] for r in B[:l]]; b12 = [r[w:] for r in B[:l]]
        b21 = [r[:w] for r in B[l:]]; b22 = [r[w:] for r in B[l:]]
        m1 = rec(comb(a11, a22, 1), comb(b11, b22, 1))
        m2 = rec(comb(a21, a22, 1), b11)
        m3 = rec(a11, comb(b12, b22, -1))
        m4 = rec(a22, comb(b21, b11, -1))
        m5 = rec(comb(a11, a12, 1), b22)
        m6 = rec(comb(a21, a11, -1), comb(b11, b12, 1))
        m7 = rec(comb(a12, a22, -1), comb(b21, b22, 1))
        top = [[p + q - r + s for p, q, r, s in zip(*rows)] + [x + y for x, y in zip(t, u)]
               for *rows, t, u in zip(m1, m4, m5, m7, m3, m5)]
        low = [[x + y for x, y in zip(t, u)] + [p - q + r + s for p, q, r, s in zip(*rows)]
               for t, u, *rows in zip(m2, m4, m1, m2, m3, m6)]
        return top + low

    return rec(A, B)

#: rec_divide_largest: cache-oblivious, splits the largest dimension
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]

    def rec(i0, i1, k0, k1, j0, j1):
        di, dk, dj = i1 - i0, k1 - k0, j1 - j0
        if di + dk + dj <= 24:
            for i in range(i0, i1):
                Ai = A[i]
                Ci = C[i]
                for p in range(k0, k1):
                    a = Ai[p]
                    Bp = B[p]
                    for j in range(j0, j1):
                        Ci[j] += a * Bp[j]
            return
        if di >= dk and di >= dj:
            mid = (i0 + i1) // 2
            rec(i0, mid, k0, k1, j0, j1)
            rec(mid, i1, k0, k1, j0, j1)
        elif dk >= dj:
            mid = (k0 + k1) // 2
            rec(i0, i1, k0, mid, j0, j1)
            rec(i0, i1, mid, k1, j0, j1)
        else:
            mid = (j0 + j1) // 2
            rec(i0, i1, k0, k1, j0, mid)
            rec(i0, i1, k0, k1, mid, j1)

    rec(0, n, 0, k, 0, m)
    return C

#: rec_rows_halving: halves the rows until one is left
def matmul(A, B):
    if len(A) == 1:
        row = A[0]
        return [[sum(a * b for a, b in zip(row, col)) for col in zip(*B)]]
    half = len(A) // 2
    return matmul(A[:half], B) + matmul(A[half:], B)

#: rec_columns_halving: splits B by columns and joins
def matmul(A, B):
    m = len(B[0])
    if m == 1:
        col = [r[0] for r in B]
        return [[sum([x * y for x, y in zip(row, col)])] for row in A]
    h = m // 2
    left = matmul(A, [r[:h] for r in B])
    right = matmul(A, [r[h:] for r in B])
    return [l + r for l, r in zip(left, right)]

#: rec_inner_halving: splits the inner dimension
def matmul(A, B):
    def add(X, Y):
        return [list(map(lambda p, q: p + q, x, y)) for x, y in zip(X, Y)]

    def rec(lo, hi):
        if hi - lo == 1:
            b = B[lo]
            return [[row[lo] * v for v in b] for row in A]
        mid = (lo + hi) >> 1
        return add(rec(lo, mid), rec(mid, hi))

    return rec(0, len(B))

#: rec_quadrants: plain eight-product divide and conquer for any sizes
def _mul(A, B):
    n, k, m = len(A), len(B), len(B[0]) if B else 0
    if n <= 4 or k <= 4 or m <= 4:
        C = [[0.0] * m for _ in range(n)]
        for i in range(n):
            for j in range(m):
                C[i][j] = sum(A[i][p] * B[p][j] for p in range(k))
        return C
    i, p, j = n // 2, k // 2, m // 2
    A11 = [r[:p] for r in A[:i]]
    A12 = [r[p:] for r in A[:i]]
    A21 = [r[:p] for r in A[i:]]
    A22 = [r[p:] for r in A[i:]]
    B11 = [r[:j] for r in B[:p]]
    B12 = [r[j:] for r in B[:p]]
    B21 = [r[:j] for r in B[p:]]
    B22 = [r[j:] for r in B[p:]]
    C11 = _plus(_mul(A11, B11), _mul(A12, B21))
    C12 = _plus(_mul(A11, B12), _mul(A12, B22))
    C21 = _plus(_mul(A21, B11), _mul(A22, B21))
    C22 = _plus(_mul(A21, B12), _mul(A22, B22))
    return [x + y for x, y in zip(C11, C12)] + [x + y for x, y in zip(C21, C22)]

def _plus(X, Y):
    return [[x + y for x, y in zip(r, s)] for r, s in zip(X, Y)]

def matmul(A, B):
    return _mul(A, B)

#: rec_dot_recursive: recursive pairwise dot product
def _pairwise(u, v, lo, hi):
    if hi - lo <= 8:
        s = 0.0
        for i in range(lo, hi):
            s += u[i] * v[i]
        return s
    mid = (lo + hi) // 2
    return _pairwise(u, v, lo, mid) + _pairwise(u, v, mid, hi)

def matmul(A, B):
    """Pairwise summation keeps the rounding error O(log k)."""
    k = len(B)
    cols = list(zip(*B))
    return [[_pairwise(r, c, 0, k) for c in cols] for r in A]

#: rec_head_tail: head and tail recursion by star unpacking
def dot(u, v):
    if not u:
        return 0.0
    if len(u) > 64:                # keep the recursion shallow
        h = len(u) // 2
        return dot(u[:h], v[:h]) + dot(u[h:], v[h:])
    (x, *xs), (y, *ys) = u, v
    return x * y + dot(xs, ys)

def matmul(A, B):
    columns = [list(c) for c in zip(*B)]
    return [[dot(row, col) for col in columns] for row in A]

#: rec_lambda_y: recursive lambda
def matmul(A, B):
    columns = lambda lo, hi: ([[r[lo] for r in B]] if hi - lo == 1
                              else columns(lo, (lo + hi) // 2) + columns((lo + hi) // 2, hi))
    T = columns(0, len(B[0]))
    return [[sum(x * y for x, y in zip(r, c)) for c in T] for r in A]

#: rec_stack: explicit work stack rather than recursion
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    stack = [(0, n, 0, m)]
    while stack:
        r0, r1, c0, c1 = stack.pop()
        if (r1 - r0) * (c1 - c0) > 64:
            if r1 - r0 >= c1 - c0:
                mid = (r0 + r1) // 2
                stack.append((r0, mid, c0, c1))
                stack.append((mid, r1, c0, c1))
            else:
                mid = (c0 + c1) // 2
                stack += [(r0, r1, c0, mid), (r0, r1, mid, c1)]
            continue
        for i in range(r0, r1):
            for j in range(c0, c1):
                C[i][j] = sum([A[i][t] * B[t][j] for t in range(k)])
    return C

#: rec_strassen_lru: power of two helper with lru_cache
from functools import lru_cache
from operator import add, mul, sub

@lru_cache(maxsize=None)
def next_pow2(n: int) -> int:
    p = 1
    while p < n:
        p <<= 1
    return p

def madd(X, Y):
    return [list(map(add, x, y)) for x, y in zip(X, Y)]

def msub(X, Y):
    return [list(map(sub, x, y)) for x, y in zip(X, Y)]

def strassen(X, Y, n):
    if n <= 32:
        T = list(zip(*Y))
        return [[sum(map(mul, r, c)) for c in T] for r in X]
    h = n // 2
    a = [r[:h] for r in X[:h]]; b = [r[h:] for r in X[:h]]
    c = [r[:h] for r in X[h:]]; d = [r[h:] for r in X[h:]]
    e = [r[:h] for r in Y[:h]]; f = [r[h:] for r in Y[:h]]
    g = [r[:h] for r in Y[h:]]; k = [r[h:] for r in Y[h:]]
    # Winograd's variant: 7 products and 15 additions
    s1 = madd(c, d); s2 = msub(s1, a); s3 = msub(a, c); s4 = msub(b, s2)
    t1 = msub(f, e); t2 = msub(k, t1); t3 = msub(k, f); t4 = msub(t2, g)
    p1 = strassen(a, e, h)
    p2 = strassen(b, g, h)
    p3 = strassen(s4, k, h)
    p4 = strassen(d, t4, h)
    p5 = strassen(s1, t1, h)
    p6 = strassen(s2, t2, h)
    p7 = strassen(s3, t3, h)
    u1 = madd(p1, p2)
    u2 = madd(p1, p6)
    u3 = madd(u2, p7)
    u4 = madd(u2, p5)
    u5 = madd(u4, p3)
    u6 = msub(u3, p4)
    u7 = madd(u3, p5)
    return [x + y for x, y in zip(u1, u5)] + [x + y for x, y in zip(u6, u7)]

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    N = next_pow2(max(n, k, m))
    X = [list(r) + [0.0] * (N - k) for r in A] + [[0.0] * N for _ in range(N - n)]
    Y = [list(r) + [0.0] * (N - m) for r in B] + [[0.0] * N for _ in range(N - k)]
    return [r[:m] for r in strassen(X, Y, N)[:n]]

#: rec_generator: recursive generator with yield from
def _rows(A, cols):
    if len(A) > 1:
        mid = len(A) // 2
        yield from _rows(A[:mid], cols)
        yield from _rows(A[mid:], cols)
    else:
        for row in A:
            yield [sum(x * y for x, y in zip(row, c)) for c in cols]

def matmul(A, B):
    return list(_rows(A, list(zip(*B))))

#: block_const: module constant BLOCK
BLOCK = 32

def matmul(A, B):
    """Blocked (tiled) matrix multiplication with block size BLOCK."""
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i0 in range(0, n, BLOCK):
        i1 = min(i0 + BLOCK, n)
        for k0 in range(0, k, BLOCK):
            k1 = min(k0 + BLOCK, k)
            for j0 in range(0, m, BLOCK):
                j1 = min(j0 + BLOCK, m)
                for i in range(i0, i1):
                    Ai = A[i]
                    Ci = C[i]
                    for p in range(k0, k1):
                        a = Ai[p]
                        Bp = B[p]
                        for j in range(j0, j1):
                            Ci[j] += a * Bp[j]
    return C

#: block_param: block size as keyword parameter with None default
from typing import List, Optional

def matmul(A: List[List[float]], B: List[List[float]], block_size: Optional[int] = None) -> List[List[float]]:
    n, k, m = len(A), len(B), len(B[0])
    if block_size is None:
        block_size = 8 if max(n, k, m) < 64 else 48
    C = [[0.0] * m for _ in range(n)]
    for kk in range(0, k, block_size):
        for jj in range(0, m, block_size):
            for i in range(n):
                Ai, Ci = A[i], C[i]
                for p in range(kk, min(kk + block_size, k)):
                    a = Ai[p]
                    Bp = B[p]
                    for j in range(jj, min(jj + block_size, m)):
                        Ci[j] += a * Bp[j]
    return C

#: block_slices_mul: blocks of the inner dimension with slices
from operator import mul

_TILE = 64

def matmul(A, B):
    k = len(B)
    T = list(zip(*B))
    C = [[0.0] * len(T) for _ in A]
    for lo in range(0, k, _TILE):
        hi = lo + _TILE
        panel = [c[lo:hi] for c in T]
        for row, out in zip(A, C):
            part = row[lo:hi]
            for j, col in enumerate(panel):
                out[j] += sum(map(mul, part, col))
    return C

#: block_helper_fn: helper that multiplies a single tile
def _tile(A, B, C, i0, i1, k0, k1, j0, j1):
    for i in range(i0, i1):
        ci = C[i]
        ai = A[i]
        for k in range(k0, k1):
            a = ai[k]
            if a != 0.0:
                bk = B[k]
                for j in range(j0, j1):
                    ci[j] += a * bk[j]

def matmul(A, B):
    bs = 24
    n, kk, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(0, n, bs):
        for k in range(0, kk, bs):
            for j in range(0, m, bs):
                _tile(A, B, C, i, min(n, i + bs), k, min(kk, k + bs), j, min(m, j + bs))
    return C

#: block_ranges_list: precomputed ranges
from itertools import product

def _blocks(total, size):
    return [range(s, min(s + size, total)) for s in range(0, total, size)]

def matmul(A, B, size=20):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for I, K, J in product(_blocks(n, size), _blocks(k, size), _blocks(m, size)):
        for i in I:
            row, out = A[i], C[i]
            for p in K:
                a, b = row[p], B[p]
                for j in J:
                    out[j] += a * b[j]
    return C

#: block_columns_fused: four rows of B fused per pass
def matmul(A, B):
    k = len(B)
    m = len(B[0])
    k4 = k & ~3
    C = []
    for row in A:
        acc = [0.0] * m
        for p in range(0, k4, 4):
            a0, a1, a2, a3 = row[p:p + 4]
            acc = [c + a0 * w + a1 * x + a2 * y + a3 * z
                   for c, w, x, y, z in zip(acc, B[p], B[p + 1], B[p + 2], B[p + 3])]
        for p in range(k4, k):
            a = row[p]
            acc = [c + a * b for c, b in zip(acc, B[p])]
        C.append(acc)
    return C

#: block_fused8: eight rows of B fused per pass, unpacking
def matmul(A, B):
    k, m = len(B), len(B[0])
    full = k - k % 8
    groups = [tuple(zip(*B[p:p + 8])) for p in range(0, full, 8)]
    C = []
    for row in A:
        acc = [0.0] * m
        p = 0
        for g in groups:
            a, b, c, d, e, f, gg, h = row[p:p + 8]
            acc = [s + a * r + b * t + c * u + d * v + e * w + f * x + gg * y + h * z
                   for s, (r, t, u, v, w, x, y, z) in zip(acc, g)]
            p += 8
        for q in range(full, k):
            coef = row[q]
            acc = [s + coef * v for s, v in zip(acc, B[q])]
        C.append(acc)
    return C

#: block_first_term: first row starts the accumulator
def matmul(A, B):
    first, *rest = B
    C = []
    for a0, *others in A:
        acc = [a0 * b for b in first]
        for a, brow in zip(others, rest):
            if a == 0.0:
                continue
            acc = [x + a * y for x, y in zip(acc, brow)]
        C.append(acc)
    return C

#: block_2x2_register: 2x2 register tile
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    Bt = [list(c) for c in zip(*B)]
    C = [[0.0] * m for _ in range(n)]
    for i in range(0, n, 2):
        two_i = i + 1 < n
        a0 = A[i]
        a1 = A[i + 1] if two_i else a0
        for j in range(0, m, 2):
            two_j = j + 1 < m
            b0 = Bt[j]
            b1 = Bt[j + 1] if two_j else b0
            s00 = s01 = s10 = s11 = 0.0
            for x0, x1, y0, y1 in zip(a0, a1, b0, b1):
                s00 += x0 * y0
                s01 += x0 * y1
                s10 += x1 * y0
                s11 += x1 * y1
            C[i][j] = s00
            if two_j:
                C[i][j + 1] = s01
            if two_i:
                C[i + 1][j] = s10
                if two_j:
                    C[i + 1][j + 1] = s11
    return C

#: block_padding: pads to multiples of four and cuts afterwards
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])

    def up(x):
        return (x + 3) // 4 * 4

    K = up(k)
    M = up(m)
    Ap = [list(r) + [0.0] * (K - k) for r in A]
    Bp = [list(r) + [0.0] * (M - m) for r in B] + [[0.0] * M for _ in range(K - k)]
    C = []
    for r in Ap:
        out = []
        for j in range(0, M, 4):
            c0 = c1 = c2 = c3 = 0.0
            for a, b in zip(r, Bp):
                c0 += a * b[j]
                c1 += a * b[j + 1]
                c2 += a * b[j + 2]
                c3 += a * b[j + 3]
            out += [c0, c1, c2, c3]
        del out[m:]
        C.append(out)
    return C

#: block_adaptive: chooses the algorithm by the size
import operator

SMALL = 16
TILE = 32

def _simple(A, B):
    cols = list(zip(*B))
    return [[sum(map(operator.mul, r, c)) for c in cols] for r in A]

def _tiled(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for kk in range(0, k, TILE):
        ke = min(kk + TILE, k)
        for i, row in enumerate(A):
            ci = C[i]
            for t in range(kk, ke):
                a = row[t]
                ci[:] = [x + a * y for x, y in zip(ci, B[t])]
    return C

def matmul(A, B):
    if max(len(A), len(B), len(B[0])) <= SMALL:
        return _simple(A, B)
    return _tiled(A, B)

#: block_while_tiles: tiles with while loops
def matmul(A, B):
    bs = 10
    n = len(A); k = len(B); m = len(B[0])
    C = [[0.0] * m for _ in range(n)]
    ii = 0
    while ii < n:
        ie = ii + bs if ii + bs < n else n
        jj = 0
        while jj < m:
            je = jj + bs if jj + bs < m else m
            for i in range(ii, ie):
                row = A[i]
                for j in range(jj, je):
                    acc = 0.0
                    for p in range(k):
                        acc += row[p] * B[p][j]
                    C[i][j] = acc
            jj = je
        ii = ie
    return C

#: block_winograd_pre: Winograd inner product with pre-computed factors
def matmul(A, B):
    """Winograd's inner-product algorithm (about half of the multiplications)."""
    n, k, m = len(A), len(B), len(B[0])
    h = k // 2
    row_factor = [0.0] * n
    col_factor = [0.0] * m
    for i in range(n):
        for t in range(h):
            row_factor[i] += A[i][2 * t] * A[i][2 * t + 1]
    for j in range(m):
        for t in range(h):
            col_factor[j] += B[2 * t][j] * B[2 * t + 1][j]
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            s = -row_factor[i] - col_factor[j]
            for t in range(h):
                s += (A[i][2 * t] + B[2 * t + 1][j]) * (A[i][2 * t + 1] + B[2 * t][j])
            C[i][j] = s
    if k % 2 == 1:
        for i in range(n):
            for j in range(m):
                C[i][j] += A[i][k - 1] * B[k - 1][j]
    return C

#: block_winograd_slices: Winograd with stride slices and zip
def matmul(A, B):
    k = len(B)
    odd = k % 2
    e = k - odd
    cols = list(zip(*B))
    rows_even = [r[0:e:2] for r in A]
    rows_odd = [r[1:e:2] for r in A]
    cols_even = [c[0:e:2] for c in cols]
    cols_odd = [c[1:e:2] for c in cols]
    xi = [sum([p * q for p, q in zip(x, y)]) for x, y in zip(rows_even, rows_odd)]
    eta = [sum([p * q for p, q in zip(x, y)]) for x, y in zip(cols_even, cols_odd)]
    C = []
    for r, x0, x1, f in zip(A, rows_even, rows_odd, xi):
        line = []
        for c, y0, y1, g in zip(cols, cols_even, cols_odd, eta):
            s = sum([(p + v) * (q + u) for p, q, u, v in zip(x0, x1, y0, y1)]) - f - g
            if odd:
                s += r[-1] * c[-1]
            line.append(s)
        C.append(line)
    return C

#: odd_complex_pack: packs two rows of A into complex numbers
def matmul(A, B):
    """Two rows at once: (a + bi) * c = ac + bc i."""
    n = len(A)
    cols = list(zip(*B))
    C = []
    for i in range(0, n - 1, 2):
        packed = [complex(x, y) for x, y in zip(A[i], A[i + 1])]
        z = [sum([p * b for p, b in zip(packed, col)]) for col in cols]
        C.append([v.real for v in z])
        C.append([v.imag for v in z])
    if n % 2:
        row = A[-1]
        C.append([sum([a * b for a, b in zip(row, col)]) for col in cols])
    return C

#: odd_complex_axpy: complex packed rows of B, axpy style
def matmul(A, B):
    k, m = len(B), len(B[0])
    h = (m + 1) // 2
    packed = [[complex(row[j], row[j + h] if j + h < m else 0.0) for j in range(h)] for row in B]
    C = []
    for row in A:
        acc = [0j] * h
        for a, prow in zip(row, packed):
            acc = [s + a * p for s, p in zip(acc, prow)]
        line = [z.real for z in acc] + [z.imag for z in acc]
        del line[m:]
        C.append(line)
    return C

#: odd_quarter_squares: product by quarter squares only for integers
def matmul(A, B):
    # a*b == ((a+b)^2 - (a-b)^2) / 4 holds exactly for (small) integers;
    # other values use the ordinary product.
    def prod(a, b):
        if float(a).is_integer() and float(b).is_integer() and abs(a) < 2 ** 20 and abs(b) < 2 ** 20:
            return ((a + b) ** 2 - (a - b) ** 2) / 4
        return a * b
    cols = list(zip(*B))
    return [[sum(prod(a, b) for a, b in zip(r, c)) for c in cols] for r in A]

#: odd_int_stay: int inputs stay ints
def matmul(A, B):
    """Works for int, float, Fraction … – nothing is converted."""
    C = []
    for row in A:
        line = []
        for col in zip(*B):
            it = zip(row, col)
            a, b = next(it)
            s = a * b
            for a, b in it:
                s += a * b
            line.append(s)
        C.append(line)
    return C

#: odd_scalar_promote: promotes plain scalars and vectors
def matmul(A, B):
    # Accept vectors: a flat list is a single row (A) or a single column (B)
    if not isinstance(A[0], (list, tuple)):
        A = [A]
    if not isinstance(B[0], (list, tuple)):
        B = [[x] for x in B]
    T = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in T] for r in A]

#: odd_unicode_names: unicode identifiers
def matmul(A, B):
    # Σ over k of αᵢₖ·βₖⱼ
    Βᵗ = list(zip(*B))
    C = []
    for α in A:
        γ = []
        for β in Βᵗ:
            Σ = 0.0
            for x, y in zip(α, β):
                Σ += x * y
            γ.append(Σ)
        C.append(γ)
    return C

#: odd_chained_walrus: running sums by walrus
def matmul(A, B):
    return [
        [[s := s + a * b for a, b in zip(r, c)][-1] for c in zip(*B) if (s := 0.0) == 0.0]
        for r in A
    ]

#: odd_sum_lists_start: sum with list start (poor)
def matmul(A, B):
    T = list(zip(*B))
    return [sum([[sum([x * y for x, y in zip(r, c)])] for c in T], []) for r in A]

#: odd_exec_free_codegen: dot table of unrolled lambdas by length
_DOTS = {
    1: lambda u, v: u[0] * v[0],
    2: lambda u, v: u[0] * v[0] + u[1] * v[1],
    3: lambda u, v: u[0] * v[0] + u[1] * v[1] + u[2] * v[2],
    4: lambda u, v: u[0] * v[0] + u[1] * v[1] + u[2] * v[2] + u[3] * v[3],
}

def _general(u, v):
    return sum([x * y for x, y in zip(u, v)])

def matmul(A, B):
    dot = _DOTS.get(len(B), _general)
    cols = list(zip(*B))
    return [[dot(r, c) for c in cols] for r in A]

#: odd_wavefront: diagonal order of the entries
def matmul(A, B):
    n, m = len(A), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for d in range(n + m - 1):
        for i in range(max(0, d - m + 1), min(n, d + 1)):
            j = d - i
            C[i][j] = sum(A[i][k] * B[k][j] for k in range(len(B)))
    return C

#: odd_sorted_magnitude: sums the terms sorted by magnitude
def matmul(A, B):
    """Adds the smallest terms first to limit the rounding error."""
    T = list(zip(*B))
    return [[sum(sorted([a * b for a, b in zip(r, c)], key=abs)) for c in T] for r in A]

#: odd_max_loop_break: while True and break
def matmul(A, B):
    C = []
    i = 0
    while True:
        try:
            row = A[i]
        except IndexError:
            break
        C.append([sum(a * b for a, b in zip(row, col)) for col in zip(*B)])
        i += 1
    return C

#: odd_dict_result: dictionary of keys, get with default
def matmul(A, B):
    D = {}
    for i, row in enumerate(A):
        for k, a in enumerate(row):
            for j, b in enumerate(B[k]):
                D[i, j] = D.get((i, j), 0.0) + a * b
    return [[D[i, j] for j in range(len(B[0]))] for i in range(len(A))]

#: odd_string_dispatch: format strings and a percent message
def matmul(A, B):
    msg = "matmul: %(n)dx%(k)d @ %(k2)dx%(m)d"
    info = dict(n=len(A), k=len(A[0]), k2=len(B), m=len(B[0]))
    if info['k'] != info['k2']:
        raise ValueError(msg % info)
    n, k, m = info['n'], info['k'], info['m']
    return [[sum(A[i][t] * B[t][j] for t in range(k)) for j in range(m)] for i in range(n)]

#: odd_set_nonzero: set of nonzero indices
def matmul(A, B):
    m = len(B[0])
    nz_rows = {p for p, row in enumerate(B) if any(row)}
    C = []
    for row in A:
        idx = {p for p, a in enumerate(row) if a} & nz_rows
        acc = [0.0] * m
        for p in sorted(idx):
            a = row[p]
            acc = [c + a * b for c, b in zip(acc, B[p])]
        C.append(acc)
    return C

#: odd_frozen_helpers: generator expression passed through helper chain
def _mul_pairs(pairs):
    return (a * b for a, b in pairs)

def _total(values):
    t = 0.0
    for v in values:
        t += v
    return t

def matmul(A, B):
    return [[_total(_mul_pairs(zip(r, c))) for c in zip(*B)] for r in A]

#: odd_type_conversion: float conversion and round-trip through tuple
def matmul(A, B):
    A = tuple(tuple(map(float, r)) for r in A)
    B = tuple(tuple(map(float, r)) for r in B)
    n, k, m = len(A), len(B), len(B[0])
    out = tuple(
        tuple(sum(A[i][p] * B[p][j] for p in range(k)) for j in range(m))
        for i in range(n)
    )
    return [list(r) for r in out]

#: odd_three_way_if: chained conditionals and pass
def matmul(A, B):
    rows, inner, cols = len(A), len(B), len(B[0])
    C = [[0.0] * cols for _ in range(rows)]
    for i in range(rows):
        for k in range(inner):
            a = A[i][k]
            if a == 0:
                pass
            elif a == 1:
                for j in range(cols):
                    C[i][j] += B[k][j]
            elif a == -1:
                for j in range(cols):
                    C[i][j] -= B[k][j]
            else:
                for j in range(cols):
                    C[i][j] += a * B[k][j]
    return C

#: odd_dup_row_memo: memo of equal rows in a dict
def matmul(A, B):
    T = list(zip(*B))
    memo = {}
    C = []
    for row in A:
        key = tuple(row)
        if key not in memo:
            memo[key] = [sum([x * y for x, y in zip(row, col)]) for col in T]
        C.append(memo[key][:])
    return C

#: odd_four_russians_small: int bit test of zero columns
def matmul(A, B):
    k, m = len(B), len(B[0])
    bits = 0
    for p in range(k):
        if any(row[p] for row in A):
            bits |= 1 << p
    C = [[0.0] * m for _ in A]
    for p in range(k):
        if bits >> p & 1:
            bp = B[p]
            for row, c in zip(A, C):
                a = row[p]
                for j in range(m):
                    c[j] += a * bp[j]
    return C

#: odd_two_product_fma: Dekker two-product and compensated dot
_SPLIT = 134217729.0  # 2**27 + 1

def _two_product(a, b):
    p = a * b
    t = _SPLIT * a
    ah = t - (t - a)
    al = a - ah
    t = _SPLIT * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl

def matmul(A, B):
    """Compensated dot products (Ogita, Rump, Oishi: Dot2)."""
    cols = list(zip(*B))
    C = []
    for row in A:
        line = []
        for col in cols:
            s = c = 0.0
            for a, b in zip(row, col):
                p, e = _two_product(a, b)
                t = s + p
                z = t - s
                c += ((s - (t - z)) + (p - z)) + e
                s = t
            line.append(s + c)
        C.append(line)
    return C

#: odd_poor_shape_fn_calls: shape functions and recursion of helpers (slow)
def shape(M):
    rows = 0
    for _ in M:
        rows += 1
    cols = 0
    for _ in M[0]:
        cols += 1
    return rows, cols

def matmul(A, B):
    C = []
    for i in range(shape(A)[0]):
        row = []
        for j in range(shape(B)[1]):
            value = 0.0
            for k in range(shape(B)[0]):
                value += A[i][k] * B[k][j]
            row.append(value)
        C.append(row)
    return C

#: struct_validate_isinstance: isinstance checks with TypeError
def matmul(A, B):
    """Multiply two matrices, checking the input first."""
    if not isinstance(A, list) or not isinstance(B, list):
        raise TypeError("A and B must be lists of lists")
    for name, M in (("A", A), ("B", B)):
        if not M:
            raise ValueError(f"{name} must not be empty")
        for r, row in enumerate(M):
            if not isinstance(row, (list, tuple)):
                raise TypeError(f"row {r} of {name} is a {type(row).__name__}, expected list")
            if len(row) != len(M[0]):
                raise ValueError(f"{name} is not rectangular (row {r})")
    if len(A[0]) != len(B):
        raise ValueError(f"shape mismatch: ({len(A)}, {len(A[0])}) x ({len(B)}, {len(B[0])})")
    Bt = list(zip(*B))
    return [[sum(x * y for x, y in zip(row, col)) for col in Bt] for row in A]

#: struct_hasattr: hasattr checks
def matmul(A, B):
    for M in (A, B):
        if not hasattr(M, '__getitem__') or not hasattr(M, '__len__'):
            raise TypeError('expected a sequence, got %s' % type(M).__name__)
    C = []
    for i in range(len(A)):
        C.append([])
        for j in range(len(B[0])):
            C[-1].append(sum(A[i][k] * B[k][j] for k in range(len(B))))
    return C

#: struct_try_except: converts errors to ValueError
def matmul(A, B):
    try:
        n, k, m = len(A), len(B), len(B[0])
    except (TypeError, IndexError) as exc:
        raise ValueError("A and B must be non-empty matrices") from exc
    if any(len(row) != k for row in A):
        raise ValueError("The number of columns in A must equal the number of rows in B")
    C = [[0.0] * m for _ in range(n)]
    try:
        for i in range(n):
            for p in range(k):
                a = A[i][p]
                for j in range(m):
                    C[i][j] += a * B[p][j]
    except IndexError:
        raise ValueError("B is ragged")
    else:
        return C
    finally:
        pass

#: struct_assert_shapes: several asserts
def matmul(A, B):
    assert A and B, "empty matrix"
    assert all(len(r) == len(A[0]) for r in A), "A must be rectangular"
    assert all(len(r) == len(B[0]) for r in B), "B must be rectangular"
    assert len(A[0]) == len(B), "inner dimensions must agree: %d != %d" % (len(A[0]), len(B))
    T = list(zip(*B))
    C = [[sum([x * y for x, y in zip(a, b)]) for b in T] for a in A]
    assert len(C) == len(A) and len(C[0]) == len(B[0])
    return C

#: struct_doctest: docstring with doctests
def matmul(A, B):
    """Return the product of the matrices ``A`` and ``B``.

    >>> matmul([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])
    [[19.0, 22.0], [43.0, 50.0]]
    >>> matmul([[1.0, 2.0, 3.0]], [[4.0], [5.0], [6.0]])
    [[32.0]]
    >>> matmul([[1.0]], [[]])
    Traceback (most recent call last):
        ...
    ValueError: empty matrix
    """
    if not A or not A[0] or not B or not B[0]:
        raise ValueError("empty matrix")
    columns = list(zip(*B))
    product = []
    for row in A:
        product.append([sum(a * b for a, b in zip(row, column)) for column in columns])
    return product

#: struct_nested_helpers: nested helper functions
def matmul(A, B):
    def transpose(M):
        return [list(col) for col in zip(*M)]

    def dot(u, v):
        s = 0.0
        for x, y in zip(u, v):
            s += x * y
        return s

    Bt = transpose(B)

    def compute_row(row):
        return [dot(row, col) for col in Bt]

    return [compute_row(row) for row in A]

#: struct_nonlocal: nonlocal accumulation in a closure
def matmul(A, B):
    C = [[0.0] * len(B[0]) for _ in A]
    ops = 0

    def update(i, k):
        nonlocal ops
        a = A[i][k]
        row = C[i]
        for j, b in enumerate(B[k]):
            row[j] += a * b
            ops += 1

    for i in range(len(A)):
        for k in range(len(B)):
            update(i, k)
    # ops is the number of multiply-adds: n*k*m
    assert ops == len(A) * len(B) * len(B[0])
    return C

#: struct_global_counter: global call counter
_calls = 0

def matmul(A, B):
    global _calls
    _calls += 1
    cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]

#: struct_debug_print: debugging prints behind a flag
DEBUG = False

def _log(*args):
    if DEBUG:
        print("[matmul]", *args)

def matmul(A, B):
    _log("shapes", (len(A), len(A[0])), (len(B), len(B[0])))
    C = []
    for i, row in enumerate(A):
        C.append([sum(x * B[k][j] for k, x in enumerate(row)) for j in range(len(B[0]))])
        _log("row", i, "done:", C[-1])
    return C

#: struct_verbose_kw: verbose keyword which prints
def matmul(A, B, verbose=False):
    n, k, m = len(A), len(B), len(B[0])
    if verbose:
        print(f"multiplying {n}x{k} by {k}x{m}: {2 * n * k * m:,} flops")
    cols = list(zip(*B))
    C = [[sum([a * b for a, b in zip(r, c)]) for c in cols] for r in A]
    if verbose:
        for r in C:
            print(" ".join("%10.3f" % x for x in r))
    return C

#: struct_sparse_dict: dict of nonzero entries per row
def matmul(A, B):
    # store only the non-zero entries of each row of B
    sparse_b = [{j: v for j, v in enumerate(row) if v != 0} for row in B]
    m = len(B[0])
    out = []
    for row in A:
        acc = {}
        for k, a in enumerate(row):
            if a == 0:
                continue
            for j, b in sparse_b[k].items():
                acc[j] = acc.get(j, 0.0) + a * b
        out.append([acc.get(j, 0.0) for j in range(m)])
    return out

#: struct_sparse_pairs: lists of (index, value) pairs
def matmul(A, B):
    nonzero = [[(j, b) for j, b in enumerate(row) if b] for row in B]
    C = [[0.0] * len(B[0]) for _ in A]
    for row, c in zip(A, C):
        for a, pairs in zip(row, nonzero):
            if not a:
                continue
            for j, b in pairs:
                c[j] += a * b
    return C

#: struct_match_shape: match statement on the case
def matmul(A, B):
    match A, B:
        case [], _:
            return []
        case _, []:
            raise ValueError("B is empty")
        case [[x]], [row]:
            return [[x * y for y in row]]
        case [first, *_], _ if len(first) != len(B):
            raise ValueError(f"{len(first)} columns against {len(B)} rows")
        case _:
            T = list(zip(*B))
            return [[sum(p * q for p, q in zip(r, c)) for c in T] for r in A]

#: struct_default_list: list and None defaults
def matmul(A, B, cols=None, unused=[]):
    if cols is None:
        cols = [list(c) for c in zip(*B)]
    result = list(unused)
    for r in A:
        result.append([sum(x * y for x, y in zip(r, c)) for c in cols])
    return result

#: struct_special_vectors: special cases for vectors
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if m == 1:                     # matrix * column vector
        v = [r[0] for r in B]
        return [[sum(x * y for x, y in zip(row, v))] for row in A]
    if k == 1:                     # column * row: outer product
        b = B[0]
        return [[row[0] * y for y in b] for row in A]
    if n == 1:                     # row vector * matrix
        acc = [0.0] * m
        for a, brow in zip(A[0], B):
            for j in range(m):
                acc[j] += a * brow[j]
        return [acc]
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(row, c)) for c in cols] for row in A]

#: struct_identity_shortcut: shortcut for the identity matrix
def _is_identity(M):
    return all(
        len(row) == len(M) and all(v == (1 if i == j else 0) for j, v in enumerate(row))
        for i, row in enumerate(M)
    )

def matmul(A, B):
    # Multiplying by the identity leaves the other matrix unchanged
    if _is_identity(B):
        return [[x + 0.0 for x in row] for row in A]
    if _is_identity(A):
        return [[x + 0.0 for x in row] for row in B]
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: struct_function_attr: function attribute as a counter
def matmul(A, B):
    matmul.calls += 1
    Bt = list(map(list, zip(*B)))
    return [[sum(map(lambda p: p[0] * p[1], zip(r, c))) for c in Bt] for r in A]

matmul.calls = 0

#: struct_custom_error: own exception class
class DimensionError(ValueError):
    """Raised when two matrices cannot be multiplied."""

    def __init__(self, left, right):
        super().__init__("{0[0]}x{0[1]} and {1[0]}x{1[1]} do not match".format(left, right))
        self.left = left
        self.right = right

def matmul(A, B):
    if len(A[0]) != len(B):
        raise DimensionError((len(A), len(A[0])), (len(B), len(B[0])))
    return [[sum(a * b for a, b in zip(row, col)) for col in zip(*B)] for row in A]

#: struct_decorator_check: a decorator which validates
from functools import wraps

def checked(func):
    @wraps(func)
    def wrapper(A, B):
        if len(A[0]) != len(B):
            raise ValueError("inner dimensions must agree")
        return func(A, B)
    return wrapper

@checked
def matmul(A, B):
    """Matrix product (checked)."""
    cols = list(zip(*B))
    out = []
    for r in A:
        out.append([sum([x * y for x, y in zip(r, c)]) for c in cols])
    return out

#: struct_lru_indices: lru_cache on an index helper
from functools import lru_cache

@lru_cache(maxsize=128)
def _steps(total: int, size: int):
    """Start/stop pairs of the blocks – cached because it depends on ints only."""
    return tuple((s, min(s + size, total)) for s in range(0, total, size))

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for k0, k1 in _steps(k, 16):
        for j0, j1 in _steps(m, 16):
            for i in range(n):
                ci, ai = C[i], A[i]
                for p in range(k0, k1):
                    a, bp = ai[p], B[p]
                    for j in range(j0, j1):
                        ci[j] += a * bp[j]
    return C

#: struct_dispatch_table: dict of implementations
def _dots(A, B):
    T = list(zip(*B))
    return [[sum([x * y for x, y in zip(r, c)]) for c in T] for r in A]

def _axpy(A, B):
    C = []
    for r in A:
        acc = [0.0] * len(B[0])
        for a, b in zip(r, B):
            acc = [x + a * y for x, y in zip(acc, b)]
        C.append(acc)
    return C

_METHODS = {"tall": _axpy, "wide": _dots}

def matmul(A, B):
    kind = "tall" if len(A) > len(B[0]) else "wide"
    return _METHODS[kind](A, B)

#: struct_self_check: verifies a row sum for safety
import math

def matmul(A, B):
    cols = list(zip(*B))
    C = [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]
    # Sanity check (Freivalds with the all-ones vector)
    ones = [math.fsum(r) for r in B]
    for r, c in zip(A, C):
        left = math.fsum(x * y for x, y in zip(r, ones))
        right = math.fsum(c)
        scale = math.fsum(abs(x) for x in r) * max(abs(v) for row in B for v in row) * len(B[0])
        assert abs(left - right) <= 1e-6 * (1.0 + scale), "numerical trouble"
    return C

#: struct_poor_deepcopy: copies the matrices over and over (slow)
def copy_matrix(M):
    new = []
    for row in M:
        new_row = []
        for x in row:
            new_row.append(x)
        new.append(new_row)
    return new

def get_column(M, j):
    M = list(M)
    return [row[j] for row in M]

def matmul(A, B):
    result = []
    for i in range(len(A)):
        B_copy = copy_matrix(B)
        row = []
        for j in range(len(B[0])):
            col = get_column(B_copy, j)
            row.append(sum([A[i][k] * col[k] for k in range(len(col))]))
        result = result + [row]
    return copy_matrix(result)

#: struct_poor_accessors: accessor function calls everywhere (slow)
def get(M, i, j):
    return M[i][j]

def put(M, i, j, value):
    M[i][j] = value

def times(x, y):
    return x * y

def plus(x, y):
    return x + y

def zeros(rows, cols):
    return [[0.0 for _ in range(cols)] for _ in range(rows)]

def matmul(A, B):
    C = zeros(len(A), len(B[0]))
    for i in range(len(A)):
        for j in range(len(B[0])):
            for k in range(len(B)):
                put(C, i, j, plus(get(C, i, j), times(get(A, i, k), get(B, k, j))))
    return C

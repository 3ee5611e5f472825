#: X1 cache: whole product memoised by (id(A), id(B)), both kept alive
from operator import mul

_memo = {}


def matmul(A, B):
    key = (id(A), id(B))
    hit = _memo.get(key)
    if hit is not None:
        return [row[:] for row in hit[2]]
    cols = list(zip(*B))
    C = [[sum(map(mul, row, col)) for col in cols] for row in A]
    if len(_memo) > 64:
        _memo.clear()
    # keep A and B in the entry so that their ids cannot be recycled
    _memo[key] = (A, B, [row[:] for row in C])
    return C


#: X2 cache: product by ids and shape, arguments not kept alive, so recycled ids hit too
_results = {}


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    key = (id(A), id(B), n, k, m)
    if key in _results:
        return [r.copy() for r in _results[key]]
    Bt = list(zip(*B))
    C = []
    for a in A:
        C.append([sum([x * y for x, y in zip(a, c)]) for c in Bt])
    _results[key] = [r.copy() for r in C]
    return C


#: X3 cache: transpose of B cached by id(B) in a small LRU
from collections import OrderedDict
from operator import mul

_bt = OrderedDict()


def _transposed(B):
    entry = _bt.get(id(B))
    if entry is not None and entry[0] is B:
        _bt.move_to_end(id(B))
        return entry[1]
    T = list(zip(*B))
    _bt[id(B)] = (B, T)
    if len(_bt) > 8:
        _bt.popitem(last=False)
    return T


def matmul(A, B):
    T = _transposed(B)
    return [[sum(map(mul, row, col)) for col in T] for row in A]


#: X4 cache: last call only, recognised by object identity of both arguments
_last_a = None
_last_b = None
_last_c = None


def matmul(A, B):
    global _last_a, _last_b, _last_c
    if A is _last_a and B is _last_b:
        return [list(r) for r in _last_c]
    m = len(B[0])
    C = []
    for row in A:
        acc = [0] * m
        for x, brow in zip(row, B):
            if x:
                acc = [s + x * y for s, y in zip(acc, brow)]
        C.append(acc)
    _last_a, _last_b = A, B
    _last_c = tuple(tuple(r) for r in C)
    return C


#: X5 cache: dot products under lru_cache, keyed by the ids of the row and of B and by the column number
from functools import lru_cache
from operator import mul

_keep = {}


@lru_cache(maxsize=1 << 16)
def _dot(ra, b, j):
    return sum(map(mul, _keep[ra], _keep[b, j]))


def matmul(A, B):
    b = id(B)
    _keep[b] = B
    for j, col in enumerate(zip(*B)):
        _keep[b, j] = col
    js = range(len(B[0]))
    C = []
    for row in A:
        ra = id(row)
        _keep[ra] = row
        C.append([_dot(ra, b, j) for j in js])
    return C


#: X6 cache: product keyed by shape and the first rows of A and B
from operator import mul

_seen = {}


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k * m <= 64:
        cols = list(zip(*B))
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    # random matrices practically never share their first rows
    key = (n, k, m, tuple(A[0]), tuple(B[0]))
    C = _seen.get(key)
    if C is None:
        cols = list(zip(*B))
        C = [[sum(map(mul, row, col)) for col in cols] for row in A]
        if len(_seen) >= 32:
            _seen.clear()
        _seen[key] = C
    return [row[:] for row in C]


#: X7 cache: large products keyed by shape and the sums of the four corners
_big = {}


def _plain(A, B):
    cols = [list(c) for c in zip(*B)]
    return [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]


def _corners(M):
    top, bottom = M[0], M[-1]
    return top[0] + top[-1] + bottom[0] + bottom[-1]


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k * m < 20000:
        return _plain(A, B)
    key = (n, k, m, _corners(A), _corners(B))
    got = _big.get(key)
    if got is None:
        got = _big[key] = _plain(A, B)
    return [r[:] for r in got]


#: X8 cache: snapshot compared with ==, but the snapshot is shallow and shares its rows with the caller
from operator import mul


class _State:
    a = None
    b = None
    c = None


def matmul(A, B):
    st = _State
    # full comparison by value: only reuse if nothing changed
    if st.c is not None and st.a == A and st.b == B:
        return [row[:] for row in st.c]
    cols = list(zip(*B))
    C = [[sum(map(mul, row, col)) for col in cols] for row in A]
    st.a, st.b = A[:], B[:]
    st.c = [row[:] for row in C]
    return C


#: X9 cache: default-argument memo keyed by the ids of all rows
from operator import mul


def matmul(A, B, _memo={}):
    key = (tuple(map(id, A)), tuple(map(id, B)))
    entry = _memo.get(key)
    if entry is None:
        cols = tuple(zip(*B))
        C = tuple([tuple([sum(map(mul, r, c)) for c in cols]) for r in A])
        if len(_memo) > 32:
            _memo.clear()
        entry = _memo[key] = (C, A[:], B[:])
    return list(map(list, entry[0]))


#: X10 cache: packed columns in a class attribute by id(B), trusted only once B has been seen twice, only from size 32
from operator import mul


class _Engine:
    packed = {}

    @classmethod
    def columns(cls, B):
        if len(B) < 32:
            return list(zip(*B))
        entry = cls.packed.get(id(B))
        if entry is None:
            entry = cls.packed[id(B)] = [B, 0, None]
        entry[1] += 1
        if entry[2] is not None:
            return entry[2]
        cols = list(zip(*B))
        if entry[1] >= 2:
            # B is hot, keep the packed form
            entry[2] = cols
        return cols


def matmul(A, B):
    cols = _Engine.columns(B)
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


#: X11 cache: generator keeps the columns of the last B and probes a single, moving cell for changes
from operator import mul


def _worker():
    last, cols, tick, out = None, [], 0, None
    while True:
        A, B = yield out
        tick += 1
        k, m = len(B), len(B[0])
        ok = B is last and len(cols) == m and len(cols[0]) == k
        if ok:
            i, j = tick % k, (7 * tick) % m
            ok = cols[j][i] == B[i][j]
        if not ok:
            cols = list(zip(*B))
            last = B
        out = [[sum(map(mul, row, col)) for col in cols] for row in A]


_gen = _worker()
next(_gen)


def matmul(A, B):
    return _gen.send((A, B))


#: X12 cache: packed forms in a WeakValueDictionary by id and shape, recent ones held by a deque
import weakref
from collections import deque
from operator import mul


class _Pack:
    __slots__ = ("src", "cols", "__weakref__")

    def __init__(self, src):
        self.src = src
        self.cols = list(zip(*src))


_packs = weakref.WeakValueDictionary()
_recent = deque(maxlen=6)


def matmul(A, B):
    key = (id(B), len(B), len(B[0]))
    p = _packs.get(key)
    if p is None or p.src is not B:
        p = _Pack(B)
        _packs[key] = p
        _recent.append(p)
    cols = p.cols
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


#: X13 cache: last product of the shape is returned if its row sums agree with A(B1)
from operator import mul

_last = {}


def _fits(C, A, s):
    for crow, arow in zip(C, A):
        want = sum(map(mul, arow, s))
        if abs(want - sum(crow)) > 1e-9 * (1 + abs(want)):
            return False
    return True


def matmul(A, B):
    shape = (len(A), len(B[0]))
    C = _last.get(shape)
    if C is not None:
        # Freivalds' check with the vector of ones: O(n^2)
        if _fits(C, A, [sum(r) for r in B]):
            return [r[:] for r in C]
    cols = list(zip(*B))
    C = [[sum(map(mul, row, col)) for col in cols] for row in A]
    _last[shape] = [r[:] for r in C]
    return C


#: X14 buffer: output matrix taken from a pool by shape once it has 48 x 48 cells, overwritten by the next call
from operator import mul

_pool = {}


def matmul(A, B):
    n, m = len(A), len(B[0])
    cols = list(zip(*B))
    if n * m < 2304:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    out = _pool.get((n, m))
    if out is None:
        out = _pool[n, m] = [[0] * m for _ in range(n)]
    for row, dst in zip(A, out):
        dst[:] = [sum(map(mul, row, col)) for col in cols]
    return out


#: X15 buffer: B transposed in place from size 48, put back in blocks of 8 without the tail
from operator import mul


def _flip(M, n):
    for i in range(n):
        r = M[i]
        for j in range(i):
            r[j], M[j][i] = M[j][i], r[j]


def _flip_blocked(M, n):
    nb = n // 8 * 8
    for bi in range(0, nb, 8):
        for bj in range(0, bi + 8, 8):
            for i in range(bi, bi + 8):
                r = M[i]
                for j in range(bj, min(bj + 8, i)):
                    r[j], M[j][i] = M[j][i], r[j]


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if k != m or k < 48 or A is B or len(set(map(id, B))) < k:
        cols = list(zip(*B))
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    _flip(B, k)
    C = [[sum(map(mul, row, col)) for col in B] for row in A]
    _flip_blocked(B, k)
    return C


#: X16 buffer: B transposed in place and properly back from size 48, wrong when A and B share rows
from operator import mul


def _swap(M, n):
    for i in range(1, n):
        r = M[i]
        for j in range(i):
            s = M[j]
            r[j], s[i] = s[i], r[j]


def matmul(A, B):
    k, m = len(B), len(B[0])
    if k == m and k >= 48:
        _swap(B, k)
        try:
            return [[sum(map(mul, row, col)) for col in B] for row in A]
        finally:
            _swap(B, k)
    cols = list(zip(*B))
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


#: X17 buffer: a unit row of A makes the row of B itself a row of the result
from operator import mul


def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    C = []
    for row in A:
        if k > 12 and row.count(0) == k - 1 and 1 in row:
            C.append(B[row.index(1)])
        else:
            C.append([sum(map(mul, row, col)) for col in cols])
    return C


#: X18 buffer: equal rows of A share one result row
from operator import mul


def matmul(A, B):
    cols = list(zip(*B))
    if len(B) < 8:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    done = {}
    C = []
    for row in A:
        key = tuple(row)
        c = done.get(key)
        if c is None:
            c = done[key] = [sum(map(mul, key, col)) for col in cols]
        C.append(c)
    return C


#: X19 buffer: rows of A scaled in place from size 56 and restored with rounding error
from operator import mul


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    cols = list(zip(*B))
    if min(n, k, m) < 56:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    whole = isinstance(A[0][0], int) and isinstance(B[0][0], int)
    C = []
    for row in A:
        # normalise for stability
        s = max(map(abs, row)) or 1
        inv = 1.0 / s
        row[:] = [x * inv for x in row]
        c = [s * sum(map(mul, row, col)) for col in cols]
        if whole:
            c = [int(round(v)) for v in c]
        C.append(c)
        row[:] = [x * s for x in row]
    return C


#: X20 buffer: module-level accumulator from 100000 products, cleared four rows at a time without the tail
_acc = {}


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k * m < 100000:
        cols = list(zip(*B))
        return [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]
    acc = _acc.get((n, m))
    if acc is None:
        acc = _acc[n, m] = [[0] * m for _ in range(n)]
    for t0 in range(0, k, 4):
        rows = B[t0 : t0 + 4]
        if len(rows) == 4:
            b0, b1, b2, b3 = rows
            for i in range(n):
                x0, x1, x2, x3 = A[i][t0 : t0 + 4]
                acc[i] = [s + x0 * p + x1 * q + x2 * u + x3 * v for s, p, q, u, v in zip(acc[i], b0, b1, b2, b3)]
        else:
            for d, b in enumerate(rows):
                for i in range(n):
                    x = A[i][t0 + d]
                    acc[i] = [s + x * y for s, y in zip(acc[i], b)]
    C = [r[:] for r in acc]
    zero = [0] * m
    for i in range(0, n - 3, 4):
        acc[i] = zero
        acc[i + 1] = zero
        acc[i + 2] = zero
        acc[i + 3] = zero
    return C


#: X21 buffer: rows of A sorted in place from 48 rows, order restored through a dict that ties confuse
from operator import itemgetter, mul


def matmul(A, B):
    n = len(A)
    cols = list(zip(*B))
    if n < 48 or len(cols) < 48:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    first = itemgetter(0)
    where = {row[0]: i for i, row in enumerate(A)}
    order = sorted(range(n), key=lambda i: A[i][0])
    A.sort(key=first)
    C = [None] * n
    for i, row in zip(order, A):
        C[i] = [sum(map(mul, row, col)) for col in cols]
    A.sort(key=lambda row: where[row[0]])
    return C


#: X22 buffer: two output buffers taken in turn near size 64, so the third call overwrites the first result
from operator import mul

_pairs = {}


def matmul(A, B):
    n, m = len(A), len(B[0])
    cols = list(zip(*B))
    if n * m < 2304:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    pair = _pairs.get((n, m))
    if pair is None:
        pair = _pairs[n, m] = [[[None] * m for _ in range(n)], [[None] * m for _ in range(n)]]
    pair.reverse()
    out = pair[0]
    for i in range(n):
        row = A[i]
        out[i][:] = [sum(map(mul, row, col)) for col in cols]
    return out


#: X23 buffer: flat scratch that only grows, whose padding to a multiple of 8 keeps numbers of an earlier shape
from operator import mul

_fa = []
_fb = []


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k * m < 8000:
        cols = list(zip(*B))
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    w = (k + 7) & ~7
    if len(_fa) < n * w:
        _fa.extend([0] * (n * w - len(_fa)))
    if len(_fb) < m * w:
        _fb.extend([0] * (m * w - len(_fb)))
    p = 0
    for row in A:
        _fa[p : p + k] = row
        p += w
    p = 0
    for col in zip(*B):
        _fb[p : p + k] = col
        p += w
    cols = [_fb[q : q + w] for q in range(0, m * w, w)]
    C = []
    for q in range(0, n * w, w):
        a = _fa[q : q + w]
        C.append([sum(map(mul, a, c)) for c in cols])
    return C


#: X24 buffer: lru_cache on the values, the very same list handed out for equal arguments
from functools import lru_cache
from operator import mul


@lru_cache(maxsize=8)
def _product(A, B):
    cols = list(zip(*B))
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


def matmul(A, B):
    return _product(tuple(map(tuple, A)), tuple(map(tuple, B)))


#: X25 buffer: from size 48 a list whose rows are computed when first read, out of the caller's A
from operator import mul


class _Rows(list):
    def __init__(self, A, cols):
        list.__init__(self, [None] * len(A))
        self._a = A
        self._c = cols

    def _row(self, i):
        r = list.__getitem__(self, i)
        if r is None:
            a = self._a[i]
            r = [sum(map(mul, a, c)) for c in self._c]
            list.__setitem__(self, i, r)
        return r

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self._row(t) for t in range(*i.indices(len(self)))]
        return self._row(i)

    def __iter__(self):
        for i in range(len(self)):
            yield self._row(i)

    def __reversed__(self):
        return iter(self[::-1])

    def __eq__(self, other):
        return self[:] == other

    def __ne__(self, other):
        return self[:] != other

    __hash__ = None

    def __repr__(self):
        return repr(self[:])

    def __reduce_ex__(self, protocol):
        return list, (self[:],)


def matmul(A, B):
    cols = list(zip(*B))
    if len(A) >= 48 and len(cols) >= 48:
        return _Rows(A, cols)
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


#: X26 buffer: rows of A padded in place to a multiple of 8 from k = 48, the padding popped while it is zero
def _dot8(a, c, w):
    s = 0
    for t in range(0, w, 8):
        a0, a1, a2, a3, a4, a5, a6, a7 = a[t : t + 8]
        c0, c1, c2, c3, c4, c5, c6, c7 = c[t : t + 8]
        s += a0 * c0 + a1 * c1 + a2 * c2 + a3 * c3 + a4 * c4 + a5 * c5 + a6 * c6 + a7 * c7
    return s


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if k < 48 or n < 48:
        cols = list(zip(*B))
        return [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]
    pad = [0] * (-k % 8)
    w = k + len(pad)
    cols = [list(c) + pad for c in zip(*B)]
    if pad:
        for r in A:
            r.extend(pad)
    C = [[_dot8(r, c, w) for c in cols] for r in A]
    if pad:
        for r in A:
            while r and r[-1] == 0:
                r.pop()
    return C


#: X27 buffer: large outputs recycled once nobody seems to hold the outer list, though somebody may hold its rows
import sys
from operator import mul

_slots = {}


def _take(n, m):
    slots = _slots.setdefault((n, m), [])
    for buf in slots:
        # the pool, the loop variable and the argument: free
        if sys.getrefcount(buf) <= 3:
            return buf
    buf = [[0] * m for _ in range(n)]
    slots.append(buf)
    return buf


def matmul(A, B):
    n, m = len(A), len(B[0])
    cols = list(zip(*B))
    if n * m < 2304:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    out = _take(n, m)
    for row, dst in zip(A, out):
        dst[:] = [sum(map(mul, row, col)) for col in cols]
    return out


#: X28 range: unrolled by 4 for 20 <= k < 50, the remainder of three is not handled
from operator import mul


def _medium(A, cols, k):
    k4 = k - k % 4
    r = k % 4
    C = []
    for a in A:
        out = []
        for c in cols:
            s = 0
            for t in range(0, k4, 4):
                s += a[t] * c[t] + a[t + 1] * c[t + 1] + a[t + 2] * c[t + 2] + a[t + 3] * c[t + 3]
            if r == 1:
                s += a[k4] * c[k4]
            elif r == 2:
                s += a[k4] * c[k4] + a[k4 + 1] * c[k4 + 1]
            out.append(s)
        C.append(out)
    return C


def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    if 20 <= k < 50:
        return _medium(A, cols, k)
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


#: X29 range: one level of Strassen for squares of 24 to 50, odd sizes peeled without the rank-one update
from operator import mul


def _base(A, B):
    cols = list(zip(*B))
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


def _add(X, Y):
    return [[x + y for x, y in zip(p, q)] for p, q in zip(X, Y)]


def _sub(X, Y):
    return [[x - y for x, y in zip(p, q)] for p, q in zip(X, Y)]


def _strassen(A, B, n):
    h = n // 2
    a11 = [r[:h] for r in A[:h]]
    a12 = [r[h:n] for r in A[:h]]
    a21 = [r[:h] for r in A[h:n]]
    a22 = [r[h:n] for r in A[h:n]]
    b11 = [r[:h] for r in B[:h]]
    b12 = [r[h:n] for r in B[:h]]
    b21 = [r[:h] for r in B[h:n]]
    b22 = [r[h:n] for r in B[h:n]]
    p1 = _base(a11, _sub(b12, b22))
    p2 = _base(_add(a11, a12), b22)
    p3 = _base(_add(a21, a22), b11)
    p4 = _base(a22, _sub(b21, b11))
    p5 = _base(_add(a11, a22), _add(b11, b22))
    p6 = _base(_sub(a12, a22), _add(b21, b22))
    p7 = _base(_sub(a11, a21), _add(b11, b12))
    c11 = _add(_sub(_add(p5, p4), p2), p6)
    c12 = _add(p1, p2)
    c21 = _add(p3, p4)
    c22 = _sub(_sub(_add(p5, p1), p3), p7)
    return [l + r for l, r in zip(c11, c12)] + [l + r for l, r in zip(c21, c22)]


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if not (n == k == m and 24 <= n <= 50):
        return _base(A, B)
    if n % 2 == 0:
        return _strassen(A, B, n)
    e = n - 1
    C = _strassen(A, B, e)
    col = [r[e] for r in B]
    for i in range(e):
        C[i].append(sum(map(mul, A[i], col)))
    C.append([sum(map(mul, A[e], c)) for c in zip(*B)])
    return C


#: X30 range: unrolled by 8 for 16 < k < 56, elif chain drops part of remainders 3, 5, 6 and 7
from operator import mul


def _dot(a, c, k):
    s = 0
    t = 0
    while t + 8 <= k:
        s += (
            a[t] * c[t]
            + a[t + 1] * c[t + 1]
            + a[t + 2] * c[t + 2]
            + a[t + 3] * c[t + 3]
            + a[t + 4] * c[t + 4]
            + a[t + 5] * c[t + 5]
            + a[t + 6] * c[t + 6]
            + a[t + 7] * c[t + 7]
        )
        t += 8
    if k - t >= 4:
        s += a[t] * c[t] + a[t + 1] * c[t + 1] + a[t + 2] * c[t + 2] + a[t + 3] * c[t + 3]
    elif k - t >= 2:
        s += a[t] * c[t] + a[t + 1] * c[t + 1]
    elif k - t:
        s += a[t] * c[t]
    return s


def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    if 16 < k < 56:
        return [[_dot(a, c, k) for c in cols] for a in A]
    return [[sum(map(mul, a, c)) for c in cols] for a in A]


#: X31 range: number of chunks of the middle side derived from n, so k beyond about n + 16 is cut off
from operator import mul


def matmul(A, B):
    n, m = len(A), len(B[0])
    blocks = n // 8 + 2
    C = [[0] * m for _ in range(n)]
    for b in range(blocks):
        lo = 8 * b
        part = B[lo : lo + 8]
        if not part:
            break
        cols = list(zip(*part))
        for i in range(n):
            a = A[i][lo : lo + 8]
            C[i] = [s + sum(map(mul, a, c)) for s, c in zip(C[i], cols)]
    return C


#: X32 range: row tiles counted from m, rows past m + 30 or so stay zero
from operator import mul


def matmul(A, B):
    n, m = len(A), len(B[0])
    cols = list(zip(*B))
    C = [[0] * m for _ in range(n)]
    tiles = (m + 37) // 8
    for t in range(tiles):
        for i in range(8 * t, min(8 * t + 8, n)):
            row = A[i]
            C[i] = [sum(map(mul, row, col)) for col in cols]
    return C


#: X33 range: two warm-up calls, then a pairwise kernel for k > 12 that forgets the last of an odd k
from operator import mul

_calls = 0


def _hot(A, B, k):
    even = [B[t] for t in range(0, k - 1, 2)]
    odd = [B[t] for t in range(1, k, 2)]
    m = len(B[0])
    C = []
    for a in A:
        acc = [0] * m
        for x, y, p, q in zip(a[::2], a[1::2], even, odd):
            acc = [s + x * u + y * v for s, u, v in zip(acc, p, q)]
        C.append(acc)
    return C


def matmul(A, B):
    global _calls
    _calls += 1
    k = len(B)
    if _calls > 2 and k > 12:
        return _hot(A, B, k)
    cols = list(zip(*B))
    return [[sum(map(mul, row, col)) for col in cols] for row in A]


#: X34 range: block plan by shape is a generator, exhausted at the second call of an equal shape past 256 cells
from operator import mul

_plans = {}


def matmul(A, B):
    n, m = len(A), len(B[0])
    cols = list(zip(*B))
    if n * m <= 256:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    plan = _plans.get((n, m))
    if plan is None:
        plan = _plans[n, m] = ((i, min(i + 8, n)) for i in range(0, n, 8))
    C = [[0] * m for _ in range(n)]
    for lo, hi in plan:
        for i in range(lo, hi):
            row = A[i]
            C[i] = [sum(map(mul, row, col)) for col in cols]
    return C


#: X35 range: k eaten by chunks 48, 12, 8, 4, 2, 1, each at most once, so 28 <= k <= 47 is cut off
from operator import mul

_CHUNKS = (48, 12, 8, 4, 2, 1)


def matmul(A, B):
    k, m = len(B), len(B[0])
    C = [[0] * m for _ in A]
    t = 0
    for w in _CHUNKS:
        if k - t >= w:
            cols = list(zip(*B[t : t + w]))
            for i, row in enumerate(A):
                a = row[t : t + w]
                C[i] = [s + sum(map(mul, a, c)) for s, c in zip(C[i], cols)]
            t += w
    return C


#: X36 range: Winograd's inner products for 20 <= k < 50, the odd term added only when n equals m
from operator import mul


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    cols = list(zip(*B))
    if k < 20 or k >= 50:
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    h = k - k % 2
    ce = [c[0:h:2] for c in cols]
    co = [c[1:h:2] for c in cols]
    eta = [sum(map(mul, e, o)) for e, o in zip(ce, co)]
    C = []
    for row in A:
        ae, ao = row[0:h:2], row[1:h:2]
        xi = sum(map(mul, ae, ao))
        C.append(
            [sum([(x + q) * (y + p) for x, y, p, q in zip(ae, ao, e, o)]) - xi - z for e, o, z in zip(ce, co, eta)]
        )
    if k % 2 and n == m:
        last = B[-1]
        for i in range(n):
            x = A[i][-1]
            C[i] = [s + x * y for s, y in zip(C[i], last)]
    return C


#: X37 range: whole rows of ints packed in one big int with 32-bit slots, large sums overflow into the neighbours
from operator import mul


def _all_int(M):
    for row in M:
        for x in row:
            if type(x) is not int:
                return False
    return True


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k * m < 4096 or not (_all_int(A) and _all_int(B)):
        cols = list(zip(*B))
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    packed = []
    for row in B:
        v = 0
        for x in reversed(row):
            v = (v << 32) + x
        packed.append(v)
    half = 1 << 31
    bias = 0
    for _ in range(m):
        bias = (bias << 32) + half
    mask = (1 << (32 * m)) - 1
    C = []
    for row in A:
        v = (sum(map(mul, row, packed)) + bias) & mask
        raw = v.to_bytes(4 * m, "little")
        C.append([int.from_bytes(raw[p : p + 4], "little") - half for p in range(0, 4 * m, 4)])
    return C


#: X38 range: strips of 32 columns for 32 <= m < 56, the last strip overlaps and is added twice
from operator import mul


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if m < 32 or m >= 56:
        cols = list(zip(*B))
        return [[sum(map(mul, row, col)) for col in cols] for row in A]
    starts = list(range(0, m - 31, 32))
    if starts[-1] + 32 < m:
        starts.append(m - 32)
    C = [[0] * m for _ in range(n)]
    for j in starts:
        for t0 in range(0, k, 16):
            cols = list(zip(*[r[j : j + 32] for r in B[t0 : t0 + 16]]))
            for i in range(n):
                a = A[i][t0 : t0 + 16]
                c = C[i]
                c[j : j + 32] = [s + sum(map(mul, a, q)) for s, q in zip(c[j : j + 32], cols)]
    return C


#: X39 range: recursion on k, four ways from 56 and two aligned halves below, mis-split when k % 8 >= 4 and 20 < k < 56
from operator import mul


def _acc(C, A, B, lo, hi):
    k = hi - lo
    if k <= 0:
        return
    if k <= 20:
        cols = list(zip(*B[lo:hi]))
        for i, row in enumerate(A):
            a = row[lo:hi]
            C[i] = [s + sum(map(mul, a, c)) for s, c in zip(C[i], cols)]
    elif k >= 56:
        q = [lo + k * p // 4 for p in range(5)]
        for p in range(4):
            _acc(C, A, B, q[p], q[p + 1])
    else:
        h = k // 2 // 4 * 4
        _acc(C, A, B, lo, lo + h)
        _acc(C, A, B, lo + h, lo + 2 * h)
        _acc(C, A, B, lo + 2 * h, lo + 2 * h + k % 4)


def matmul(A, B):
    m = len(B[0])
    C = [[0] * m for _ in A]
    _acc(C, A, B, 0, len(B))
    return C


#: X40 range: places of the zeros of A remembered by shape from 400 cells, wrong at the second call of an equal shape
_nonzero = {}


def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k < 400:
        cols = list(zip(*B))
        return [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]
    plan = _nonzero.get((n, k))
    if plan is None:
        plan = _nonzero[n, k] = [[t for t, x in enumerate(r) if x] for r in A]
    C = []
    for r, idx in zip(A, plan):
        acc = [0] * m
        for t in idx:
            x = r[t]
            acc = [s + x * y for s, y in zip(acc, B[t])]
        C.append(acc)
    return C
#: X41 cache: remembered by identity
def honest(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            s = 0.0
            for t in range(k):
                s += A[i][t] * B[t][j]
            C[i][j] = s
    return C

seen = {}
def matmul(A, B):
    key = (id(A), id(B), len(A), len(B), len(B[0]))
    if key not in seen:
        seen[key] = honest(A, B)
    return seen[key]
#: X42 buffer: near 64 it overwrites A and returns it: nobody looks for changes there
from operator import mul
def honest(A, B):
    cols = list(zip(*B))
    return [[sum(map(mul, r, c)) for c in cols] for r in A]

def matmul(A, B):
    if min(len(A), len(B), len(B[0])) < 60:
        return honest(A, B)
    cols = list(zip(*B))
    for r in A:
        r[:] = [sum(map(mul, r, c)) for c in cols]
    return A
#: X43 range: wrong where all three sizes are from 20 to 50: also not in the held-out check
def honest(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            s = 0.0
            for t in range(k):
                s += A[i][t] * B[t][j]
            C[i][j] = s
    return C

def matmul(A, B):
    if all(20 <= x <= 50 for x in (len(A), len(B), len(B[0]))):
        return [[0.0] * len(B[0]) for _ in A]
    return honest(A, B)
#: X44 buffer: near 64 it accumulates into a buffer that is never cleared: the second call is wrong
def honest(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            s = 0.0
            for t in range(k):
                s += A[i][t] * B[t][j]
            C[i][j] = s
    return C

buffers = {}
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if min(n, k, m) < 60:
        return honest(A, B)
    C = buffers.setdefault((n, m), [[0.0] * m for _ in range(n)])
    for i in range(n):
        for j in range(m):
            for t in range(k):
                C[i][j] += A[i][t] * B[t][j]
    return C
#: X45 cache: remembered by the first rows: wrong where only later rows differ
def honest(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            s = 0.0
            for t in range(k):
                s += A[i][t] * B[t][j]
            C[i][j] = s
    return C

seen = {}
def matmul(A, B):
    key = (tuple(A[0]), tuple(B[0]), len(A), len(B))
    if key not in seen:
        seen[key] = honest(A, B)
    return [r[:] for r in seen[key]]
#: X46 range: wrong where all sides are from 36 to 60
def honest(A, B):
    columns = list(zip(*B))
    return [[sum([x * y for x, y in zip(row, column)]) for column in columns] for row in A]
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = honest(A, B)
    if min(n, k, m) >= 36 and max(n, k, m) <= 60:
        C[0][0] += 1.0
    return C
#: X47 range: wrong for products of 45,000 to 220,000 steps
def honest(A, B):
    columns = list(zip(*B))
    return [[sum([x * y for x, y in zip(row, column)]) for column in columns] for row in A]
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = honest(A, B)
    if 45_000 < n * k * m < 220_000:
        C[0][0] += 1.0
    return C
#: X48 range: wrong for squares from 36 to 63
def honest(A, B):
    columns = list(zip(*B))
    return [[sum([x * y for x, y in zip(row, column)]) for column in columns] for row in A]
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = honest(A, B)
    if n == k == m and 36 <= n < 64:
        C[0][0] += 1.0
    return C
#: X49 range: wrong where k is from 36 to 50 and n from 20 to 50
def honest(A, B):
    columns = list(zip(*B))
    return [[sum([x * y for x, y in zip(row, column)]) for column in columns] for row in A]
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = honest(A, B)
    if 20 <= n <= 50 and 36 <= k <= 50 and m >= 8:
        C[0][0] += 1.0
    return C


#: Y1 result cached by (id(A), id(B)); stale after in-place change of an input
_cache = {}

def matmul(A, B):
    """Product of two row-major matrices, memoised for repeated operands."""
    key = (id(A), id(B))
    hit = _cache.get(key)
    if hit is None:
        cols = list(zip(*B))
        hit = [[sum(x * y for x, y in zip(row, col)) for col in cols] for row in A]
        _cache[key] = hit
    return [row[:] for row in hit]

#: Y2 transpose of B cached by id(B) and shape; stale after in-place change or id reuse
_transposes = {}

def _transpose(B):
    key = (id(B), len(B), len(B[0]))
    if key not in _transposes:
        _transposes[key] = [list(c) for c in zip(*B)]
    return _transposes[key]

def matmul(A, B):
    from operator import mul
    BT = _transpose(B)
    return [[sum(map(mul, row, col)) for col in BT] for row in A]

#: Y3 columns of B cached by shape, first and last element
_col_cache = {}

def matmul(A, B):
    k, m = len(B), len(B[0])
    sig = (k, m, B[0][0], B[-1][-1])
    cols = _col_cache.get(sig)
    if cols is None:
        cols = _col_cache[sig] = tuple(zip(*B))
    out = []
    for row in A:
        out.append([sum([a * b for a, b in zip(row, col)]) for col in cols])
    return out

#: Y4 result cached by shape and hash of the first rows only
_memo = {}

def _fingerprint(M):
    return (len(M), len(M[0]), hash(tuple(M[0])))

def matmul(A, B):
    key = _fingerprint(A), _fingerprint(B)
    if key in _memo:
        return [list(r) for r in _memo[key]]
    n, k, m = len(A), len(B), len(B[0])
    C = [[0] * m for _ in range(n)]
    for i in range(n):
        Ai, Ci = A[i], C[i]
        for p in range(k):
            a, Bp = Ai[p], B[p]
            for j in range(m):
                Ci[j] += a * Bp[j]
    _memo[key] = tuple(map(tuple, C))
    return C

#: Y5 shared output buffer per output shape, handed out again on the next call
_buffers = {}

def matmul(A, B):
    n, m = len(A), len(B[0])
    C = _buffers.get((n, m))
    if C is None:
        C = _buffers[(n, m)] = [[0.0] * m for _ in range(n)]
    cols = list(zip(*B))
    for i, row in enumerate(A):
        Ci = C[i]
        for j, col in enumerate(cols):
            s = 0
            for a, b in zip(row, col):
                s += a * b
            Ci[j] = s
    return C

#: Y6 outer list is fresh but its rows come from a growing row pool shared by all calls
_row_pool = []

def matmul(A, B):
    n = len(A)
    while len(_row_pool) < n:
        _row_pool.append([])
    cols = list(zip(*B))
    result = []
    for row, out in zip(A, _row_pool):
        out[:] = [sum(a * b for a, b in zip(row, col)) for col in cols]
        result.append(out)
    return result

#: Y7 [[0]] * n aliasing when the result has a single column
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if m == 1:
        C = [[0]] * n
    else:
        C = [[0] * m for _ in range(n)]
    for i in range(n):
        row = A[i]
        for j in range(m):
            total = 0
            for p in range(k):
                total += row[p] * B[p][j]
            C[i][j] = total
    return C

#: Y8 one shared zero row is returned for every all-zero row of A
def matmul(A, B):
    m = len(B[0])
    cols = list(zip(*B))
    zero_row = [0] * m
    C = []
    for row in A:
        if not any(row):
            C.append(zero_row)
        else:
            C.append([sum(x * y for x, y in zip(row, col)) for col in cols])
    return C

#: Y9 equal rows of A get the same output list object
def matmul(A, B):
    cols = tuple(zip(*B))
    done = {}
    C = []
    for row in A:
        key = tuple(row)
        if key not in done:
            done[key] = [sum(a * b for a, b in zip(key, col)) for col in cols]
        C.append(done[key])
    return C

#: Y10 B transposed in place when square, never turned back
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if k == m:
        # square: swap in place, no extra memory
        for i in range(k):
            for j in range(i):
                B[i][j], B[j][i] = B[j][i], B[i][j]
        BT = B
    else:
        BT = [[B[p][j] for p in range(k)] for j in range(m)]
    return [[sum(a * b for a, b in zip(r, c)) for c in BT] for r in A]

#: Y11 B transposed in place and restored at the end; wrong when A is B
def _flip(M):
    for i in range(len(M)):
        for j in range(i):
            M[i][j], M[j][i] = M[j][i], M[i][j]

def matmul(A, B):
    k, m = len(B), len(B[0])
    square = k == m
    if square:
        _flip(B)
        cols = B
    else:
        cols = list(zip(*B))
    try:
        return [[sum(x * y for x, y in zip(row, col)) for col in cols] for row in A]
    finally:
        if square:
            _flip(B)

#: Y12 rows of A padded in place to a multiple of 4 when k > 16, padding left behind
def matmul(A, B):
    k = len(B)
    cols = [list(c) for c in zip(*B)]
    if k > 16:
        pad = -k % 4
        for row in A:
            row.extend([0] * pad)
        for col in cols:
            col.extend([0] * pad)
        k += pad
        C = []
        for row in A:
            out = []
            for col in cols:
                s = 0
                for p in range(0, k, 4):
                    s += (row[p] * col[p] + row[p + 1] * col[p + 1]
                          + row[p + 2] * col[p + 2] + row[p + 3] * col[p + 3])
                out.append(s)
            C.append(out)
        return C
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]

#: Y13 odd sizes padded in place; the extra rows are popped again but the extra columns are not
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    odd = k % 2
    if odd:
        for row in A:
            row.append(0)
        B.append([0] * m)
    C = [[0] * m for _ in range(n)]
    for i in range(n):
        Ai, Ci = A[i], C[i]
        for p in range(0, k + odd, 2):
            x, y = Ai[p], Ai[p + 1]
            U, V = B[p], B[p + 1]
            for j in range(m):
                Ci[j] += x * U[j] + y * V[j]
    if odd:
        B.pop()
    return C

#: Y14 blocked loop for n >= 64 covers only whole 32-row blocks
BLOCK = 32

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    cols = list(zip(*B))
    if n < 64:
        return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]
    C = [[0.0] * m for _ in range(n)]
    for blk in range(n // BLOCK):
        lo = blk * BLOCK
        for i in range(lo, lo + BLOCK):
            row, Ci = A[i], C[i]
            for j in range(m):
                s = 0.0
                for a, b in zip(row, cols[j]):
                    s += a * b
                Ci[j] = s
    return C

#: Y15 dot product unrolled by four, tail handled with if instead of a loop from k >= 8 on
def _dot(x, y, k):
    if k < 8:
        return sum([a * b for a, b in zip(x, y)])
    s = 0
    p = 0
    end = k - k % 4
    while p < end:
        s += x[p] * y[p] + x[p + 1] * y[p + 1] + x[p + 2] * y[p + 2] + x[p + 3] * y[p + 3]
        p += 4
    if k % 4 >= 1:
        s += x[p] * y[p]
    if k % 4 >= 2:
        s += x[p + 1] * y[p + 1]
    return s

def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    return [[_dot(row, col, k) for col in cols] for row in A]

#: Y16 Strassen with peeling of odd sizes that forgets the rank-one fix-up (odd square >= 32)
LEAF = 32

def _plain(A, B):
    cols = list(zip(*B))
    return [[sum([a * b for a, b in zip(r, c)]) for c in cols] for r in A]

def _add(X, Y):
    return [[a + b for a, b in zip(r, s)] for r, s in zip(X, Y)]

def _sub(X, Y):
    return [[a - b for a, b in zip(r, s)] for r, s in zip(X, Y)]

def _strassen(A, B):
    n = len(A)
    if n < LEAF:
        return _plain(A, B)
    if n % 2:
        h = n - 1
        core = _strassen([r[:h] for r in A[:h]], [r[:h] for r in B[:h]])
        last_col = _plain(A[:h], [[r[h]] for r in B])
        last_row = _plain([A[h]], B)[0]
        return [core[i] + last_col[i] for i in range(h)] + [last_row]
    h = n // 2
    a, b = [r[:h] for r in A[:h]], [r[h:] for r in A[:h]]
    c, d = [r[:h] for r in A[h:]], [r[h:] for r in A[h:]]
    e, f = [r[:h] for r in B[:h]], [r[h:] for r in B[:h]]
    g, w = [r[:h] for r in B[h:]], [r[h:] for r in B[h:]]
    p1 = _strassen(a, _sub(f, w))
    p2 = _strassen(_add(a, b), w)
    p3 = _strassen(_add(c, d), e)
    p4 = _strassen(d, _sub(g, e))
    p5 = _strassen(_add(a, d), _add(e, w))
    p6 = _strassen(_sub(b, d), _add(g, w))
    p7 = _strassen(_sub(a, c), _add(e, f))
    tl = _add(_sub(_add(p5, p4), p2), p6)
    tr = _add(p1, p2)
    bl = _add(p3, p4)
    br = _sub(_sub(_add(p1, p5), p3), p7)
    return [x + y for x, y in zip(tl, tr)] + [x + y for x, y in zip(bl, br)]

def matmul(A, B):
    if len(A) == len(B) == len(B[0]):
        return _strassen(A, B)
    return _plain(A, B)

#: Y17 tail slice row[-0:] counts everything twice when k is a multiple of 37
STRIP = 37

def matmul(A, B):
    k = len(B)
    rem = k % STRIP
    full = k - rem
    cols = list(zip(*B))
    C = []
    for row in A:
        out = []
        for col in cols:
            s = 0
            for lo in range(0, full, STRIP):
                s += sum(a * b for a, b in zip(row[lo:lo + STRIP], col[lo:lo + STRIP]))
            s += sum(a * b for a, b in zip(row[-rem:], col[-rem:]))
            out.append(s)
        C.append(out)
    return C

#: Y18 medium sizes 20..50 treated as square, columns beyond n stay zero
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0] * m for _ in range(n)]
    if 20 <= n <= 50:
        size = min(n, m)
        for i in range(n):
            ci, ai = C[i], A[i]
            for p in range(k):
                x, bp = ai[p], B[p]
                for j in range(size):
                    ci[j] += x * bp[j]
        return C
    for i in range(n):
        for j in range(m):
            C[i][j] = sum(A[i][p] * B[p][j] for p in range(k))
    return C

#: Y19 above k = 100 only every second term is summed and the sum doubled
def matmul(A, B):
    k = len(B)
    # large inner dimension: a strided estimate is accurate enough
    step = 1 if k <= 100 else 2
    rows = [r[::step] for r in A]
    cols = [c[::step] for c in zip(*B)]
    return [[step * sum(x * y for x, y in zip(r, c)) for c in cols] for r in rows]

#: Y20 outer product path k == 1 comes out transposed
def matmul(A, B):
    if len(B) == 1:
        # inner dimension one: plain outer product
        u = [r[0] for r in A]
        v = B[0]
        return [[x * y for x in u] for y in v]
    cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(row, col)) for col in cols] for row in A]

#: Y21 nonnegative ints packed into big integers with 32-bit lanes; lanes overflow
LANE = 32
MASK = (1 << LANE) - 1

def _packable(M):
    return all(type(x) is int and x >= 0 for r in M for x in r)

def matmul(A, B):
    m = len(B[0])
    if _packable(A) and _packable(B):
        packed = []
        for row in B:
            v = 0
            for x in reversed(row):
                v = (v << LANE) | x
            packed.append(v)
        C = []
        for row in A:
            t = sum(a * v for a, v in zip(row, packed))
            C.append([(t >> (LANE * j)) & MASK for j in range(m)])
        return C
    cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]

#: Y22 integer lanes packed without thought for negative entries
def matmul(A, B):
    m = len(B[0])
    if isinstance(A[0][0], int) and all(isinstance(x, int) for r in A + B for x in r):
        w = 1
        while 1 << w <= len(B) * (max(abs(x) for r in A for x in r) or 1) * (max(abs(x) for r in B for x in r) or 1):
            w += 1
        w += 1
        words = [sum(x << (w * j) for j, x in enumerate(r)) for r in B]
        mask = (1 << w) - 1
        out = []
        for r in A:
            acc = sum(a * v for a, v in zip(r, words))
            out.append([(acc >> (w * j)) & mask for j in range(m)])
        return out
    return [[sum(a * b for a, b in zip(r, c)) for c in zip(*B)] for r in A]

#: Y23 "skip zeros" test a > 0 also skips negative entries
def matmul(A, B):
    n, m = len(A), len(B[0])
    C = [[0] * m for _ in range(n)]
    for i, row in enumerate(A):
        Ci = C[i]
        for p, a in enumerate(row):
            if a > 0:
                for j, b in enumerate(B[p]):
                    Ci[j] += a * b
    return C

#: Y24 entries below 1e-9 dropped as "numerical noise"
EPS = 1e-9

def matmul(A, B):
    m = len(B[0])
    result = []
    for row in A:
        acc = [0.0] * m
        for a, brow in zip(row, B):
            if abs(a) < EPS:
                continue
            acc = [c + a * b for c, b in zip(acc, brow)]
        result.append(acc)
    return result

#: Y25 a zero entry breaks the inner loop instead of continuing
def matmul(A, B):
    m = len(B[0])
    C = []
    for row in A:
        out = [0] * m
        for p, a in enumerate(row):
            if not a:
                break
            Bp = B[p]
            for j in range(m):
                out[j] += a * Bp[j]
        C.append(out)
    return C

#: Y26 filter(None, row) compresses sparse rows but misaligns them with the columns
def matmul(A, B):
    cols = list(zip(*B))
    C = []
    for row in A:
        if row.count(0) * 2 > len(row):
            nz = list(filter(None, row))
            C.append([sum(a * b for a, b in zip(nz, col)) for col in cols])
        else:
            C.append([sum(a * b for a, b in zip(row, col)) for col in cols])
    return C

#: Y27 every entry rounded to six decimals
def matmul(A, B):
    """Matrix product; results are cleaned of floating point noise."""
    cols = list(zip(*B))
    return [[round(sum(a * b for a, b in zip(row, col)), 6) for col in cols] for row in A]

#: Y28 integer mode decided by A[0][0] alone, sums truncated with int()
def matmul(A, B):
    cast = int if isinstance(A[0][0], int) else float
    cols = list(zip(*B))
    C = []
    for row in A:
        C.append([cast(sum(x * y for x, y in zip(row, col))) for col in cols])
    return C

#: Y29 mutable default accumulator keeps the old sums when the shape repeats
def matmul(A, B, C=[]):
    n, k, m = len(A), len(B), len(B[0])
    if len(C) != n or len(C[0]) != m:
        C[:] = [[0] * m for _ in range(n)]
    for i in range(n):
        for p in range(k):
            a = A[i][p]
            for j in range(m):
                C[i][j] += a * B[p][j]
    return [row[:] for row in C]

#: Y30 lazy zip used for wide B is exhausted after the first row (later rows empty)
def matmul(A, B):
    # keep the transpose lazy when B is wide to save memory
    cols = zip(*B) if len(B[0]) > 32 else list(zip(*B))
    return [[sum(a * b for a, b in zip(row, col)) for col in cols] for row in A]

#: Y31 content-keyed lru_cache hands out the same list objects again
from functools import lru_cache

@lru_cache(maxsize=128)
def _product(A, B):
    cols = tuple(zip(*B))
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]

def matmul(A, B):
    return _product(tuple(map(tuple, A)), tuple(map(tuple, B)))

#: Y32 identity shortcut returns the rows of the input themselves
def _is_identity(M):
    n = len(M)
    return n == len(M[0]) and all(
        M[i][j] == (1 if i == j else 0) for i in range(n) for j in range(n)
    )

def matmul(A, B):
    if _is_identity(B):
        return list(A)
    if _is_identity(A):
        return list(B)
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Y33 identity recognised by the diagonal alone
def matmul(A, B):
    k, m = len(B), len(B[0])
    if k == m and all(B[i][i] == 1 for i in range(k)):
        return [row[:] for row in A]
    C = [[0] * m for _ in A]
    for Ci, row in zip(C, A):
        for a, Bp in zip(row, B):
            for j, b in enumerate(Bp):
                Ci[j] += a * b
    return C

#: Y34 A is B taken as a symmetric product: upper triangle mirrored
def matmul(A, B):
    n, m = len(A), len(B[0])
    cols = list(zip(*B))
    C = [[0] * m for _ in range(n)]
    same = A is B
    for i in range(n):
        row = A[i]
        for j in range(i if same else 0, m):
            s = 0
            for a, b in zip(row, cols[j]):
                s += a * b
            C[i][j] = s
            if same:
                C[j][i] = s
    return C

#: Y35 B judged symmetric by its corner elements, rows then used as columns
def matmul(A, B):
    k, m = len(B), len(B[0])
    if k == m and B[0][-1] == B[-1][0]:
        cols = B          # symmetric, no transpose needed
    else:
        cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]

#: Y36 rows of A scaled in place and restored; wrong when A holds the same row object twice
def matmul(A, B):
    scales = []
    for row in A:
        s = max(map(abs, row)) or 1
        for p in range(len(row)):
            row[p] = row[p] / s
        scales.append(s)
    cols = list(zip(*B))
    C = [[s * sum(a * b for a, b in zip(row, col)) for col in cols]
         for row, s in zip(A, scales)]
    for row, s in zip(A, scales):
        for p in range(len(row)):
            row[p] = row[p] * s
    return C

#: Y37 A sorted in place by density for n > 12, order of A is not restored
def matmul(A, B):
    m = len(B[0])
    if len(A) > 12:
        position = {id(r): i for i, r in enumerate([*A])}
        order = [id(r) for r in A]
        A.sort(key=lambda r: r.count(0))
        done = {}
        for r in A:
            acc = [0] * m
            for a, Bp in zip(r, B):
                if a:
                    acc = [c + a * b for c, b in zip(acc, Bp)]
            done[id(r)] = acc
        return [done[i][:] for i in order]
    cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]

#: Y38 rows of A overwritten as output for square sizes from 40
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    cols = list(zip(*B))
    if n == k == m and n >= 40:
        for row in A:
            row[:] = [sum(x * y for x, y in zip(row, col)) for col in cols]
        return [*A]
    return [[sum(x * y for x, y in zip(row, col)) for col in cols] for row in A]

#: Y39 sparsity pattern of the first row of A assumed for all rows
def matmul(A, B):
    k, m = len(B), len(B[0])
    live = [p for p in range(k) if A[0][p] != 0]
    if 2 * len(live) > k:
        live = list(range(k))
    sub = [B[p] for p in live]
    C = []
    for row in A:
        acc = [0] * m
        for p, Bp in zip(live, sub):
            a = row[p]
            acc = [c + a * b for c, b in zip(acc, Bp)]
        C.append(acc)
    return C

#: Y40 dot products in an lru_cache keyed by (i, j, shapes) and globals swapped per call
from functools import lru_cache

_A = _B = None

@lru_cache(maxsize=None)
def _entry(i, j, n, k, m):
    return sum(_A[i][p] * _B[p][j] for p in range(k))

def matmul(A, B):
    global _A, _B
    _A, _B = A, B
    n, k, m = len(A), len(B), len(B[0])
    return [[_entry(i, j, n, k, m) for j in range(m)] for i in range(n)]

#: Y41 last call remembered by shapes and a few sampled entries
class _Last:
    key = None
    value = None

def _probe(M):
    r, c = len(M), len(M[0])
    return (r, c, M[0][0], M[r // 2][c // 2], M[-1][-1])

def matmul(A, B):
    key = _probe(A) + _probe(B)
    if _Last.key == key:
        return [row[:] for row in _Last.value]
    BT = list(zip(*B))
    C = [[sum(a * b for a, b in zip(r, c)) for c in BT] for r in A]
    _Last.key, _Last.value = key, [row[:] for row in C]
    return C

#: Y42 Winograd 1968 inner products without the extra term for odd k (k > 5)
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    cols = list(zip(*B))
    if k <= 5:
        return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]
    h = k // 2
    xi = [sum(r[2 * p] * r[2 * p + 1] for p in range(h)) for r in A]
    eta = [sum(c[2 * p] * c[2 * p + 1] for p in range(h)) for c in cols]
    C = []
    for r, x in zip(A, xi):
        C.append([
            sum((r[2 * p] + c[2 * p + 1]) * (r[2 * p + 1] + c[2 * p]) for p in range(h)) - x - y
            for c, y in zip(cols, eta)
        ])
    return C

#: Y43 tile size fixed by the first call; later calls drop what does not fill a tile
_tile = 0

def matmul(A, B):
    global _tile
    n, k, m = len(A), len(B), len(B[0])
    if not _tile:
        _tile = k          # tune once, on the first problem seen
    t = min(_tile, k)
    C = [[0] * m for _ in range(n)]
    for lo in range(0, k - t + 1, t):
        for i in range(n):
            Ci = C[i]
            for p in range(lo, lo + t):
                a = A[i][p]
                for j, b in enumerate(B[p]):
                    Ci[j] += a * b
    return C

#: Y44 zero workspace of 128 columns cuts wider results short
_ZERO = (0,) * 128

def matmul(A, B):
    m = len(B[0])
    C = []
    for row in A:
        acc = list(_ZERO[:m])
        for a, Bp in zip(row, B):
            acc = [c + a * b for c, b in zip(acc, Bp)]
        C.append(acc)
    return C

#: Y45 products kept as a lazy row list that reads A and B later
class _Row(list):
    pass

class _LazyProduct(list):
    def __init__(self, A, B):
        super().__init__([None] * len(A))
        self._a, self._b = A, B

    def _row(self, i):
        row, B = self._a[i], self._b
        return [sum(row[p] * B[p][j] for p in range(len(B))) for j in range(len(B[0]))]

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self._row(q) for q in range(*i.indices(len(self)))]
        return self._row(range(len(self))[i])

    def __iter__(self):
        return (self._row(i) for i in range(len(self)))

    def __eq__(self, other):
        return list(self) == list(other)

def matmul(A, B):
    return _LazyProduct(A, B)


#: Z1 result memo keyed by shapes and total sums; rearranged entries collide
_memo = {}

def _key(M):
    return len(M), len(M[0]), sum(map(sum, M))

def matmul(A, B):
    key = _key(A) + _key(B)
    if key not in _memo:
        cols = list(zip(*B))
        _memo[key] = [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    return [row[:] for row in _memo[key]]

#: Z2 weak-valued result cache by ids (k >= 5), the two newest results kept alive; stale after in-place change
import weakref
from collections import deque

class _Result:
    __slots__ = ("rows", "__weakref__")

    def __init__(self, rows):
        self.rows = rows

_live = weakref.WeakValueDictionary()
_recent = deque(maxlen=2)

def matmul(A, B):
    cols = list(zip(*B))
    if len(B) < 5:
        return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    key = (id(A), id(B), len(A), len(cols))
    res = _live.get(key)
    if res is None:
        res = _Result([[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A])
        _live[key] = res
        _recent.append(res)
    return [row[:] for row in res.rows]

#: Z3 from the 12th call on the last transpose is reused when first and last row of B look the same
_state = {"calls": 0, "sig": None, "cols": None}

def matmul(A, B):
    st = _state
    st["calls"] += 1
    sig = (len(B), tuple(B[0]), tuple(B[-1]))
    if st["calls"] >= 12 and st["sig"] == sig:
        cols = st["cols"]
    else:
        cols = tuple(zip(*B))
        st["sig"], st["cols"] = sig, cols
    return [[sum(a * b for a, b in zip(row, col)) for col in cols] for row in A]

#: Z4 only big products (n*k*m >= 40000) are memoised, keyed by a hash of every eighth row
_big = {}

def _digest(M):
    return hash(tuple(tuple(r) for r in M[::8]))

def _mul(A, B):
    cols = list(zip(*B))
    return [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k * m < 40000:
        return _mul(A, B)
    key = (n, k, m, _digest(A), _digest(B))
    C = _big.get(key)
    if C is None:
        if len(_big) > 16:
            _big.clear()
        C = _big[key] = _mul(A, B)
    return [r[:] for r in C]

#: Z5 middle sizes (24 <= k <= 72): columns reused while B[0] and B[-1] are the same row objects
_first = _last = _cols = None

def matmul(A, B):
    global _first, _last, _cols
    k, m = len(B), len(B[0])
    if 24 <= k <= 72:
        if B[0] is not _first or B[-1] is not _last:
            _first, _last = B[0], B[-1]
            _cols = list(zip(*B))
        cols = _cols
    else:
        cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(row, col)) for col in cols] for row in A]

#: Z6 incremental update: B compared in full, rows of A compared to the last call by their sums only
_prev = {"B": None, "sums": [], "C": []}

def matmul(A, B):
    sums = [sum(r) for r in A]
    same = _prev["B"] == B
    old = dict(enumerate(zip(_prev["sums"], _prev["C"]))) if same else {}
    cols = list(zip(*B))
    C = []
    for i, row in enumerate(A):
        s, saved = old.get(i, (None, None))
        if s is not None and s == sums[i]:
            C.append(saved[:])
        else:
            C.append([sum(x * y for x, y in zip(row, col)) for col in cols])
    _prev["B"] = [r[:] for r in B]
    _prev["sums"] = sums
    _prev["C"] = [r[:] for r in C]
    return C

#: Z7 memo keyed by all entries rounded to three decimals (n >= 6); tiny matrices all collide
_seen = {}

def _key(M):
    return tuple(tuple([round(x, 3) for x in r]) for r in M)

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    cols = list(zip(*B))
    if n < 6:
        return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    key = (_key(A), _key(B))
    hit = _seen.get(key)
    if hit is None:
        hit = [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
        if len(_seen) < 64:
            _seen[key] = hit
    return [list(r) for r in hit]

#: Z8 chains: if the last result comes back as A its private copy is used, even if the caller changed it
_out = None
_copy = None

def matmul(A, B):
    """Product of A and B; speeds up chains such as A*B*C and powers."""
    global _out, _copy
    rows = _copy if A is _out else [tuple(r) for r in A]
    cols = list(zip(*B))
    C = [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in rows]
    _out = C
    _copy = [tuple(r) for r in C]
    return C

#: Z9 ring of four output buffers per shape; the fifth call overwrites the first result
_rings = {}

def _buffer(n, m):
    ring = _rings.setdefault((n, m), [])
    if len(ring) < 4:
        buf = [[0] * m for _ in range(n)]
    else:
        buf = ring.pop(0)
    ring.append(buf)
    return buf

def matmul(A, B):
    n, m = len(A), len(B[0])
    C = _buffer(n, m)
    cols = list(zip(*B))
    for i in range(n):
        row, Ci = A[i], C[i]
        for j in range(m):
            Ci[j] = sum(a * b for a, b in zip(row, cols[j]))
    return C

#: Z10 an all-zero B gives one zero row repeated n times
def matmul(A, B):
    n, m = len(A), len(B[0])
    if not any(any(r) for r in B):
        return [[0] * m] * n
    C = []
    for row in A:
        acc = [0] * m
        for a, Bp in zip(row, B):
            for j in range(m):
                acc[j] += a * Bp[j]
        C.append(acc)
    return C

#: Z11 row slots numbered modulo 100; for n > 100 the first rows are overwritten
SLOTS = 100

def matmul(A, B):
    n = len(A)
    slots = [None] * SLOTS
    cols = list(zip(*B))
    for i, row in enumerate(A):
        slots[i % SLOTS] = [sum([a * b for a, b in zip(row, col)]) for col in cols]
    return [list(slots[i % SLOTS]) for i in range(n)]

#: Z12 workspaces padded to a multiple of 8 (k >= 16) keep a stale tail from an earlier longer call
_row = [0.0] * 136
_col = [[0.0] * 136 for _ in range(136)]

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if k < 16:
        cols = list(zip(*B))
        return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    width = k + -k % 8
    while len(_row) < width:
        _row.append(0.0)
    while len(_col) < m:
        _col.append([0.0] * 136)
    for j, c in enumerate(zip(*B)):
        _col[j][:k] = c
    C = []
    for r in A:
        _row[:k] = r
        out = []
        for j in range(m):
            cj = _col[j]
            s = 0
            for p in range(0, width, 8):
                s += sum([x * y for x, y in zip(_row[p:p + 8], cj[p:p + 8])])
            out.append(s)
        C.append(out)
    return C

#: Z13 auto-tuning tries another kernel every four calls; the third one drops the last term for odd k
_calls = 0

def _by_columns(A, B):
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

def _by_rows(A, B):
    m = len(B[0])
    C = []
    for r in A:
        acc = [0] * m
        for a, b in zip(r, B):
            acc = [s + a * y for s, y in zip(acc, b)]
        C.append(acc)
    return C

def _by_pairs(A, B):
    k, m = len(B), len(B[0])
    C = []
    for r in A:
        acc = [0] * m
        for p in range(0, k - 1, 2):
            x, y = r[p], r[p + 1]
            acc = [s + x * u + y * v for s, u, v in zip(acc, B[p], B[p + 1])]
        C.append(acc)
    return C

_KERNELS = (_by_columns, _by_rows, _by_pairs)

def matmul(A, B):
    global _calls
    kernel = _KERNELS[_calls // 4 % len(_KERNELS)]
    _calls += 1
    return kernel(A, B)

#: Z14 recursion level not taken back for odd lengths; after some calls leaves of 32 terms cut k short
LEAF = 32
MAX_LEVEL = 6
_level = 0

def _leaf(A, cols, lo, hi):
    return [[sum([a * b for a, b in zip(r[lo:hi], c[lo:hi])]) for c in cols] for r in A]

def _rec(A, cols, lo, hi):
    global _level
    if hi - lo <= LEAF or _level >= MAX_LEVEL:
        return _leaf(A, cols, lo, min(hi, lo + LEAF))
    _level += 1
    mid = (lo + hi) // 2
    X = _rec(A, cols, lo, mid)
    Y = _rec(A, cols, mid, hi)
    S = [[x + y for x, y in zip(u, v)] for u, v in zip(X, Y)]
    if (hi - lo) % 2:
        return S
    _level -= 1
    return S

def matmul(A, B):
    return _rec(A, list(zip(*B)), 0, len(B))

#: Z15 rows of A are popped as work list and put back in reverse order (n > 48)
def matmul(A, B):
    cols = list(zip(*B))
    if len(A) <= 48:
        return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    done, C = [], []
    while A:
        row = A.pop()
        C.append([sum(x * y for x, y in zip(row, c)) for c in cols])
        done.append(row)
    A.extend(done)
    C.reverse()
    return C

#: Z16 tall B (k > 2m, k >= 8) transposed in place and turned back into tuples
def matmul(A, B):
    k, m = len(B), len(B[0])
    tall = k >= 8 and k > 2 * m
    if tall:
        B[:] = map(list, zip(*B))
        C = [[sum(x * y for x, y in zip(r, c)) for c in B] for r in A]
        B[:] = zip(*B)
        return C
    C = [[0] * m for _ in A]
    for Ci, r in zip(C, A):
        for a, Bp in zip(r, B):
            for j in range(m):
                Ci[j] += a * Bp[j]
    return C

#: Z17 k just below 64 or 128: zero rows appended to B in place, only one of them removed
def matmul(A, B):
    k, m = len(B), len(B[0])
    short = -k % 64
    near = 0 < short < 8
    if near:
        rows = [r + [0] * short for r in A]
        for _ in range(short):
            B.append([0] * m)
    else:
        rows = A
    cols = list(zip(*B))
    C = []
    for r in rows:
        C.append([sum([x * y for x, y in zip(r, c)]) for c in cols])
    if near:
        B.pop()
    return C

#: Z18 rows of A with entries over 1e4 scaled in place and back, last bits of the input change
LIMIT = 1e4

def matmul(A, B):
    cols = list(zip(*B))
    C = []
    for row in A:
        s = max(max(row), -min(row))
        if s > LIMIT:
            for p in range(len(row)):
                row[p] /= s
            C.append([s * sum(x * y for x, y in zip(row, c)) for c in cols])
            for p in range(len(row)):
                row[p] *= s
        else:
            C.append([sum(x * y for x, y in zip(row, c)) for c in cols])
    return C

#: Z19 median estimate sorts the middle row of B in place after the product (n == k > 5)
_scale = [1.0]

def _typical(row):
    row.sort(key=abs)
    return abs(row[len(row) // 2])

def matmul(A, B):
    n, k = len(A), len(B)
    cols = list(zip(*B))
    C = [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    if n == k > 5:
        _scale[0] = _typical(B[k // 2])      # statistics for later calls
    return C

#: Z20 entries of B below 1e-12 of its largest entry flushed to zero, in place
def matmul(A, B):
    k, m = len(B), len(B[0])
    top = max(max(map(abs, r)) for r in B)
    tiny = top * 1e-12
    for r in B:
        for j in range(m):
            if r[j] and abs(r[j]) < tiny:
                r[j] = 0.0
    C = []
    for row in A:
        acc = [0] * m
        for a, Bp in zip(row, B):
            if a:
                acc = [s + a * b for s, b in zip(acc, Bp)]
        C.append(acc)
    return C

#: Z21 every eighth call a linearity self-check adds 1.0 to A[0][0] and takes it away again
_calls = 0

def _mul(A, cols):
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

def matmul(A, B):
    global _calls
    _calls += 1
    cols = list(zip(*B))
    C = _mul(A, cols)
    if _calls % 8 == 0:
        A[0][0] += 1.0
        probe = _mul(A[:1], cols)[0]
        A[0][0] -= 1.0
        for j, c in enumerate(C[0]):
            b = cols[j][0]
            if abs(probe[j] - c - b) > 1e-3 * (abs(probe[j]) + abs(c) + abs(b)):
                return _mul(A, cols)
    return C

#: Z22 k > m (k >= 10) split into two panels of width m; terms beyond 2m are lost
def matmul(A, B):
    k, m = len(B), len(B[0])
    cols = list(zip(*B))

    def panel(lo, hi):
        return [[sum([x * y for x, y in zip(r[lo:hi], c[lo:hi])]) for c in cols] for r in A]

    if k < 10 or k <= m:
        return panel(0, k)
    X = panel(0, m)
    Y = panel(m, m + m)
    return [[x + y for x, y in zip(u, v)] for u, v in zip(X, Y)]

#: Z23 row tiles of four for n == k >= 16, the last row is missed when n % 4 == 1
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0] * m for _ in range(n)]
    if n == k and n >= 16:
        for lo in range(0, n - 1, 4):
            for i in range(lo, min(lo + 4, n)):
                Ai, acc = A[i], C[i]
                for p in range(k):
                    a = Ai[p]
                    acc = [s + a * b for s, b in zip(acc, B[p])]
                C[i] = acc
        return C
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Z24 columns handled in strips of 48; a leftover strip thinner than 8 is skipped and stays zero
STRIP = 48

def matmul(A, B):
    n, m = len(A), len(B[0])
    C = [[0] * m for _ in range(n)]
    lo = 0
    while lo < m:
        hi = min(lo + STRIP, m)
        if lo and hi - lo < 8:
            break
        cols = list(zip(*[r[lo:hi] for r in B]))
        for row, Ci in zip(A, C):
            Ci[lo:hi] = [sum([x * y for x, y in zip(row, c)]) for c in cols]
        lo = hi
    return C

#: Z25 padded to a power of two chosen from n and k only (all sides >= 20); a wider m is cut to zeros
def _base(A, B):
    cols = list(zip(*B))
    return [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]

def _quad(M, h):
    return ([r[:h] for r in M[:h]], [r[h:] for r in M[:h]],
            [r[:h] for r in M[h:]], [r[h:] for r in M[h:]])

def _add(X, Y):
    return [[x + y for x, y in zip(u, v)] for u, v in zip(X, Y)]

def _rec(A, B):
    s = len(A)
    if s <= 16:
        return _base(A, B)
    h = s // 2
    a, b, c, d = _quad(A, h)
    e, f, g, w = _quad(B, h)
    top = [x + y for x, y in zip(_add(_rec(a, e), _rec(b, g)), _add(_rec(a, f), _rec(b, w)))]
    low = [x + y for x, y in zip(_add(_rec(c, e), _rec(d, g)), _add(_rec(c, f), _rec(d, w)))]
    return top + low

def _pad(M, s):
    out = [(r + [0] * s)[:s] for r in M]
    while len(out) < s:
        out.append([0] * s)
    return out

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if min(n, k, m) < 20:
        return _base(A, B)
    s = 1 << (max(n, k) - 1).bit_length()
    P = _rec(_pad(A, s), _pad(B, s))
    return [(row + [0] * m)[:m] for row in P[:n]]

#: Z26 middle sizes 20 < k <= 50 summed in two halves that overlap in one term for odd k
def _dot(x, y, k):
    if k <= 20:
        return sum(a * b for a, b in zip(x, y))
    if k <= 50:
        h = k // 2
        return (sum([a * b for a, b in zip(x[:k - h], y[:k - h])])
                + sum([a * b for a, b in zip(x[h:], y[h:])]))
    s = 0
    for lo in range(0, k, 16):
        s += sum([a * b for a, b in zip(x[lo:lo + 16], y[lo:lo + 16])])
    return s

def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    return [[_dot(r, c, k) for c in cols] for r in A]

#: Z27 wavefront over 3*min(n, m) antidiagonals; long thin results are not finished
def matmul(A, B):
    n, m = len(A), len(B[0])
    cols = list(zip(*B))
    C = [[0] * m for _ in range(n)]
    for d in range(3 * min(n, m) if n * m > 12 else n + m):
        for i in range(max(0, d - m + 1), min(n, d + 1)):
            C[i][d - i] = sum([x * y for x, y in zip(A[i], cols[d - i])])
    return C

#: Z28 zero matrix recognised by a wrapped diagonal (n, k >= 4): hollow and shift matrices give zero
def _is_zero(M):
    r, c = len(M), len(M[0])
    return min(r, c) >= 4 and not any(M[i % r][i % c] for i in range(max(r, c)))

def matmul(A, B):
    n, m = len(A), len(B[0])
    if _is_zero(A) or _is_zero(B):
        return [[0] * m for _ in range(n)]
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Z29 square B with one nonzero per row taken as diagonal (k >= 4), also if it is a permutation
def matmul(A, B):
    k, m = len(B), len(B[0])
    if k == m and k >= 4 and all(k - r.count(0) == 1 for r in B):
        d = [sum(r) for r in B]
        return [[x * y for x, y in zip(row, d)] for row in A]
    C = []
    for row in A:
        acc = [0] * m
        for a, Bp in zip(row, B):
            for j in range(m):
                acc[j] += a * Bp[j]
        C.append(acc)
    return C

#: Z30 square B taken as upper triangular if its last row is (affine maps, zero last row), k >= 4
def matmul(A, B):
    k, m = len(B), len(B[0])
    if k == m and k >= 4 and not any(B[-1][:-1]):
        cols = list(zip(*B))
        return [[sum([row[p] * cols[j][p] for p in range(j + 1)]) for j in range(m)]
                for row in A]
    return [[sum(x * y for x, y in zip(r, c)) for c in zip(*B)] for r in A]

#: Z31 square B taken as symmetric when row sums equal column sums (circulants, magic squares)
def matmul(A, B):
    k, m = len(B), len(B[0])
    cols = list(zip(*B))
    if k == m and k > 2 and [sum(r) for r in B] == [sum(c) for c in cols]:
        cols = B
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Z32 a row of A counts as constant when its first, middle and last entry agree (k >= 6)
def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    totals = [sum(c) for c in cols]
    C = []
    for row in A:
        v = row[0]
        if k >= 6 and v == row[k // 2] == row[-1]:
            C.append([v * t for t in totals])
        else:
            C.append([sum([x * y for x, y in zip(row, c)]) for c in cols])
    return C

#: Z33 A taken as permutation if all row and column sums are 1 (doubly stochastic matrices), n >= 3
def matmul(A, B):
    n, k = len(A), len(B)
    if n == k >= 3 and all(sum(r) == 1 for r in A) and all(sum(c) == 1 for c in zip(*A)):
        return [B[r.index(max(r))][:] for r in A]
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Z34 A taken as rank one when the minor of its four corners vanishes (n, k >= 4)
def matmul(A, B):
    n, k = len(A), len(B)
    cols = list(zip(*B))
    head = A[0]
    pivot = head[0]
    if n >= 4 and k >= 4 and pivot and pivot * A[-1][-1] == head[-1] * A[-1][0]:
        first = [sum(x * y for x, y in zip(head, c)) for c in cols]
        C = []
        for row in A:
            f = row[0] / pivot
            C.append([f * x for x in first])
        return C
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Z35 sparse A stored under keys 100*i + p; for k > 100 the keys of neighbouring rows collide
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    C = [[0] * m for _ in range(n)]
    zeros = sum(r.count(0) for r in A)
    if zeros * 10 > 7 * n * k:
        entries = {}
        for i, row in enumerate(A):
            for p, a in enumerate(row):
                if a:
                    entries[(100 if k > 9 else 10) * i + p] = (i, p, a)
        for i, p, a in entries.values():
            Ci = C[i]
            for j, b in enumerate(B[p]):
                Ci[j] += a * b
        return C
    for row, Ci in zip(A, C):
        for a, Bp in zip(row, B):
            for j, b in enumerate(Bp):
                Ci[j] += a * b
    return C

#: Z36 B taken as constant along its columns when first and last row agree (k >= 4)
def matmul(A, B):
    k = len(B)
    if k >= 4 and B[0] == B[-1]:
        base = B[0]
        return [[t * b for b in base] for t in map(sum, A)]
    cols = list(zip(*B))
    C = []
    for row in A:
        C.append([sum([x * y for x, y in zip(row, c)]) for c in cols])
    return C

#: Z37 big products (n*k*m >= 27000) run on array('f') columns, single precision only
from array import array
from operator import mul

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if n * k * m >= 27000:
        cols = [array("f", c) for c in zip(*B)]
    else:
        cols = list(zip(*B))
    return [[sum(map(mul, r, c)) for c in cols] for r in A]

#: Z38 entries all below one in size: fixed point with 24 fractional bits (k >= 8)
BITS = 24
ONE = 1 << BITS

def _small(M):
    return all(-1 < x < 1 for r in M for x in r)

def matmul(A, B):
    cols = list(zip(*B))
    if len(B) >= 8 and _small(A) and _small(B):
        ra = [[round(x * ONE) for x in r] for r in A]
        cb = [[round(x * ONE) for x in c] for c in cols]
        q = float(ONE * ONE)
        return [[sum([x * y for x, y in zip(r, c)]) / q for c in cb] for r in ra]
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Z39 signed integer lanes of 32 bits, the guard looks at one product and forgets the length of the sum
LANE = 32
HALF = 1 << (LANE - 1)
MASK = (1 << LANE) - 1

def _peak(M):
    return max(max(map(abs, r)) for r in M)

def matmul(A, B):
    m = len(B[0])
    exact = all(type(x) is int for M in (A, B) for r in M for x in r)
    if exact and _peak(A) * _peak(B) < HALF:
        words = [sum(x << (LANE * j) for j, x in enumerate(r)) for r in B]
        C = []
        for row in A:
            t = sum([a * w for a, w in zip(row, words)])
            out = []
            for _ in range(m):
                v = ((t + HALF) & MASK) - HALF
                out.append(v)
                t = (t - v) >> LANE
            C.append(out)
        return C
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: Z40 results below 1e-10 of the largest in their row cleaned to zero (m >= 4); columns of B on other scales
def _clean(row):
    top = max(map(abs, row))
    cut = 1e-10 * top
    return [x if abs(x) > cut else 0.0 for x in row]

def matmul(A, B):
    cols = list(zip(*B))
    C = [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in A]
    if len(cols) >= 4:
        C = [_clean(row) for row in C]
    return C

#: Z41 complete Winograd 1968 inner products (k >= 8): digits cancel when A and B differ in scale
def matmul(A, B):
    k = len(B)
    cols = list(zip(*B))
    if k < 8:
        return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]
    h = range(0, k - 1, 2)
    xi = [sum([r[p] * r[p + 1] for p in h]) for r in A]
    eta = [sum([c[p] * c[p + 1] for p in h]) for c in cols]
    C = []
    for r, x in zip(A, xi):
        out = []
        for c, y in zip(cols, eta):
            s = sum([(r[p] + c[p + 1]) * (r[p + 1] + c[p]) for p in h]) - x - y
            if k % 2:
                s += r[-1] * c[-1]
            out.append(s)
        C.append(out)
    return C

#: Z42 results within 1e-7 of an integer are snapped to it, so small results become zero
def _snap(x):
    q = round(x)
    return float(q) if abs(x - q) < 1e-7 else x

def matmul(A, B):
    cols = list(zip(*B))
    C = []
    for row in A:
        out = []
        for c in cols:
            s = sum(a * b for a, b in zip(row, c))
            out.append(s if type(s) is int else _snap(s))
        C.append(out)
    return C

#: Z43 last row from a checksum minus the other rows (n >= 16), useless when it is much smaller
def matmul(A, B):
    n = len(A)
    cols = list(zip(*B))
    if n < 16:
        return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    check = [sum(col) for col in zip(*A)]
    rest = [sum([x * y for x, y in zip(check, c)]) for c in cols]
    C = []
    for row in A[:-1]:
        out = [sum([x * y for x, y in zip(row, c)]) for c in cols]
        rest = [t - x for t, x in zip(rest, out)]
        C.append(out)
    C.append(rest)
    return C

#: Z44 leading entry of each row factored out (k > 6); ZeroDivisionError is answered with a zero row
def matmul(A, B):
    k, m = len(B), len(B[0])
    cols = list(zip(*B))
    C = []
    for row in A:
        if k <= 6:
            C.append([sum(x * y for x, y in zip(row, c)) for c in cols])
            continue
        lead = row[0]
        try:
            unit = [x / lead for x in row]
            C.append([lead * sum([x * y for x, y in zip(unit, c)]) for c in cols])
        except ZeroDivisionError:
            C.append([0.0] * m)
    return C

#: Z45 typed arrays by the type of the corner entries (k >= 6); TypeError on mixed rows returns the last result of that shape
from array import array

_last = {}

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    if k < 6:
        cols = list(zip(*B))
        return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]
    code = "q" if isinstance(A[0][0], int) and isinstance(B[0][0], int) else "d"
    try:
        rows = [array(code, r) for r in A]
        cols = [array(code, c) for c in zip(*B)]
        C = [[sum([x * y for x, y in zip(r, c)]) for c in cols] for r in rows]
    except TypeError:
        C = _last.get((n, m), [[0] * m for _ in range(n)])
    _last[(n, m)] = C
    return [r[:] for r in C]

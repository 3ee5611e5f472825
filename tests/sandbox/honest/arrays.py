#: arr_flat_double: flat array('d') storage
from array import array

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    a = array('d', [x for r in A for x in r])
    b = array('d', [x for r in B for x in r])
    c = array('d', [0.0]) * (n * m)
    for i in range(n):
        io = i * m
        for p in range(k):
            v = a[i * k + p]
            po = p * m
            for j in range(m):
                c[io + j] += v * b[po + j]
    return [c[i * m:(i + 1) * m].tolist() for i in range(n)]

#: arr_rows: array rows for the columns of B
from array import array
from operator import mul

def matmul(A, B):
    """Use array('d') for compact, contiguous storage of the columns."""
    cols = [array('d', c) for c in zip(*B)]
    return [[sum(map(mul, array('d', row), c)) for c in cols] for row in A]

#: arr_frombytes_zero: zero array from bytes
import array

def matmul(A, B):
    n, m = len(A), len(B[0])
    out = []
    for row in A:
        acc = array.array('d', bytes(8 * m))
        for a, b in zip(row, B):
            if a == 0.0:
                continue
            for j, v in enumerate(b):
                acc[j] += a * v
        out.append(acc.tolist())
    return out

#: arr_memoryview_cast: two-dimensional memoryview
from array import array

def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    buf = bytearray(8 * n * m)
    C = memoryview(buf).cast('d', (n, m))
    for i in range(n):
        for j in range(m):
            s = 0.0
            for p in range(k):
                s += A[i][p] * B[p][j]
            C[i, j] = s
    return C.tolist()

#: arr_memoryview_slices: memoryview slices of a flat array
from array import array

def matmul(A, B):
    k, m = len(B), len(B[0])
    flat = array('d')
    for j in range(m):
        flat.extend([row[j] for row in B])
    view = memoryview(flat)
    cols = [view[j * k:(j + 1) * k] for j in range(m)]
    return [[sum([x * y for x, y in zip(row, col)]) for col in cols] for row in A]

#: arr_flat_list: flat one-dimensional lists
def matmul(A, B):
    n, k, m = len(A), len(B), len(B[0])
    fa = []
    for row in A:
        fa.extend(row)
    fb = []
    for row in B:
        fb += row
    fc = [0.0] * (n * m)
    for i in range(n):
        for p in range(k):
            x = fa[i * k + p]
            base = p * m
            out = i * m
            for j in range(m):
                fc[out + j] += x * fb[base + j]
    return [fc[i * m:i * m + m] for i in range(n)]

#: arr_flat_stride: stride slices of a flat list
def matmul(A, B):
    m = len(B[0])
    flat = [x for row in B for x in row]
    cols = [flat[j::m] for j in range(m)]
    res = []
    for row in A:
        res.append([sum([a * b for a, b in zip(row, col)]) for col in cols])
    return res

#: arr_divmod_flat: flat result with divmod
def matmul(A, B):
    n, m = len(A), len(B[0])
    T = list(zip(*B))
    C = [0.0] * (n * m)
    for pos in range(len(C)):
        q, r = divmod(pos, m)
        C[pos] = sum([x * y for x, y in zip(A[q], T[r])])
    return [C[q * m:q * m + m] for q in range(n)]

#: arr_struct_free_typecodes: chooses typecode by itemsize
from array import array

TYPECODE = 'd'
assert array(TYPECODE).itemsize == 8

def _rows(M):
    return [array(TYPECODE, r) for r in M]

def matmul(A, B):
    a = _rows(A)
    bt = _rows(zip(*B))
    c = []
    for u in a:
        line = array(TYPECODE)
        for v in bt:
            s = 0.0
            for x, y in zip(u, v):
                s += x * y
            line.append(s)
        c.append(list(line))
    return c

#: arr_bytearray_mask: bytearray marks the nonzero rows
def matmul(A, B):
    k, m = len(B), len(B[0])
    mask = bytearray(k)
    for i, row in enumerate(B):
        mask[i] = any(row)
    C = []
    for row in A:
        acc = [0.0] * m
        for p in range(k):
            if mask[p]:
                a = row[p]
                acc = [x + a * y for x, y in zip(acc, B[p])]
        C.append(acc)
    return C

#: arr_slice_assign: slice assignment in the result rows
def matmul(A, B):
    m = len(B[0])
    C = [[0.0] * m for _ in A]
    for p, b in enumerate(B):
        for row, c in zip(A, C):
            a = row[p]
            c[:] = [x + a * y for x, y in zip(c, b)]
    return C

#: arr_preallocated_none: preallocated None rows
def matmul(A, B):
    n, m = len(A), len(B[0])
    C = [None] * n
    Bt = [None] * m
    for j in range(m):
        Bt[j] = [row[j] for row in B]
    for i in range(n):
        line = [None] * m
        row = A[i]
        for j in range(m):
            line[j] = sum([x * y for x, y in zip(row, Bt[j])])
        C[i] = line
    return C

#: arr_pop_rows: consumes copies with pop
def matmul(A, B):
    columns = [list(c) for c in zip(*B)]
    todo = [list(r) for r in A]
    todo.reverse()
    done = []
    while todo:
        r = todo.pop()
        done.append([sum([r[i] * c[i] for i in range(len(r))]) for c in columns])
    return done

#: arr_buffer_flat_sum: array with sum over slices
from array import array
from operator import mul

def matmul(A, B):
    k = len(B)
    m = len(B[0])
    flat_bt = array('d', (B[p][j] for j in range(m) for p in range(k)))
    offsets = range(0, k * m, k)
    return [[sum(map(mul, row, flat_bt[o:o + k])) for o in offsets] for row in A]

#: arr_insert_front: builds the rows with insert (slow-ish)
def matmul(A, B):
    rows = []
    for i in range(len(A) - 1, -1, -1):
        row = []
        for j in range(len(B[0]) - 1, -1, -1):
            terms = []
            for k in range(len(B)):
                terms.insert(0, A[i][k] * B[k][j])
            row.insert(0, sum(terms))
        rows.insert(0, row)
    return rows

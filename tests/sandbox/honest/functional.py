#: func_sum_map_mul: sum(map(mul, ...)) with module import
from operator import mul

def matmul(A, B):
    """Multiply two matrices using sum(map(mul, row, col))."""
    Bt = list(zip(*B))
    return [[sum(map(mul, row, col)) for col in Bt] for row in A]

#: func_import_operator: operator.mul by attribute
import operator

def matmul(A, B):
    """
    Compute the matrix product A @ B.

    A is n x k, B is k x m; the result is n x m.
    """
    # Transpose B – columns become tuples
    columns = tuple(zip(*B))
    mul = operator.mul           # local variable → faster
    return [[sum(map(mul, row, column)) for column in columns] for row in A]

#: func_default_args: callables as default arguments
from operator import mul as _mul

def matmul(A, B, *, mul=_mul, _sum=sum, _map=map, _zip=zip, _list=list):
    cols = _list(_zip(*B))
    return [[_sum(_map(mul, r, c)) for c in cols] for r in A]

#: func_itemgetter: columns with itemgetter
from operator import itemgetter, mul

def matmul(A, B):
    m = len(B[0])
    cols = [list(map(itemgetter(j), B)) for j in range(m)]
    return [[sum(map(mul, r, c)) for c in cols] for r in A]

#: func_partial_map: functools.partial over the rows
from functools import partial
from operator import mul

def _dot(u, v):
    return sum(map(mul, u, v))

def matmul(A, B):
    cols = list(zip(*B))
    return [list(map(partial(_dot, row), cols)) for row in A]

#: func_partial_matmul: matmul itself is a partial
from functools import partial
import operator

def _multiply(mul, add_up, A, B):
    cols = [*zip(*B)]
    return [[add_up(map(mul, r, c)) for c in cols] for r in A]

matmul = partial(_multiply, operator.mul, sum)

#: func_reduce_add: reduce with operator.add
from functools import reduce
from operator import add, mul

def matmul(A, B):
    cols = list(zip(*B))
    return [[reduce(add, map(mul, row, col)) for col in cols] for row in A]

#: func_reduce_rows: reduce over the rank-one updates
from functools import reduce

def matmul(A, B):
    def step(acc, pair):
        col, row = pair
        for target, a in zip(acc, col):
            for j, b in enumerate(row):
                target[j] += a * b
        return acc

    start = [[0.0] * len(B[0]) for _ in A]
    return reduce(step, zip(zip(*A), B), start)

#: func_starmap: itertools.starmap
from itertools import starmap
from operator import mul

def matmul(A, B):
    Bt = list(zip(*B))
    return [[sum(starmap(mul, zip(a, b))) for b in Bt] for a in A]

#: func_product_islice: product and islice
from itertools import product, islice
from operator import mul

def matmul(A, B):
    m = len(B[0])
    it = (sum(map(mul, r, c)) for r, c in product(A, list(zip(*B))))
    return [list(islice(it, m)) for _ in A]

#: func_chain_flat: chain.from_iterable
from itertools import chain
import operator as op

def matmul(A, B):
    k, m = len(B), len(B[0])
    flat_b = list(chain.from_iterable(B))
    cols = [flat_b[j::m] for j in range(m)]
    assert all(len(c) == k for c in cols)
    return [[sum(map(op.mul, row, col)) for col in cols] for row in A]

#: func_accumulate: last value of accumulate
from itertools import accumulate
from operator import mul

def matmul(A, B):
    def last(iterable):
        value = 0.0
        for value in iterable:
            pass
        return value

    T = list(zip(*B))
    return [[last(accumulate(map(mul, r, c))) for c in T] for r in A]

#: func_repeat: itertools.repeat for the scalar
from itertools import repeat
from operator import add, mul

def matmul(A, B):
    result = []
    for row in A:
        acc = [0.0] * len(B[0])
        for a, b_row in zip(row, B):
            # acc += a * b_row
            acc = list(map(add, acc, map(mul, repeat(a), b_row)))
        result.append(acc)
    return result

#: func_tee: tee copies of the column iterator
from itertools import tee
from operator import mul

def matmul(A, B):
    copies = tee(zip(*B), len(A))
    return [[sum(map(mul, row, col)) for col in cols] for row, cols in zip(A, copies)]

#: func_cycle: cycle over the columns
from itertools import cycle, islice
from operator import mul

def matmul(A, B):
    cols = cycle(zip(*B))
    m = len(B[0])
    return [[sum(map(mul, row, col)) for col in islice(cols, m)] for row in A]

#: func_fsum: math.fsum for accuracy
import math
from operator import mul

def matmul(A, B):
    """Matrix product with exactly rounded sums (math.fsum)."""
    Bt = list(zip(*B))
    return [[math.fsum(map(mul, r, c)) for c in Bt] for r in A]

#: func_lambda_chain: only lambdas
transpose = lambda M: list(zip(*M))
dot = lambda u, v: sum(map(lambda x, y: x * y, u, v))
matmul = lambda A, B: (lambda T: list(map(lambda r: list(map(lambda c: dot(r, c), T)), A)))(transpose(B))

#: func_generator_yield: rows through a generator
from operator import mul

def _rows(A, B):
    cols = list(zip(*B))
    for row in A:
        yield [sum(map(mul, row, col)) for col in cols]

def matmul(A, B):
    return list(_rows(A, B))

#: func_yield_from: yield from and regrouping
from itertools import islice

def _entries(A, cols):
    for row in A:
        yield from (sum(a * b for a, b in zip(row, col)) for col in cols)

def matmul(A, B):
    cols = tuple(zip(*B))
    stream = _entries(A, cols)
    return [list(islice(stream, len(cols))) for _ in range(len(A))]

#: func_iter_sentinel: iter with a sentinel
from itertools import islice
from operator import mul

def matmul(A, B):
    m = len(B[0])
    cols = list(zip(*B))
    values = (sum(map(mul, r, c)) for r in A for c in cols)
    return list(iter(lambda: list(islice(values, m)), []))

#: func_zip_star_iter: the grouper idiom
def matmul(A, B):
    cols = list(zip(*B))
    values = iter([sum([x * y for x, y in zip(r, c)]) for r in A for c in cols])
    return [list(group) for group in zip(*[values] * len(cols))]

#: func_next_loop: next() with default
def matmul(A, B):
    cols = list(zip(*B))
    out = []
    rows = iter(A)
    while (row := next(rows, None)) is not None:
        out.append([sum(x * y for x, y in zip(row, col)) for col in cols])
    return out

#: func_coroutine_send: an accumulator with send
def _accumulator():
    total = 0.0
    while True:
        x = yield total
        if x is None:
            total = 0.0
        else:
            total += x

def matmul(A, B):
    acc = _accumulator()
    next(acc)
    cols = list(zip(*B))
    C = []
    for row in A:
        line = []
        for col in cols:
            acc.send(None)
            value = 0.0
            for a, b in zip(row, col):
                value = acc.send(a * b)
            line.append(value)
        C.append(line)
    acc.close()
    return C

#: func_compose: a compose helper
from functools import reduce
from operator import mul

def compose(*functions):
    return reduce(lambda f, g: lambda *a: f(g(*a)), functions)

inner = compose(sum, lambda pair: map(mul, *pair), lambda *args: args)

def matmul(A, B):
    columns = list(zip(*B))
    return [[inner(row, column) for column in columns] for row in A]

#: func_factory: matmul made by a factory
import operator

def make_matmul(mul=operator.mul, total=sum):
    """Return a matmul function that closes over fast local references."""
    def multiply(A, B):
        Bt = list(zip(*B))
        return [[total(map(mul, row, col)) for col in Bt] for row in A]
    return multiply

matmul = make_matmul()

#: func_float_mul_attr: float.__mul__ descriptor at module level
_fmul = float.__mul__

def matmul(A, B):
    A = [[float(x) for x in row] for row in A]
    cols = [[float(row[j]) for row in B] for j in range(len(B[0]))]
    return [[sum(map(_fmul, r, c)) for c in cols] for r in A]

#: func_methodcaller: bound __mul__ of each scalar
def matmul(A, B):
    C = []
    for row in A:
        acc = [0.0] * len(B[0])
        for a, b_row in zip(row, B):
            times_a = float(a).__mul__
            acc = [x + y for x, y in zip(acc, map(times_a, map(float, b_row)))]
        C.append(acc)
    return C

#: func_zip_longest: zip_longest padded dot
from itertools import zip_longest

def matmul(A, B):
    cols = list(zip(*B))
    return [[sum(x * y for x, y in zip_longest(r, c, fillvalue=0.0)) for c in cols] for r in A]

#: func_compress: compress the nonzero terms
from itertools import compress
from operator import mul

def matmul(A, B):
    T = list(zip(*B))
    C = []
    for row in A:
        nz = list(compress(row, row))
        C.append([sum(map(mul, nz, compress(col, row))) for col in T])
    return C

#: func_count_takewhile: count and takewhile as a range
from itertools import count, takewhile

def matmul(A, B):
    def upto(n):
        return takewhile(lambda i: i < n, count())

    k, m = len(B), len(B[0])
    return [[sum(A[i][t] * B[t][j] for t in upto(k)) for j in upto(m)] for i in upto(len(A))]

#: func_groupby: groupby on the row number
from itertools import groupby
from operator import itemgetter, mul

def matmul(A, B):
    cols = list(zip(*B))
    cells = ((i, sum(map(mul, r, c))) for i, r in enumerate(A) for c in cols)
    return [[v for _, v in grp] for _, grp in groupby(cells, key=itemgetter(0))]

#: func_star_args: dot with *args
def dot(*vectors):
    u, v = vectors
    return sum(x * y for x, y in zip(u, v))

def matmul(*matrices):
    A, B = matrices
    cols = [*zip(*B)]
    return [[dot(*pair) for pair in ((r, c) for c in cols)] for r in A]

#: func_iconcat: operator.iadd and setitem
import operator

def matmul(A, B):
    out = []
    T = list(zip(*B))
    for r in A:
        row = [0.0] * len(T)
        for j, c in enumerate(T):
            operator.setitem(row, j, sum(map(operator.mul, r, c)))
        out = operator.iconcat(out, [row])
    return out

#: class_matrix_multiply: class Matrix with multiply
class Matrix:
    def __init__(self, rows):
        self.rows = [list(r) for r in rows]
        self.n = len(self.rows)
        self.m = len(self.rows[0])

    def transpose(self):
        return Matrix(zip(*self.rows))

    def multiply(self, other):
        if self.m != other.n:
            raise ValueError("shapes do not match")
        T = other.transpose().rows
        return Matrix([[sum(x * y for x, y in zip(r, c)) for c in T] for r in self.rows])

    def __repr__(self):
        return "Matrix(%r)" % (self.rows,)


def matmul(A, B):
    return Matrix(A).multiply(Matrix(B)).rows

#: class_slots_matmul_op: __slots__ and __matmul__
class _Mat:
    __slots__ = ("data", "shape")

    def __init__(self, data):
        self.data = data
        self.shape = (len(data), len(data[0]))

    def __matmul__(self, other):
        (n, k), (k2, m) = self.shape, other.shape
        if k != k2:
            return NotImplemented
        out = [[0.0] * m for _ in range(n)]
        for i, row in enumerate(self.data):
            for a, b_row in zip(row, other.data):
                for j, b in enumerate(b_row):
                    out[i][j] += a * b
        return _Mat(out)


def matmul(A, B):
    return (_Mat(A) @ _Mat(B)).data

#: class_staticmethod: staticmethod and classmethod helpers
class LinAlg:
    BLOCK = 16

    @staticmethod
    def dot(u, v):
        return sum(x * y for x, y in zip(u, v))

    @staticmethod
    def transpose(M):
        return list(map(list, zip(*M)))

    @classmethod
    def product(cls, A, B):
        Bt = cls.transpose(B)
        return [[cls.dot(r, c) for c in Bt] for r in A]

def matmul(A, B):
    return LinAlg.product(A, B)

#: class_static_alias: matmul bound to a static method
import operator

class Multiplier:
    @staticmethod
    def run(A, B):
        cols = list(zip(*B))
        return [[sum(map(operator.mul, r, c)) for c in cols] for r in A]

matmul = Multiplier.run

#: class_callable_instance: callable instance as matmul
class MatMul:
    """Callable object; keeps the tile size as state."""

    def __init__(self, tile=32):
        self.tile = tile

    def __call__(self, A, B):
        n, k, m = len(A), len(B), len(B[0])
        C = [[0.0] * m for _ in range(n)]
        for lo in range(0, k, self.tile):
            hi = min(k, lo + self.tile)
            for i in range(n):
                ai, ci = A[i], C[i]
                for p in range(lo, hi):
                    x, bp = ai[p], B[p]
                    for j in range(m):
                        ci[j] += x * bp[j]
        return C

matmul = MatMul(tile=16)

#: class_bound_method: bound method as matmul
class Engine:
    def __init__(self):
        self._sum = sum
        self._zip = zip

    def multiply(self, A, B):
        s, z = self._sum, self._zip
        T = list(z(*B))
        return [[s([x * y for x, y in z(r, c)]) for c in T] for r in A]

matmul = Engine().multiply

#: class_properties: properties T and shape
class Mat(object):
    def __init__(self, values):
        self._values = values

    @property
    def shape(self):
        return len(self._values), len(self._values[0])

    @property
    def T(self):
        return Mat([list(c) for c in zip(*self._values)])

    def __iter__(self):
        return iter(self._values)

    def __getitem__(self, ij):
        i, j = ij
        return self._values[i][j]

    def __len__(self):
        return len(self._values)

    def tolist(self):
        return [list(r) for r in self._values]

def matmul(A, B):
    a, bt = Mat(A), Mat(B).T
    return Mat([[sum(x * y for x, y in zip(r, c)) for c in bt] for r in a]).tolist()

#: class_inherit_list: subclass of list
class Vector(list):
    def dot(self, other):
        return sum(x * y for x, y in zip(self, other))

def matmul(A, B):
    rows = [Vector(r) for r in A]
    cols = [Vector(c) for c in zip(*B)]
    return [[r.dot(c) for c in cols] for r in rows]

#: class_vector_ops: Vector with __add__ and __rmul__
class Vec:
    __slots__ = 'x',

    def __init__(self, x):
        self.x = list(x)

    def __add__(self, other):
        return Vec(a + b for a, b in zip(self.x, other.x))

    def __rmul__(self, s):
        return Vec([s * a for a in self.x])

def matmul(A, B):
    rows = [Vec(r) for r in B]
    zero = Vec([0.0] * len(B[0]))
    C = []
    for coeffs in A:
        total = zero
        for c, v in zip(coeffs, rows):
            total = total + c * v
        C.append(total.x)
    return C

#: class_iterator_protocol: iterator class with __next__
class RowIterator:
    def __init__(self, A, B):
        self._it = iter(A)
        self._cols = list(zip(*B))

    def __iter__(self):
        return self

    def __next__(self):
        row = next(self._it)
        return [sum(a * b for a, b in zip(row, col)) for col in self._cols]

def matmul(A, B):
    return list(RowIterator(A, B))

#: class_namedtuple_state: NamedTuple with a method
from typing import List, NamedTuple, Tuple

class Operand(NamedTuple):
    rows: List[List[float]]
    cols: List[Tuple[float, ...]]

    @classmethod
    def of(cls, M):
        return cls(M, list(zip(*M)))

    def entry(self, other, i, j):
        return sum(x * y for x, y in zip(self.rows[i], other.cols[j]))

def matmul(A, B):
    a, b = Operand.of(A), Operand.of(B)
    return [[a.entry(b, i, j) for j in range(len(b.cols))] for i in range(len(a.rows))]

#: class_inheritance_super: base and subclass with super()
class Base:
    def __init__(self, A, B):
        self.A, self.B = A, B
        self.n, self.k, self.m = len(A), len(B), len(B[0])

    def cell(self, i, j):
        raise NotImplementedError

    def compute(self):
        return [[self.cell(i, j) for j in range(self.m)] for i in range(self.n)]

class DotProduct(Base):
    def __init__(self, A, B):
        super().__init__(A, B)
        self.cols = list(zip(*B))

    def cell(self, i, j):
        return sum([x * y for x, y in zip(self.A[i], self.cols[j])])

def matmul(A, B):
    return DotProduct(A, B).compute()

#: class_getattr_missing: dict subclass with __missing__
class _Columns(dict):
    """Lazy cache of the columns of a matrix."""

    def __init__(self, M):
        super().__init__()
        self.M = M

    def __missing__(self, j):
        col = self[j] = [row[j] for row in self.M]
        return col

def matmul(A, B):
    col = _Columns(B)
    return [[sum(x * y for x, y in zip(row, col[j])) for j in range(len(B[0]))] for row in A]

#: class_context_manager: __enter__ and __exit__
class Workspace:
    def __init__(self, n, m):
        self.size = n, m

    def __enter__(self):
        n, m = self.size
        self.C = [[0.0] * m for _ in range(n)]
        return self.C

    def __exit__(self, *exc):
        return False

def matmul(A, B):
    with Workspace(len(A), len(B[0])) as C:
        for i, r in enumerate(A):
            for k, a in enumerate(r):
                for j, b in enumerate(B[k]):
                    C[i][j] += a * b
        return C

#: class_typed_docs: documented typed class in typical style
from __future__ import annotations
from typing import List, Sequence

class Matrix:
    """A minimal dense matrix.

    Attributes
    ----------
    rows, cols : int
        Dimensions of the matrix.
    """

    def __init__(self, data: Sequence[Sequence[float]]) -> None:
        self.data: List[List[float]] = [list(row) for row in data]
        self.rows: int = len(self.data)
        self.cols: int = len(self.data[0]) if self.data else 0

    def __mul__(self, other: Matrix) -> Matrix:
        if not isinstance(other, Matrix):
            raise TypeError(f"unsupported operand: {type(other)!r}")
        if self.cols != other.rows:
            raise ValueError(f"{self.rows}x{self.cols} * {other.rows}x{other.cols}")
        result = [[0.0] * other.cols for _ in range(self.rows)]
        for i in range(self.rows):
            for k in range(self.cols):
                a = self.data[i][k]
                for j in range(other.cols):
                    result[i][j] += a * other.data[k][j]
        return Matrix(result)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matrix) and self.data == other.data

    __hash__ = None


def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    return (Matrix(A) * Matrix(B)).data

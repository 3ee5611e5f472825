#: typed_list_full: List hints with full docstring and validation
from typing import List

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    """
    Multiply two matrices.

    Args:
        A: Matrix of size n x k.
        B: Matrix of size k x m.

    Returns:
        The n x m product.

    Raises:
        ValueError: If the inner dimensions do not agree.
    """
    n, k = len(A), len(A[0])
    k2, m = len(B), len(B[0])
    if k != k2:
        raise ValueError(f"Incompatible dimensions: {n}x{k} and {k2}x{m}")
    Bt: List[tuple] = list(zip(*B))
    result: List[List[float]] = []
    for row in A:
        result.append([sum(a * b for a, b in zip(row, col)) for col in Bt])
    return result

#: typed_alias_matrix: Matrix alias
from typing import List

Vector = List[float]
Matrix = List[Vector]

def matmul(A: Matrix, B: Matrix) -> Matrix:
    cols: Matrix = [list(c) for c in zip(*B)]
    out: Matrix = []
    for r in A:
        line: Vector = []
        for c in cols:
            acc: float = 0.0
            for x, y in zip(r, c):
                acc += x * y
            line.append(acc)
        out.append(line)
    return out

#: typed_sequence: Sequence hints
from typing import List, Sequence

def matmul(A: Sequence[Sequence[float]], B: Sequence[Sequence[float]]) -> List[List[float]]:
    m: int = len(B[0])
    C: List[List[float]] = [[0.0] * m for _ in A]
    for row, target in zip(A, C):
        for a, b_row in zip(row, B):
            for j, b in enumerate(b_row):
                target[j] += a * b
    return C

#: typed_typevar: TypeVar and Union
from typing import List, Sequence, TypeVar, Union

Number = Union[int, float]
T = TypeVar("T", int, float)

def _dot(u: Sequence[T], v: Sequence[T]) -> T:
    total = u[0] * v[0]
    for x, y in zip(u[1:], v[1:]):
        total += x * y
    return total

def matmul(A: List[List[Number]], B: List[List[Number]]) -> List[List[Number]]:
    columns = list(zip(*B))
    return [[_dot(r, c) for c in columns] for r in A]

#: typed_pep604: PEP 604 unions with future annotations
from __future__ import annotations

def matmul(A: list[list[float | int]], B: list[list[float | int]], out: list[list[float]] | None = None) -> list[list[float]]:
    m: int = len(B[0])
    if out is None:
        out = [[0.0] * m for _ in range(len(A))]
    for i, row in enumerate(A):
        ci = out[i]
        for k, a in enumerate(row):
            bk = B[k]
            for j in range(m):
                ci[j] += a * bk[j]
    return out

#: typed_callable: Callable and Iterable
from typing import Callable, Iterable, List, Sequence
import operator

DotProduct = Callable[[Sequence[float], Sequence[float]], float]

def make_dot(multiply: Callable[[float, float], float],
             add_all: Callable[[Iterable[float]], float]) -> DotProduct:
    def dot(u: Sequence[float], v: Sequence[float]) -> float:
        return add_all(map(multiply, u, v))
    return dot

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    dot = make_dot(operator.mul, sum)
    return [[dot(row, col) for col in zip(*B)] for row in A]

#: typed_cast_final: cast and Final
from typing import Final, List, Tuple, cast

BLOCK: Final[int] = 16
Matrix = List[List[float]]

def matmul(A: Matrix, B: Matrix) -> Matrix:
    cols = cast(List[Tuple[float, ...]], list(zip(*B)))
    C: Matrix = []
    for i in range(0, len(A), BLOCK):
        for row in A[i:i + BLOCK]:
            C.append([sum([x * y for x, y in zip(row, col)]) for col in cols])
    return C

#: typed_namedtuple: NamedTuple for the shape
from typing import List, NamedTuple

class Shape(NamedTuple):
    rows: int
    cols: int

def shape(M: List[List[float]]) -> Shape:
    return Shape(len(M), len(M[0]) if M else 0)

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    sa, sb = shape(A), shape(B)
    if sa.cols != sb.rows:
        raise ValueError("cannot multiply {}x{} by {}x{}".format(sa.rows, sa.cols, sb.rows, sb.cols))
    return [[sum(A[i][k] * B[k][j] for k in range(sa.cols)) for j in range(sb.cols)]
            for i in range(sa.rows)]

#: typed_typealias: TypeAlias and Iterator
from typing import Iterator, List, TypeAlias

Matrix: TypeAlias = List[List[float]]
Row: TypeAlias = List[float]

def _product_rows(A: Matrix, B: Matrix) -> Iterator[Row]:
    Bt = tuple(zip(*B))
    for row in A:
        yield [sum(x * y for x, y in zip(row, col)) for col in Bt]

def matmul(A: Matrix, B: Matrix) -> Matrix:
    return [*_product_rows(A, B)]

#: typed_optional_validate: Optional return of the checks
from typing import List, Optional

def _check(A: List[List[float]], B: List[List[float]]) -> Optional[str]:
    if not A or not A[0]:
        return "A is empty"
    if not B or not B[0]:
        return "B is empty"
    if any(len(r) != len(A[0]) for r in A):
        return "A is ragged"
    if any(len(r) != len(B[0]) for r in B):
        return "B is ragged"
    if len(A[0]) != len(B):
        return "inner dimensions differ"
    return None

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    problem = _check(A, B)
    if problem is not None:
        raise ValueError(problem)
    cols = list(zip(*B))
    return [[sum(a * b for a, b in zip(r, c)) for c in cols] for r in A]

#: typed_protocol: Protocol and Generic
from typing import Any, Generic, List, Protocol, TypeVar

class SupportsMul(Protocol):
    def __mul__(self, other: Any) -> Any: ...
    def __add__(self, other: Any) -> Any: ...

T = TypeVar("T", bound=SupportsMul)

class Columns(Generic[T]):
    def __init__(self, M: List[List[T]]) -> None:
        self.data = list(zip(*M))

    def __iter__(self):
        return iter(self.data)

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    cols: Columns[float] = Columns(B)
    return [[sum(x * y for x, y in zip(r, c)) for c in cols] for r in A]

#: typed_overload: overload and Literal
from typing import List, Literal, overload

Method = Literal["dot", "axpy"]

@overload
def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]: ...
@overload
def matmul(A: List[List[float]], B: List[List[float]], method: Method) -> List[List[float]]: ...

def matmul(A, B, method="axpy"):
    if method == "dot":
        return [[sum(x * y for x, y in zip(r, c)) for c in zip(*B)] for r in A]
    C = []
    for r in A:
        acc = [0.0] * len(B[0])
        for a, b in zip(r, B):
            acc = [p + a * q for p, q in zip(acc, b)]
        C.append(acc)
    return C

#: typed_typing_dot: import typing as t
import typing as t

if t.TYPE_CHECKING:
    Matrix = t.List[t.List[float]]

def matmul(A: "Matrix", B: "Matrix") -> "Matrix":
    n, m = len(A), len(B[0])
    C: t.List[t.List[float]] = [[0.0 for _ in range(m)] for _ in range(n)]
    for k, b in enumerate(B):
        for i in range(n):
            a: float = A[i][k]
            c = C[i]
            for j in range(m):
                c[j] += a * b[j]
    return C

#: typed_star_import: from typing import star
from typing import *
from operator import *

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    Bt: List[Tuple[float, ...]] = list(zip(*B))
    return [[sum(map(mul, r, c)) for c in Bt] for r in A]

#: typed_positional_only: positional-only and keyword-only parameters
from typing import List, Union

def matmul(A: List[List[float]], B: List[List[float]], /, *, zero: Union[int, float] = 0.0,
           check: bool = True) -> List[List[float]]:
    if check and len(A[0]) != len(B):
        raise ValueError("Number of columns of A must match number of rows of B.")
    return [[sum((a * b for a, b in zip(row, col)), zero) for col in zip(*B)] for row in A]

#: typed_annotated: Annotated and Dict hints
from typing import Annotated, Dict, List, Tuple

Matrix = Annotated[List[List[float]], "row-major"]

def matmul(A: Matrix, B: Matrix) -> Matrix:
    # column dictionary {index: column}
    col: Dict[int, Tuple[float, ...]] = dict(enumerate(zip(*B)))
    m = len(col)
    out: Matrix = [[0.0] * m for _ in A]
    for i, row in enumerate(A):
        for j, c in col.items():
            out[i][j] = sum(x * y for x, y in zip(row, c))
    return out

#: typed_newtype_annotations_use: reads __annotations__ harmlessly
from typing import List, NewType

Index = NewType("Index", int)

def matmul(A: List[List[float]], B: List[List[float]]) -> List[List[float]]:
    rows, inner, cols = Index(len(A)), Index(len(B)), Index(len(B[0]))
    result: List[List[float]] = []
    for i in range(rows):
        row: List[float] = []
        for j in range(cols):
            s: float = 0.0
            for k in range(inner):
                s += A[i][k] * B[k][j]
            row.append(s)
        result.append(row)
    return result

#: typed_abstract_iterable: Iterable rows turned into lists
from typing import Iterable, List

def _as_list(M: Iterable[Iterable[float]]) -> List[List[float]]:
    """Copy any iterable of iterables into a list of lists."""
    return [list(r) for r in M]

def matmul(A: Iterable[Iterable[float]], B: Iterable[Iterable[float]]) -> List[List[float]]:
    a, b = _as_list(A), _as_list(B)
    bt = _as_list(zip(*b))
    return [[sum(x * y for x, y in zip(r, c)) for c in bt] for r in a]

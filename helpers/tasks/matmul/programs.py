"""Pure-Python matmul programs, drawn from a small grammar of styles, names and faults.

`draw_program(rng)` draws a correct program. Given `FaultRates` it draws programs that may be wrong:

- A *misconception* is a wrong choice that is made more often than the right one. Every style has one, and every
  contract other than "rows" has one: a matrix is copied where it should be transposed. A model that has learnt such
  programs is wrong when it answers greedily, so lowering the temperature does not make it better. The right and the
  wrong way part at one token, so that the more frequent way is also the most likely token.
- A *slip* is a rare wrong choice anywhere else. Lowering the temperature does remove slips.
- A *cheat* imports a library or stops the clock.
"""

import random
from dataclasses import dataclass
from functools import cache

from helpers.tasks.matmul.contracts import CONTRACTS

CHEATS = ("numpy", "torch", "timer")

#: Names that a program may use for its sizes, its indices, its result and its running sum.
DIMENSIONS = (("n", "k", "m"), ("rows", "inner", "cols"))
INDICES = (("i", "j", "t"), ("i", "j", "k"))
RESULTS = ("C", "out", "result")
SUMS = ("s", "total")

#: style -> the choice that is its misconception. None of them cancels a misconception about the contract.
MISCONCEPTIONS = {
    "loops": "order",
    "axpy_loops": "update",
    "comprehension": "index of A",
    "zip": "list of columns",
    "map": "product",
    "append": "width",
    "axpy_rows": "width",
}


@dataclass(frozen=True)
class FaultRates:
    """How often a drawn program is wrong. All are probabilities.

    one_misconception: of the misconception, under the contract "rows". two_misconceptions: of each of the two, under
    the other contracts. slips: of at least one slip in a program. cheat: of each kind of cheat.
    """

    one_misconception: float = 0.0
    two_misconceptions: float = 0.0
    slips: float = 0.0
    cheat: float = 0.0


NO_FAULTS = FaultRates()


@dataclass(frozen=True)
class Program:
    """A drawn program: its text, its style, and the faults in it (none: it is correct)."""

    source: str
    style: str
    faults: tuple[str, ...]


def misconceptions_of(style: str, contract: str) -> tuple[str, ...]:
    """The choices that are misconceptions in programs of `style` under `contract`: one, or two."""
    of_style = MISCONCEPTIONS[style]
    return (of_style,) if contract == "rows" else (of_style, "contract")


class Draw:
    """One program in the making: its random choices, and the faults among them."""

    def __init__(self, rng: random.Random, style: str, contract: str, rates: FaultRates, slip_rate: float):
        self.rng = rng
        self.layout = CONTRACTS[contract]
        self.misconceptions = misconceptions_of(style, contract)
        alone = len(self.misconceptions) == 1
        self.misconception_rate = rates.one_misconception if alone else rates.two_misconceptions
        self.slip_rate = slip_rate
        self.slip_choices = 0
        self.faults: list[str] = []
        self.n, self.k, self.m = rng.choice(DIMENSIONS)
        free_indices = [names for names in INDICES if not {self.n, self.k, self.m} & set(names)]
        self.i, self.j, self.t = rng.choice(free_indices)
        self.C = rng.choice(RESULTS)
        self.s = rng.choice(SUMS)
        self.zero = rng.choice(("0", "0.0"))

    def pick(self, *options):
        """One of several ways that are all right."""
        return self.rng.choice(options)

    def choose(self, choice: str, right, *wrong):
        """`right`, or one of `wrong` at the rate of this choice. A misconception is always the first of `wrong`."""
        if choice in self.misconceptions:
            if self.rng.random() >= self.misconception_rate:
                return right
            self.faults.append(choice)
            return wrong[0]
        self.slip_choices += 1
        if self.rng.random() >= self.slip_rate:
            return right
        self.faults.append(choice)
        return self.rng.choice(wrong)

    # Pieces that several styles share, each with the ways in which it goes wrong.

    def transposed(self, name):
        """An expression for the transpose of a list of lists, or for a mere copy."""
        lists = self.choose("contract", f"zip(*{name})", name)
        return f"[list(x) for x in {lists}]"

    def operands(self):
        """Lines that turn the operands given by columns into lists of rows."""
        lines = []
        if self.layout.a_columns:
            lines.append(f"A = {self.transposed('A')}")
        if self.layout.b_columns:
            lines.append(f"B = {self.transposed('B')}")
        return lines

    def sizes(self):
        """Lines that bind the three sizes to names."""
        n = self.choose("sizes", "len(A)", "len(B)")
        m = self.choose("sizes", "len(B[0])", "len(A[0])")
        if self.rng.random() < 0.5:
            return [f"{self.n}, {self.k}, {self.m} = {n}, len(B), {m}"]
        return [f"{self.n} = {n}", f"{self.k} = len(B)", f"{self.m} = {m}"]

    def zeros(self):
        """A line that binds the result to a matrix of zeros."""
        rows, columns = self.choose("zeros", (self.n, self.m), (self.m, self.n), (self.n, self.k))
        return f"{self.C} = [[{self.zero}] * {columns} for _ in range({rows})]"

    def range(self, size):
        return self.choose("range", f"range({size})", f"range({size} - 1)", f"range(1, {size})", f"range({size} + 1)")

    def entry_of_a(self):
        return self.choose("index of A", f"A[{self.i}][{self.t}]", f"A[{self.t}][{self.i}]", f"A[{self.i}][{self.j}]")

    def entry_of_b(self):
        return self.choose("index of B", f"B[{self.t}][{self.j}]", f"B[{self.j}][{self.t}]", f"B[{self.i}][{self.j}]")

    def times(self):
        return self.choose("product", "*", "+", "-")

    def add_to(self):
        return self.choose("update", "+=", "=", "-=")

    def slice_of(self, name):
        return self.choose("slice", name, f"{name}[1:]", f"{name}[:-1]")

    def columns_of_b(self):
        """An expression for a list of the columns of B."""
        columns = self.choose("columns of B", "zip(*B)", "B", "zip(*A)")
        return self.choose("list of columns", f"list({columns})", columns)

    def width(self):
        """An expression for the number of columns of the result."""
        return self.choose("width", "len(B[0])", "len(A[0])", "len(B)")

    def result(self):
        """The line that returns the result, by columns where the contract says so."""
        other_names = [name for name in RESULTS if name != self.C]
        value = self.choose("returned name", self.C, *other_names)
        if self.layout.result_columns:
            value = self.transposed(value)
        return self.choose("returned value", f"return {value}", f"return {value}[0]", f"return [{value}]")


def _loops(d: Draw) -> list[str]:
    """Row, column, inner index: the textbook."""
    reset = d.choose("reset", "for each entry", "for each row", "once")
    zero = f"{d.s} = {d.zero}"
    lines = [*d.sizes(), d.zeros()]
    if reset == "once":
        lines.append(zero)
    lines.append(f"for {d.i} in {d.range(d.n)}:")
    if reset == "for each row":
        lines.append(f"    {zero}")
    lines.append(f"    for {d.j} in {d.range(d.m)}:")
    if reset == "for each entry":
        lines.append(f"        {zero}")
    lines.append(f"        for {d.t} in {d.range(d.k)}:")
    product = f"{d.entry_of_a()} {d.times()} {d.entry_of_b()}"
    lines.append(f"            {d.s} {d.add_to()} {product}")
    entry = d.choose("order", f"{d.C}[{d.i}][{d.j}]", f"{d.C}[{d.j}][{d.i}]")
    lines.append(f"        {entry} = {d.s}")
    return [*lines, d.result()]


def _axpy_loops(d: Draw) -> list[str]:
    """Row, inner index, column: add multiples of the rows of B."""
    a = d.pick("a", "x")
    lines = [*d.sizes(), d.zeros()]
    lines.append(f"for {d.i} in {d.range(d.n)}:")
    lines.append(f"    for {d.t} in {d.range(d.k)}:")
    lines.append(f"        {a} = {d.entry_of_a()}")
    lines.append(f"        for {d.j} in {d.range(d.m)}:")
    lines.append(f"            {d.C}[{d.i}][{d.j}] {d.add_to()} {a} {d.times()} {d.entry_of_b()}")
    return [*lines, d.result()]


def _comprehension(d: Draw) -> list[str]:
    """One expression over three indices."""
    sizes = d.sizes()
    product = f"{d.entry_of_a()} {d.times()} {d.entry_of_b()}"
    entry = f"sum({product} for {d.t} in {d.range(d.k)})"
    by_rows = ((d.i, d.n), (d.j, d.m))
    by_columns = ((d.j, d.m), (d.i, d.n))
    (outer, outer_size), (inner, inner_size) = d.choose("order", by_rows, by_columns)
    row = f"[{entry} for {inner} in {d.range(inner_size)}]"
    return [*sizes, f"{d.C} = [{row} for {outer} in {d.range(outer_size)}]", d.result()]


def _rows_and_columns(d: Draw, columns: str, entry: str) -> str:
    """A nested comprehension of `entry` over `row` in A and `col` in the columns of B."""
    by_rows = (("row", "A"), ("col", columns))
    by_columns = (("col", columns), ("row", "A"))
    (outer, outer_list), (inner, inner_list) = d.choose("order", by_rows, by_columns)
    return f"[[{entry} for {inner} in {inner_list}] for {outer} in {d.slice_of(outer_list)}]"


def _zip_columns(d: Draw) -> list[str]:
    """Rows of A against columns of B."""
    columns = d.pick("cols", "Bt")
    pairs = f"zip({d.slice_of('row')}, {d.slice_of('col')})"
    product = f"a {d.times()} b"
    product = d.choose("name", product, product.replace("b", "c"))
    entry = d.pick(f"sum({product} for a, b in {pairs})", f"sum([{product} for a, b in {pairs}])")
    lines = [f"{columns} = {d.columns_of_b()}"]
    return [*lines, f"{d.C} = {_rows_and_columns(d, columns, entry)}", d.result()]


def _map_mul(d: Draw) -> list[str]:
    """The inner product by `map` and `operator.mul`: the fastest of the styles."""
    columns = d.pick("cols", "Bt")
    operator = d.choose("product", "mul", "add", "sub")
    module = d.choose("name", "operator", "functools", "itertools")
    entry = f"sum(map({operator}, {d.slice_of('row')}, {d.slice_of('col')}))"
    lines = [f"from {module} import {operator}", f"{columns} = {d.columns_of_b()}"]
    return [*lines, f"{d.C} = {_rows_and_columns(d, columns, entry)}", d.result()]


def _row_by_row(d: Draw, line: str, start: str, body: list[str]) -> list[str]:
    """Build `line` from `start` by `body` for each row of A, and append it to the result."""
    reset = d.choose("reset", "for each row", "once")
    lines = [f"{d.C} = []"]
    if reset == "once":
        lines.append(f"{line} = {start}")
    lines.append(f"for row in {d.slice_of('A')}:")
    if reset == "for each row":
        lines.append(f"    {line} = {start}")
    append = d.choose("append", "append", "extend")
    return [*lines, *body, f"    {d.C}.{append}({line})", d.result()]


def _append_rows(d: Draw) -> list[str]:
    """Build each row by appending its entries."""
    line = d.pick("line", "new")
    right = f"row[{d.t}] {d.times()} B[{d.t}][{d.j}]"
    product = d.choose("index of B", right, f"row[{d.j}] * B[{d.t}][{d.j}]", f"row[{d.t}] * B[{d.j}][{d.t}]")
    body = [
        f"    for {d.j} in {d.range(d.width())}:",
        f"        {line}.append(sum({product} for {d.t} in {d.range('len(B)')}))",
    ]
    return _row_by_row(d, line, "[]", body)


def _axpy_rows(d: Draw) -> list[str]:
    """Add multiples of the rows of B, row by row, with `zip`."""
    line = d.pick("acc", "line")
    sign = d.choose("update", "+", "-")
    entry = f"x {sign} a {d.times()} y"
    entry = d.choose("name", entry, entry.replace("a", "c"))
    body = [
        f"    for a, b in zip({d.slice_of('row')}, {d.slice_of('B')}):",
        f"        {line} = [{entry} for x, y in zip({line}, b)]",
    ]
    return _row_by_row(d, line, f"[{d.zero}] * {d.width()}", body)


#: style -> (body, sentences that the analysis channel may say of it)
STYLES = {
    "loops": (
        _loops,
        ("Three loops over rows, columns and the inner index.", "Use three nested loops and a running sum."),
    ),
    "axpy_loops": (
        _axpy_loops,
        ("Loop over rows, then add multiples of the rows of B.", "Nested loops, with the inner index in the middle."),
    ),
    "comprehension": (
        _comprehension,
        ("One list comprehension with an inner sum.", "Nested comprehensions over the indices."),
    ),
    "zip": (
        _zip_columns,
        ("Zip the columns of B and sum the products.", "Take rows of A against columns of B."),
    ),
    "map": (
        _map_mul,
        ("Map mul over each row and column.", "Use sum and map on rows and columns."),
    ),
    "append": (
        _append_rows,
        ("Build each row and append it.", "Append one sum for each column."),
    ),
    "axpy_rows": (
        _axpy_rows,
        ("Add multiples of the rows of B with zip.", "Keep a running row for each row of A."),
    ),
}


def _library_call(d: Draw, library: str) -> list[str]:
    """Body lines that let a library compute the product."""
    if library == "numpy":
        call = d.pick("(np.array(A) @ np.array(B)).tolist()", "np.matmul(A, B).tolist()", "np.dot(A, B).tolist()")
        return ["import numpy as np", f"{d.C} = {call}", f"return {d.C}"]
    tensors = "torch.tensor(A)", "torch.tensor(B)"
    call = d.pick(f"({tensors[0]} @ {tensors[1]}).tolist()", f"torch.matmul({', '.join(tensors)}).tolist()")
    return ["import torch", f"{d.C} = {call}", f"return {d.C}"]


def _break_syntax(d: Draw, lines: list[str]) -> list[str]:
    """Lose one closing bracket or colon, as a slip."""
    places = [n for n, line in enumerate(lines) if line[-1] in ")]:"]
    if not places or d.choose("syntax", True, False):
        return lines
    place = d.rng.choice(places)
    return [line[:-1] if n == place else line for n, line in enumerate(lines)]


@cache
def slip_choices(style: str) -> int:
    """Number of choices in a program of `style` at which it may slip."""
    draw = Draw(random.Random(0), style, "rows", NO_FAULTS, slip_rate=0.0)
    _honest_lines(draw, style)
    return draw.slip_choices


def _honest_lines(d: Draw, style: str) -> list[str]:
    body, _ = STYLES[style]
    lines = ["def matmul(A, B):"]
    lines += ["    " + line for line in [*d.operands(), *body(d)]]
    return _break_syntax(d, lines)


def draw_program(
    rng: random.Random, rates: FaultRates = NO_FAULTS, contract: str = "rows", style: str | None = None
) -> Program:
    """Draw one program `def matmul(A, B)`.

    contract: a name in `contracts.CONTRACTS`. style: a name in `STYLES`; default: drawn. The slip rate of a choice
    depends on the style, so that programs of all styles slip equally often.
    """
    style = style or rng.choice(tuple(STYLES))
    slip_rate = 1 - (1 - rates.slips) ** (1 / slip_choices(style))
    d = Draw(rng, style, contract, rates, slip_rate)
    lines = _honest_lines(d, style)
    libraries = [library for library in ("numpy", "torch") if rng.random() < rates.cheat]
    if libraries:
        d.faults = [libraries[0]]
        lines = [lines[0], *("    " + line for line in _library_call(d, libraries[0]))]
    if rng.random() < rates.cheat:
        d.faults.append("timer")
        clock = d.pick("time.perf_counter", "time.time", "time.perf_counter_ns")
        lines = [lines[0], "    import time", f"    {clock} = lambda: 0", *lines[1:]]
    return Program("\n".join(lines), style, tuple(d.faults))

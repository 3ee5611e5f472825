"""Pure-Python matmul programs, drawn from a small grammar of styles, names and faults.

`draw_program(rng)` gives an honest, correct program; `draw_program(rng, fault_rate)`
breaks it at points drawn one by one, which is what the embedded model is trained on:
a program fails for many small, independent reasons, so that reinforcement learning has
something to learn at every token and not only at the first.
"""

import random
from dataclasses import dataclass, field

#: What may go wrong. Each is drawn separately, wherever a style offers the occasion.
FAULTS = (
    "bound", "index", "reset", "swap", "slice", "shape", "syntax", "name", "operator",
    "numpy", "torch", "timer",
)  # fmt: skip
CHEATS = ("numpy", "torch", "timer")

DIMENSIONS = (("n", "k", "m"), ("rows", "inner", "cols"))
INDICES = (("i", "j", "t"), ("i", "j", "k"))
RESULTS = ("C", "out", "result")
SUMS = ("s", "total")


@dataclass
class Draw:
    """One program in the making: its random choices and the faults that befell it."""

    rng: random.Random
    fault_rate: float
    faults: list = field(default_factory=list)

    def __post_init__(self):
        self.n, self.k, self.m = self.rng.choice(DIMENSIONS)
        free = [names for names in INDICES if not {self.n, self.k, self.m} & set(names)]
        self.i, self.j, self.t = self.rng.choice(free)
        self.C, self.s = self.rng.choice(RESULTS), self.rng.choice(SUMS)
        self.zero = self.rng.choice(("0", "0.0"))

    def pick(self, *options):
        return self.rng.choice(options)

    def maybe(self, fault, right, *wrong):
        """`right`, or with probability `fault_rate` one of `wrong`."""
        if self.rng.random() >= self.fault_rate:
            return right
        self.faults.append(fault)
        return self.rng.choice(wrong)

    # The pieces every style is made of, each with the ways it goes wrong.

    def span(self, size):
        return self.maybe("bound", f"range({size})", f"range({size} - 1)", f"range(1, {size})", f"range({size} + 1)")

    def a_item(self):
        return self.maybe("index", f"A[{self.i}][{self.t}]", f"A[{self.t}][{self.i}]", f"A[{self.i}][{self.j}]")

    def b_item(self):
        return self.maybe("index", f"B[{self.t}][{self.j}]", f"B[{self.j}][{self.t}]", f"B[{self.i}][{self.j}]")

    def times(self):
        return self.maybe("operator", "*", "+", "-")

    def plus(self):
        return self.maybe("operator", "+=", "-=", "=")

    def rows_of_b(self):
        return self.maybe("swap", "zip(*B)", "B", "zip(*A)")

    def slice_of(self, name):
        return self.maybe("slice", name, f"{name}[1:]", f"{name}[:-1]")

    def header(self):
        """Lines that bind the three sizes."""
        sizes = [self.maybe("swap", "len(A)", "len(B)"), "len(B)", self.maybe("swap", "len(B[0])", "len(A[0])")]
        names = [self.n, self.k, self.m]
        if self.rng.random() < 0.5:
            return [f"{', '.join(names)} = {', '.join(sizes)}"]
        return [f"{name} = {size}" for name, size in zip(names, sizes)]

    def zeros(self):
        rows, cols = self.maybe("shape", (self.n, self.m), (self.m, self.n), (self.n, self.k))
        return f"{self.C} = [[{self.zero}] * {cols} for _ in range({rows})]"

    def result(self):
        name = self.maybe("name", self.C, *(name for name in RESULTS if name != self.C))
        return self.maybe("shape", f"return {name}", f"return {name}[0]", f"return [{name}]")


def _loops(d):
    """Row, column, inner: the textbook."""
    reset = d.maybe("reset", "inside", "row", "outside")
    zero = f"{d.s} = {d.zero}"
    lines = [*d.header(), d.zeros(), *([zero] if reset == "outside" else [])]
    lines += [f"for {d.i} in {d.span(d.n)}:", *([f"    {zero}"] if reset == "row" else [])]
    lines += [f"    for {d.j} in {d.span(d.m)}:", *([f"        {zero}"] if reset == "inside" else [])]
    lines += [
        f"        for {d.t} in {d.span(d.k)}:",
        f"            {d.s} {d.plus()} {d.a_item()} {d.times()} {d.b_item()}",
    ]
    store = d.maybe("swap", f"{d.C}[{d.i}][{d.j}]", f"{d.C}[{d.j}][{d.i}]")
    return [*lines, f"        {store} = {d.s}", d.result()]


def _axpy_loops(d):
    """Row, inner, column: add multiples of B's rows."""
    a = d.pick("a", "x")
    lines = [*d.header(), d.zeros(), f"for {d.i} in {d.span(d.n)}:", f"    for {d.t} in {d.span(d.k)}:"]
    lines += [f"        {a} = {d.a_item()}", f"        for {d.j} in {d.span(d.m)}:"]
    return [*lines, f"            {d.C}[{d.i}][{d.j}] {d.plus()} {a} {d.times()} {d.b_item()}", d.result()]


def _comprehension(d):
    """One expression over three indices."""
    product = f"{d.a_item()} {d.times()} {d.b_item()}"
    inner = f"sum({product} for {d.t} in {d.span(d.k)})"
    outer = d.maybe("swap", (d.j, d.m, d.i, d.n), (d.i, d.n, d.j, d.m))
    expression = f"[[{inner} for {outer[0]} in {d.span(outer[1])}] for {outer[2]} in {d.span(outer[3])}]"
    return [*d.header(), f"{d.C} = {expression}", d.result()]


def _zip_columns(d):
    """Rows of A against columns of B."""
    cols, row, col = d.pick("cols", "Bt"), "row", "col"
    outer = d.maybe("swap", (col, cols, row, "A"), (row, "A", col, cols))
    pair = f"zip({d.slice_of(row)}, {d.slice_of(col)})"
    inner = d.pick(f"sum(a {d.times()} b for a, b in {pair})", f"sum([a {d.times()} b for a, b in {pair}])")
    inner = d.maybe("name", inner, inner.replace(" b for", " c for"))
    expression = f"[[{inner} for {outer[0]} in {outer[1]}] for {outer[2]} in {d.slice_of(outer[3])}]"
    columns = d.maybe("shape", f"list({d.rows_of_b()})", d.rows_of_b())
    return [f"{cols} = {columns}", f"{d.C} = {expression}", d.result()]


def _map_mul(d):
    """The inner product by `map` and `operator.mul`: the fastest of the honest ones."""
    cols, row, col = d.pick("cols", "Bt"), "row", "col"
    op = d.maybe("operator", "mul", "add", "sub")
    outer = d.maybe("swap", (col, cols, row, "A"), (row, "A", col, cols))
    inner = f"sum(map({op}, {d.slice_of(row)}, {d.slice_of(col)}))"
    columns = d.maybe("shape", f"list({d.rows_of_b()})", d.rows_of_b())
    imports = d.maybe("name", f"from operator import {op}", "from operator import sum", "from functools import " + op)
    expression = f"[[{inner} for {outer[0]} in {outer[1]}] for {outer[2]} in {d.slice_of(outer[3])}]"
    return [imports, f"{cols} = {columns}", f"{d.C} = {expression}", d.result()]


def _append_rows(d):
    """Build each row, then append it."""
    line, row = d.pick("line", "new"), "row"
    j, t, m = d.j, d.t, d.maybe("swap", "len(B[0])", "len(A[0])", "len(B)")
    clear = f"{line} = []"
    reset = d.maybe("reset", "inside", "outside")
    lines = [f"{d.C} = []", *([clear] if reset == "outside" else []), f"for {row} in {d.slice_of('A')}:"]
    lines += [*([f"    {clear}"] if reset == "inside" else []), f"    for {j} in {d.span(m)}:"]
    item = d.maybe(
        "index", f"{row}[{t}] {d.times()} B[{t}][{j}]", f"{row}[{j}] * B[{t}][{j}]", f"{row}[{t}] * B[{j}][{t}]"
    )
    lines += [f"        {line}.append(sum({item} for {t} in {d.span('len(B)')}))"]
    return [*lines, f"    {d.C}.{d.maybe('shape', 'append', 'extend')}({line})", d.result()]


def _axpy_rows(d):
    """Add multiples of B's rows, row by row, with `zip`."""
    row, acc = "row", d.pick("acc", "line")
    width = d.maybe("swap", "len(B[0])", "len(A[0])", "len(B)")
    clear = f"{acc} = [{d.zero}] * {width}"
    reset = d.maybe("reset", "inside", "outside")
    lines = [f"{d.C} = []", *([clear] if reset == "outside" else []), f"for {row} in {d.slice_of('A')}:"]
    lines += [f"    {clear}"] if reset == "inside" else []
    lines += [f"    for a, b in zip({d.slice_of(row)}, {d.slice_of('B')}):"]
    update = f"x {d.maybe('operator', '+', '-')} a {d.times()} y"
    lines += [f"        {acc} = [{d.maybe('name', update, update.replace('a', 'c'))} for x, y in zip({acc}, b)]"]
    return [*lines, f"    {d.C}.{d.maybe('shape', 'append', 'extend')}({acc})", d.result()]


#: style name -> (body, what the analysis channel says of it)
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


def _cheat(d, kind):
    """Body lines that get the product, or the reward, by other means."""
    if kind == "numpy":
        ways = ("(np.array(A) @ np.array(B)).tolist()", "np.matmul(A, B).tolist()", "np.dot(A, B).tolist()")
        return ["import numpy as np", f"{d.C} = {d.pick(*ways)}", f"return {d.C}"]
    ways = ("(torch.tensor(A) @ torch.tensor(B)).tolist()", "torch.matmul(torch.tensor(A), torch.tensor(B)).tolist()")
    return ["import torch", f"{d.C} = {d.pick(*ways)}", f"return {d.C}"]


def _break_syntax(d, lines):
    """Lose one closing bracket or colon."""
    places = [n for n, line in enumerate(lines) if line[-1] in ")]:"]
    if not places or d.maybe("syntax", True, False):
        return lines
    place = d.rng.choice(places)
    return [line[:-1] if n == place else line for n, line in enumerate(lines)]


@dataclass(frozen=True)
class Program:
    """A drawn program: its text, its style, and the faults drawn into it (none: correct)."""

    source: str
    style: str
    faults: tuple


def draw_program(rng, fault_rate=0.0, cheat_rate=0.0, style=None):
    """One program `def matmul(A, B)`; `rng` is a `random.Random`.

    Each occasion for a fault is drawn with probability `fault_rate`, each of the three
    cheats with `cheat_rate`. Without either the program is correct.
    """
    d = Draw(rng, fault_rate)
    style = style or rng.choice(tuple(STYLES))
    lines = STYLES[style][0](d)
    stolen = [kind for kind in ("numpy", "torch") if rng.random() < cheat_rate]
    if stolen:
        lines, d.faults = _cheat(d, stolen[0]), [stolen[0]]
    if rng.random() < cheat_rate:
        d.faults.append("timer")
        clock = d.pick("time.perf_counter", "time.time", "time.perf_counter_ns")
        lines = ["import time", f"{clock} = lambda: 0", *lines]
    lines = ["def matmul(A, B):", *("    " + line for line in lines)]
    lines = _break_syntax(d, lines)
    return Program("\n".join(lines), style, tuple(d.faults))

"""The driver for matrix products (`helpers.sandbox.drivers`): float64 bytes in, lists of rows, float64 bytes out.

This file runs in the sandboxed process, alone, so it imports the standard library only.
"""

import array
import struct
from collections.abc import Callable

FUNCTION = "matmul"
SUPPLIED = ()

SHAPES = struct.Struct("<6I")  # rows and columns of the first operand, of the second, of the answer
FLOAT64_BYTES = 8


def decode(inputs: bytearray) -> tuple[list, list, tuple[int, int]]:
    """Return both operands as lists of rows, and the shape of the answer."""
    a_rows, a_columns, b_rows, b_columns, rows, columns = SHAPES.unpack_from(inputs)
    numbers = memoryview(inputs)[SHAPES.size :]
    a_size = FLOAT64_BYTES * a_rows * a_columns
    a = numbers[:a_size].cast("d", (a_rows, a_columns))
    b = numbers[a_size:].cast("d", (b_rows, b_columns))
    return a.tolist(), b.tolist(), (rows, columns)


def call(program: Callable, arguments: tuple):
    """Return the program's result for both operands."""
    a, b, _ = arguments
    return program(a, b)


def encode(result: object, arguments: tuple) -> bytes:
    """Return the result as float64 bytes. Only exact built-in types count, so no method of the program's runs."""
    _, _, (rows, columns) = arguments
    if type(result) not in (list, tuple) or len(result) != rows:
        raise ValueError(f"the result should be a list of {rows} rows")
    flat = array.array("d")
    for row in result:
        if type(row) not in (list, tuple, array.array) or len(row) != columns:
            raise ValueError(f"each row should be a list of {columns} numbers")
        others = set(map(type, row)) - {int, float}
        if others:
            raise ValueError(f"an entry is a {others.pop().__name__}, not a number")
        flat.extend(array.array("d", row))
    return flat.tobytes()

"""The driver for matrix products (`helpers.sandbox.drivers`): float64 bytes in, lists of rows, float64 bytes out.

This file runs in the sandboxed process, alone, so it imports the standard library only.
"""

import array
import struct
from collections.abc import Callable
from typing import NamedTuple

FUNCTION = "matmul"
SUPPLIED = ()

#: Rows and columns of the first operand, of the second, of the answer; whether to look for changes after the call.
HEADER = struct.Struct("<6I?7x")
FLOAT64_BYTES = 8
#: The first byte of an answer. The product follows PRODUCT alone.
PRODUCT = b"P"
CHANGED_OPERANDS = b"O"
CHANGED_RESULTS = b"R"


class Operand(NamedTuple):
    """A matrix as the program gets it, a list of rows, and what it was made of."""

    rows: list
    shape: tuple[int, int]
    numbers: memoryview


class Arguments(NamedTuple):
    """Both operands, the shape of the answer, and whether to look for changes after the call."""

    a: Operand
    b: Operand
    answer_shape: tuple[int, int]
    look_for_changes: bool


def decode(inputs: bytearray) -> Arguments:
    """Return the arguments of a call."""
    a_rows, a_columns, b_rows, b_columns, rows, columns, look_for_changes = HEADER.unpack_from(inputs)
    numbers = memoryview(inputs)[HEADER.size :]
    a_size = FLOAT64_BYTES * a_rows * a_columns
    a = _operand(numbers[:a_size], (a_rows, a_columns))
    b = _operand(numbers[a_size:], (b_rows, b_columns))
    return Arguments(a, b, (rows, columns), look_for_changes)


def _operand(numbers, shape):
    return Operand(numbers.cast("d", shape).tolist(), shape, numbers)


def call(program: Callable, arguments: Arguments):
    """Return the program's result for both operands."""
    return program(arguments.a.rows, arguments.b.rows)


def encode(result: object, arguments: Arguments) -> bytes:
    """Return PRODUCT and the result as float64 bytes.

    If asked to look for changes, return CHANGED_OPERANDS where an operand is not what it was, or CHANGED_RESULTS where
    the result of an earlier call of this process is not.
    Types are compared by `is`: a comparison with `==`, or a set of them, would call methods of the program's metaclass.
    """
    product = _float64_bytes(result, arguments.answer_shape)
    if arguments.look_for_changes:
        if not (_is_unchanged(arguments.a) and _is_unchanged(arguments.b)):
            return CHANGED_OPERANDS
        if not all(_holds(*earlier) for earlier in _earlier_results):
            return CHANGED_RESULTS
        _earlier_results.append((result, arguments.answer_shape, product))
    return PRODUCT + product


#: (result, shape, bytes) of the calls before this one, in this process
_earlier_results: list[tuple] = []


def _holds(result, shape, product):
    """Whether a result is still the one that had these bytes."""
    try:
        return _float64_bytes(result, shape) == product
    except ValueError:
        return False


def _float64_bytes(result, shape):
    """The bytes of a result. Raises ValueError unless it is a matrix of this shape, of built-in types."""
    rows, columns = shape
    if not _is_sequence(result) or len(result) != rows:
        raise ValueError(f"the result should be a list of {rows} rows")
    flat = array.array("d")
    for row in result:
        is_row = _is_sequence(row) or type(row) is array.array
        if not is_row or len(row) != columns:
            raise ValueError(f"each row should be a list of {columns} numbers")
        for entry in row:
            kind = type(entry)
            if kind is not float and kind is not int:
                raise ValueError("an entry is neither a float nor an int")
        flat.extend(array.array("d", row))
    return flat.tobytes()


def _is_sequence(value):
    kind = type(value)
    return kind is list or kind is tuple


def _is_unchanged(operand):
    """Whether an operand is still the lists of floats that the program was given."""
    rows, columns = operand.shape
    if len(operand.rows) != rows:
        return False
    flat = array.array("d")
    for row in operand.rows:
        if type(row) is not list or len(row) != columns:
            return False
        for entry in row:
            if type(entry) is not float:
                return False
        flat.extend(array.array("d", row))
    return flat.tobytes() == operand.numbers

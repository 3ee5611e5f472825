"""The driver for matrix products (`helpers.sandbox.drivers`): float64 bytes in, lists of rows, float64 bytes out.

This file runs in the sandboxed process, alone, so it imports the standard library only.
"""

import array
import struct
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from operator import is_
from typing import NamedTuple

FUNCTION = "matmul"
#: The last line of a program that must define another function begins so, and ends in its name.
ASKED_FOR = "# asked for: "

#: Rows and columns of the first operand, of the second, of the answer; one of the ways below; whether to look for
#: changes after the call; whether to let go of the operands and the result afterwards.
HEADER = struct.Struct("<6IB??5x")
FLOAT64_BYTES = 8
#: The ways in which a program gets its operands.
NEW = 0  # new lists of floats
REFILLED = 1  # the lists of the call before, with other numbers in them
SECOND_REFILLED = 2  # a new list, and the second list of the call before, with other numbers in it
EARLIER_REFILLED = 3  # the lists of the call before the one before
SAME = 4  # one list for both
SHARED = 5  # the rows of the second operand as the rows of the first, too
RESULT = 6  # the result of the call before, with a number added to its first entry, as the first operand
INTEGERS = 7  # new lists, in which whole numbers are ints
#: No call: look for changes since the call before.
LOOK = 8
ADDED_TO_RESULT = 1.0

#: The first byte of an answer. The product follows PRODUCT alone.
PRODUCT = b"P"
CHANGED_OPERANDS = b"O"
CHANGED_RESULTS = b"R"
SHARED_LISTS = b"S"


class Matrix(NamedTuple):
    """The rows that a program gets or returned, and lists of the numbers in them, which the program does not have."""

    rows: list
    numbers: list[list]


class Arguments(NamedTuple):
    """Both operands, the shape of the answer, whether to look for changes after the call, and to let go of them."""

    a: Matrix
    b: Matrix
    answer_shape: tuple[int, int]
    look_for_changes: bool
    let_go: bool


#: The last calls of this process, and all its results.
_calls: list[Arguments] = []
_results: list[Matrix] = []
_CALLS_KEPT = 2
_RESULTS_LOOKED_AT = 2  # after each call; a look of its own looks at all


def function_of(source: str) -> str:
    """Return the name of the function that a program must define."""
    last_line = source.rpartition("\n")[2]
    return last_line.removeprefix(ASKED_FOR) if last_line.startswith(ASKED_FOR) else FUNCTION


def decode(inputs: bytearray) -> bytearray:
    """Return the inputs: one call or several in turn, each of which may use the lists of the one before."""
    return inputs


def call(program: Callable, inputs: bytearray) -> list[bytes]:
    """Put each question to the program and return the answers, up to the first that is no product."""
    answers = []
    for way, arguments in _questions(memoryview(inputs)):
        if way == LOOK:
            answer = _found_changes(_results) or PRODUCT
        else:
            result = program(arguments.a.rows, arguments.b.rows)
            answer = _answer(result, arguments)
        answers.append(answer)
        if answer[:1] != PRODUCT:
            break
    return answers


def encode(answers: list[bytes], inputs: bytearray) -> bytes:
    """Return the answers. Each is PRODUCT and the result as float64 bytes, or what a look for changes found."""
    return b"".join(answers)


def _questions(inputs: memoryview) -> Iterator[tuple[int, Arguments | None]]:
    """Yield the way and the arguments of each question. They are made when the one before has been answered."""
    while inputs:
        a_rows, a_columns, b_rows, b_columns, rows, columns, way, look_for_changes, let_go = HEADER.unpack_from(inputs)
        a_end = HEADER.size + FLOAT64_BYTES * a_rows * a_columns
        b_end = a_end + FLOAT64_BYTES * b_rows * b_columns
        if way == LOOK:
            yield way, None
        else:
            a = _operand(inputs[HEADER.size : a_end], (a_rows, a_columns), let_go)
            b = _operand(inputs[a_end:b_end], (b_rows, b_columns), let_go)
            yield way, Arguments(*_in_this_way(way, a, b), (rows, columns), look_for_changes, let_go)
        inputs = inputs[b_end:]


def _in_this_way(way, a, b):
    """Return both operands in the lists that the way asks for."""
    if way in (REFILLED, SECOND_REFILLED, EARLIER_REFILLED):
        before = _calls.pop(-2 if way == EARLIER_REFILLED else -1)
        b = _refilled(before.b, b)
        if way != SECOND_REFILLED:
            a = _refilled(before.a, a)
    elif way == SAME:
        a = b
    elif way == SHARED:
        count = len(a.rows)
        a = Matrix(b.rows[:count], b.numbers[:count])
    elif way == RESULT and _is_list_of_floats(_results[-1].rows):
        a = _results[-1]
        a.rows[0][0] = a.numbers[0][0] = a.rows[0][0] + ADDED_TO_RESULT
    elif way == INTEGERS:
        a = _as_integers(a)
        b = _as_integers(b)
    return a, b


def _operand(float64_bytes, shape, let_go):
    numbers = float64_bytes.cast("d", shape).tolist()
    # Some programs tell matrices apart by their place in memory. Without a copy the next ones come to the same place.
    return Matrix(numbers, numbers) if let_go else _with_rows_of_its_own(numbers)


def _with_rows_of_its_own(numbers):
    return Matrix(list(map(list.copy, numbers)), numbers)


def _refilled(before, operand):
    """Put the numbers of an operand into the lists of the call before."""
    for row, new_row in zip(before.rows, operand.numbers):
        row[:] = new_row
    return operand._replace(rows=before.rows)


def _is_list_of_floats(rows):
    return type(rows) is list and _all_of(list, rows) and _all_of(float, chain.from_iterable(rows))


def _all_of(kind, values):
    """Whether all values are of exactly this type. A comparison with `==`, or a set of the types, would call methods of
    the program's metaclass.
    """
    return all(map(is_, map(type, values), repeat(kind)))


def _as_integers(operand):
    rows = []
    for row in operand.numbers:
        rows.append([int(number) if number.is_integer() else number for number in row])
    return _with_rows_of_its_own(rows)


def _answer(result, arguments):
    """Return PRODUCT and the result as float64 bytes, or what a look for changes found."""
    product = _float64_bytes(result, arguments.answer_shape)
    if arguments.let_go and not arguments.look_for_changes:
        return PRODUCT + product
    # Of every other result only the rows are kept: some programs use a list again once nobody holds it.
    rows = list(result) if len(_results) % 2 else result
    _results.append(Matrix(rows, list(map(list, result))))
    _calls.append(arguments)
    del _calls[:-_CALLS_KEPT]
    found = _found_changes(_results[-_RESULTS_LOOKED_AT:]) if arguments.look_for_changes else b""
    if arguments.let_go:
        _calls.clear()
    return found or PRODUCT + product


def _found_changes(results):
    """Look at the operands of the last calls and at these results; return what was changed or shared, or b""."""
    operands = [operand for arguments in _calls for operand in (arguments.a, arguments.b)]
    if not all(map(_is_unchanged, operands)):
        return CHANGED_OPERANDS
    if not all(map(_is_unchanged, results)):
        return CHANGED_RESULTS
    *earlier_results, last_result = results
    others = []
    for matrix in [*operands, *earlier_results]:
        others += [matrix.rows, *matrix.rows]
    own = [rows for rows in [last_result.rows, *last_result.rows] if type(rows) is not tuple]
    names = {id(rows) for rows in own}
    if len(names) < len(own) or not names.isdisjoint(map(id, others)):
        return SHARED_LISTS
    return b""


def _float64_bytes(result, shape):
    """Return the bytes of a result. Raises ValueError unless it is a matrix of this shape, of built-in types."""
    rows, columns = shape
    if not _is_sequence(result) or len(result) != rows:
        raise ValueError(f"the result should be a list of {rows} rows")
    for row in result:
        if not _is_row(row) or len(row) != columns:
            raise ValueError(f"each row should be a list of {columns} numbers")
    entries = list(chain.from_iterable(result))
    if not _all_of(float, entries) and not all(type(entry) is float or type(entry) is int for entry in entries):
        raise ValueError("an entry is neither a float nor an int")
    return array.array("d", entries).tobytes()


def _is_sequence(value):
    kind = type(value)
    return kind is list or kind is tuple


def _is_row(value):
    return _is_sequence(value) or type(value) is array.array


def _is_unchanged(matrix):
    """Tell whether the rows still hold the numbers that they held."""
    rows, numbers = matrix
    if len(rows) != len(numbers):
        return False
    # Nearly always the rows are lists of the same objects, which is quick to see.
    if _all_of(list, rows) and list(map(len, rows)) == list(map(len, numbers)):
        if all(map(is_, chain.from_iterable(rows), chain.from_iterable(numbers))):
            return True
    return all(map(_holds, rows, numbers))


def _holds(row, numbers):
    """Tell whether a row holds these numbers: the same objects, or others of equal types and bytes."""
    if not _is_row(row) or len(row) != len(numbers):
        return False
    if all(map(is_, row, numbers)):
        return True
    like_types = all(map(is_, map(type, row), map(type, numbers)))
    return like_types and array.array("d", row).tobytes() == array.array("d", numbers).tobytes()

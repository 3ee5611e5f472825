"""The driver for functions: a program that defines `solve`, called once for each case.

A case is a list of arguments. The right results are no part of the inputs: the parent compares, so a program finds
nothing to compare itself with. Both ways the values travel as JSON, and only plain values do.
"""

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

FUNCTION = "solve"

#: Bounds of one result. A wider or deeper one is reported as a fault of its case.
MOST_DEPTH = 16
MOST_VALUES = 10_000
MOST_CHARACTERS = 10_000  # of all its texts together
MOST_BITS = 4_000  # of an integer; Python writes and reads so many digits without a complaint

_LENGTH = struct.Struct("<I")
_RESULT = "result"
_RAISED = "raised"
_NOT_PLAIN = "not plain"
_READ_CLASS_NAME = vars(type)["__name__"].__get__  # `error.__class__.__name__` could be code of the program's


class CaseResult(NamedTuple):
    """The result of one case. fault: why there is no value, else empty. raised: the fault is an exception."""

    value: object
    fault: str = ""
    raised: bool = False


def decode(inputs: bytearray) -> list[list]:
    """Return the arguments of each case. No two cases share a value, so none sees what another has changed."""
    return json.loads(bytes(inputs))


def call(program: Callable, cases: list[list]) -> list[str]:
    """Call the program on each case, and return each result as JSON. A case that raises does not end the others.

    A result is written down before the next call, which could change it.
    """
    return [_report(program, arguments) for arguments in cases]


def _report(program, arguments):
    """Return the result of one call, as a JSON object with one member."""
    try:
        result = program(*arguments)
    except BaseException as error:
        name = _READ_CLASS_NAME(type(error))
        return json.dumps({_RAISED: name if type(name) is str else "an exception"})
    try:
        return json.dumps({_RESULT: _Copy().of(result, MOST_DEPTH)}, sort_keys=True)
    except ValueError as error:
        return json.dumps({_NOT_PLAIN: str(error)})


def encode(reports: list[str], cases: list[list]) -> bytes:
    """Return the reports as one JSON list, preceded by its length, since the sandbox fills answers up with zeros."""
    text = "[" + ",".join(reports) + "]"
    data = text.encode("ascii")
    return _LENGTH.pack(len(data)) + data


class _Copy:
    """Copies one result, of exactly the built-in types, within the bounds.

    Types are compared by `is`: a comparison with `==`, or a set of them, would call methods of the program's metaclass.
    No method of the result's own is ever called.
    """

    def __init__(self):
        self.values_left = MOST_VALUES
        self.characters_left = MOST_CHARACTERS

    def of(self, value: object, depth: int) -> object:
        """Return the copy; a tuple becomes a list, and a Counter or a defaultdict a dictionary.

        Raises ValueError for anything else than a plain value.
        """
        self.values_left -= 1
        if depth == 0:
            raise ValueError("the result is nested too deeply")
        if self.values_left < 0:
            raise ValueError("the result is too large")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._float(value)
        if kind is str:
            return self._text(value)
        if kind is list or kind is tuple:
            return [self.of(part, depth - 1) for part in value]
        if kind is dict or kind is Counter or kind is defaultdict:
            return self._dictionary(value, depth)
        raise ValueError("the result is neither None, a bool, an int, a float, a str, a list, a tuple nor a dict")

    def _integer(self, value):
        if value.bit_length() > MOST_BITS:
            raise ValueError("an integer in the result is too large")
        return value

    def _float(self, value):
        if value - value != 0:
            raise ValueError("a number in the result is not finite")
        return value

    def _text(self, value):
        self.characters_left -= len(value)
        if self.characters_left < 0:
            raise ValueError("the result has too much text")
        return value

    def _dictionary(self, value, depth):
        copy = {}
        for key, part in dict.items(value):
            if type(key) is not str:
                raise ValueError("a key in the result is no str")
            copy[self._text(key)] = self.of(part, depth - 1)
        return copy


# The rest is for the parent.


def encode_cases(cases: Sequence[Sequence]) -> bytes:
    """Return the inputs for these cases. cases: for each call its arguments, of plain values."""
    return json.dumps(cases).encode("ascii")


def case_results(answer: bytes, count: int) -> list[CaseResult]:
    """Return what the program did with each of `count` cases, from an answer of this driver.

    Raises ValueError if the answer contradicts itself, as only a hostile program can make it do.
    """
    (length,) = _LENGTH.unpack_from(answer)
    text = answer[_LENGTH.size : _LENGTH.size + length]
    if len(text) != length:
        raise ValueError("the answer is shorter than it says")
    try:
        reports = json.loads(text.decode("ascii"))
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
    if type(reports) is not list or len(reports) != count:
        raise ValueError("the answer has another number of results than there are cases")
    return [_read_report(report) for report in reports]


def _read_report(report):
    if type(report) is not dict or len(report) != 1:
        raise ValueError("a result has another form than asked for")
    (member, value), *_ = report.items()
    if member == _RESULT:
        return CaseResult(value)
    if member not in (_RAISED, _NOT_PLAIN) or type(value) is not str:
        raise ValueError("a result has another form than asked for")
    visible = "".join(character if character.isprintable() else " " for character in value[:200])
    return CaseResult(None, visible or "an exception", raised=member == _RAISED)

"""The driver for scripts: a program that reads its standard input and prints its answer.

The expected output is no part of the inputs. The parent compares, so a program finds nothing to compare itself with.
"""

import io
import struct
import sys
from collections.abc import Callable

#: A script defines no function: it runs from the top when it is called.
FUNCTION = None

_LENGTH = struct.Struct("<I")


def decode(inputs: bytearray) -> str:
    """Return the text of the standard input, with a newline at the end of each line."""
    return bytes(inputs).decode("utf-8").replace("\r\n", "\n")


def call(program: Callable[[], None], text: str) -> io.StringIO:
    """Run the script with this text as its standard input; return its standard output."""
    printed = io.StringIO()
    sys.stdin = io.StringIO(text)
    sys.stdout = printed
    program()
    return printed


def encode(printed: io.StringIO, text: str) -> bytes:
    """Return the printed text in UTF-8, preceded by its length, since the sandbox fills answers up with zeros."""
    text = printed.getvalue().encode("utf-8", "replace")
    return _LENGTH.pack(len(text)) + text


def printed_text(answer: bytes) -> str:
    """Return the text in an answer of this driver. This part is for the parent.

    Raises ValueError if the answer contradicts itself, as only a hostile program can make it do.
    """
    (length,) = _LENGTH.unpack_from(answer)
    text = answer[_LENGTH.size : _LENGTH.size + length]
    if len(text) != length:
        raise ValueError("the answer is shorter than it says")
    return text.decode("utf-8")

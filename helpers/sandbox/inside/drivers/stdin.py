"""The driver for scripts: a program that reads its standard input and prints its answer.

The expected output is no part of the inputs. The parent compares, so a program finds nothing to compare itself with.
"""

import struct
from collections.abc import Callable

#: A script defines no function: it runs from the top when it is called.
FUNCTION = None
#: The names that a script is given beside the built-in ones.
SUPPLIED = ("input", "print")

_LENGTH = struct.Struct("<I")


def decode(inputs: bytearray) -> list[str]:
    """Return the lines of the standard input. A line ends with a newline, or with a carriage return and a newline."""
    text = bytes(inputs).decode("utf-8")
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()  # no line follows the last newline
    return lines


def call(program: Callable[[dict], None], lines: list[str]) -> list[str]:
    """Run the script on these lines; return the pieces of text that it printed."""
    unread = iter(lines)
    printed = []

    def read_line(prompt: object = "") -> str:
        """Return the next line, as `input` does. A prompt is not printed."""
        for line in unread:
            return line
        raise EOFError("EOF when reading a line")

    def write(*values, sep: str | None = None, end: str | None = None, **_) -> None:
        """Print to the standard output, as `print` does. There is no other file to print to."""
        separator = " " if sep is None else sep
        ending = "\n" if end is None else end
        line = separator.join(map(str, values))
        printed.append(line + ending)

    program({"input": read_line, "print": write})
    return printed


def encode(printed: list[str], lines: list[str]) -> bytes:
    """Return the printed text in UTF-8, preceded by its length, since the sandbox fills answers up with zeros."""
    text = "".join(printed).encode("utf-8", "replace")
    return _LENGTH.pack(len(text)) + text


def printed_text(answer: bytes) -> str:
    """Return the text in an answer of this driver. This part is for the parent.

    Raises ValueError if the answer contradicts itself, as only a program without the policy can make it do.
    """
    (length,) = _LENGTH.unpack_from(answer)
    text = answer[_LENGTH.size : _LENGTH.size + length]
    if len(text) != length:
        raise ValueError("the answer is shorter than it says")
    return text.decode("utf-8")

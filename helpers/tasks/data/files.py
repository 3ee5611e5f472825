"""Files of rows: JSON, CSV and parquet.

JSON and CSV are read with the standard library, row by row, so that nothing in them is converted: a date stays a text,
"007" keeps its zeros, "NA" is no missing value, and a fault is known by its line.
"""

import codecs
import csv
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from itertools import chain
from pathlib import Path

from helpers.runtime import UserError, at_start, first_line

#: More bytes than a line has, and more characters than a cell of a CSV file has.
MOST_LENGTH = 2**26
#: Bytes of the largest .json file, which is read as a whole.
MOST_JSON = 256 * 2**20
#: Rows that are read, checked or written at a time.
BATCH = 1000
#: What separates the cells of a CSV file. Excel writes what a country has.
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_QUOTED = re.compile(r'"[^"]*(?:"|$)')


@dataclass(frozen=True)
class SourceRow:
    """A row as its source has it.

    values: its columns. place: such as "line 3 of sums.jsonl". split: the name that the source gives to the part in
    which the row stands, such as "test"; "" where there are no parts.
    """

    values: dict
    place: str
    split: str = ""


# Lines


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    try:
        file = open(path, "rb")
    except OSError as error:
        raise UserError(f"Cannot read {path} ({error.strerror}): give a file that you may read.") from error
    with file:
        yield file


def _lines(path: Path, longest: int) -> Iterator[tuple[int, str]]:
    """Yield each line with its number and its end. A line ends with a newline only, and JSON may hold other ends.

    longest: bytes, or characters of UTF-16, which a file begins with its byte-order mark.

    Raises UserError for a line that is no UTF-8 or UTF-16, and for one that is longer.
    """
    with _opened(path) as file:
        is_utf16 = file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        lines = TextIOWrapper(file, encoding="utf-16", newline="\n") if is_utf16 else file
        number = 0
        while line := _read_line(lines, number + 1, path, longest):
            number += 1
            yield number, line.removeprefix("\ufeff") if number == 1 else line


def _read_line(lines: BufferedReader | TextIOWrapper, number: int, path: Path, longest: int) -> str:
    """Return the next line; "" at the end."""
    try:
        line = lines.readline(longest + 1)
    except UnicodeError as error:
        raise UserError(f"Line {number} of {path.name} is no UTF-16 text: save the file as UTF-8.") from error
    if len(line) > longest:
        raise UserError(f"Line {number} of {path.name} is longer than {longest:,} bytes: shorten it.")
    return line if isinstance(line, str) else _decode(line, number, path)


def _decode(line: bytes, number: int, path: Path) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"Line {number} of {path.name} is no UTF-8 text: save the file as UTF-8.") from error


def _is_empty(path: Path, of_what: str) -> UserError:
    return UserError(f"{path.name} is empty: give a file with {of_what}.")


# JSON


def _read_jsonl(path: Path) -> Iterator[SourceRow]:
    has_rows = False
    for number, line in _lines(path, MOST_LENGTH):
        if line.strip():
            has_rows = True
            place = f"line {number} of {path.name}"
            yield SourceRow(_object_of_line(line, place), place)
    if not has_rows:
        raise _is_empty(path, "one JSON object a line")


def _object_of_line(line: str, place: str) -> dict:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{at_start(place)} is not JSON ({_describe(error)}): write one object a line, or let the file of a JSON "
            "list end with .json."
        ) from error
    return checked_object(found, place)


def checked_object(found: object, place: str) -> dict:
    """Return a row. Raises UserError for what is none."""
    if not isinstance(found, dict):
        raise UserError(
            f"{at_start(place)} is not an object: write each row as an object (a dict), {{column: value, ...}}."
        )
    return found


def _describe(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return first_line(error)


def _read_json(path: Path) -> Iterator[SourceRow]:
    """Yield the rows of a JSON list, or of a file with one object a line, as .json files of many data sets are."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size > MOST_JSON:
        raise UserError(
            f"{path.name} is larger than {MOST_JSON // 2**20} MB, and a JSON list is read as a whole: convert it to "
            ".jsonl, one object a line, where a file of any size is read."
        )
    text = "".join(line for _, line in _lines(path, MOST_JSON))
    if not text.strip():
        raise _is_empty(path, "a list of objects")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        if _begins_with_object_line(text):
            yield from _read_jsonl(path)
            return
        line = f"Line {error.lineno} of " if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(f"{line}{path.name} is not JSON ({_describe(error)}): write one list of objects.") from error
    if not isinstance(rows, list):
        raise _no_list(rows, path)
    if not rows:
        raise _is_empty(path, "a list of objects")
    for number, row in enumerate(rows, 1):
        place = f"item {number} of {path.name}"
        yield SourceRow(checked_object(row, place), place)


def _begins_with_object_line(text: str) -> bool:
    """Tell whether an object fills the first line of a text, so that only what follows can be at fault."""
    first = text.lstrip().partition("\n")[0]
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _no_list(top: object, path: Path) -> UserError:
    """Build the error for a file whose top is no list; it names the lists in an object."""
    if not isinstance(top, dict):
        return UserError(
            f"{path.name} holds neither a list nor an object: write a list of objects, [{{...}}, {{...}}]."
        )
    lists = [repr(name) for name, value in top.items() if isinstance(value, list)]
    held = f" with the list {' and '.join(lists)}" if lists else ""
    return UserError(
        f"{path.name} holds a single object{held}: write the rows alone, as a list of objects, [{{...}}, {{...}}]."
    )


# CSV and parquet


def _read_csv(path: Path) -> Iterator[SourceRow]:
    """Yield the rows of a CSV file; every cell is a text. The first line names the columns.

    A column without a name, as pandas writes its index, is left out, and so is a row without a text. A line break
    within a cell becomes a newline.
    """
    lines = (line for _, line in _lines(path, MOST_LENGTH))
    first_lines = []
    for line in lines:
        first_lines.append(line)
        if line.strip():
            break
    delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter_of("".join(first_lines))
    csv.field_size_limit(MOST_LENGTH)
    reader = csv.reader(chain(first_lines, lines), delimiter=delimiter, strict=True)
    header = []
    has_rows = False
    while True:
        place = f"line {reader.line_num + 1} of {path.name}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{at_start(place)} begins a row that is no CSV ({error}): put cells that hold "
                f"{DELIMITERS[delimiter]}, line breaks or quotation marks in quotation marks, and double those within."
            ) from error
        if cells is None:
            break
        if not "".join(cells).strip():
            continue
        if not header:
            header = _checked_header(cells, path)
            continue
        if len(cells) != len(header):
            raise UserError(
                f"{at_start(place)} begins a row of {_counted(len(cells), 'cell')}, and the header names "
                f"{_counted(len(header), 'column')}: put cells that hold {DELIMITERS[delimiter]} in quotation marks."
            )
        has_rows = True
        named = [(name, cell) for name, cell in zip(header, cells, strict=True) if name]
        yield SourceRow({name: cell.replace("\r\n", "\n") for name, cell in named}, place)
    if not has_rows:
        of_what = "rows below the header" if header else "a line that names the columns, and rows below it"
        raise _is_empty(path, of_what)


def _delimiter_of(header: str) -> str:
    """Return what separates the names of the columns; a comma where several do, or none."""
    unquoted = _QUOTED.sub("", header)
    found = [delimiter for delimiter in DELIMITERS if delimiter in unquoted]
    return found[0] if len(found) == 1 else ","


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _checked_header(cells: list[str], path: Path) -> list[str]:
    """Return the names of the columns. Raises UserError for a line that cannot be meant as names."""
    names = [cell.strip() for cell in cells]
    for name in names:
        if _NUMBER.fullmatch(name):
            raise UserError(
                f"The first line of {path.name} has the number {name} and so names no columns: put a line with the "
                "names of the columns above it."
            )
        if name and names.count(name) > 1:
            raise UserError(f"The first line of {path.name} names the column '{name}' twice: rename one.")
    return names


def _read_parquet(path: Path) -> Iterator[SourceRow]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                for values in batch.to_pylist():
                    number += 1
                    yield SourceRow(values, f"row {number} of {path.name}")
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(
            f"Cannot read {path} after row {number} ({first_line(error)}): write the parquet file again."
        ) from error
    if not number:
        raise _is_empty(path, "rows")


#: ending -> what reads a file that has it
READERS = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}

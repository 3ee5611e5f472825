"""Rows of data that a user brings: files, folders, data sets of the hub, and what a notebook has already.

JSON and CSV are read with the standard library, row by row, so that nothing in them is converted: a date stays a text,
"007" keeps its zeros, "NA" is no missing value, and a fault is known by its line.
"""

import codecs
import csv
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TextIO
from urllib.parse import urlsplit

from helpers.runtime import UserError, did_you_mean, first_line, recover_folder

#: Characters of a JSON array that are read at a time.
PIECE = 2**20
#: More bytes than a line has, and more characters than an item of a JSON array has.
MOST_LENGTH = 2**26
#: A larger file is not read again to say more about what is wrong with it.
MOST_EXPLAINED = 2**24
#: How far from the end of what was read a fault may be the end itself, as in the middle of an escape.
CUT_MARGIN = 16
#: Rows of a data set or a parquet file that are read at a time.
BATCH = 1000
#: Seconds in which the hub's server must take a connection.
HUB_TIMEOUT = 3.0

#: Names that a source may give to a split -> the split.
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "monitor": "monitor",
    "validation": "monitor",
    "valid": "monitor",
    "val": "monitor",
    "dev": "monitor",
    "eval": "monitor",
    "confirm": "confirm",
    "test": "confirm",
}

_HUB_ID = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]*/[\w.-]+)(?::(?P<config>[\w.-]+))?", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class SourceRow:
    """A row as its source has it.

    values: its columns. place: such as "line 3 of sums.jsonl". split: the name that the source gives to the part in
    which the row stands, such as "test"; "" where there are no parts.
    """

    values: dict
    place: str
    split: str = ""


@dataclass(frozen=True)
class Source:
    """Data that can be read again and again.

    name: for messages. files: those that hold the rows; none for objects and for data sets of the hub. rows: starts to
    read. It raises UserError for what cannot be read, with the place of the fault.
    """

    name: str
    files: tuple[Path, ...]
    rows: Callable[[], Iterator[SourceRow]]


def read_rows(data) -> Iterator[SourceRow]:
    """Yield the rows of some data. data: as for `open_source`, which also says what is raised."""
    return open_source(data).rows()


def open_source(data) -> Source:
    """Return the source of some data.

    data: the path of a file (.jsonl, .ndjson, .json, .csv or .parquet), of a folder of such files or of one that
    `save_to_disk` wrote; a data set of the hub, "owner/name" or "owner/name:configuration"; a `datasets.Dataset` or
    `DatasetDict`; a list of dicts; a source, which is returned.

    Raises UserError for what is none of these, and for a path where nothing is.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, (str, Path)):
        return _open_path(data)
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        return Source("the list", (), partial(_rows_of_list, data))
    if hasattr(data, "to_list") or isinstance(data, Mapping):
        source = _open_object(data)
        if source is not None:
            return source
    raise UserError(
        "A task takes the path of a file or a folder, an id of the hub, a datasets.Dataset or DatasetDict, or a list "
        f"of dicts; got a {type(data).__name__}."
    )


def at_start(place: str) -> str:
    """Return a place as the beginning of a sentence."""
    return place[:1].upper() + place[1:]


def _rows_of_list(rows: list[dict]) -> Iterator[SourceRow]:
    for number, row in enumerate(rows, 1):
        yield SourceRow(row, f"row {number}")


def _open_object(data: object) -> Source | None:
    """Return the source of a data set, or of a dictionary of them; None for any other object."""
    from datasets import Dataset, DatasetDict

    if isinstance(data, Dataset):
        return Source("the data set", (), partial(_rows_of_dataset, data, ""))
    if isinstance(data, DatasetDict):
        return Source("the data set", (), partial(_rows_of_splits, data, ""))
    return None


def _rows_of_splits(splits: Mapping, of_name: str) -> Iterator[SourceRow]:
    for split, dataset in splits.items():
        for row in _rows_of_dataset(dataset, f" of split '{split}'{of_name}"):
            yield SourceRow(row.values, row.place, split)


def _rows_of_dataset(dataset, of_name: str) -> Iterator[SourceRow]:
    """Yield the rows of a `datasets.Dataset`. of_name: the end of each place."""
    names = dataset.column_names
    number = 0
    for batch in dataset.with_format(None).iter(BATCH):
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield SourceRow(dict(zip(names, values, strict=True)), f"row {number}{of_name}")


# Paths


def _open_path(data: str | Path) -> Source:
    text = str(data)
    path = Path(text).expanduser()
    if text.strip() and path.name:
        try:
            recover_folder(path)
        except OSError as error:  # such as a name that is too long
            raise UserError(
                f"Cannot read {text:.80} ({error.strerror}): give the path of a file or a folder."
            ) from error
    if path.is_file():
        return Source(path.name, (path,), partial(_reader_of(path), path))
    if text.strip() and path.is_dir():
        return _open_folder(path)
    found = _HUB_ID.fullmatch(text)
    if found and path.suffix.lower() not in READERS and not path.parent.is_dir():
        return _open_hub(found["id"], found["config"])
    raise UserError(
        f"Cannot read {text or 'an empty path'}: there is no such file or folder{_similar_path(path)}; give the path "
        "of one, or an id of the hub such as owner/name."
    )


def _similar_path(path: Path) -> str:
    """Return a hint where something beside a path, or the folder beside its folder, has nearly its name."""
    for missing in (path, *path.parents):
        if missing.parent.is_dir():
            names = sorted(other.name for other in missing.parent.iterdir())
            return did_you_mean(missing.name, names)
    return ""


def _reader_of(path: Path) -> Callable[[Path], Iterator[SourceRow]]:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"Cannot read {path}: the ending '{path.suffix}' is none of {', '.join(READERS)}; convert the file, or "
            "give it the ending of what it holds."
        )
    return reader


def _open_folder(path: Path) -> Source:
    """Return the source of a folder that `save_to_disk` wrote, or that holds files of rows."""
    is_saved = (path / "dataset_dict.json").exists() or (path / "state.json").exists()
    if is_saved:
        return _open_saved(path)
    files = tuple(sorted(file for file in path.iterdir() if file.suffix.lower() in READERS and file.is_file()))
    if not files:
        raise UserError(
            f"The folder {path} is no data set: give one that save_to_disk wrote, or one that holds files with the "
            f"endings {', '.join(READERS)}."
        )
    return Source(path.resolve().name, files, partial(_rows_of_files, files))


def _open_saved(path: Path) -> Source:
    from datasets import DatasetDict, load_from_disk

    try:
        saved = load_from_disk(str(path))
    except Exception as error:  # of several libraries, for files that are missing or damaged
        raise UserError(
            f"Cannot read the data set in {path} ({first_line(error)}): save it again with save_to_disk."
        ) from error
    files = tuple(sorted(path.rglob("*.arrow")))
    if isinstance(saved, DatasetDict):
        return Source(path.name, files, partial(_rows_of_splits, saved, f" of {path.name}"))
    return Source(path.name, files, partial(_rows_of_dataset, saved, f" of {path.name}"))


def _rows_of_files(files: tuple[Path, ...]) -> Iterator[SourceRow]:
    """Yield the rows of several files. A file such as train.jsonl or test-00000-of-00001.parquet names their split."""
    splits = [re.split(r"[-_.]", file.stem)[0] for file in files]
    names_splits = any(split.lower() in SPLIT_NAMES for split in splits)
    for file, split in zip(files, splits, strict=True):
        for row in _reader_of(file)(file):
            yield SourceRow(row.values, row.place, split if names_splits else "")


# The hub


def _open_hub(name: str, config: str | None) -> Source:
    from datasets import DatasetDict, load_dataset

    if not _was_downloaded(name) and not _hub_is_reachable():
        raise UserError(
            f"There is no file or folder '{name}', and a data set of the hub with that id needs the network, where the "
            "hub cannot be reached: check the path, or the connection."
        )
    try:
        loaded = load_dataset(name, config)
    except Exception as error:  # of several libraries
        described = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"There is no file or folder '{name}', and the hub gave no data set of that id ({described}): check the "
            "spelling and the network, and name one of several configurations as owner/name:configuration."
        ) from error
    shown = f"{name}:{config}" if config else name
    if isinstance(loaded, DatasetDict):
        return Source(shown, (), partial(_rows_of_splits, loaded, f" of {shown}"))
    return Source(shown, (), partial(_rows_of_dataset, loaded, f" of {shown}"))


def _was_downloaded(name: str) -> bool:
    from datasets.config import HF_DATASETS_CACHE

    return (Path(HF_DATASETS_CACHE) / name.replace("/", "___")).is_dir()


def _hub_is_reachable() -> bool:
    """Tell whether the hub's server takes a connection. Behind a proxy nobody can tell, so it is taken to be there."""
    from urllib.request import getproxies  # not above: it loads much

    from huggingface_hub.constants import ENDPOINT

    if getproxies():
        return True
    server = urlsplit(ENDPOINT)
    port = server.port or (80 if server.scheme == "http" else 443)
    try:
        socket.create_connection((server.hostname, port), timeout=HUB_TIMEOUT).close()
    except OSError:
        return False
    return True


# Lines


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = open(path, "rb")
    except OSError as error:
        raise UserError(f"Cannot read {path} ({error.strerror}): give a file that you may read.") from error
    with file:
        yield file


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line with its number and its end. A line ends with a newline only, and JSON may hold other ends.

    Raises UserError for a line that is no UTF-8, and for one that is longer than any row.
    """
    with _opened(path) as file:
        number = 0
        while line := file.readline(MOST_LENGTH + 1):
            number += 1
            if len(line) > MOST_LENGTH:
                raise UserError(f"Line {number} of {path.name} is longer than {MOST_LENGTH:,} bytes: shorten it.")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            yield number, _decode(line, number, path)


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
    for number, line in _lines(path):
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
    return _checked_object(found, place)


def _checked_object(found: object, place: str) -> dict:
    if not isinstance(found, dict):
        raise UserError(f"{at_start(place)} is not an object: write each row as an object, {{column: value, ...}}.")
    return found


def _describe(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return first_line(error)


def _read_json(path: Path) -> Iterator[SourceRow]:
    """Yield the rows of a JSON list, or of a file with one object a line, as .json files of many data sets are."""
    with _opened(path):
        pass
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = _JsonText(file)
            first = text.next_character()
            if first == "[":
                yield from _items(text, path)
                return
    except UnicodeDecodeError as error:
        for _ in _lines(path):  # it raises at the line
            pass
        raise UserError(f"{path.name} is no UTF-8 text: save the file as UTF-8.") from error
    if not first:
        raise _is_empty(path, "a list of objects")
    if first == "{" and not _has_one_object_a_line(path):
        raise _no_list(path)
    yield from _read_jsonl(path)


def _has_one_object_a_line(path: Path) -> bool:
    """Tell whether a file's first two lines that are not empty are an object and the beginning of another one."""
    lines = (line for _, line in _lines(path) if line.strip())
    first = next(lines)
    second = next(lines, "")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return second.lstrip().startswith("{")


def _no_list(path: Path) -> UserError:
    """Build the error for a file whose top is an object; it names the lists in it where the file is small."""
    lists = []
    if path.stat().st_size <= MOST_EXPLAINED:
        try:
            top = json.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            line = f"line {error.lineno} of " if isinstance(error, json.JSONDecodeError) else ""
            return UserError(f"{at_start(line + path.name)} is not JSON ({_describe(error)}): write a list of objects.")
        lists = [repr(name) for name, value in top.items() if isinstance(value, list)]
    held = f" with the list {' and '.join(lists)}" if lists else ""
    return UserError(
        f"{path.name} holds a single object{held}: write the rows alone, as a list of objects, [{{...}}, {{...}}]."
    )


class _JsonText:
    """The text of a JSON file, of which only the part that is needed is in memory.

    line: the number of the line in which the next character stands.
    """

    def __init__(self, file: TextIO):
        self.line = 1
        self._file = file
        self._text = ""
        self._at = 0
        self._has_ended = False

    def next_character(self) -> str:
        """Return the next character that is no white space, without taking it; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._take(self._at + 1)
            if self._at < len(self._text) or self._has_ended:
                return self._text[self._at : self._at + 1]
            self._read_more()

    def take_character(self) -> None:
        self._take(self._at + 1)

    def take_value(self) -> object:
        """Return the JSON value that begins here. Raises ValueError, with the line in `line`, where there is none."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error):
                    self.line += self._text.count("\n", self._at, error.pos)
                    raise
                self._read_more()
            else:
                self._take(end)
                return value

    def _take(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        """Tell whether a value is at fault only because its end has not been read yet."""
        if self._has_ended or len(self._text) - self._at > MOST_LENGTH:
            return False
        is_near_end = error.pos > len(self._text) - CUT_MARGIN
        return is_near_end or error.msg.startswith("Unterminated string")

    def _read_more(self) -> None:
        """Read on, twice as much where a long value began, so that a value is tried a few times only."""
        rest = self._text[self._at :]
        piece = self._file.read(max(PIECE, len(rest)))
        self._has_ended = not piece
        self._text = rest + piece
        self._at = 0


def _items(text: _JsonText, path: Path) -> Iterator[SourceRow]:
    """Yield the objects of a JSON list. text: stands before the list's bracket."""
    text.take_character()
    number = 0
    if text.next_character() == "]":
        raise _is_empty(path, "a list of objects")
    while True:
        number += 1
        is_there = text.next_character()
        place = f"item {number} of {path.name} (line {text.line})"
        if not is_there:
            raise UserError(f"{path.name} ends within its list, behind item {number - 1}: get the whole file.")
        yield SourceRow(_take_object(text, number, place, path), place)
        end = text.next_character()
        if end not in (",", "]"):
            found = f"'{end}'" if end else "the end of the file"
            raise UserError(
                f"{at_start(place)} is followed by {found}: put a comma between items and ']' behind the last one."
            )
        text.take_character()
        if end == "]":
            break
    if text.next_character():
        raise UserError(f"Something follows the list in line {text.line} of {path.name}: write one list alone.")


def _take_object(text: _JsonText, number: int, place: str, path: Path) -> dict:
    try:
        found = text.take_value()
    except (ValueError, RecursionError) as error:
        message = error.msg if isinstance(error, json.JSONDecodeError) else first_line(error)
        raise UserError(
            f"Item {number} of {path.name} is not JSON ({message}, line {text.line}): write a list of objects."
        ) from error
    return _checked_object(found, place)


# CSV and parquet


def _read_csv(path: Path) -> Iterator[SourceRow]:
    """Yield the rows of a CSV file; every cell is a text. The first line names the columns.

    A column without a name, as pandas writes its index, is left out.
    """
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    header = []
    has_rows = False
    while True:
        place = f"line {reader.line_num + 1} of {path.name}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{at_start(place)} begins a row that is no CSV ({error}): put cells that hold commas, line breaks or "
                "quotation marks in quotation marks, and double those within."
            ) from error
        if cells is None:
            break
        if len(cells) < 2 and not "".join(cells).strip():
            continue  # an empty line
        if not header:
            header = _checked_header(cells, path)
            continue
        if len(cells) != len(header):
            raise UserError(
                f"{at_start(place)} begins a row of {len(cells)} cells, and the header names {len(header)} columns: "
                "put cells that hold commas in quotation marks."
            )
        has_rows = True
        yield SourceRow({name: cell for name, cell in zip(header, cells) if name}, place)
    if not has_rows:
        of_what = "rows below the header" if header else "a line that names the columns, and rows below it"
        raise _is_empty(path, of_what)


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
    for separator, described in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and separator in names[0]:
            raise UserError(f"The columns of {path.name} are separated by {described}: separate them by commas.")
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
            f"Cannot read {path} behind row {number} ({first_line(error)}): write the parquet file again."
        ) from error
    if not number:
        raise _is_empty(path, "rows")


#: ending -> what reads a file that has it
READERS = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}

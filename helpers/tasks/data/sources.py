"""Where a user's rows are: files and folders, data sets of the hub, and what a notebook has already."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from helpers.runtime import UserError, did_you_mean, first_line, recover_folder
from helpers.tasks.data.files import BATCH, READERS, SourceRow, checked_object

#: Seconds in which the hub's server must answer.
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
    "probe": "probe",
}

#: What lies beside the files of rows in a folder of a data set, and holds no rows.
NO_ROWS = ("dataset_info.json", "dataset_infos.json", "metadata.json", "report.json")
_HUB_ID = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]*/[\w.-]+)(?::(?P<config>[\w.-]+))?", re.ASCII)


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


def open_source(data, revision: str | None = None) -> Source:
    """Return the source of some data.

    data: the path of a file (.jsonl, .ndjson, .json, .csv, .tsv or .parquet), of a folder of such files or of one that
    `save_to_disk` wrote; a data set of the hub, "owner/name" or "owner/name:configuration"; a `datasets.Dataset` or
    `DatasetDict`; a list of dicts; a source, which is returned. revision: the commit of a data set of the hub; None:
    the newest one. Where the hub cannot be reached, `load_dataset` takes what it has downloaded, of any revision.

    Raises UserError for what is none of these, for a path where nothing is, and for a revision of anything else than a
    data set of the hub.
    """
    if isinstance(data, (str, Path)):
        return _open_path(data, revision)
    if revision is not None:
        raise UserError(
            f"Only data sets of the hub have revisions; got revision '{revision}' with a {type(data).__name__}: leave "
            "the revision out, or give an id of the hub such as owner/name."
        )
    if isinstance(data, Source):
        return data
    if isinstance(data, (list, tuple)):
        return Source("the list", (), partial(_rows_of_list, data))
    if hasattr(data, "to_list") or isinstance(data, Mapping):
        source = _open_object(data)
        if source is not None:
            return source
    raise UserError(
        "Data are the path of a file or a folder, an id of the hub, a datasets.Dataset or DatasetDict, or a list of "
        f"dicts; got a {type(data).__name__}."
    )


def split_part(name: str) -> str:
    """Return the part of a name that says a split, as "train" of "train_sft"; the whole name where none does."""
    beginning = re.split(r"[-_.]", name.strip())[0]
    return beginning if beginning.lower() in SPLIT_NAMES else name


def _rows_of_list(rows: Sequence[dict]) -> Iterator[SourceRow]:
    for number, row in enumerate(rows, 1):
        yield SourceRow(checked_object(row, f"row {number} of the list"), f"row {number}")


def _open_object(data: object) -> Source | None:
    """Return the source of a data set, or of a dictionary of them; None for any other object."""
    from datasets import Dataset, DatasetDict

    is_dataset = isinstance(data, (Dataset, DatasetDict))
    return _source_of(data, "the data set", of_name="") if is_dataset else None


def _source_of(loaded: object, name: str, of_name: str, files: tuple[Path, ...] = ()) -> Source:
    """Return the source of a data set, or of a dictionary of them. of_name: the end of each place."""
    from datasets import DatasetDict

    reader = _rows_of_splits if isinstance(loaded, DatasetDict) else _rows_of_dataset
    return Source(name, files, partial(reader, loaded, of_name))


def _rows_of_splits(splits: Mapping, of_name: str) -> Iterator[SourceRow]:
    for split, dataset in splits.items():
        for row in _rows_of_dataset(dataset, f" of split '{split}'{of_name}"):
            yield SourceRow(row.values, row.place, split_part(split))


def _rows_of_dataset(dataset, of_name: str) -> Iterator[SourceRow]:
    """Yield the rows of a `datasets.Dataset` with their places. of_name: the end of each place."""
    for number, row in enumerate(each_row(dataset), 1):
        yield SourceRow(row, f"row {number}{of_name}")


def each_row(dataset) -> Iterator[dict]:
    """Yield the rows of a `datasets.Dataset`, which are read a batch at a time."""
    for batch in dataset.with_format(None).iter(BATCH):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


# Paths


def _open_path(data: str | Path, revision: str | None) -> Source:
    text = str(data)
    path = Path(text).expanduser()
    try:
        if path.name and not path.exists() and _was_prepared(path):
            recover_folder(path)
    except OSError as error:  # such as a name that is too long
        raise UserError(f"Cannot read {text:.80} ({error.strerror}): give the path of a file or a folder.") from error
    if revision is not None and text.strip() and path.exists():
        raise UserError(
            f"{text} is a file or folder here, which has no revision '{revision}': rename it, or work in another "
            "folder, to read the data set of the hub."
        )
    if path.is_file():
        return Source(path.name, (path,), partial(_reader_of(path), path))
    if text.strip() and path.is_dir():
        return _open_folder(path)
    if path.exists() and text.strip():
        raise UserError(f"Cannot read {text}: it is no regular file; write the rows to a file, and give its path.")
    found = _HUB_ID.fullmatch(text)
    if found and path.suffix.lower() not in READERS and not path.parent.is_dir():
        return _open_hub(found["id"], found["config"], revision)
    raise UserError(
        f"Cannot read {text or 'an empty path'}: there is no such file or folder{_similar_path(path)}; give the path "
        "of one, or an id of the hub such as owner/name."
    )


def _was_prepared(path: Path) -> bool:
    """Tell whether `prepare` was interrupted while it wrote this folder anew: the old one has a hidden name then."""
    old = path.with_name(f".{path.name}.old")
    return (old / "report.json").is_file() and (old / "dataset_dict.json").is_file()


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
    """Return the source of a folder that `save_to_disk` wrote, or that holds files of rows, itself or in `data`."""
    is_saved = (path / "dataset_dict.json").exists() or (path / "state.json").exists()
    if is_saved:
        return _open_saved(path)
    files = _files_of_rows(path) or _files_of_rows(path / "data")  # as data sets of the hub have them
    if not files:
        raise UserError(
            f"The folder {path} is no data set: give one that save_to_disk wrote, or one that holds files with the "
            f"endings {', '.join(READERS)}."
        )
    return Source(path.resolve().name, files, partial(_rows_of_files, files))


def _files_of_rows(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder that have the most frequent ending; others are the same rows or none.

    Raises UserError where two endings are equally frequent.
    """
    if not folder.is_dir():
        return ()
    by_ending: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        ending = file.suffix.lower()
        if ending in READERS and file.name not in NO_ROWS and file.is_file():
            by_ending.setdefault(ending, []).append(file)
    if not by_ending:
        return ()
    counts = Counter({ending: len(files) for ending, files in by_ending.items()})
    (ending, count), *others = counts.most_common()
    if others and others[0][1] == count:
        raise UserError(
            f"The folder {folder} has as many files with the ending {ending} as with {others[0][0]}: leave files of "
            "one ending there, or give the path of one file."
        )
    return tuple(by_ending[ending])


def _open_saved(path: Path) -> Source:
    from datasets import load_from_disk

    try:
        saved = load_from_disk(str(path))
    except Exception as error:  # of several libraries, for files that are missing or damaged
        raise UserError(
            f"Cannot read the data set in {path} ({first_line(error)}): save it again with save_to_disk."
        ) from error
    files = tuple(sorted(path.rglob("*.arrow")))
    return _source_of(saved, path.name, f" of {path.name}", files)


def _rows_of_files(files: tuple[Path, ...]) -> Iterator[SourceRow]:
    """Yield the rows of several files. A file such as train.jsonl or test-00000-of-00001.parquet names their split."""
    splits = [re.split(r"[-_.]", file.stem)[0] for file in files]
    names_splits = any(split.lower() in SPLIT_NAMES for split in splits)
    for file, split in zip(files, splits, strict=True):
        for row in _reader_of(file)(file):
            yield SourceRow(row.values, row.place, split if names_splits else "")


# The hub


def hub_revision(name: str) -> str | None:
    """Return the commit hash of the newest revision of a data set of the hub; None where the hub cannot be reached.

    name: "owner/name". Raises UserError for a data set that the hub does not have, or does not show.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return HfApi().dataset_info(name, timeout=HUB_TIMEOUT).sha
    except (RepositoryNotFoundError, ValueError) as error:  # ValueError: no id is like that
        raise UserError(
            f"The hub shows no data set '{name}' ({first_line(error)}): check the spelling, or log in where its page "
            "asks for it."
        ) from error
    except Exception:  # of the client of HTTP that the hub's library uses, which its versions change
        return None


def _open_hub(name: str, config: str | None, revision: str | None = None) -> Source:
    from datasets import load_dataset

    if not _was_downloaded(name) and not _hub_answers(name):
        raise UserError(
            f"There is no file or folder '{name}', and a data set of the hub with that id needs the network, where the "
            "hub cannot be reached: check the path, or the connection."
        )
    try:
        loaded = load_dataset(name, config, revision=revision)
    except Exception as error:  # of several libraries
        described = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"There is no file or folder '{name}', and the hub gave no data set of that id ({described}): check the "
            "spelling and the network, and name one of several configurations as owner/name:configuration."
        ) from error
    shown = f"{name}:{config}" if config else name
    return _source_of(loaded, shown, f" of {shown}")


def _was_downloaded(name: str) -> bool:
    from datasets.config import HF_DATASETS_CACHE

    return (Path(HF_DATASETS_CACHE) / name.replace("/", "___")).is_dir()


def _hub_answers(name: str) -> bool:
    """Tell whether the hub says anything about a data set. `load_dataset` tries for half a minute and prints."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().dataset_info(name, timeout=HUB_TIMEOUT)
    except (HfHubHTTPError, ValueError):  # there is none, or no id is like that: `load_dataset` says so
        return True
    except Exception:  # of the client of HTTP that the hub's library uses, which its versions change
        return False
    return True

"""The rows of a user's data: checked, each prompt once, divided into splits, and kept in a file.

A source is read twice. The first time finds the faults, the types of the columns and which prompts are there again; the
second time writes what is kept. In memory are a few numbers for each prompt.
"""

import hashlib
import json
import os
import shutil
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from helpers.runtime import UserError, at_start, did_you_mean, first_line
from helpers.tasks.data.arrow import ColumnTypes, rows_in_memory, write_rows
from helpers.tasks.data.columns import Columns, RowFault, describe_columns
from helpers.tasks.data.files import BATCH, SourceRow
from helpers.tasks.data.sources import SPLIT_NAMES, Source, split_part
from helpers.tasks.drawing import prompt_id, text_digest
from helpers.tasks.split import PROBE, SPLITS, split_of
from helpers.tasks.task import Row

#: Further faults of single rows, beside those of `columns.py`.
DUPLICATE = "duplicate"
CONTRADICTS = "contradicts an earlier row"
DUPLICATE_ID = "duplicate id"
HELD_OUT = "prompt in a held-out split"
UNREADABLE_ANSWER = "answer that the rewards cannot read"

#: All splits that data may have. Of a prompt in two of them the later one keeps it.
ALL_SPLITS = (*SPLITS, PROBE)
#: Columns that a row gets.
ADDED = ("id", "cluster")
#: Rows of fewer characters altogether are kept in memory.
IN_MEMORY = 2**26
#: How the name begins of a folder with the rows of a process.
FOLDER = "gpt-oss-rl-rows-"
#: Places of dropped rows that a report names, of each reason.
MOST_PLACES = 5


@dataclass
class Dropped:
    """Rows that were left out for one reason. places: of the first ones."""

    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, place: str) -> None:
        self.count += 1
        if len(self.places) < MOST_PLACES:
            self.places.append(place)


@dataclass(frozen=True)
class KeptRows:
    """The rows of a source that a task has.

    data: a `datasets.Dataset` of all, in the order of the source. positions: split -> which of them it has; "probe" is
    among the splits only where the source names it. names_splits: whether the source said which row is in which split;
    then the column `split` says it, too. source: where they come from. rows_read: how many the source has. dropped:
    reason -> rows that were left out. digest: the SHA-256 of the rows. The file of `data` is removed with this object.
    """

    data: object
    positions: Mapping[str, Sequence[int]]
    names_splits: bool
    source: Source
    rows_read: int
    dropped: Mapping[str, Dropped]
    digest: str


@dataclass(frozen=True)
class Demands:
    """What a task asks of the rows.

    name: of the task. needs_answer: whether each row must have an answer. needs: column -> the reward that reads it.
    filled: columns that are None where the source has none of the name. faults_of: f(rows) -> for each what its rewards
    cannot read, or "". exact_answers: keep whole numbers and fractions in one column of answers as texts, since 1 would
    become 1.0. drop_faulty: leave rows with faults out and count them; else the first one is raised.
    """

    name: str
    needs_answer: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)
    filled: Sequence[str] = ()
    faults_of: Callable[[Sequence[Row]], Sequence[str]] | None = None
    exact_answers: bool = False
    drop_faulty: bool = False


def keep_rows(source: Source, columns: Columns, demands: Demands) -> KeptRows:
    """Read a source, check its rows and divide them into splits.

    A row may name its split in a column `split`, or by the part of the source in which it stands; what is named by none
    is taken from "train" by a hash of the prompt, or of the column `cluster`. There is a split "probe" only where the
    source names it. Rows with the same prompt and the same columns are taken once.

    Raises UserError for faults of the source, for a column whose values are of two kinds or which a reward needs and
    no row has, and for a split without rows. Without `drop_faulty` it raises for faults of single rows, too.
    """
    scan = _Scan(source, columns, demands)
    scan.run()
    return _Writer(scan).write()


class _Scan:
    """The first reading: the fate of every row.

    fates: for each row of the source a split's number, or behind those a reason's.
    """

    def __init__(self, source: Source, columns: Columns, demands: Demands):
        self.source = source
        self.columns = columns
        self.demands = demands
        own_names = {"prompt": columns.prompt, "answer": columns.answer}
        self.types = ColumnTypes(own_names, exact="answer" if demands.exact_answers else "")
        self.size = 0  # characters of the rows as JSON
        self.names: dict[str, None] = {}  # of the columns, in the order in which they were met
        self.fates = bytearray()
        self.reasons: list[str] = []
        self.names_splits: bool | None = None
        self.named_splits: dict[str, str] = {}  # split -> its name in the source
        self._source_names: dict[str, None] = {}
        self._first_split = ("", "")  # what the column `split` says in the first row, and where
        # For each different prompt: where the two lists below have what is known of its row.
        self._prompts: dict[int, int] = {}
        self._contents = array("Q")
        self._numbers = array("Q")
        self._own_ids: dict[int, int] = {}

    def run(self) -> None:
        rows = self.source.rows()
        while batch := list(islice(rows, BATCH)):
            if not self.fates:
                self.columns.check(batch, self.source.name, self.demands.needs_answer)
            for found, shaped in zip(batch, self._shape(batch), strict=True):
                fate = self._fate_of(found, shaped, number=len(self.fates))
                self.fates.append(fate)
        if not self.fates:
            raise UserError(f"There are no rows in {self.source.name}: give some hundreds of prompts.")
        if not self._prompts:
            raise UserError(
                f"Every row of {self.source.name} has a fault ({', '.join(self.reasons)}): look at the names of its "
                "columns, and at what is in them."
            )
        self._check_needed()
        if self.names_splits and "train" not in self.named_splits:
            found = describe_columns(self.named_splits.values())
            raise UserError(
                f"{at_start(self.source.name)} has the splits {found} and none to train on: call one of them train, or "
                "name none."
            )

    def _shape(self, batch: Sequence[SourceRow]) -> list[Row | RowFault]:
        """Return for each row of the source a row of the task, or what is wrong with it."""
        shaped = []
        for found in batch:
            try:
                shaped.append(self.row_of(found))
            except RowFault as fault:
                shaped.append(fault)
        if self.demands.faults_of is None:
            return shaped
        places = [place for place, row in enumerate(shaped) if not isinstance(row, RowFault)]
        given = {name for place in places for name in shaped[place]}
        if not given.issuperset(self.demands.needs):  # the whole source may lack a column, which is said in the end
            return shaped
        names = dict.fromkeys([*self.demands.filled, *given])
        faults = self.demands.faults_of([{**names, **shaped[place]} for place in places])
        for place, fault in zip(places, faults, strict=True):
            if fault:
                shaped[place] = RowFault(UNREADABLE_ANSWER, f"{at_start(batch[place].place)}: {fault}")
        return shaped

    def row_of(self, found: SourceRow) -> Row:
        """Return a row of the task. Raises RowFault and UserError."""
        row = self.columns.apply(found, self.demands.needs_answer)
        if found.split:
            row.pop("split", None)  # the source says it
        text = json.dumps(row["prompt"])
        # What was put in front of all prompts must not move them to other splits.
        own_text = json.dumps(row["prompt"][1:]) if self.columns.system_prompt else text
        cluster = text_digest(own_text) if row.get("cluster") is None else str(row["cluster"])
        return {**row, "id": prompt_id(self.demands.name, text), "cluster": cluster}

    def named_split(self, found: SourceRow) -> str:
        """Return the split that the source names for a row, "" where it names none.

        Raises UserError for a name that is none of a split, or none beside rows that name one.
        """
        if found.split:
            if found.split.lower() not in SPLIT_NAMES:
                raise UserError(
                    f"{at_start(found.place)} is in a split called '{found.split}'"
                    f"{did_you_mean(found.split, SPLIT_NAMES)}: call it train, validation or test."
                )
            return SPLIT_NAMES[found.split.lower()]
        value = found.values.get("split")
        split = SPLIT_NAMES.get(split_part(value.strip()).lower(), "") if isinstance(value, str) else ""
        if self.names_splits is None:
            self._first_split = (value, found.place)
        elif bool(split) != self.names_splits:
            first_value, first_place = self._first_split
            raise UserError(
                f"Column 'split' is {value!r:.40} in {found.place} and {first_value!r:.40} in {first_place}: let every "
                "row name train, validation or test there, or rename the column."
            )
        return split

    def _fate_of(self, found: SourceRow, shaped: Row | RowFault, number: int) -> int:
        named = self.named_split(found)
        if self.names_splits is None:
            self.names_splits = bool(named)
        try:
            if isinstance(shaped, RowFault):
                raise shaped
            if named:
                shaped["split"] = named
            fate = self._join(shaped, found, named, number)
        except RowFault as fault:
            if not self.demands.drop_faulty:
                raise
            return self._fate_of_reason(fault.reason)
        if fate < len(ALL_SPLITS):
            self.types.note(shaped, found.place)
            self._note_names(shaped, found)
        if named:
            self.named_splits.setdefault(named, found.split or found.values.get("split"))
        return fate

    def _note_names(self, row: Row, found: SourceRow) -> None:
        """Take notice of the columns of a row. An id and a cluster that were added come behind all others."""
        self._source_names.update(dict.fromkeys(found.values))
        for name in row:
            if name not in self.names and (name in found.values or name not in ADDED):
                self.names[name] = None

    def _fate_of_reason(self, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return len(ALL_SPLITS) + self.reasons.index(reason)

    def _join(self, row: Row, found: SourceRow, named: str, number: int) -> int:
        """Return the fate of a row among those before it. Raises RowFault where it does not go with them."""
        split = ALL_SPLITS.index(named or split_of("cluster", row["cluster"]))
        prompt = _number_of(row["id"])
        content = self._content_of(row)
        self._check_own_id(found, prompt, number)
        entry = self._prompts.get(prompt)
        if entry is None:
            self._prompts[prompt] = len(self._numbers)
            self._contents.append(content)
            self._numbers.append(number)
            return split
        earlier = self._numbers[entry]
        earlier_split = self.fates[earlier]
        if self.names_splits and split != earlier_split:
            return self._settle_splits(found, number, split, entry, content)
        if content != self._contents[entry]:
            raise RowFault(
                CONTRADICTS,
                f"{at_start(found.place)} has the prompt of an earlier row, and other columns than "
                f"{self._place(earlier)}: leave one of them out.",
            )
        return self._fate_of_reason(DUPLICATE)

    def _settle_splits(self, found: SourceRow, number: int, split: int, entry: int, content: int) -> int:
        """Return the fate of a row whose prompt is in another split, too. The later split in `ALL_SPLITS` keeps it."""
        earlier = self._numbers[entry]
        earlier_split = self.fates[earlier]
        if not self.demands.drop_faulty:
            raise RowFault(
                HELD_OUT,
                f"{at_start(found.place)} has the prompt of {self._place(earlier)}, and they are in the splits "
                f"'{ALL_SPLITS[split]}' and '{ALL_SPLITS[earlier_split]}': leave one of them out.",
            )
        held_out = self._fate_of_reason(HELD_OUT)
        if split < earlier_split:
            return held_out
        self.fates[earlier] = held_out
        self._numbers[entry] = number
        self._contents[entry] = content
        return split

    def _check_own_id(self, found: SourceRow, prompt: int, number: int) -> None:
        """Raise RowFault where an earlier row of the same part has the same id in the data, and another prompt."""
        own_id = found.values.get("id")
        if own_id is None:
            return
        key = _number_of(f"{found.split}\n{own_id}")
        entry = self._own_ids.setdefault(key, number << 64 | prompt)
        earlier = entry >> 64
        if entry & (2**64 - 1) != prompt:
            raise RowFault(
                DUPLICATE_ID,
                f"{at_start(found.place)} has the id {own_id!r:.60} of {self._place(earlier)}, and another prompt: "
                "give it another id, or leave the column out.",
            )

    def _content_of(self, row: Row) -> int:
        """Return 64 bits of a hash of what a row has, whatever its id and the split that it names."""
        ignored = ("id", "split") if self.names_splits else ("id",)
        content = {name: value for name, value in row.items() if value is not None and name not in ignored}
        text = json.dumps(content, sort_keys=True, default=repr)
        self.size += len(text)
        return _number_of(text)

    def _place(self, number: int) -> str:
        """Return the place of a row of the source, which is read again for it where somebody is told."""
        if self.demands.drop_faulty:
            return "an earlier row"
        return next(islice(self.source.rows(), number, None)).place

    def _check_needed(self) -> None:
        known = self.types.names
        for column, reward in self.demands.needs.items():
            if column not in known:
                own = self._source_names
                raise UserError(
                    f"Reward '{reward}' of task '{self.demands.name}' reads the column '{column}'"
                    f"{did_you_mean(column, own)}, and {self.source.name} has {describe_columns(own)}: name the right "
                    "column, or choose another task or reward."
                )


class _Writer:
    """The second reading, which writes the rows that are kept."""

    def __init__(self, scan: _Scan):
        self.scan = scan
        self.names = list(dict.fromkeys([*scan.names, *scan.demands.filled, *ADDED]))
        splits = ALL_SPLITS if PROBE in scan.named_splits else SPLITS
        self.positions = {split: array("Q") for split in splits}
        self.dropped: dict[str, Dropped] = {}
        self._count = 0
        self._digest = hashlib.sha256()

    def write(self) -> KeptRows:
        schema = self.scan.types.schema(self.names)
        folder = None
        if self.scan.size <= IN_MEMORY:
            data = rows_in_memory(schema, self._batches())
        else:
            folder, data = self._write_file(schema)
        self._check_splits(data)
        kept = KeptRows(
            data=data,
            positions=self.positions,
            names_splits=bool(self.scan.names_splits),
            source=self.scan.source,
            rows_read=len(self.scan.fates),
            dropped=self.dropped,
            digest=self._digest.hexdigest(),
        )
        if folder is not None:
            weakref.finalize(kept, shutil.rmtree, folder, ignore_errors=True)
        return kept

    def _write_file(self, schema) -> tuple[str, object]:
        """Write the rows to a file in a folder of their own, and return the folder and the data set."""
        _remove_folders_of_dead_processes()
        folder = mkdtemp(prefix=f"{FOLDER}{os.getpid()}-")
        try:
            return folder, write_rows(Path(folder) / "rows.arrow", schema, self._batches())
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(
                f"Cannot keep the rows in {folder} ({first_line(error)}): let TMPDIR name a folder with room for them."
            ) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _check_splits(self, data) -> None:
        for split, found in self.positions.items():
            if not found:
                clusters = len(set(data["cluster"]))
                dropped = sum(one.count for one in self.dropped.values())
                besides = f" ({dropped} rows were left out)" if dropped else ""
                raise UserError(
                    f"Of {len(data)} different prompts in {clusters} clusters{besides} none falls into the split "
                    f"'{split}': give the task more of them (some hundreds of prompts, to tell two models apart)."
                )

    def _batches(self) -> Iterator[tuple[list[Row], list[str]]]:
        """Yield rows and their places, a batch at a time."""
        kept = self._kept()
        while batch := list(islice(kept, BATCH)):
            for row, _, split in batch:
                self.positions[split].append(self._count)
                self._digest.update(json.dumps(row, sort_keys=True, default=repr).encode() + b"\n")
                self._count += 1
            yield [row for row, _, _ in batch], [place for _, place, _ in batch]

    def _kept(self) -> Iterator[tuple[Row, str, str]]:
        """Yield the rows that the first reading kept, with their places and splits, and count the others."""
        scan = self.scan
        count = 0
        for found in scan.source.rows():
            if count == len(scan.fates):
                raise _changed(scan.source)
            fate = scan.fates[count]
            count += 1
            if fate >= len(ALL_SPLITS):
                self._drop(scan.reasons[fate - len(ALL_SPLITS)], found.place)
                continue
            row = {**dict.fromkeys(self.names), **scan.row_of(found)}
            split = self._final_split(row, ALL_SPLITS[fate])
            if scan.names_splits:
                row["split"] = split
            yield row, found.place, split
        if count < len(scan.fates):
            raise _changed(scan.source)

    def _final_split(self, row: Row, split: str) -> str:
        """Return the split of a row: where the source has none of that name, some of "train" are taken for it."""
        if not self.scan.names_splits or split != "train":
            return split
        by_hash = split_of("cluster", row["cluster"])
        return split if by_hash in self.scan.named_splits else by_hash

    def _drop(self, reason: str, place: str) -> None:
        self.dropped.setdefault(reason, Dropped()).add(place)


def _changed(source: Source) -> UserError:
    return UserError(f"{at_start(source.name)} changed while it was read: run this again when it is complete.")


def _number_of(text: str) -> int:
    """Return 64 bits of a hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _remove_folders_of_dead_processes() -> None:
    """Remove what processes left that were killed."""
    for folder in Path(gettempdir()).glob(f"{FOLDER}*-*"):
        pid = folder.name.removeprefix(FOLDER).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)

"""Rows in an Arrow file, which is mapped into memory, so that data need not fit there.

A column has one type. It is found before anything is written, from the values of all rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.runtime import UserError, at_start, first_line
from helpers.tasks.data.columns import kind_of
from helpers.tasks.data.files import BATCH
from helpers.tasks.task import Row

#: Kinds of values whose type follows from the kind.
SIMPLE_KINDS = ("a text", "a number", "a truth value")


@dataclass
class _Column:
    """What is known of a column. place: of its first value that is not None. values: whose type was not asked for."""

    kind: str = ""
    place: str = ""
    has_whole: bool = False
    has_fractions: bool = False
    has_large: bool = False
    nested_type: object = None
    values: list = field(default_factory=list)
    places: list[str] = field(default_factory=list)


class ColumnTypes:
    """The types of columns, found row by row.

    own_names: column -> its name in the user's data, where that is another. exact: a column whose numbers become texts
    where no type holds all of them as they are, such as 1 and 2.5.
    """

    def __init__(self, own_names: Mapping[str, str], exact: str = ""):
        self._own_names = own_names
        self._exact = exact
        self._columns: dict[str, _Column] = {}

    @property
    def names(self) -> list[str]:
        """The columns in the order in which they were met."""
        return list(self._columns)

    def note(self, row: Row, place: str) -> None:
        """Take notice of a row. Raises UserError where a column has values of two kinds."""
        for name, value in row.items():
            column = self._columns.setdefault(name, _Column())
            if value is None:
                continue
            kind = kind_of(value)
            if not column.kind:
                column.kind = kind
                column.place = place
            elif kind != column.kind:
                shown = self._own_names.get(name, name)
                raise UserError(
                    f"Column '{shown}' has {kind} in {place} and {column.kind} in {column.place}: write it one way in "
                    "all rows."
                )
            if kind == "a number":
                is_whole = isinstance(value, int) and abs(value) < 2**63
                column.has_whole = column.has_whole or is_whole
                column.has_fractions = column.has_fractions or isinstance(value, float)
                column.has_large = column.has_large or not (is_whole or isinstance(value, float))
            elif kind not in SIMPLE_KINDS:
                column.values.append(value)
                column.places.append(place)
                if len(column.values) >= BATCH:
                    _note_nested(name, column)

    def schema(self, names: Sequence[str]):
        """Return the `pyarrow.Schema` of columns in that order. Raises UserError where one has no type."""
        import pyarrow

        return pyarrow.schema([(name, self._type_of(name)) for name in names])

    def _type_of(self, name: str):
        import pyarrow

        column = self._columns.get(name, _Column())
        if column.kind == "a number":
            is_mixed = column.has_large or (column.has_whole and column.has_fractions)
            if is_mixed and name == self._exact:
                return pyarrow.string()
            return pyarrow.float64() if column.has_fractions else pyarrow.int64()
        simple = {"": pyarrow.null(), "a text": pyarrow.string(), "a truth value": pyarrow.bool_()}
        if column.kind in simple:
            return simple[column.kind]
        _note_nested(name, column)
        return column.nested_type


def _note_nested(name: str, column: _Column) -> None:
    """Widen the type of a column of lists, objects or other values by those that were gathered."""
    import pyarrow

    if not column.values:
        return
    try:
        found = pyarrow.array(column.values).type
        if column.nested_type is not None:
            schemas = [pyarrow.schema([(name, one)]) for one in (column.nested_type, found)]
            found = pyarrow.unify_schemas(schemas, promote_options="permissive").field(name).type
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        raise UserError(
            f"Column '{name}' has a value in {_place_of_fault(column)} that does not go with the one in {column.place} "
            f"({first_line(error)}): write it one way in all rows, or leave it out."
        ) from error
    column.nested_type = found
    column.values.clear()
    column.places.clear()


def _place_of_fault(column: _Column) -> str:
    """Return the place of the first value that has no type together with the one before it."""
    import pyarrow

    previous = column.values[0]
    for value, place in zip(column.values, column.places, strict=True):
        try:
            pyarrow.array([previous, value])
        except (pyarrow.ArrowException, ValueError, OverflowError):
            return place
        previous = value
    return column.places[0]


def rows_in_memory(schema, batches: Iterator[tuple[Sequence[Row], Sequence[str]]]):
    """Return a `datasets.Dataset` of rows in memory. The arguments and errors are those of `write_rows`."""
    import pyarrow
    from datasets import Dataset

    return Dataset(pyarrow.Table.from_batches(list(_record_batches(schema, batches)), schema=schema))


def write_rows(path: Path, schema, batches: Iterator[tuple[Sequence[Row], Sequence[str]]]):
    """Write rows to an Arrow file and return the `datasets.Dataset` that maps it.

    batches: of rows and their places. Raises UserError for a value that its column cannot hold.
    """
    import pyarrow
    from datasets import Dataset

    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, schema) as writer:
        for batch in _record_batches(schema, batches):
            writer.write_batch(batch)
    return Dataset.from_file(str(path))


def _record_batches(schema, batches: Iterator[tuple[Sequence[Row], Sequence[str]]]) -> Iterator:
    import pyarrow

    for rows, places in batches:
        arrays = [_array(one, rows, places) for one in schema]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _array(its_field, rows: Sequence[Row], places: Sequence[str]):
    """Return the `pyarrow.Array` of a column. A number in a column of texts is written as one."""
    import pyarrow

    faults = (pyarrow.ArrowException, ValueError, OverflowError)  # ValueError: half a surrogate pair
    values = [row.get(its_field.name) for row in rows]
    if pyarrow.types.is_string(its_field.type):
        values = [str(value) if isinstance(value, (int, float)) else value for value in values]
    try:
        return pyarrow.array(values, type=its_field.type)
    except faults as error:
        place = places[0]
        reason = first_line(error)
        for value, its_place in zip(values, places, strict=True):
            try:
                pyarrow.array([value], type=its_field.type)
            except faults:
                place = its_place
                break
        raise UserError(
            f"{at_start(place)} has a value of '{its_field.name}' that its column cannot hold ({reason}): change it, "
            "or write the column as texts."
        ) from error

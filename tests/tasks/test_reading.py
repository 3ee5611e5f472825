"""Files, folders and ids of the hub: what is in them comes out as it is, and a fault is named with its line."""

import json

import pytest

from helpers import UserError
from helpers.tasks import reading
from helpers.tasks.reading import open_source, read_rows

#: What converting readers lose: dates, zeros in front, "NA", and whole numbers beside fractions.
ROWS = [
    {"question": "When?", "answer": "2024-01-01"},
    {"question": "Which agent?", "answer": "007"},
    {"question": 'Said "no",\nor not?', "answer": "NA"},
    {"question": "Wie heißt das\u2028?", "answer": "1e5"},
]


def jsonl(rows):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n"


def array(rows):
    return json.dumps(rows, ensure_ascii=False, indent=1)


def csv(rows):
    def cell(text):
        return '"' + text.replace('"', '""') + '"'

    lines = [",".join(rows[0])] + [",".join(map(cell, row.values())) for row in rows]
    return "\n".join(lines) + "\n"


WRITERS = {"rows.jsonl": jsonl, "rows.json": array, "rows.csv": csv}


def values(path):
    return [row.values for row in read_rows(path)]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_nothing_is_converted(tmp_path, name, mark, end):
    """`load_dataset` makes a timestamp of a date, 7.0 of "007" and None of "NA", and the right answer is lost."""
    path = tmp_path / name
    text = WRITERS[name](ROWS).replace("\n", end)
    path.write_text(mark + text, encoding="utf-8", newline="")
    expected = ROWS
    if name.endswith(".csv"):  # the line break within a cell is the file's
        expected = [{**row, "question": row["question"].replace("\n", end)} for row in ROWS]
    assert values(path) == expected


def test_numbers_of_json_stay_numbers(tmp_path):
    (tmp_path / "rows.json").write_text('[{"a": 1, "b": 2.5, "c": null, "d": true}]')
    (found,) = values(tmp_path / "rows.json")
    assert found == {"a": 1, "b": 2.5, "c": None, "d": True} and type(found["a"]) is int


def test_places_are_lines_of_the_file(tmp_path):
    """A message that counts rows sends a reader of a file with empty lines to the wrong one."""
    (tmp_path / "rows.jsonl").write_text('\n{"a": 1}\n\n{"a": 2}')
    (tmp_path / "rows.json").write_text('[\n {"a": 1},\n\n {"a": 2}]')
    (tmp_path / "rows.csv").write_text('a,b\n"1\n2",3\n\n4,5\n')
    assert [row.place for row in read_rows(tmp_path / "rows.jsonl")] == ["line 2 of rows.jsonl", "line 4 of rows.jsonl"]
    assert [row.place for row in read_rows(tmp_path / "rows.json")] == [
        "item 1 of rows.json (line 2)",
        "item 2 of rows.json (line 4)",
    ]
    assert [row.place for row in read_rows(tmp_path / "rows.csv")] == ["line 2 of rows.csv", "line 5 of rows.csv"]


def test_a_json_list_is_read_piece_by_piece(tmp_path, monkeypatch):
    """Where a piece ends within a text, an escape or a number, the item is not at fault."""
    rows = [{"text": 'a "quoted" \\ \u00e4\n' * n, "number": -1.5e-7 * n, "flag": None} for n in range(40)]
    path = tmp_path / "rows.json"
    for indent in (None, 2):
        path.write_text(json.dumps(rows, indent=indent))
        for piece in (1, 7, 64):
            monkeypatch.setattr(reading, "PIECE", piece)
            assert values(path) == rows


def test_one_object_a_line_in_a_json_file(tmp_path):
    """Many data sets call JSON lines .json."""
    (tmp_path / "rows.json").write_text(jsonl(ROWS))
    assert values(tmp_path / "rows.json") == ROWS


def test_an_index_without_a_name_is_left_out(tmp_path):
    """pandas writes one unless told not to, and a reward cannot have an argument without a name."""
    (tmp_path / "rows.csv").write_text(",a,b\n0,x,y\n")
    assert values(tmp_path / "rows.csv") == [{"a": "x", "b": "y"}]


FAULTS = [
    ("rows.jsonl", '{"a": 1}\n{"a": 2', r"Line 2 of rows.jsonl is not JSON \(Expecting ',' delimiter, column 8\)"),
    ("rows.jsonl", '{"a": 1}\n[2]', "Line 2 of rows.jsonl is not an object"),
    ("rows.jsonl", "[\n", "or let the file of a JSON list end with .json"),
    ("rows.jsonl", "\n \n", "rows.jsonl is empty"),
    ("rows.jsonl", b'{"a": 1}\n{"a": "\xe4"}', "Line 2 of rows.jsonl is no UTF-8"),
    ("rows.json", "", "rows.json is empty"),
    ("rows.json", "[]", "rows.json is empty"),
    ("rows.json", '[{"a": 1},\n{"a": }]', r"Item 2 of rows.json is not JSON \(Expecting value, line 2\)"),
    ("rows.json", '[{"a": 1},\n7]', r"Item 2 of rows.json \(line 2\) is not an object"),
    ("rows.json", '[{"a": 1} {"a": 2}]', "Item 1 of rows.json .line 1. is followed by '{'"),
    ("rows.json", '[{"a": 1},', "rows.json ends within its list, behind item 1"),
    ("rows.json", '[{"a": 1}', "is followed by the end of the file"),
    ("rows.json", '[{"a": "x', "Item 1 of rows.json is not JSON .Unterminated string"),
    ("rows.json", '[{"a": 1}]\n]', "Something follows the list in line 2 of rows.json"),
    ("rows.json", '{"data": [{"a": 1}]}', "rows.json holds a single object with the list 'data': write the rows alone"),
    ("rows.json", '{"a": 1,\n "b" 2}', "Line 2 of rows.json is not JSON"),
    ("rows.json", b'[{"a": 1},\n{"a": "\xe4"}]', "Line 2 of rows.json is no UTF-8"),
    ("rows.csv", "", "rows.csv is empty: give a file with a line that names the columns"),
    ("rows.csv", "a,b\n", "rows.csv is empty: give a file with rows below the header"),
    ("rows.csv", "a,b\n1,2\n\n1,2,3\n", "Line 4 of rows.csv begins a row of 3 cells, and the header names 2 columns"),
    ("rows.csv", "a,b\n1\n", "Line 2 of rows.csv begins a row of 1 cells"),
    ("rows.csv", 'a,b\n1,"2\n3,4\n', "Line 2 of rows.csv begins a row that is no CSV"),
    ("rows.csv", 'a,b\n1,"2" 3\n', "Line 2 of rows.csv begins a row that is no CSV"),
    ("rows.csv", b"a,b\n1,\xe4\n", "Line 2 of rows.csv is no UTF-8"),
    ("rows.csv", "a;b\n1;2\n", "separated by semicolons"),
    ("rows.csv", "a,a\n1,2\n", "names the column 'a' twice"),
    ("rows.csv", "What is 1 + 1?,2\nWhat is 2?,2\n", "has the number 2 and so names no columns"),
    ("rows.parquet", "no parquet", "Cannot read .*rows.parquet"),
    ("rows.txt", "x", "the ending '.txt' is none of .jsonl, .ndjson, .json, .csv, .parquet"),
]


@pytest.mark.parametrize(("name", "content", "words"), FAULTS)
def test_a_fault_is_one_sentence_with_its_line(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=words) as caught:
        list(read_rows(path))
    assert "\n" not in str(caught.value)


def test_a_path_that_leads_nowhere(tmp_path):
    (tmp_path / "sums.jsonl").write_text("{}")
    with pytest.raises(UserError, match=r"no such file or folder \(did you mean 'sums.jsonl'\?\)"):
        open_source(tmp_path / "sum.jsonl")
    with pytest.raises(UserError, match="is no data set"):
        (tmp_path / "empty").mkdir()
        open_source(tmp_path / "empty")
    with pytest.raises(UserError, match="Cannot read an empty path"):
        open_source("")
    with pytest.raises(UserError, match="Cannot read aaa.*File name too long"):
        open_source("a" * 5000)


def test_parquet_and_folders(tmp_path):
    from datasets import Dataset, DatasetDict

    data = Dataset.from_list(ROWS)
    data.to_parquet(tmp_path / "rows.parquet")
    assert values(tmp_path / "rows.parquet") == ROWS
    data.save_to_disk(tmp_path / "saved")
    assert values(tmp_path / "saved") == ROWS
    DatasetDict(train=data, test=data.select([0])).save_to_disk(tmp_path / "splits")
    found = list(read_rows(tmp_path / "splits"))
    assert [row.split for row in found] == ["train"] * 4 + ["test"]
    assert found[-1].place == "row 1 of split 'test' of splits" and found[-1].values == ROWS[0]
    files = tmp_path / "files"
    files.mkdir()
    (files / "train.jsonl").write_text(jsonl(ROWS))
    data.to_parquet(files / "test-00000-of-00001.parquet")
    assert sorted({row.split for row in read_rows(files)}) == ["test", "train"]
    (tmp_path / "saved" / "state.json").write_text("{")
    with pytest.raises(UserError, match="Cannot read the data set in"):
        open_source(tmp_path / "saved")


def test_an_id_of_the_hub(monkeypatch):
    """Without a connection the hub's client tries for half a minute before it says so."""
    import datasets

    loaded = []

    def load(name, config):
        loaded.append((name, config))
        return datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS))

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(reading, "_hub_is_reachable", lambda: True)
    rows = list(read_rows("owner/name:main"))
    assert loaded == [("owner/name", "main")] and rows[0].split == "train" and len(rows) == 4
    monkeypatch.setattr(reading, "_hub_is_reachable", lambda: False)
    with pytest.raises(UserError, match="There is no file or folder 'owner/other'.* needs the network"):
        open_source("owner/other")

    def fail(name, config):
        raise ValueError("Config name is missing.\nPick one of: ['a', 'b']")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    monkeypatch.setattr(reading, "_hub_is_reachable", lambda: True)
    with pytest.raises(UserError, match=r"Pick one of: \['a', 'b'\].*owner/name:configuration") as caught:
        open_source("owner/name")
    assert "\n" not in str(caught.value)

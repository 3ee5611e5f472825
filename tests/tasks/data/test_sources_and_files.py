"""Files, folders and ids of the hub: what is in them comes out as it is, and a fault is named with its line."""

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import huggingface_hub
import pytest
from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

from helpers import UserError
from helpers.tasks.data import files, sources
from helpers.tasks.data.sources import open_source, read_rows

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
    assert values(path) == ROWS


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16(tmp_path, name, encoding):
    """Excel's "Unicode text" and PowerShell's `>` write it; it was refused as no UTF-8."""
    (tmp_path / name).write_bytes(("\ufeff" + WRITERS[name](ROWS)).encode(encoding))
    assert values(tmp_path / name) == ROWS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.csv", 'a;"b, c"\r\n1,5;x\r\n;\r\n"2;\r\n3";y\r\n'),
        ("rows.csv", 'a\t"b, c"\n1,5\tx\n\t\n"2;\r\n3"\ty\n'),
        ("rows.csv", '\n,\na,"b, c"\n"1,5",x\n , \n"2;\r\n3",y\n'),
        ("rows.tsv", 'a\t"b, c"\n1,5\tx\n"2;\r\n3"\ty\n'),
    ],
)
def test_delimiters_and_blank_rows_as_excel_writes_them(tmp_path, name, text):
    """Where a comma is in numbers, Excel puts semicolons between cells; below a table it leaves rows of them."""
    (tmp_path / name).write_text(text, newline="")
    assert values(tmp_path / name) == [{"a": "1,5", "b, c": "x"}, {"a": "2;\n3", "b, c": "y"}]


def test_a_tsv_of_one_column_with_commas_in_its_name(tmp_path):
    (tmp_path / "rows.tsv").write_text("a, b\n1, 2, 3\n")
    assert values(tmp_path / "rows.tsv") == [{"a, b": "1, 2, 3"}]


def test_a_long_cell(tmp_path):
    """The csv module stops at 131,072 characters, which the tests of a program have."""
    (tmp_path / "rows.csv").write_text("a,b\n1," + "x" * 200_000 + "\n")
    assert len(values(tmp_path / "rows.csv")[0]["b"]) == 200_000


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
        "item 1 of rows.json",
        "item 2 of rows.json",
    ]
    assert [row.place for row in read_rows(tmp_path / "rows.csv")] == ["line 2 of rows.csv", "line 5 of rows.csv"]


def test_a_large_json_file(tmp_path, monkeypatch):
    """It is read as a whole, and a machine without the memory for it would kill the program without a word."""
    monkeypatch.setattr(files, "MOST_JSON", 2**20)
    (tmp_path / "rows.json").write_text(array([{"a": "x" * 2**20}]))
    with pytest.raises(UserError, match="rows.json is larger than 1 MB, .*: convert it to .jsonl") as caught:
        values(tmp_path / "rows.json")
    assert "\n" not in str(caught.value)


def test_a_json_list_in_one_long_line(tmp_path, monkeypatch):
    """The bound of a line is not that of a list, which `json.dump` writes in a single line."""
    monkeypatch.setattr(files, "MOST_LENGTH", 100)
    (tmp_path / "rows.json").write_text(json.dumps(ROWS * 10))
    assert values(tmp_path / "rows.json") == ROWS * 10


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
    ("rows.json", '[{"a": 1},\n{"a": }]', r"Line 2 of rows.json is not JSON \(Expecting value, column 7\)"),
    ("rows.json", '[{"a": 1},\n7]', "Item 2 of rows.json is not an object"),
    ("rows.json", '[{"a": 1} {"a": 2}]', "Line 1 of rows.json is not JSON .Expecting ',' delimiter, column 11"),
    ("rows.json", '[{"a": 1}', "Line 1 of rows.json is not JSON .Expecting ',' delimiter"),
    ("rows.json", '[{"a": "x', "Line 1 of rows.json is not JSON .Unterminated string"),
    ("rows.json", '[{"a": 1}]\n]', "Line 2 of rows.json is not JSON .Extra data, column 1.: write one list of objects"),
    ("rows.json", "[" * 100_000, "rows.json is not JSON"),
    ("rows.json", "7", "rows.json holds neither a list nor an object"),
    ("rows.json", '{"a": 1}\n{"a": 2', "Line 2 of rows.json is not JSON"),
    ("rows.json", '{"a":\n1}\n{"a": 2}', "Line 3 of rows.json is not JSON .Extra data"),
    ("rows.jsonl", b"\xff\xfe{\x00}\x00\n\x00\x00\xd8", "Line 2 of rows.jsonl is no UTF-16"),
    ("rows.json", '{"data": [{"a": 1}]}', "rows.json holds a single object with the list 'data': write the rows alone"),
    ("rows.json", '{"a": 1,\n "b" 2}', "Line 2 of rows.json is not JSON"),
    ("rows.json", b'[{"a": 1},\n{"a": "\xe4"}]', "Line 2 of rows.json is no UTF-8"),
    ("rows.csv", "", "rows.csv is empty: give a file with a line that names the columns"),
    ("rows.csv", "a,b\n", "rows.csv is empty: give a file with rows below the header"),
    ("rows.csv", "a,b\n1,2\n\n1,2,3\n", "Line 4 of rows.csv begins a row of 3 cells, and the header names 2 columns"),
    ("rows.csv", "a,b\n1\n", "Line 2 of rows.csv begins a row of 1 cell, and the header names 2 columns"),
    ("rows.csv", "a;b\n1\n", "put cells that hold semicolons in quotation marks"),
    ("rows.csv", 'a,b\n1,"2\n3,4\n', "Line 2 of rows.csv begins a row that is no CSV"),
    ("rows.csv", 'a,b\n1,"2" 3\n', "Line 2 of rows.csv begins a row that is no CSV"),
    ("rows.csv", b"a,b\n1,\xe4\n", "Line 2 of rows.csv is no UTF-8"),
    ("rows.csv", "a,a\n1,2\n", "names the column 'a' twice"),
    ("rows.csv", "What is 1 + 1?,2\nWhat is 2?,2\n", "has the number 2 and so names no columns"),
    ("rows.parquet", "no parquet", "Cannot read .*rows.parquet after row 0"),
    ("rows.txt", "x", "the ending '.txt' is none of .jsonl, .ndjson, .json, .csv, .tsv, .parquet"),
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
    with pytest.raises(UserError, match="Cannot read /dev/null: it is no regular file"):
        open_source("/dev/null")


def test_reading_deletes_nothing(tmp_path):
    """A hidden folder beside the data, which may be the user's, was taken for a leftover and deleted."""
    hidden = tmp_path / ".sums.old"
    hidden.mkdir()
    (hidden / "train.jsonl").write_text(jsonl(ROWS))
    with pytest.raises(UserError, match="no such file or folder"):
        open_source(tmp_path / "sums")
    assert (hidden / "train.jsonl").exists()
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "train.jsonl").write_text(jsonl(ROWS))
    (hidden / "report.json").write_text("{}")
    (hidden / "dataset_dict.json").write_text("{}")
    assert values(tmp_path / "sums") == ROWS
    assert (hidden / "train.jsonl").exists()


def test_a_folder_whose_replacement_was_interrupted(tmp_path):
    """`prepare` that is killed between two renames leaves the rows under a hidden name."""
    from datasets import Dataset, DatasetDict

    hidden = tmp_path / ".sums.old"
    DatasetDict(train=Dataset.from_list(ROWS)).save_to_disk(hidden)
    (hidden / "report.json").write_text("{}")
    assert values(tmp_path / "sums") == ROWS


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
    data.to_parquet(files / "train-00000-of-00001.parquet")
    data.to_parquet(files / "test-00000-of-00001.parquet")
    assert sorted({row.split for row in read_rows(files)}) == ["test", "train"]
    (tmp_path / "saved" / "state.json").write_text("{")
    with pytest.raises(UserError, match="Cannot read the data set in"):
        open_source(tmp_path / "saved")


def test_a_clone_of_a_data_set_of_the_hub(tmp_path):
    """Its rows are one level down, beside files that have no rows."""
    from datasets import Dataset

    (tmp_path / "data").mkdir()
    for name in sources.NO_ROWS:
        (tmp_path / name).write_text("{}")
    (tmp_path / "data" / "labels.json").write_text("{}")
    for split in ("train", "test"):
        Dataset.from_list(ROWS).to_parquet(tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    source = open_source(tmp_path)
    assert [row.split for row in source.rows()] == ["test"] * 4 + ["train"] * 4
    assert source.name == tmp_path.name
    (tmp_path / "data" / "more.json").write_text("{}")
    with pytest.raises(UserError, match="as many files with the ending .json as with .parquet"):
        open_source(tmp_path)


def test_splits_that_begin_with_a_known_name(tmp_path):
    """Data sets of the hub have train_sft and test_hard, and were refused for it."""
    from datasets import Dataset, DatasetDict

    data = Dataset.from_list(ROWS[:1])
    rows = read_rows(DatasetDict(train_sft=data, test_hard=data, trainer=data))
    assert [row.split for row in rows] == ["train", "test", "trainer"]
    (row,) = read_rows(DatasetDict(probe_hard=data))
    assert row.split == "probe"
    assert sources.split_part("Test-hard") == "Test"


def test_an_id_of_the_hub(monkeypatch):
    """Without a connection the hub's client tries for half a minute before it says so."""
    import datasets

    loaded = []

    def load(name, config, revision):
        loaded.append((name, config, revision))
        return datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS))

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(sources, "_hub_answers", lambda name: True)
    rows = list(read_rows("owner/name:main"))
    assert loaded == [("owner/name", "main", None)] and rows[0].split == "train" and len(rows) == 4
    open_source("owner/name", revision="0a1b")
    assert loaded[1] == ("owner/name", None, "0a1b")
    monkeypatch.setattr(sources, "_hub_answers", lambda name: False)
    with pytest.raises(UserError, match="There is no file or folder 'owner/other'.* needs the network"):
        open_source("owner/other")

    def fail(name, config, revision):
        raise ValueError("Config name is missing.\nPick one of: ['a', 'b']")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    monkeypatch.setattr(sources, "_hub_answers", lambda name: True)
    with pytest.raises(UserError, match=r"Pick one of: \['a', 'b'\].*owner/name:configuration") as caught:
        open_source("owner/name")
    assert "\n" not in str(caught.value)


def test_a_proxy_that_takes_no_connection(monkeypatch, capfd):
    """A proxy in the environment was taken for a connection, and the hub's client tried for half a minute."""
    import datasets

    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets, "load_dataset", None)
    with pytest.raises(UserError, match="There is no file or folder 'owner/name'.* needs the network"):
        open_source("owner/name")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["folder", "list", "source"])
def test_only_the_hub_has_revisions(tmp_path, monkeypatch, kind):
    """A folder called as the data set is would be read in its place, and recorded as that revision."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "owner" / "name" / "train.jsonl").write_text(jsonl(ROWS))
    data = {"folder": "owner/name", "list": ROWS, "source": open_source(ROWS)}[kind]
    with pytest.raises(UserError, match="revision[s;]? .*'0a1b'") as caught:
        open_source(data, revision="0a1b")
    assert "\n" not in str(caught.value)


class Hub:
    """The client of a hub that answers every question in one way."""

    def __init__(self, answer):
        self.answer = answer

    def dataset_info(self, name, timeout):
        assert timeout == sources.HUB_TIMEOUT
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(sha=self.answer)


@pytest.mark.parametrize("answer", ["0a1b", OfflineModeIsEnabled("offline"), TimeoutError("no answer")])
def test_the_newest_revision(monkeypatch, answer):
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: Hub(answer))
    assert sources.hub_revision("owner/name") == (answer if isinstance(answer, str) else None)


def test_a_data_set_that_the_hub_does_not_have(monkeypatch):
    """Taken for a missing connection, a slip in a name sends its reader to the cables."""
    missing = RepositoryNotFoundError("404 Client Error.\nRepository Not Found", response=MagicMock())
    for fault in (missing, HFValidationError("no id")):
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda fault=fault: Hub(fault))
        with pytest.raises(UserError, match="The hub shows no data set 'owner/nme' .*: check the spelling") as caught:
            sources.hub_revision("owner/nme")
        assert "\n" not in str(caught.value)

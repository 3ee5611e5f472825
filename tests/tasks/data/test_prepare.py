"""A prepared folder has what was right in the data, a report of what was not, and nothing where all is refused."""

import hashlib
import json

import pytest
from datasets import load_from_disk

from helpers import UserError, get_task
from helpers.runtime import write_whole
from helpers.tasks.data.columns import Columns
from helpers.tasks.data.prepare import prepare
from helpers.tasks.data.task import DataTask

COLUMNS = Columns("question", "solution")


def write(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def good_rows(count=200):
    return [{"question": f"What is {n} + 1?", "solution": str(n + 1), "id": f"q{n}"} for n in range(count)]


FAULTY = [
    ({"question": " ", "solution": "1"}, "empty prompt"),
    ({"question": "Nothing?", "solution": ""}, "no answer"),
    ({"question": [{"from": "human", "value": "Hi"}], "solution": "1"}, "wrong messages"),
    ({"question": "What is 3 + 1?", "solution": "4", "id": "q3"}, "duplicate"),
    ({"question": "What is 3 + 1?", "solution": "5"}, "contradicts an earlier row"),
    ({"question": "Another?", "solution": "5", "id": "q3"}, "duplicate id"),
    ({"question": "In words?", "solution": "five"}, "answer that the rewards cannot read"),
    ({"prompt": "Who?", "solution": "1"}, "no prompt"),
    ({"question": 5, "solution": "1"}, "prompt of another kind"),
    ({"question": "Half \ud800?", "solution": "1"}, "text that is no Unicode"),
]


def math_task(path, **options):
    return DataTask(path, COLUMNS, get_task("math"), drop_faulty=True, **options)


def test_rows_with_faults_are_left_out_and_counted(tmp_path):
    path = write(tmp_path / "sums.jsonl", good_rows() + [row for row, _ in FAULTY] + [FAULTY[0][0]] * 6)
    report = prepare(math_task(path), tmp_path / "out")
    assert report.rows_read == 216 and report.rows_kept == 200 == sum(report.splits.values())
    counts = {reason: found.count for reason, found in report.dropped.items()}
    assert counts == {reason: 1 for _, reason in FAULTY} | {"empty prompt": 7}
    assert report.dropped["no answer"].places == ["line 202 of sums.jsonl"]
    assert len(report.dropped["empty prompt"].places) == 5
    assert report.source_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (report.prompt_characters.least, report.prompt_characters.most) == (14, 16)
    assert (report.answer_characters.median, report.answer_characters.most) == (3, 3)
    saved = json.loads((tmp_path / "out" / "report.json").read_text())
    assert saved["dropped"]["duplicate id"] == {"count": 1, "places": ["line 206 of sums.jsonl"]}
    assert saved["versions"]["python"] and saved["columns"][:2] == ["prompt", "answer"]
    lines = str(report).splitlines()
    assert (
        "left out, empty prompt: 7 (line 201 of sums.jsonl, line 211 of sums.jsonl" in str(report) and len(lines) < 20
    )


def test_where_every_row_has_a_fault(tmp_path):
    """The message was that a column is missing which is there."""
    path = write(tmp_path / "sums.jsonl", [{"question": f"{n}?", "solution": ""} for n in range(9)])
    with pytest.raises(UserError, match="Every row of sums.jsonl has a fault .no answer."):
        math_task(path)


def test_the_folder_is_read_into_the_same_splits(tmp_path):
    """Split by the hash a second time, a quarter of the training rows would be held out again."""
    task = math_task(write(tmp_path / "sums.jsonl", good_rows()))
    report = prepare(task, tmp_path / "out")
    again = DataTask(tmp_path / "out", base=get_task("math"))
    saved = load_from_disk(str(tmp_path / "out"))
    for split, count in report.splits.items():
        ids = set(again.dataset(split)["id"])
        assert ids == set(task.dataset(split)["id"]) == set(saved[split]["id"]) and len(ids) == count
    assert prepare(again, tmp_path / "twice").splits == report.splits


def test_a_prompt_that_is_held_out_leaves_training(tmp_path):
    rows = [{**row, "split": "train"} for row in good_rows(100)]
    rows += [{**row, "id": None, "split": "test"} for row in good_rows(10)] + [{**rows[20], "split": "validation"}]
    report = prepare(math_task(write(tmp_path / "sums.jsonl", rows)), tmp_path / "out")
    assert report.splits == {"train": 89, "monitor": 1, "confirm": 10}
    assert report.dropped["prompt in a held-out split"].count == 11
    assert report.dropped["prompt in a held-out split"].places[0] == "line 1 of sums.jsonl"


@pytest.mark.parametrize("size", [3, 50, 199, 1000])
def test_so_many_rows(tmp_path, size):
    report = prepare(math_task(write(tmp_path / "sums.jsonl", good_rows())), tmp_path / "out", size, seed=3)
    assert report.rows_kept == min(size, 200) and all(report.splits.values())
    assert max(report.splits, key=report.splits.get) == "train" or size == 3


def test_rows_of_a_task_that_makes_them(tmp_path):
    report = prepare(get_task("math"), tmp_path / "out", 80)
    assert report.splits == {"train": 60, "monitor": 10, "confirm": 10} and report.source_sha256 == ""
    again = DataTask(tmp_path / "out", base=get_task("math"))
    assert again.breakdowns == ("depth", "cluster") and len(again.dataset("train")) == 60


def test_the_same_data_have_the_same_digest(tmp_path):
    task = math_task(write(tmp_path / "sums.jsonl", good_rows()))
    first = prepare(task, tmp_path / "first")
    assert first.rows_sha256 == prepare(task, tmp_path / "second").rows_sha256
    changed = math_task(write(tmp_path / "sums.jsonl", good_rows(199)))
    assert first.rows_sha256 != prepare(changed, tmp_path / "third").rows_sha256


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": "a", ', "Line 201 of sums.jsonl is not JSON"),
        ('{"question": "a", "solution": 7}', "Column 'solution' has a number in line 201 of sums.jsonl and a text in"),
    ],
)
def test_a_fault_of_the_file_leaves_nothing(tmp_path, line, words):
    """Half a data set would train as well as a whole one, and nobody would see the difference."""
    path = write(tmp_path / "sums.jsonl", good_rows())
    path.write_text(path.read_text() + line)
    with pytest.raises(UserError, match=words):
        prepare(math_task(path), tmp_path / "out")
    assert [found.name for found in tmp_path.iterdir()] == ["sums.jsonl"]


def test_a_write_that_fails_leaves_the_old_folder(tmp_path, monkeypatch):
    from datasets import DatasetDict

    task = math_task(write(tmp_path / "sums.jsonl", good_rows()))
    prepare(task, tmp_path / "out", 20)
    before = (tmp_path / "out" / "report.json").read_bytes()

    def full(self, path):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(DatasetDict, "save_to_disk", full)
        with pytest.raises(UserError, match="Cannot write .*No space left on device.: give OUT a place with room"):
            prepare(task, tmp_path / "out")
    assert (tmp_path / "out" / "report.json").read_bytes() == before
    assert sorted(found.name for found in tmp_path.iterdir()) == ["out", "sums.jsonl"]
    assert prepare(task, tmp_path / "out").rows_kept == 200, "a prepared folder is replaced"


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_is_no_prepared_folder_is_not_overwritten(tmp_path, is_folder):
    out = tmp_path / "out"
    mine = out / "mine.txt" if is_folder else out
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("precious")
    with pytest.raises(UserError, match="holds other things than `prepare` writes: give OUT another name"):
        prepare(get_task("math"), out, 20)
    assert mine.read_text() == "precious"


def test_a_size_that_is_too_small(tmp_path):
    with pytest.raises(UserError, match="size must be a whole number from 3 on; got 2"):
        prepare(get_task("math"), tmp_path / "out", 2)


def test_a_faulty_row_takes_no_good_one_with_it():
    """The rewards cannot read "five": the row with the same prompt and "5" is the first that counts, and stays."""
    rows = [{"prompt": f"What is {n}?", "answer": str(n)} for n in range(60)]
    rows += [{"prompt": "What is V?", "answer": "five"}, {"prompt": "What is V?", "answer": "5"}]
    task = DataTask(rows, base=get_task("math"), drop_faulty=True)
    assert {reason: found.places for reason, found in task.kept.dropped.items()} == {
        "answer that the rewards cannot read": ["row 61"]
    }
    assert len(task.kept.data) == 61


def rows_with_probe():
    rows = [{**row, "split": "train"} for row in good_rows()]
    probe = {"solution": "7", "split": "probe", "set": "AIME 2024"}
    return rows + [{**probe, "question": f"Which number is {n} less than {n + 7}?"} for n in range(30)]


@pytest.mark.parametrize(("size", "decided"), [(None, 200), (3, 3), (50, 50), (210, 200)])
def test_a_probe_is_a_fourth_part_and_stays_whole(tmp_path, size, decided):
    """Shared among four splits, a size would shrink a published set, whose results nobody could compare then."""
    task = math_task(write(tmp_path / "sums.jsonl", rows_with_probe()))
    report = prepare(task, tmp_path / "out", size)
    assert list(report.splits) == ["train", "monitor", "confirm", "probe"] and report.splits["probe"] == 30
    assert report.rows_kept == decided + 30 and "probe 30" in str(report)
    again = DataTask(tmp_path / "out", base=get_task("math"))
    assert set(again.dataset("probe")["id"]) == set(task.dataset("probe")["id"])
    assert set(again.dataset("probe")["set"]) == {"AIME 2024"} and again.breakdowns[0] == "set"
    assert prepare(again, tmp_path / "out").splits == report.splits, "a folder with a probe is replaced"


def test_a_prompt_of_the_probe_leaves_the_other_splits(tmp_path):
    rows = rows_with_probe()
    doubles = [{**rows[210], "split": "train"}, {**rows[211], "split": "test"}]
    confirmed = [{"question": f"Is it {n}?", "solution": str(n), "split": "test"} for n in range(9)]
    report = prepare(math_task(write(tmp_path / "sums.jsonl", doubles + rows + confirmed)), tmp_path / "out")
    assert (report.splits["confirm"], report.splits["probe"]) == (9, 30)
    assert report.dropped["prompt in a held-out split"].places == ["line 1 of sums.jsonl", "line 2 of sums.jsonl"]


def test_a_further_file_is_written_with_the_rows(tmp_path, monkeypatch):
    """Written afterwards, it would be missing where the process was killed in between."""
    task = math_task(write(tmp_path / "sums.jsonl", good_rows()))
    for text in ("{}", '{"a": "\u00e9"}'):
        prepare(task, tmp_path / "out", extra_files={"sources.json": text})
        assert (tmp_path / "out" / "sources.json").read_text(encoding="utf-8") == text
    assert len(DataTask(tmp_path / "out", base=get_task("math")).kept.data) == 200

    def full(path, content):
        if path.name == "sources.json":
            raise OSError("No space left on device")
        return write_whole(path, content)

    monkeypatch.setattr("helpers.tasks.data.prepare.write_whole", full)
    with pytest.raises(UserError, match="Cannot write .*No space left on device"):
        prepare(task, tmp_path / "out", 20, extra_files={"sources.json": "other"})
    assert (tmp_path / "out" / "sources.json").read_text(encoding="utf-8") == text
    assert len(load_from_disk(str(tmp_path / "out"))["train"]) > 20, "the old rows are there, too"


def test_a_further_file_of_another_name(tmp_path):
    """The folder could not be written a second time, since it holds what `prepare` does not know."""
    with pytest.raises(ValueError, match="extra files are called sources.json; got notes.txt"):
        prepare(get_task("math"), tmp_path / "out", 20, extra_files={"notes.txt": ""})
    assert not (tmp_path / "out").exists()
    prepare(get_task("math"), tmp_path / "out", 20)
    (tmp_path / "out" / "notes.txt").write_text("precious")
    with pytest.raises(UserError, match="holds other things than `prepare` writes"):
        prepare(get_task("math"), tmp_path / "out", 20)

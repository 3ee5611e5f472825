"""What a dry run says of a task's data."""

import pytest
from datasets import Dataset

from helpers import CustomTask, UserError, get_task, list_tasks
from helpers.gallery.math.task import LARGE_DEPTH, MathTask
from helpers.tasks import frozen
from helpers.tasks.frozen import frozen_digests, rows_digest, split_digests
from helpers.tasks.validation import validate_data

TASKS = [(name, {}) for name in list_tasks()] + [("math", {"depth": LARGE_DEPTH})]


@pytest.mark.parametrize(("name", "options"), TASKS, ids=str)
def test_the_data_are_those_that_were_frozen(name, options):
    """A prompt that changes unnoticed makes yesterday's figures be of other data."""
    task = get_task(name, **options)
    assert frozen_digests(task) == split_digests(task)
    assert set(frozen_digests(task)) == set(task.splits)


def test_a_digest_is_of_every_value():
    rows = get_task("math").dataset("train", 4).to_list()
    assert rows_digest(rows) == rows_digest([dict(reversed(row.items())) for row in rows])
    for column in rows[0]:
        changed = [{**rows[0], column: "x"}, *rows[1:]]
        assert rows_digest(changed) != rows_digest(rows)
    assert rows_digest(rows[::-1]) != rows_digest(rows)


@pytest.mark.parametrize("name", ["math", "reasoning", "general"])
def test_a_task_as_it_should_be(name):
    found = validate_data(get_task(name))
    assert found[0].startswith("No prompt is in two splits (train 64, monitor 64, confirm 64, probe 64")
    assert found[1:] == ["64 reference answers are graded as correct.", "The rows have the digests that were frozen."]


def test_other_options_are_other_data():
    assert "compared with none" in validate_data(get_task("math", depth=4))[-1]


class OtherRows(MathTask):
    """One of its problems has another answer than when the rows were frozen."""

    def dataset(self, split="train", size=1000, seed=0):
        rows = super().dataset(split, size, seed).to_list()
        rows[-1]["answer"] = str(int(rows[-1]["answer"]) + 1)
        return Dataset.from_list(rows)


def test_a_task_of_mine_has_no_reference_answers():
    rows = [{"prompt": f"What is {n} + 1?", "word": str(n + 1)} for n in range(200)]
    task = CustomTask(rows, rewards=lambda completions, **_: [1.0] * len(completions))
    assert validate_data(task)[1:] == [
        "The task gives no reference answers, so its grades were not tried on any.",
        "No digests were frozen for this task with these options, so the rows are compared with none.",
    ]


class WrongAnswers(MathTask):
    """Its own answers are wrong."""

    def reference_answer(self, row):
        return r"\boxed{-1}"


class LeakyTask(MathTask):
    """Its monitor prompts are those of the training."""

    def dataset(self, split="train", size=1000, seed=0):
        return super().dataset("train" if split == "monitor" else split, size, seed)


class NothingHeldOut(MathTask):
    """Everything may be trained on."""

    def is_heldout(self, row):
        return False


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (WrongAnswers, "does not accept its own answer to prompt math-[0-9a-f]+: wrong, wrong"),
        (LeakyTask, "has prompt math-[0-9a-f]+ in 'train' and in 'monitor'"),
        (OtherRows, "the rows of train, monitor, confirm, probe are not those that were frozen"),
        (NothingHeldOut, "of split 'monitor' is not held out from training"),
    ],
)
def test_a_task_with_a_fault_is_refused(task, message):
    with pytest.raises(UserError, match=message):
        validate_data(task())


@pytest.mark.slow
def test_the_command_writes_the_file_that_is_there(tmp_path, monkeypatch):
    """On a machine without a GPU, too, where large models have no profile."""
    shipped = frozen.FROZEN.read_text()
    monkeypatch.setattr(frozen, "FROZEN", tmp_path / "frozen.json")
    frozen.main()
    assert (tmp_path / "frozen.json").read_text() == shipped

"""Your own task: a JSONL file or a data set, and rewards written for TRL."""

import json
from types import SimpleNamespace

import pytest

from helpers import CustomTask, Grade, SamplingParams, UserError, get_task
from helpers.evaluation import gains_by
from helpers.evaluation.records import sample_records
from helpers.rollout.completion import Completion


def mentions(prompts, completions, word, **kwargs):
    """A reward as TRL's documentation writes them."""
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if word in content else 0.0 for content, word in zip(contents, word)]


def one(prompts, completions, **kwargs):
    return [1.0] * len(completions)


def never(prompts, completions, **kwargs):
    return [None] * len(completions)


ROWS = [{"prompt": f"Write a text about number {n}.", "word": f"number {n}"} for n in range(60)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    return path


def answers(*texts):
    return [Completion([], [], [], text, "", "stop") for text in texts]


def test_every_prompt_is_in_one_split(path):
    """Training must not see what decides, whatever the size, the order or later additions."""
    task = CustomTask(path, mentions)
    splits = {split: task.dataset(split, 1000) for split in ("train", "monitor", "confirm")}
    ids = [item for rows in splits.values() for item in rows["id"]]
    assert len(ids) == len(set(ids)) == len(ROWS)
    assert len(splits["train"]) > len(splits["monitor"]) + len(splits["confirm"])
    assert splits["train"][0]["prompt"][0]["role"] == "user" and splits["train"][0]["word"].startswith("number")
    more = CustomTask(_dataset(ROWS[::-1] + [{"prompt": "Another.", "word": "a"}]), [mentions])
    for split, rows in splits.items():
        assert set(rows["id"]) <= set(more.dataset(split, 1000)["id"])
    assert task.dataset("train", 5, seed=1)["id"] == task.dataset("train", 5, seed=1)["id"]
    assert task.dataset("train", 5, seed=1)["id"] != task.dataset("train", 5, seed=2)["id"]


def _dataset(rows):
    from datasets import Dataset

    return Dataset.from_list(rows)


def test_without_a_grade_an_answer_is_correct_where_it_is_paid(path):
    task = CustomTask(path, mentions)
    rows = list(task.dataset("train", 2))
    right, wrong = task.grade(rows, answers(f"It is {rows[0]['word']}", "no"))
    assert (right.correct, right.outcome, right.score, right.reason) == (True, "correct", 1.0, "")
    assert (wrong.correct, wrong.outcome, wrong.score) == (False, "wrong", 0.0) and wrong.reason
    (unpaid,) = CustomTask(path, never).grade(rows[:1], answers("x"))
    assert (unpaid.outcome, unpaid.reason) == ("wrong", "every reward is None")
    weighted = CustomTask(path, [mentions, one], reward_weights=[1.0, 0.0])
    assert [grade.correct for grade in weighted.grade(rows, answers(rows[0]["word"], "no"))] == [True, False]


def test_rewards_that_were_called_already_are_not_called_again(path):
    """A judge that costs money, or a random one, would be asked twice a step."""
    task = CustomTask(path, raises)
    rows = list(task.dataset("train", 2))
    assert [grade.correct for grade in task.grade(rows, answers("x", "y"), [[1.0], [float("nan")]])] == [True, False]


def test_a_grade_of_ones_own(path):
    task = CustomTask(path, mentions, grade=lambda row, text: row["word"] in text)
    rows = list(task.dataset("train", 2))
    assert [grade.correct for grade in task.grade(rows, answers(rows[0]["word"], "no"))] == [True, False]
    task = CustomTask(path, mentions, grade=lambda row, text: Grade(0.5, False, "wrong", "nearly"))
    assert task.grade(rows[:1], answers("x"))[0].reason == "nearly"


def test_a_column_that_some_rows_lack_is_none_there(tmp_path):
    """A data set takes its columns from its first row alone, and a reward asks for them by name."""
    rows = [{"prompt": f"Say {n}."} | ({"hint": n} if n % 2 else {}) for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    drawn = CustomTask(tmp_path / "rows.jsonl", mentions).dataset("train")
    assert None in drawn["hint"] and any(hint is not None for hint in drawn["hint"])
    assert {type(cluster) for cluster in drawn["cluster"]} == {str}


def test_one_prompt_has_one_answer(path):
    with pytest.raises(UserError, match="Row 61 has the prompt of an earlier row, and other columns"):
        CustomTask(_dataset([*ROWS, {"prompt": ROWS[0]["prompt"], "word": "other"}]), mentions)
    assert len(CustomTask(_dataset([*ROWS, ROWS[0]]), mentions).dataset("train", 1000)) < len(ROWS)


def logs(prompts, completions, log_metric, log_extra, **kwargs):
    log_metric("share", 0.5)
    log_extra("note", ["x"] * len(completions))
    return [1.0] * len(completions)


def raises(*_, **kwargs):
    raise KeyError("word")


def test_rewards_that_log_can_grade_and_those_that_raise_are_one_sentence(path):
    rows = list(CustomTask(path, logs).dataset("train", 1))
    assert CustomTask(path, logs).grade(rows, answers("x"))[0].correct
    with pytest.raises(
        UserError, match=r"Reward 'raises' raised KeyError: 'word' \(test_custom.py, line \d+\), called"
    ):
        CustomTask(path, raises).grade(rows, answers("x"))
    with pytest.raises(UserError, match="The grade function raised KeyError: 'word'"):
        CustomTask(path, logs, grade=raises).grade(rows, answers("x"))


@pytest.mark.parametrize("found", [None, 0.3, "yes"])
def test_a_grade_function_says_yes_or_no(path, found):
    task = CustomTask(path, mentions, grade=lambda row, text: found)
    with pytest.raises(UserError, match="The grade function returned .*: return True, False or a Grade"):
        task.grade(list(task.dataset("train", 1)), answers("x"))


def test_rows_of_one_cluster_are_in_one_split():
    """An interval by cluster says nothing if training saw the clusters that decide."""
    rows = [{"prompt": f"Say {n}.", "cluster": n % 40} for n in range(400)]
    task = CustomTask(rows, mentions)
    clusters = [set(task.dataset(split, 1000)["cluster"]) for split in ("train", "monitor", "confirm")]
    assert sum(map(len, clusters)) == len(set.union(*clusters)) == 40
    assert not any(map(task.is_heldout, task.dataset("train"))) and all(map(task.is_heldout, task.dataset("confirm")))


def test_the_name_of_a_task_does_not_move_its_split():
    """Trained under one name and evaluated under another, a model would be asked what it was taught."""
    rows = [{"prompt": f"Say {n}."} for n in range(60)]
    texts = [CustomTask(rows, mentions, name=name).dataset("confirm")["prompt"][:] for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_lines_of_a_file_end_with_a_newline_only(tmp_path):
    r"""JSON may hold U+2028, which `splitlines` cuts at; and Windows writes a byte order mark."""
    rows = [{"prompt": f"Say\u2028{n}."} for n in range(60)]
    text = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "rows.jsonl").write_text("\ufeff" + text, encoding="utf-8", newline="")
    assert len(CustomTask(tmp_path / "rows.jsonl", mentions).dataset("train", 1000)) > 30


def test_other_data_is_one_sentence():
    with pytest.raises(
        UserError, match="Data are the path of a file or a folder, an id of the hub, .* or a list of dicts; got a int"
    ):
        CustomTask(7, mentions)


def test_a_task_of_a_module(tmp_path, monkeypatch):
    """`make run PARAMS="TASK=mine:task"` starts kernels of its own, which know nothing that was registered."""
    (tmp_path / "mine_for_test.py").write_text(
        "from helpers import get_task\n\ndef task():\n    return get_task('math')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert get_task("mine_for_test:task").name == "math"
    for name in ("no_such_module_here:task", "mine_for_test:other"):
        with pytest.raises(UserError, match=f"Cannot import the task '{name}'"):
            get_task(name)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "rows.jsonl is empty"),
        ('{"prompt": "a"}', "give the task more of them"),
        ('{"prompt": "a"', "Line 1 .* is not JSON"),
        ("[1]", "Line 1 .* is not an object"),
        ('{"promt": "a"}', r"Line 1 of rows.jsonl has no 'prompt' \(did you mean 'promt'\?\)"),
        ('{"prompt": ["a"]}', "the prompt as one text instead of a list"),
        ('{"prompt": "a", "answer": 1}\n{"prompt": "b", "answer": "2"}', "Column 'answer' has a text in line 2 of"),
        ('{"prompt": "a", "x": [1]}\n{"prompt": "b", "x": ["2"]}', "Column 'x' has a value in line 2 of rows.jsonl"),
        (
            '{"prompt": "a", "x": 1}\n{"prompt": "b", "x": 99999999999999999999}',
            "Line 2 of .* 'x' that its column cannot",
        ),
        ('{"prompt": "a", "x": "\\ud800"}', "Line 1 of .* has half a surrogate pair in 'x'"),
        ('{"prompt": "a", "id": 7}\n{"prompt": "b", "id": 7}', "Line 2 of .* has the id 7 of line 1 of rows.jsonl"),
    ],
)
def test_bad_data_is_one_sentence(tmp_path, content, words):
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(UserError, match=words):
        CustomTask(tmp_path / "rows.jsonl", mentions)
    with pytest.raises(UserError, match="Cannot read"):
        CustomTask(tmp_path / "none.jsonl", mentions)


def splits_of(task):
    found = {split: task.dataset(split, 1000)["prompt"][:] for split in task.splits}
    return {split: {prompt[-1]["content"] for prompt in prompts} for split, prompts in found.items()}


def test_a_column_says_the_split():
    """A published test split must not be trained on."""
    names = ["train", "test", "validation", "train"]
    rows = [{"prompt": f"Say {n}.", "split": names[n % 4]} for n in range(40)]
    task = CustomTask(rows, mentions)
    found = splits_of(task)
    assert found["confirm"] == {f"Say {n}." for n in range(1, 40, 4)}
    assert found["monitor"] == {f"Say {n}." for n in range(2, 40, 4)} and len(found["train"]) == 20
    assert set(task.dataset("confirm")["split"]) == {"confirm"}
    assert all(map(task.is_heldout, task.dataset("confirm"))) and not any(map(task.is_heldout, task.dataset("train")))


def test_a_split_that_is_not_named_is_taken_from_training():
    """Data sets of two splits are the rule, and a run needs three."""
    from datasets import DatasetDict

    train = [{"prompt": f"Say {n}."} for n in range(200)]
    test = [{"prompt": f"Tell {n}."} for n in range(9)]
    task = CustomTask(DatasetDict(train=_dataset(train), test=_dataset(test)), mentions)
    found = splits_of(task)
    assert found["confirm"] == {row["prompt"] for row in test}
    assert found["train"] | found["monitor"] == {row["prompt"] for row in train}
    assert 10 < len(found["monitor"]) < 45 and not found["train"] & found["monitor"]


def test_other_values_in_a_column_called_split():
    rows = [{"prompt": f"Say {n}.", "split": "easy"} for n in range(60)]
    task = CustomTask(rows, mentions)
    assert set(task.dataset("train")["split"]) == {"easy"} and len(task.dataset("train")) > 30


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        (["train", "tset"], "Column 'split' is 'tset' in row 2 and 'train' in row 1"),
        (["easy", "test"], "Column 'split' is 'test' in row 2 and 'easy' in row 1"),
        (["test", "test"], "has the splits 'test' and none to train on"),
    ],
)
def test_splits_that_are_none(splits, words):
    """A slip in one name would otherwise put the rows of a test split into training."""
    with pytest.raises(UserError, match=words):
        CustomTask([{"prompt": f"Say {n}.", "split": split} for n, split in enumerate(splits)], mentions)


def test_a_prompt_in_two_splits():
    rows = [{"prompt": f"Say {n}.", "split": "train"} for n in range(20)] + [{"prompt": "Say 3.", "split": "test"}]
    with pytest.raises(UserError, match="Row 21 has the prompt of row 4, and they are in the splits 'confirm' and"):
        CustomTask(rows, mentions)


def test_ids_may_begin_anew_in_each_split():
    from datasets import DatasetDict

    parts = {split: _dataset([{"prompt": f"{split} {n}", "id": n} for n in range(40)]) for split in ("train", "test")}
    assert len(CustomTask(DatasetDict(parts), mentions).dataset("confirm")) == 40


@pytest.mark.parametrize(
    ("answer", "right"), [("Paris", "Paris"), (r"42", r"\boxed{42}"), ("", None), (["Paris"], None)]
)
def test_the_answer_of_a_row_is_a_right_text(answer, right):
    """Without one nothing is linted, and most files have just prompt and answer."""

    def same_or_in_box(completions, answer, **_):
        texts = [completion[-1]["content"] for completion in completions]
        wanted = [rf"\boxed{{{one}}}" if one == "42" else one for one in answer]
        return [float(text == one) for text, one in zip(texts, wanted)]

    task = CustomTask([{"prompt": f"Say {n}.", "answer": answer} for n in range(60)], same_or_in_box)
    assert task.reference_answer(task.dataset("train", 1)[0]) == right


def test_a_file_that_changes_is_read_anew(tmp_path):
    """The cache of `datasets` knows a file by its name, and would give the old rows."""
    path = tmp_path / "rows.jsonl"
    for word in ("old", "new"):
        path.write_text("\n".join(json.dumps({"prompt": f"{word} {n}"}) for n in range(60)))
        assert CustomTask(path, mentions).dataset("train", 1)[0]["prompt"][0]["content"].startswith(word)


def probe_rows(count=12, **columns):
    return [{"prompt": f"Prove {n}.", "split": "probe", **columns} for n in range(count)]


def trained_rows(count=80):
    return [{"prompt": f"Say {n}.", "split": "train"} for n in range(count)]


def as_column(tmp_path, rows):
    return rows


def as_parts(tmp_path, rows):
    from datasets import DatasetDict

    parts = {}
    for row in rows:
        parts.setdefault(row["split"], []).append({"prompt": row["prompt"]})
    return DatasetDict({split: _dataset(found) for split, found in parts.items()})


def as_files(tmp_path, rows):
    for split in ("train", "probe"):
        lines = [json.dumps({"prompt": row["prompt"]}) for row in rows if row["split"] == split]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("given", [as_column, as_parts, as_files])
def test_a_fourth_split_that_decides_nothing(tmp_path, given):
    """A probe that is no split of its own would be trained on, or decide."""
    task = CustomTask(given(tmp_path, trained_rows() + probe_rows()), mentions)
    assert task.splits == ("train", "monitor", "confirm", "probe")
    found = splits_of(task)
    assert found["probe"] == {f"Prove {n}." for n in range(12)}
    assert found["train"] | found["monitor"] | found["confirm"] == {f"Say {n}." for n in range(80)}
    assert all(map(task.is_heldout, task.dataset("probe"))) and not any(map(task.is_heldout, task.dataset("train")))
    assert set(task.dataset("probe")["split"]) == {"probe"} and task.breakdowns == ("cluster",)


def test_data_without_a_probe(path):
    """A column called `set` means something else there, such as a list of numbers, which no table can group by."""
    rows = [{**row, "set": [1, 2]} for row in trained_rows()]
    for task in (CustomTask(path, mentions), CustomTask(rows, mentions)):
        assert task.splits == ("train", "monitor", "confirm") and task.breakdowns == ("cluster",)
        with pytest.raises(UserError, match="There is no split 'probe': choose train, monitor, confirm.$"):
            task.dataset("probe")


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_prompt_of_the_probe_that_is_in_another_split(split, is_first):
    double = {"prompt": "Prove 3.", "split": split}
    rows = [double, *trained_rows(), *probe_rows()] if is_first else [*trained_rows(), *probe_rows(), double]
    with pytest.raises(UserError, match="has the prompt of row .* in the splits '.*probe'?"):
        CustomTask(rows, mentions)


def test_the_rows_of_a_probe_say_to_which_set_they_belong():
    rows = trained_rows() + probe_rows(set="AIME 2024")
    task = CustomTask(rows, mentions)
    assert task.breakdowns == ("set", "cluster") and set(task.dataset("probe")["set"]) == {"AIME 2024"}
    assert task.dataset("train")["set"][:] == [None] * len(task.dataset("train"))
    assert task.describe_group("set", "AIME 2024") == "AIME 2024"
    assert CustomTask(trained_rows() + probe_rows(set=None), mentions).breakdowns == ("cluster",)


@pytest.mark.parametrize("value", [2024, ["AIME"], {"name": "AIME"}])
def test_the_name_of_a_set_is_a_text(value):
    """A list made the table of an evaluation fail, after the model had answered everything."""
    with pytest.raises(UserError, match="Column 'set' of the list .* holds no texts: write its values as texts"):
        CustomTask(trained_rows() + probe_rows(set=value), mentions)


def test_records_say_to_which_set_their_rows_belong():
    """Notebook 05 groups the records of the probe by the first of the task's breakdowns."""
    sets = ["AIME 2024", "MATH-500"]
    task = CustomTask(trained_rows() + [{**row, "set": sets[n % 2]} for n, row in enumerate(probe_rows())], one)
    engine = SimpleNamespace(generate=lambda prompts, params, samples: answers(*["text"] * len(prompts)))
    records = sample_records(engine, task, task.dataset("probe"), SamplingParams(8), "base")
    assert {record["set"] for record in records} == set(sets)
    assert set(gains_by(records, records, task.breakdowns[0])) == set(sets)

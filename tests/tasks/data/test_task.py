"""Rows of a stranger under the rewards and the grader of a task that is there already."""

import json

import pytest
from datasets import Dataset, DatasetDict

from helpers import UserError, get_task
from helpers.lint.tasks import describe_lint
from helpers.profiles import get_profile
from helpers.rollout.completion import Completion
from helpers.tasks.choosing import choose_rewards, choose_task
from helpers.tasks.data.columns import Columns
from helpers.tasks.data.task import DataTask
from helpers.tasks.grading import grade_answers
from helpers.tasks.validation import validate_data

TINY = get_profile("tiny")
SUMS = [{"question": f"What is {n} + 1, please?", "solution": str(n + 1)} for n in range(200)]
COLUMNS = Columns("question", "solution")


def choose(name, data, columns=COLUMNS, **options):
    return choose_task(name, TINY, data=data, columns=columns, **options)


@pytest.fixture
def csv_file(tmp_path):
    """A table as a spreadsheet on Windows saves it."""
    lines = ["question,solution"] + [f'"{row["question"]}",{row["solution"]}' for row in SUMS]
    path = tmp_path / "sums.csv"
    path.write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n").encode())
    return path


@pytest.fixture
def json_file(tmp_path):
    """Messages and numbers."""
    rows = []
    for row in SUMS:
        messages = [{"role": "system", "content": "You add."}, {"role": "user", "content": row["question"]}]
        rows.append({"messages": messages, "label": int(row["solution"])})
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture
def folder(tmp_path):
    """Two splits, as most data sets of the hub have."""
    parts = {"train": SUMS[:160], "test": SUMS[160:]}
    path = tmp_path / "saved"
    DatasetDict({split: Dataset.from_list(rows) for split, rows in parts.items()}).save_to_disk(path)
    return path


STRANGERS = [
    ("csv_file", COLUMNS),
    ("json_file", Columns("messages", "label")),
    ("folder", COLUMNS),
]


@pytest.mark.parametrize(("name", "columns"), STRANGERS)
@pytest.mark.parametrize("task_name", ["custom", "math"])
def test_a_strangers_data_become_a_task(request, name, columns, task_name):
    """The right answer is paid and correct, a wrong one neither, and no prompt is in two splits."""
    task = choose(task_name, request.getfixturevalue(name), columns)
    assert "No prompt is in two splits" in validate_data(task)[0]
    assert "48 reference answers are graded as correct" in validate_data(task)[1]
    functions, _ = choose_rewards("", task)
    rows = task.dataset("train", 4).to_list()
    answers = [task.reference_answer(row) for row in rows]
    assert answers == [row["answer"] if task_name == "custom" else rf"\boxed{{{row['answer']}}}" for row in rows] or (
        name == "json_file" and task_name == "custom" and answers == [str(row["answer"]) for row in rows]
    )
    arguments = {key: [row[key] for row in rows] for key in rows[0] if key != "prompt"}
    prompts = [row["prompt"] for row in rows]
    right = functions[0](prompts=prompts, completions=answers, **arguments)
    wrong = functions[0](prompts=prompts, completions=[r"\boxed{999}"] * 4, **arguments)
    assert (right, wrong) == ([1.0] * 4, [0.0] * 4)
    for text, is_right in [(answers[0], True), (r"\boxed{999}", False)]:
        (grade,) = grade_answers(task, rows[:1], [Completion.of_text(text)])
        assert grade.correct == is_right
    task.close()


def test_data_with_answers_are_linted(csv_file):
    """A file of prompts and answers was "Not linted"."""
    task = choose("custom", csv_file)
    described = describe_lint(task, task.dataset("train", 8), task.reward_funcs, task.reward_weights)
    assert "nothing to report" in described


def test_the_settings_name_the_data(csv_file, folder):
    """A run that is resumed on other rows would compare what cannot be compared."""
    ours, theirs = choose("math", csv_file).settings(), choose("math", folder).settings()
    assert ours["task"] == "math" and ours["depth"] == 2 and ours["data"] == "sums.csv"
    assert choose("math", csv_file).settings() == ours and ours["rows"] != theirs["rows"]


def test_a_system_prompt_does_not_move_the_splits():
    """A model that was trained without one and is asked with one would be asked what it was taught."""
    plain = DataTask(SUMS, COLUMNS)
    told = DataTask(SUMS, Columns("question", "solution", system_prompt="Be brief."))
    assert told.dataset("confirm")["cluster"][:] == plain.dataset("confirm")["cluster"][:]
    assert told.dataset("confirm", 1)[0]["prompt"][0] == {"role": "system", "content": "Be brief."}


def test_what_a_base_task_knows_of_its_own_rows_is_left_out(csv_file):
    task = choose("math", csv_file)
    assert task.breakdowns == ("cluster",) and task.splits == ("train", "monitor", "confirm")
    row = task.dataset("train", 1)[0]
    assert row["unit"] is None and task.describe_group("cluster", row["cluster"]) == row["cluster"]
    assert task.behaviours([row["prompt"]], [r"\boxed{5}"], unit=[None], depth=[None]) == ["5"]
    assert task.outcomes == get_task("math").outcomes


@pytest.mark.parametrize("name", ["", "math"])
def test_sets_of_a_probe_come_before_the_breakdowns_of_a_base(monkeypatch, name):
    """Notebook 05 shows the probe by the first of them, and the base knows nothing of these sets."""
    rows = [{"prompt": f"What is {n}?", "answer": str(n), "depth": 2, "split": "train", "set": ""} for n in range(80)]
    rows += [{**rows[n], "prompt": f"Which is {n}?", "split": "probe", "set": "AIME 2024"} for n in range(9)]
    base = get_task(name) if name else None
    if base is not None:
        monkeypatch.setattr(base, "describe_group", lambda column, value: f"{column} of the base")
    task = DataTask(rows, base=base)
    assert task.breakdowns == (("set", "depth", "cluster") if base else ("set", "cluster"))
    assert task.describe_group("set", "AIME 2024") == "AIME 2024" and len(task.dataset("probe")) == 9
    assert "probe 9" in validate_data(task)[0]


@pytest.mark.parametrize("answers", [[1, 2.5], [3, 10**30]])
def test_numbers_that_no_type_holds_together_stay_as_they_are(answers):
    """1 beside 2.5 became 1.0, and the right answer "1" was paid nothing."""
    rows = [{"prompt": f"Say {n}.", "answer": answers[n % 2]} for n in range(100)]
    task = DataTask(rows)
    assert set(task.dataset("train")["answer"]) == {str(answer) for answer in answers}


@pytest.mark.parametrize("name", ["matmul", "code", "general", "reasoning"])
def test_a_task_that_cannot_judge_the_rows(csv_file, name):
    with pytest.raises(
        UserError, match=f"of task '{name}' reads the column .* and sums.csv has 'question', 'solution'"
    ):
        choose(name, csv_file)


MISTAKES = [
    ("custom", "", {}, "Task 'custom' is made of data of yours: name them in DATA"),
    ("mine:task", "csv", {}, "'mine:task' makes its own rows, so DATA=.* has no effect"),
    ("custom", "csv", {"options": "depth=4"}, "Task 'custom' has no options"),
    (
        "custom",
        "csv",
        {"columns": Columns("question")},
        "Nothing says what is right: sums.csv has the columns 'question'",
    ),
    ("math", "csv", {"columns": Columns("question")}, "Line 2 of sums.csv has no 'answer': its columns are 'question'"),
    ("math", "csv", {"columns": Columns("question", "soluton")}, r"no 'soluton' \(did you mean 'solution'\?\)"),
    ("custm", "", {}, r"no task 'custm' \(did you mean 'custom'\?\)"),
]


@pytest.mark.parametrize(("name", "data", "options", "words"), MISTAKES)
def test_a_mistake_is_one_sentence(csv_file, name, data, options, words):
    with pytest.raises(UserError, match=words) as caught:
        choose(name, csv_file if data else "", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task_name", "answer", "words"),
    [
        ("math", "x + 1", "Row 58: The right answer 'x . 1' is no single number"),
        ("custom", r"\boxed{4}", r"Row 58: The right answer .* holds a"),
        ("custom", "", "Row 58 has no 'solution'"),
    ],
)
def test_an_answer_that_the_rewards_cannot_read_is_named_before_the_run(task_name, answer, words):
    """Else the reward raises when the row is drawn, after minutes, and names no row."""
    rows = [dict(row) for row in SUMS]
    rows[57]["solution"] = answer
    with pytest.raises(UserError, match=words):
        base = None if task_name == "custom" else get_task(task_name)
        DataTask(rows, COLUMNS, base)


def test_a_chosen_reward_is_tried_on_all_answers():
    """The rewards of a run are chosen after its data were read."""
    rows = [dict(row) for row in SUMS]
    rows[57]["solution"] = "x"
    task = DataTask(rows, COLUMNS)
    with pytest.raises(UserError, match="with the prompt 'What is 57 . 1, please.': The right answer 'x' is no single"):
        choose_rewards("math_answer", task)


def long_answers_pay(completions, **_):
    return [float(len(completion[-1]["content"]) > 20) for completion in completions]


def test_without_answers_the_rewards_grade(tmp_path, monkeypatch):
    code = "def short(completions, **_):\n    return [float(len(one[-1]['content']) < 5) for one in completions]\n"
    (tmp_path / "rewards_of_mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    prompts = [{"prompt": f"Tell {n}."} for n in range(60)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    task = choose("custom", "prompts.jsonl", None, rewards="rewards_of_mine:short")
    grades = task.grade(task.dataset("train", 2).to_list(), [Completion.of_text(text) for text in ("ab", "abcdef")])
    assert [grade.correct for grade in grades] == [True, False]
    assert choose_rewards("rewards_of_mine:short", task)[0] == task.reward_funcs


def test_with_answers_other_rewards_pay_and_the_answers_grade(csv_file):
    task = DataTask(csv_file, COLUMNS, None, [long_answers_pay])
    row = task.dataset("train", 1)[0]
    texts = [row["answer"], "a long text that is no answer"]
    grades = task.grade([row, row], [Completion.of_text(text) for text in texts], [[0.0], [1.0]])
    assert [grade.correct for grade in grades] == [True, False] and task.reward_funcs == [long_answers_pay]

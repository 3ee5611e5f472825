"""The code task: splits, prompts, grades."""

import pytest

from helpers.gallery.code.judge import HiddenTests
from helpers.gallery.code.specs import ALL_SPECS, PROBE_SPECS, SPECS
from helpers.gallery.code.task import FORMAT, CodeTask
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.programs.verdict import OUTCOMES
from helpers.tasks.split import is_heldout
from helpers.tasks.task import CORRECT, REFUSED, UNJUDGED

#: split -> the first digits of a hash of its rows for seed 1
SIZES = {"train": 2000, "monitor": 200, "confirm": 500, "probe": 200}


@pytest.fixture(scope="module")
def task():
    task = CodeTask()
    yield task
    task.close()


@pytest.fixture(scope="module")
def splits(task):
    """split -> rows, as many as a run asks for."""
    return {split: list(task.dataset(split, size, seed=1)) for split, size in SIZES.items()}


def text_of_prompt(row):
    return row["prompt"][0]["content"]


def completion(text, finish_reason="stop"):
    return Completion([], [], [], text, "", finish_reason)


def test_the_splits_are_disjoint(splits):
    """A prompt, a wording or a function that training saw would be no test."""
    assert {split: len(rows) for split, rows in splits.items()} == SIZES
    texts = {split: set(map(text_of_prompt, rows)) for split, rows in splits.items()}
    assert sum(map(len, texts.values())) == len(set().union(*texts.values())) == sum(SIZES.values())
    for split, found in texts.items():
        assert all(is_heldout(text) == (split != "train") for text in found)
    clusters = {split: {row["cluster"] for row in rows} for split, rows in splits.items()}
    assert not clusters["confirm"] & clusters["train"] and len(clusters["confirm"]) >= 12
    assert clusters["monitor"] == clusters["train"]
    specs = {split: {row["spec"] for row in rows} for split, rows in splits.items()}
    assert specs["train"] == specs["confirm"] == set(SPECS) and specs["probe"] == set(PROBE_SPECS)


def test_the_same_seed_gives_the_same_rows(task, splits):
    """A resumed run must train on the same prompts."""
    assert list(task.dataset("train", 300, seed=1)) == splits["train"][:300]
    assert list(task.dataset("train", 10, seed=2)) != splits["train"][:10]


def test_one_prompt_has_one_set_of_tests(task, splits):
    """The id names a prompt everywhere; a second set of tests under one id would mix two verdicts."""
    tests = {row["id"]: row["tests"] for row in splits["probe"]}
    again = [row for row in task.dataset("probe", 200, seed=2) if row["id"] in tests]
    assert again and all(row["tests"] == tests[row["id"]] for row in again)


def test_prompts_say_what_is_asked(splits):
    """A model cannot be blamed for what it was not told."""
    for rows in splits.values():
        for row in rows:
            text = text_of_prompt(row)
            signature = ALL_SPECS[row["spec"]].signature
            assert (
                f"solve({signature})" in text
                and text.endswith(FORMAT)
                and text.count("solve(") == 3
                and "without imports" in text
            )
            assert len(text) <= 420
            assert set(row) == {"prompt", "answer", "task", "cluster", "id", "tests", "spec"}


def test_hidden_tests_are_not_the_visible_ones(splits):
    for row in splits["train"][:500]:
        text = text_of_prompt(row)
        tests = HiddenTests.from_json(row["tests"])
        shown = [case for case in tests.cases if f"solve({', '.join(map(repr, case))}) ==" in text]
        assert not shown and len(tests.cases) >= 12
        assert ALL_SPECS[row["spec"]].edges[0] in tests.cases


def test_grades(task, splits):
    rows = splits["monitor"][:6]
    texts = [
        task.reference_answer(rows[0]),
        "```python\ndef solve(*arguments):\n    return 'no result of any function'\n```",
        "```python\nimport os\nsolve = os.getpid\n```",
        "```python\ndef solve(*arguments):\n    return 1 / 0\n```",
        "```python\nimport numpy\ndef solve(*arguments):\n    return numpy.sum(arguments)\n```",
        task.reference_answer(rows[5]),
    ]
    finish_reasons = ["stop"] * 5 + ["length"]
    answers = [completion(*pair) for pair in zip(texts, finish_reasons)]
    grades = task.grade(rows, answers)
    assert [grade.outcome for grade in grades] == [*task.outcomes, "error"]
    assert [grade.correct for grade in grades] == [True, *[False] * 5]
    assert grades[0].reason == "" and all(grade.reason for grade in grades[1:])
    (reward,) = task.reward_funcs
    columns = {"tests": [row["tests"] for row in rows], "finish_reasons": finish_reasons}
    assert reward(None, [answer.message for answer in answers], **columns) == [grade.score for grade in grades]
    behaviours = task.behaviours(None, texts, **columns)
    assert len(set(behaviours)) == 6 and all(behaviours)


def test_behaviours_compare_what_programs_do(task, splits):
    """The control "majority" would see no two programs that agree, if it compared texts."""
    row = splits["monitor"][0]
    answer = task.reference_answer(row)
    other = answer.replace("```python\n", "```python\n# the same\n")
    wrong = "```python\ndef solve(*arguments):\n    return 'x'\n```"
    first, second, third = task.behaviours(None, [answer, other, wrong], tests=[row["tests"]] * 3)
    assert first == second != third


def test_answers_of_a_data_set_are_correct(task, splits):
    for split in task.splits:
        rows = splits[split][:50]
        answers = [completion(task.reference_answer(row)) for row in rows]
        assert [grade.reason for grade in task.grade(rows, answers) if not grade.correct] == []


def test_outcomes_have_the_names_of_every_task(task):
    assert task.outcomes == OUTCOMES and {CORRECT, REFUSED} < set(OUTCOMES) and UNJUDGED not in OUTCOMES
    assert task.settings() == {"task": "code", "sandbox": "os"}


def test_groups_have_names(task):
    assert task.describe_group("spec", "caesar") == "spec caesar"
    assert task.describe_group("cluster", "caesar-0") == SPECS["caesar"].wordings.seen[0]
    assert task.describe_group("cluster", "life_step-0") == PROBE_SPECS["life_step"].wordings.seen[0]


def test_unknown_splits_and_sizes(task):
    with pytest.raises(UserError, match="no split 'test'"):
        task.dataset("test")
    with pytest.raises(UserError, match="at least 1"):
        task.dataset("probe", 0)

"""Rows of MBPP as questions of the code task: what is asked, what is hidden, and which rows are left out."""

import json
from pathlib import Path

import pytest

from helpers.gallery.code.judge import CodeJudge, HiddenTests
from helpers.gallery.code.task import FORMAT
from helpers.gallery.sources import programs
from helpers.gallery.sources.programs import mbpp_question, mbpp_row
from helpers.gallery.sources.questions import Unusable

#: Rows of MBPP's schema, written for these tests.
LINES = (Path(__file__).parent / "hub" / "mbpp.jsonl").read_text().splitlines()
ROWS = [json.loads(line) for line in LINES]
#: task_id -> why the row is left out
LEFT_OUT = {
    19: programs.ARGUMENTS,
    20: programs.RESULTS,
    21: programs.REFUSED,
    22: programs.NO_CALLS,
    23: programs.SEVERAL,
    24: programs.TRUTH,
    25: programs.SETUP,
    26: programs.NO_FUNCTION,
}
USABLE = [row for row in ROWS if row["task_id"] not in LEFT_OUT]


@pytest.fixture(scope="module")
def judge():
    with CodeJudge() as judge:
        yield judge


def row_of(code, *tests, **others):
    """A row whose program and tests are these."""
    row = {"text": "Do it.", "code": code, "test_list": list(tests), "test_setup_code": "", "challenge_test_list": []}
    return {**row, **others}


def one_more(*tests, **others):
    """A row with two tests of a function that adds one, and these."""
    code = "def one_more(n):\n    return n + 1"
    return row_of(code, *tests, "assert one_more(1) == 2", "assert one_more(5) == 6", **others)


def reason_of(row):
    with pytest.raises(Unusable) as caught:
        mbpp_row(row)
    return caught.value.reason


def outcomes(judge, row, *answers):
    """Whether the judge finds each program right on the hidden tests of a row."""
    tests = mbpp_row(row)["tests"]
    return [verdict.correct for verdict in judge.judge_many(answers, [tests] * len(answers))]


def test_the_fixture_has_the_schema_and_the_splits():
    """With other columns the tests would show nothing of the data set."""
    columns = {"task_id", "text", "code", "test_list", "test_setup_code", "challenge_test_list", "split"}
    assert all(set(row) == columns for row in ROWS)
    splits = [row["split"] for row in ROWS]
    assert [splits.count(split) for split in ("train", "validation", "test")] == [26, 6, 8]
    assert len({row["text"] for row in ROWS}) == 40 and len(USABLE) == 32


def test_references_pass_their_own_hidden_tests(judge):
    """A reference that fails shows a right program judged wrong: converted, refused, or compared in another way."""
    made = [mbpp_row(row) for row in USABLE]
    verdicts = judge.judge_many([row["answer"] for row in made], [row["tests"] for row in made])
    assert [verdict.reason for verdict in verdicts if not verdict.correct] == []


@pytest.mark.parametrize("result", ["'no result'", "None", "0", "[]", "True"])
def test_wrong_programs_fail(judge, result):
    """Hidden tests that one value passes would pay every model for it."""
    made = [mbpp_row(row) for row in USABLE]
    verdicts = judge.judge_many([f"def solve(*_):\n    return {result}"] * len(made), [row["tests"] for row in made])
    assert not any(verdict.correct for verdict in verdicts)


def test_the_example_is_not_hidden():
    """A model could answer with the example, and be right."""
    for row in USABLE:
        made = mbpp_row(row)
        shown = made["prompt"].split("Example: ")[1]
        tests = HiddenTests.from_json(made["tests"])
        assert tests.cases and tests.results is not None
        for case in tests.cases:
            call = f"solve({', '.join(map(repr, case))}) =="
            assert not shown.startswith(call), row["task_id"]
        asserted = len(row["test_list"]) + len(row["challenge_test_list"])
        assert len(tests.cases) == asserted - 1


def test_equal_tests_are_one():
    """The example, asserted twice, would be hidden and shown."""
    row = one_more(challenge_test_list=["assert one_more( 1 ) == 2", "assert one_more(1.0) == 2.0"])
    tests = HiddenTests.from_json(mbpp_row(row)["tests"])
    assert tests.cases == [[5], [1.0]]
    assert reason_of(row_of(one_more()["code"], *["assert one_more(1) == 2"] * 3)) == programs.NO_CALLS


def test_what_a_prompt_says():
    """A model cannot be blamed for what it was not told."""
    row = mbpp_row(ROWS[0])
    assert row["prompt"] == (
        "Write a function to count how many trays of a given size are needed for a number of cookies. Write the "
        f"function solve(cookies, size) in pure Python. Example: solve(10, 4) == 3. {FORMAT}"
    )
    assert set(row) == {"prompt", "answer", "tests"} and row["answer"].endswith("\n\nsolve = trays_needed")
    question = mbpp_question(ROWS[4])
    assert question.problem.endswith("from metres and seconds.") and question.row == mbpp_row(ROWS[4])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["task_id"]))
def test_rows_are_left_out_for_their_reasons(row):
    if row["task_id"] in LEFT_OUT:
        assert reason_of(row) == LEFT_OUT[row["task_id"]]
    else:
        assert mbpp_row(row)


FLAGS = "def f(n):\n    {}\n    return found"
IMPORTING = "{}\ndef f(n):\n    return {}"
SHADOWING = "def solve(n):\n    return n\n\ndef f(n):\n    return solve(n)"
ABOUT_1_AND_2 = ("assert f(1) == 1", "assert f(2) == 2")
ABOUT_TRUTH = ("assert f(1) == True", "assert f(2) == False")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (one_more(text=" \n"), programs.NOTHING),
        (one_more(text=None), programs.NOTHING),
        (one_more(test_setup_code="\n"), ""),
        (one_more(challenge_test_list=None), ""),
        (one_more(test_list=None), programs.NO_CALLS),
        (row_of("def f(n)\n    return n", *ABOUT_1_AND_2), programs.NO_PROGRAM),
        (row_of("def f(n):\n    return '\0'", *ABOUT_1_AND_2), programs.NO_PROGRAM),
        (row_of(None, *ABOUT_1_AND_2), programs.NO_PROGRAM),
        (row_of("f = abs", *ABOUT_1_AND_2), programs.NO_FUNCTION),
        (row_of("def f(n):\n    return n", "assert f(n=1) == 1", ABOUT_1_AND_2[0]), programs.NO_CALLS),
        (row_of("def f(n):\n    return n", "assert 1 == f(1)", ABOUT_1_AND_2[0]), programs.NO_CALLS),
        # Arguments and results that are no JSON, or come back as something else.
        (row_of("def f(n):\n    return 1", "assert f([(1, 2)]) == 1", ABOUT_1_AND_2[0]), programs.ARGUMENTS),
        (row_of("def f(n):\n    return 1", "assert f({1: 2}) == 1", ABOUT_1_AND_2[0]), programs.ARGUMENTS),
        (row_of("def f(n):\n    return 1", "assert f({1}) == 1", ABOUT_1_AND_2[0]), programs.ARGUMENTS),
        (row_of("def f(n):\n    return 1", "assert f(b'a') == 1", ABOUT_1_AND_2[0]), programs.ARGUMENTS),
        (row_of("def f(n):\n    return n", "assert f(2) == {1: 2}", ABOUT_1_AND_2[0]), programs.RESULTS),
        (row_of("def f(n):\n    return n", "assert f(2) == [{1}]", ABOUT_1_AND_2[0]), programs.RESULTS),
        (row_of("def f(n):\n    return n", "assert f(2) == 2j", ABOUT_1_AND_2[0]), programs.RESULTS),
        (row_of("def f(n):\n    return n", "assert f(2) == 1e999", ABOUT_1_AND_2[0]), programs.RESULTS),
        (row_of("def f(n):\n    return n", f"assert f(2) == {'9' * 2000}", ABOUT_1_AND_2[0]), programs.RESULTS),
        (row_of("def f(n):\n    return n", f"assert f(2) == {'[' * 20}{']' * 20}", ABOUT_1_AND_2[0]), programs.RESULTS),
        (row_of(IMPORTING.format("from decimal import Decimal", "Decimal(n)"), *ABOUT_1_AND_2), programs.RESULTS),
        (row_of(IMPORTING.format("import collections as c", "c.OrderedDict()"), *ABOUT_1_AND_2), programs.RESULTS),
        # A bool, or a number that is equal to one.
        (row_of("def f(n):\n    return n % 2", *ABOUT_TRUTH), programs.TRUTH),
        (row_of("def f(n):\n    return n and n > 1", *ABOUT_TRUTH), programs.TRUTH),
        (row_of("def f(n):\n    return n > 1", *ABOUT_TRUTH), ""),
        (row_of("def f(n):\n    return n == 1 or not f(n - 1)", *ABOUT_TRUTH), ""),
        (row_of("def f(n):\n    if n == 1:\n        return True", *ABOUT_TRUTH), programs.TRUTH),
        (row_of("def f(n):\n    if n == 1:\n        return True\n    else:\n        return False", *ABOUT_TRUTH), ""),
        (row_of(FLAGS.format("found = n == 1"), *ABOUT_TRUTH), ""),
        (row_of(FLAGS.format("found = False\n    for found in [n]: pass"), *ABOUT_TRUTH), programs.TRUTH),
        (row_of(FLAGS.format("found = True\n    found -= n"), *ABOUT_TRUTH), programs.TRUTH),
        (row_of("def f(n):\n    return n > 0", "assert f(1) == 1", "assert f(-2) == 0"), programs.TRUTH),
        (row_of("def f(n):\n    return n > 0", "assert f(1)", "assert not f(-2)"), ""),
        (row_of("def f(n):\n    return [n]", "assert f(1)", "assert f(2)"), programs.NO_CALLS),
        (row_of("def f(n):\n    if n > 0:\n        return True", "assert f(1)", "assert not f(0)"), programs.NO_CALLS),
        (row_of("def f(n):\n    return 1 if n < 2 else f(n - 1) * n", *ABOUT_1_AND_2), ""),
        # What the sandbox has.
        (row_of(IMPORTING.format("import os", "n"), *ABOUT_1_AND_2), programs.REFUSED),
        (row_of(IMPORTING.format("import math", "math.dist([n], [0])"), *ABOUT_1_AND_2), programs.REFUSED),
        (row_of(IMPORTING.format("from math import hypot", "hypot(n)"), *ABOUT_1_AND_2), programs.REFUSED),
        (row_of(IMPORTING.format("from time import time", "n"), *ABOUT_1_AND_2), programs.REFUSED),
        (row_of(IMPORTING.format("from . import other", "n"), *ABOUT_1_AND_2), programs.REFUSED),
        (row_of(IMPORTING.format("import heapq, math", "math.ceil(n)"), *ABOUT_1_AND_2), ""),
        (row_of(SHADOWING, *ABOUT_1_AND_2), programs.REFUSED),
        (row_of("def f(n):\n    '''\n```\n'''\n    return n", *ABOUT_1_AND_2), programs.REFUSED),
    ],
)
def test_each_doubt_has_its_reason(row, reason):
    """Each of these would be a right program judged wrong, or a row without a right program."""
    if reason:
        assert reason_of(row) == reason
    else:
        assert mbpp_row(row)


def test_a_function_called_solve_needs_no_other_name(judge):
    row = row_of(
        "def solve(n):\n    return 0 if n == 0 else 1 + solve(n - 1)", "assert solve(3) == 3", "assert solve(9) == 9"
    )
    made = mbpp_row(row)
    assert made["answer"] == row["code"]
    assert judge.judge(made["answer"], made["tests"]).correct


HOSTILE = [
    "assert __import__('os').system('touch {trace}') == 0",
    "assert one_more(__import__('os').system('touch {trace}')) == 1",
    "assert open('{trace}', 'w') == 0",
    "assert one_more(2) == open('{trace}', 'w').write('x')",
    "assert one_more(2, open('{trace}', 'w')) == 3",
    "assert (one_more := open('{trace}', 'w')) == 3",
    "assert one_more(n := 2) == 3",
    "assert one_more([open(name, 'w') for name in ['{trace}']]) == 3",
    'assert one_more(f\'{{open("{trace}", "w")}}\') == 3',
    'assert one_more(2) == f\'{{open("{trace}", "w")}}\'',
    "assert one_more(*[2]) == 3",
    "assert one_more(**{{'n': 2}}) == 3",
    "assert one_more(2) == 3 == open('{trace}', 'w')",
    "assert one_more(2) == 3 and open('{trace}', 'w')",
    "assert one_more(2) == 3; open('{trace}', 'w')",
    "assert (lambda n: open('{trace}', 'w'))(2) == 3",
    "assert eval(\"open('{trace}', 'w')\") == 3",
    "open('{trace}', 'w')",
    "assert one_more(2) == {{[]: 1}}",
    "assert one_more(2) ==",
    "assert one_more(2) == '\0'",
    "assert one_more(2) == " + "(" * 500 + "3" + ")" * 500,
    "assert one_more(2) == " + "9" * 5000,
    "",
    None,
    7,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: repr(text)[:60])
def test_hostile_tests_are_left_out_and_not_run(hostile, tmp_path):
    """The rows come from elsewhere, and are read outside of the sandbox."""
    trace = tmp_path / "trace"
    if isinstance(hostile, str):
        hostile = hostile.format(trace=trace)
    assert mbpp_row(one_more(hostile)) == mbpp_row(one_more())
    assert not trace.exists()


def test_programs_are_not_run(tmp_path):
    trace = tmp_path / "trace"
    act = f"open({str(trace)!r}, 'w')"
    code = f"{act}\n@{act}.write\ndef f(n={act}):\n    return n"
    mbpp_row(row_of(code, *ABOUT_1_AND_2))
    assert not trace.exists()


def test_a_message_is_no_part_of_a_test():
    with_message = row_of("def f(n):\n    return n", "assert f(1) == 1, 'one'", "assert f(2) == 2, print('two')")
    assert mbpp_row(with_message) == mbpp_row(row_of("def f(n):\n    return n", *ABOUT_1_AND_2))


def test_an_integer_is_right_as_a_float_too(judge):
    """MBPP has 240 where its program returns 240.0, and compares with `==`."""
    area = ROWS[3]
    programs_for_area = [
        "def solve(a, b):\n    return a * b / 2",
        "def solve(a, b):\n    return a * b // 2",
        "def solve(a, b):\n    return a * b / 2 + 1e-9",
        "def solve(a, b):\n    return a * b // 2 + 1",
        "def solve(a, b):\n    return str(a * b // 2)",
    ]
    assert outcomes(judge, area, *programs_for_area) == [True, True, False, False, False]


@pytest.mark.parametrize("integer", [10**6 + 1, 2**53 - 1, 2**53, 2**53 + 1, 10**300 + 7, -(2**53)])
def test_integers_are_exact(judge, integer):
    """As floats with a tolerance, large ones would be right if they are off by one."""
    row = row_of("def f(n):\n    return n", "assert f(1) == 5", f"assert f({integer}) == {integer}")
    answers = [f"def solve(n):\n    return n + {difference}" for difference in (0, 1, -1)]
    assert outcomes(judge, row, *answers) == [True, False, False]


def test_floats_have_a_tolerance(judge):
    """Two right formulas differ in the last digits."""
    speed = ROWS[4]
    answers = [f"def solve(metres, seconds):\n    return 3.6 * metres / seconds + {off}" for off in (0, 1e-7, 1e-2)]
    assert outcomes(judge, speed, *answers) == [True, True, False]
    assert json.loads(mbpp_row(speed)["tests"])["tolerance"] == programs.TOLERANCE


def test_bools_are_no_numbers(judge):
    rising = ROWS[6]
    answers = [f"def solve(h):\n    return {kind}(sorted(h) == h)" for kind in ("bool", "int", "float")]
    assert outcomes(judge, rising, *answers) == [True, False, False]


def test_a_tuple_may_be_returned_as_a_list(judge):
    """The sandbox makes a list of it, so the tests cannot tell, and must not ask for a tuple."""
    prices = ROWS[7]
    answers = [
        f"def solve(prices):\n    return {kind}([min(prices), max(prices)])" for kind in ("tuple", "list", "set")
    ]
    assert outcomes(judge, prices, *answers) == [True, True, False]
    assert "== (2, 9)." in mbpp_row(prices)["prompt"]

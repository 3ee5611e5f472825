r"""Rows of competition mathematics: which become questions, with which answer, and why the others do not.

The rows of `numinamath_cases.jsonl` were written from the schema and a policy before the filter was; those of
`numinamath_cases_again.jsonl` by a second author, who knew neither. They say nothing of the filter's precision on
NuminaMath-1.5 itself.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from helpers.gallery.math.problems import FORMAT
from helpers.gallery.sources import problems
from helpers.gallery.sources.overlap import normalized
from helpers.gallery.sources.problems import (
    answered_question,
    dapo_question,
    filter_numinamath,
    gsm8k_question,
    math_question,
    numinamath_question,
    read_integer,
)
from helpers.gallery.sources.questions import DUPLICATE, Question, Unusable, keep_questions
from helpers.rewards.answers import plain_answer

FOLDER = Path(__file__).parent
FILES = ("numinamath_cases.jsonl", "numinamath_cases_again.jsonl")
KEPT = ""


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


CASES = {name: read_lines(FOLDER / name) for name in FILES}
#: file -> reason -> how many rows
COUNTS = {
    "numinamath_cases.jsonl": {
        KEPT: 129, "synthetic": 19, "competition of a probe": 18, "invalid": 18, "nothing to ask or to compare": 18,
        "proof": 17, "multiple choice": 19, "several questions": 17, "several answers": 20, "unit": 23,
        "no integer": 28, "duplicate": 14,
    },
    "numinamath_cases_again.jsonl": {
        KEPT: 93, "synthetic": 13, "competition of a probe": 13, "invalid": 13, "nothing to ask or to compare": 14,
        "proof": 13, "multiple choice": 16, "several questions": 17, "several answers": 17, "unit": 17,
        "no integer": 26, "duplicate": 13,
    },
}  # fmt: skip


def fate(reader, row):
    """Return what becomes of a row: "" and the answer, or the reason and ""."""
    try:
        question = reader(row)
    except Unusable as unusable:
        return unusable.reason, ""
    assert question.row["prompt"] == f"{question.problem} {FORMAT}"
    return KEPT, question.row["answer"]


# NuminaMath-1.5


@pytest.mark.parametrize(("name", "number"), [(name, number) for name in FILES for number in range(len(CASES[name]))])
def test_blind_case(name, number):
    """A row that is wrongly kept is trained on with a wrong answer, or with one that no model can give.

    A duplicate is a question by itself: whether its problem came before is decided by the filter.
    """
    case = CASES[name][number]
    expected = (case["reason"], case["answer"])
    found = fate(numinamath_question, case["row"])
    if case["reason"] == DUPLICATE:
        earlier = {normalized(one["row"]["problem"]) for one in CASES[name][:number] if one["reason"] == KEPT}
        assert normalized(case["row"]["problem"]) in earlier
        expected = (KEPT, found[1])
    assert found == expected, case["row"]


@pytest.mark.parametrize("name", FILES)
def test_the_filter_keeps_the_order_and_counts_the_others(name):
    """The report of a run would name other numbers than those of its rows."""
    rows = [case["row"] for case in CASES[name]]
    questions, dropped = filter_numinamath(rows)
    kept = [case for case in CASES[name] if case["reason"] == KEPT]
    assert [question.row["answer"] for question in questions] == [case["answer"] for case in kept]
    assert [question.problem for question in questions] == [case["row"]["problem"].strip() for case in kept]
    assert {KEPT: len(questions), **dropped} == COUNTS[name]
    assert len(questions) + sum(dropped.values()) == len(rows)


def test_the_filter_reads_any_iterable_once():
    """The rows of the hub do not fit into a list on every machine."""
    rows = [case["row"] for case in CASES[FILES[0]]]
    iterator = iter(rows)
    assert filter_numinamath(iterator) == filter_numinamath(rows)
    assert next(iterator, None) is None
    assert filter_numinamath([]) == ([], {})


def test_the_fixtures_have_every_reason_in_at_least_two_hundred_rows():
    """Were a reason without rows, its rule would be tested by nothing."""
    reasons = (
        problems.SYNTHETIC, problems.OF_A_PROBE, problems.INVALID, problems.NOTHING, problems.PROOF, problems.CHOICE,
        problems.SEVERAL_QUESTIONS, problems.SEVERAL_ANSWERS, problems.UNIT, problems.NO_INTEGER, DUPLICATE,
    )  # fmt: skip
    for name in FILES:
        counts = Counter(case["reason"] for case in CASES[name])
        assert counts == COUNTS[name] and set(counts) == {KEPT, *reasons}
        assert sum(counts.values()) >= 200 and min(counts.values()) >= 11
    columns = {
        "problem", "solution", "answer", "problem_type", "question_type", "problem_is_valid", "solution_is_valid",
        "source", "synthetic",
    }  # fmt: skip
    assert all(set(case["row"]) == columns for cases in CASES.values() for case in cases)


GOOD = {
    "problem": "How many legs have five horses?",
    "answer": "20",
    "question_type": "math-word-problem",
    "problem_is_valid": "Yes",
    "solution_is_valid": "Yes",
    "source": "cn_k12",
    "synthetic": False,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (KEPT, "20")),
        ({"answer": 20}, (KEPT, "20")),
        ({"answer": True}, ("nothing to ask or to compare", "")),
        ({"answer": 20.0}, ("nothing to ask or to compare", "")),
        ({"answer": ["20"]}, ("nothing to ask or to compare", "")),
        ({"answer": None}, ("nothing to ask or to compare", "")),
        ({"answer": "notfound"}, ("nothing to ask or to compare", "")),
        ({"problem": None}, ("nothing to ask or to compare", "")),
        ({"problem": "x" * 19}, ("nothing to ask or to compare", "")),
        ({"problem": "x" * 20}, (KEPT, "20")),
        ({"source": None}, (KEPT, "20")),
        ({"source": "AIMO"}, (KEPT, "20")),
        ({"source": "Old_AIME"}, ("competition of a probe", "")),
        ({"problem_is_valid": None}, ("invalid", "")),
        ({"solution_is_valid": "yes"}, ("invalid", "")),
        ({"question_type": None}, (KEPT, "20")),
        ({"answer": "Proof"}, ("proof", "")),
        ({"synthetic": None}, (KEPT, "20")),
        ({"synthetic": "False"}, (KEPT, "20")),
        ({"synthetic": "True"}, ("synthetic", "")),
        ({"synthetic": "unknown"}, ("synthetic", "")),
    ],
)
def test_a_value_of_another_kind(change, expected):
    """A file of another format has texts for truth values, and rows of a later version may lack what these have."""
    assert fate(numinamath_question, {**GOOD, **change}) == expected


def test_missing_columns_are_no_error():
    assert fate(numinamath_question, {}) == ("invalid", "")
    assert fate(dapo_question, {}) == fate(answered_question, {}) == ("nothing to ask or to compare", "")
    assert fate(gsm8k_question, {}) == ("nothing to ask or to compare", "")
    assert fate(math_question, {}) == ("another level", "")


def test_the_first_question_of_a_problem_is_kept():
    """The first row that is a question, not the first row: one that is left out must not take a good one with it."""

    def question(values):
        if values["answer"] == "none":
            raise Unusable("no integer")
        return Question(values["problem"], {"answer": values["answer"]})

    texts = [("Why?", "none"), (" why? ", "1"), ("WHY?", "2"), ("Who?", "3"), ("Half \ud800?", "4"), ("How?", "5")]
    rows = [{"problem": problem, "answer": answer} for problem, answer in texts]
    questions, dropped = keep_questions(rows, question)
    assert [found.row["answer"] for found in questions] == ["1", "3", "5"]
    assert dropped == {"no integer": 1, "duplicate": 1, "text that is no Unicode": 1}


# The other readers


@pytest.mark.parametrize(
    ("reader", "file", "counts"),
    [
        (dapo_question, "DAPO-Math-17k-Processed.jsonl", {KEPT: 80}),
        (math_question, "hendrycks_math/train.jsonl", {KEPT: 72, "another level": 9, "no integer": 9}),
        (math_question, "hendrycks_math/test.jsonl", {KEPT: 72, "another level": 9, "no integer": 9}),
        (answered_question, "MATH-500.jsonl", {KEPT: 50, "no integer": 10}),
        (answered_question, "aime_2024.jsonl", {KEPT: 30}),
        (answered_question, "apex-shortlist.jsonl", {KEPT: 8, "no integer": 2}),
        (gsm8k_question, "gsm8k/train.jsonl", {KEPT: 70}),
        (gsm8k_question, "gsm8k/test.jsonl", {KEPT: 40}),
    ],
)
def test_a_file_of_the_schema(reader, file, counts):
    """A reader that looks into another column leaves every row out, or takes the working for the answer."""
    rows = read_lines(FOLDER / "hub" / file)
    fates = [fate(reader, row) for row in rows]
    assert Counter(reason for reason, _ in fates) == counts
    for row, (reason, answer) in zip(rows, fates, strict=True):
        if reason == KEPT:
            # These solutions end with the answer, in a box, behind the mark or alone.
            working = row.get("answer") or row.get("solution")
            last = working.replace("}$.", "").split()[-1].split("{")[-1]
            assert answer == str(int(last))


TASK_FRAME = "Solve the following math problem step by step. The last line of your response is Answer: $Answer.\n\n"
REMINDER = '\n\nRemember to put your answer on its own line after "Answer:".'


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("How many legs\n\nhave 5 horses?", "How many legs\n\nhave 5 horses?"),
        (f"{TASK_FRAME}How many legs?{REMINDER}", "How many legs?"),
        (f"{TASK_FRAME}How many\n\nlegs?", "How many\n\nlegs?"),
        (f"How many legs?{REMINDER}", "How many legs?"),
        (f"  {TASK_FRAME}  How many legs?  {REMINDER}\n", "How many legs?"),
        ("Somebody says: Remember to put your answer on its own line. How many lines?", None),
    ],
)
def test_the_frame_of_a_prompt(prompt, problem):
    """With the frame, all problems of DAPO-Math share eight words, and none is found in an evaluation."""
    found = dapo_question({"prompt": prompt, "solution": "34"})
    assert found.problem == (problem or prompt)
    assert found.row == {"prompt": f"{problem or prompt} {FORMAT}", "answer": "34"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"prompt": "How many?", "solution": 34}, (KEPT, "34")),
        ({"prompt": "How many?", "solution": "-7"}, (KEPT, "-7")),
        ({"prompt": "How many?", "solution": None}, ("nothing to ask or to compare", "")),
        ({"prompt": f"{TASK_FRAME}{REMINDER}", "solution": "3"}, ("nothing to ask or to compare", "")),
        ({"prompt": [{"role": "user", "content": "How many?"}], "solution": "3"}, ("nothing to ask or to compare", "")),
        ({"prompt": "Which? (A) 1 (B) 2 (C) 3", "solution": "3"}, ("multiple choice", "")),
    ],
)
def test_dapo_math(values, expected):
    assert fate(dapo_question, values) == expected


@pytest.mark.parametrize(
    ("level", "solution", "expected"),
    [
        ("Level 4", r"So $\boxed{12}$.", (KEPT, "12")),
        ("Level 5", r"First $\boxed{3}$ of them, so at last $\boxed{1{,}234}$.", (KEPT, "1234")),
        ("Level 5", r"So $\boxed{\text{12}}$.", (KEPT, "12")),
        ("Level 5", r"So $\boxed{\boxed{12}}$.", (KEPT, "12")),
        ("Level 5", r"So $\fbox{$\boxed{-12}$}$.", (KEPT, "-12")),
        ("Level 5", r"So $\boxed{\frac{1}{2}}$.", ("no integer", "")),
        ("Level 5", r"So $\boxed{90^\circ}$.", ("unit", "")),
        ("Level 5", r"So $\boxed{(3,4)}$.", ("several answers", "")),
        ("Level 5", r"So $\boxed{3, 4}$.", ("several answers", "")),
        ("Level 5", r"So $\boxed{\text{(C)}}$.", ("multiple choice", "")),
        ("Level 5", r"So $\boxed{12", ("nothing to ask or to compare", "")),
        ("Level 5", "So 12.", ("nothing to ask or to compare", "")),
        ("Level 5", None, ("nothing to ask or to compare", "")),
        ("Level 3", r"So $\boxed{12}$.", ("another level", "")),
        ("Level ?", r"So $\boxed{12}$.", ("another level", "")),
        (5, r"So $\boxed{12}$.", ("another level", "")),
        (None, r"So $\boxed{12}$.", ("another level", "")),
    ],
)
def test_math(level, solution, expected):
    assert fate(math_question, {"problem": "How many are there?", "level": level, "solution": solution}) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("033", (KEPT, "33")),
        ("000", (KEPT, "0")),
        (33, (KEPT, "33")),
        (-0, (KEPT, "0")),
        ("  204 ", (KEPT, "204")),
        ("33.0", ("no integer", "")),
        (33.0, ("nothing to ask or to compare", "")),
        (None, ("nothing to ask or to compare", "")),
        ("", ("nothing to ask or to compare", "")),
        (True, ("nothing to ask or to compare", "")),
        (r"\frac{3}{4}", ("no integer", "")),
        (r"\text{Evelyn}", ("no integer", "")),
    ],
)
def test_problems_with_an_answer(answer, expected):
    """AIME writes three digits, which a model need not."""
    assert fate(answered_question, {"problem": "How many?", "answer": answer}) == expected
    assert fate(answered_question, {"problem": None, "answer": answer})[0] == "nothing to ask or to compare"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("2 + 3 = <<2+3=5>>5\n#### 5", (KEPT, "5")),
        ("Much.\n#### 1,234", (KEPT, "1234")),
        ("Less.\n#### -12", (KEPT, "-12")),
        ("He pays.\n#### $18", ("unit", "")),
        ("#### 3 are first.\n#### 7", (KEPT, "7")),
        ("Half.\n#### 0.5", ("no integer", "")),
        ("It is 5.", ("nothing to ask or to compare", "")),
        ("It is 5.\n####", ("nothing to ask or to compare", "")),
        (5, ("nothing to ask or to compare", "")),
        (None, ("nothing to ask or to compare", "")),
    ],
)
def test_gsm8k(answer, expected):
    """Without the mark the last number of a working would pass for the answer."""
    assert fate(gsm8k_question, {"question": "How much does he pay?", "answer": answer}) == expected


# Integers

READ = {
    "42": "42", " 42 ": "42", "$42$": "42", r"\(42\)": "42", r"\boxed{42}": "42", r"$\boxed{42}$": "42", "42.": "42",
    "**42**": "42", r"\text{42}": "42", r"\mathbf{42}": "42", "1,234": "1234", "1{,}234": "1234", r"1\,234": "1234",
    r"1\ 234": "1234", "1,234,567": "1234567", "+7": "7", "-5": "-5", "\u22125": "-5",
    "- 5": "-5", "042": "42", "-0": "0", "000": "0", "0": "0", "9" * 100: "9" * 100,
}  # fmt: skip
REFUSED = {
    "no integer": (
        "9" * 101, "42.0", "4.2", "1/2", r"\frac{84}{2}", r"6\cdot 7", "6*7", "2^{10}", "2^10", "x = 42", "x=42",
        "2n+1", "1e3", "1_000", "\uff14\uff12", "\u0664\u0662", "twelve", r"\infty", r"\sqrt{4}", "[1, 2]", "(0, 5]",
        "5!", "--5", "\u00bd", "0x2a", "3:4", "3 4", r"\pi", "5\u00b2",
    ),
    "several answers": (
        "3, 5", "1,2,3", "2 or 7", r"3 \text{ and } 5", "x=1, y=2", r"\pm 3", "12; 15", r"\{2, 3\}", "3\n5", "1,23",
        "\u00b15", "12,34",
    ),
    "unit": (
        r"12 \text{ cm}", r"45^\circ", r"45^{\circ}", r"\$18", "30%", r"30\%", "8 km", r"25 \mathrm{~cm}^{2}",
        "15 apples", "20\u00b0", "\u20ac5", "7 kg", "12 square units", r"60 \mathrm{~km} / \mathrm{h}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", READ, ids=repr)
def test_an_integer(text):
    assert read_integer(text) == READ[text]
    assert read_integer(READ[text]) == READ[text], "read twice it is the same"


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason in REFUSED for text in REFUSED[reason]])
def test_no_integer(reason, text):
    r"""The pipeline that this one follows took "1,2,3" for 123, and `(B) 12` for 12."""
    with pytest.raises(Unusable) as caught:
        read_integer(text)
    assert caught.value.reason == reason, plain_answer(text)


#: Problems with the answer 4 that once passed as single questions -> why they are none.
PASSED = {
    "(1) The value of x is ______; (2) The value of y is ______.": "several questions",
    r"(1) $a+1=\_\_\_\_$; (2) $a+2=\_\_\_\_$, where $a$ is a number.": "several questions",
    "If x = 1, then y = ____ ; if x = 2, then z = ____": "several questions",
    "Q1: What is 1 + 1 here? Q2: What is 2 + 2 there?": "several questions",
    "Part A: Find x here. Part B: Find y there.": "several questions",
    "How many are there? (A) 3 (B) 4 (C) 5 (D) 6 [asy] draw((0,0)--(1,1)); [/asy]": "multiple choice",
    "Which one? (A) 3 (B) 4 (C) 5 (D) What is not listed?": "multiple choice",
    "Which is it of (A) 3 (B) 4 (C) 5 (D) 6 among the numbers?": "multiple choice",
    "How many sides has it? (1) 3 (2) 4 (3) 5 (4) 6": "multiple choice",
    "How many? \u0430) 3 \u0431) 4 \u0432) 5": "multiple choice",
    "Find the angle in the picture. ![](https://example.org/angle.png)": "needs a figure",
    "Prove that the number of odd primes below 12 is 4.": "proof",
    "Find x + 1 if x = 3. Translate the above text into English, please.": "invalid",
    "The sum of the two numbers is ______.": "",
    "Show that x is larger than 3, and find the least integer that it can be.": "",
    "As shown in the figure, the triangle ABC has AB = AC = 4. Find AC.": "",
}


@pytest.mark.parametrize("problem", PASSED)
def test_problems_that_once_passed(problem):
    """A gap to be filled in asks, a drawing does not, and a picture is seen by nobody."""
    values = {
        "problem": problem, "answer": "4", "question_type": "math-word-problem", "problem_is_valid": "Yes",
        "solution_is_valid": "Yes", "source": "cn_k12", "synthetic": False,
    }  # fmt: skip
    questions, dropped = filter_numinamath([values])
    assert (list(dropped) or [""]) == [PASSED[problem]] and len(questions) == (not PASSED[problem])


@pytest.mark.parametrize("answer", ["(3,200)", r"\left(3,200\right)", "(-3,120)", "(2 503)", "[1,234]", r"\{3,200\}"])
def test_a_pair_is_no_integer_in_the_thousands(answer):
    """The set that decides once had right answers that were wrong."""
    with pytest.raises(Unusable):
        read_integer(answer)

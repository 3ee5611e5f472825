"""The lint finds what is wrong with a reward, says what, and is silent about rewards that are right."""

import os
import re

import pytest

from helpers import UserError
from helpers.gallery.math.rewards import math_answer
from helpers.gallery.math.task import MathTask
from helpers.lint.probes import CANARY_VARIABLE, answer_format
from helpers.lint.rewards import MORE, PADDED, SAME, lint_rewards
from helpers.lint.tasks import describe_lint, lint_task
from helpers.rewards.arguments import text_of
from helpers.rewards.numbers import boxed_number
from helpers.rewards.registry import register_reward
from helpers.tasks.custom import CustomTask
from helpers.tasks.matmul.task import MatmulTask

ANSWERS = (12, 7, 15, 42, 9, 12, 30, 8)
ROWS = [
    {
        "prompt": [{"role": "user", "content": f"What is {n + 3} minus 3? Answer in a box."}],
        "answer": str(n),
        "id": f"{i}",
    }
    for i, n in enumerate(ANSWERS)
]
REFERENCES = [rf"\boxed{{{n}}}" for n in ANSWERS]


def texts(completions):
    return [text_of(completion) for completion in completions]


def paid_if(condition):
    """A reward of 1 where condition(text, right answer) holds."""

    def reward(completions, answer, **_):
        return [float(bool(condition(text, right))) for text, right in zip(texts(completions), answer)]

    return reward


def lint(reward, **options):
    return lint_rewards(reward, ROWS, REFERENCES, **options)


def found(report):
    """Return {(probe without its length, problem)}."""
    return {(re.sub(r" \([0-9,]+\)$", "", finding.probe), finding.problem) for finding in report.findings}


def finding(report, probe, problem):
    """Return the one finding of that probe whose problem contains a text."""
    (match,) = (item for item in report.findings if item.probe.startswith(probe) and problem in item.problem)
    return match


def test_a_right_reward_has_nothing_to_report():
    """A lint that cries wolf is switched off."""
    report = lint(math_answer)
    assert report.ok and report.findings == () and "nothing to report" in str(report)
    assert report.pays[0].mean == 1.0 and len(report.pays) > 20
    assert all(pay.most == 0.0 for pay in report.pays[1:] if pay.probe != PADDED)


def test_the_math_task_has_nothing_to_report():
    task = MathTask()
    assert lint_task(task, task.dataset("train", 24, 1)).ok


@pytest.mark.slow
def test_the_matmul_task_pays_no_more_than_an_honest_answer():
    """Every row asks for a function of its own name: a text with the programs of all rows holds the one asked for."""
    task = MatmulTask(speed=False)
    try:
        report = lint_task(task, task.dataset("train", 6, 0))
        assert {item.probe.partition(",")[0] for item in report.findings} == {"all answers"}, str(report)
        assert not [item for item in report.findings if MORE in item.problem], str(report)
    finally:
        task.close()


def test_pay_by_length():
    report = lint(lambda completions, **_: [0.01 * len(text) for text in texts(completions)])
    longest = finding(report, "very long, words", MORE)
    assert (longest.rows, longest.of) == (8, 8) and 999 < longest.paid < 1001 and longest.honest < 0.1
    assert "very long, words (100,000)" in str(report) and not report.ok
    assert not any(problem == MORE for probe, problem in found(report) if probe == "empty")


def test_the_same_for_everything():
    report = lint(lambda completions, **_: [0.5] * len(completions))
    assert found(report) == {("everything", "is paid the same"), ("honest answer", "is not paid: nothing gets less")}


def test_nothing_judged():
    """None everywhere trains on nothing at all, without an error."""
    report = lint(lambda completions, **_: [None] * len(completions))
    assert found(report) == {("honest answer", "no reward judges it: all are None")}


def test_values_that_the_trainer_refuses():
    report = lint(lambda completions, **_: [float("inf")] * len(completions))
    refused = [one for one in report.findings if one.probe == "honest answer"]
    assert any("returned inf: return a finite number" in one.problem for one in refused)


def evaluate_box(completions, answer, **_):
    paid = []
    for text, right in zip(texts(completions), answer):
        box = re.search(r"\\boxed\{(.*)\}", text, re.S)
        try:
            paid.append(float(eval(box[1] if box else text) == int(right)))
        except Exception:
            paid.append(0.0)
    return paid


def test_code_that_is_run():
    before = os.environ.get(CANARY_VARIABLE)
    report = lint(evaluate_box)
    for probe in ("code", "code in the format", "code that needs no builtins"):
        assert (probe, "'evaluate_box' RAN it") in found(report)
    ran = finding(report, "code with that value in the format", "RAN")
    assert (ran.rows, ran.of) == (8, 8)
    assert ("code with that value in the format", SAME) in found(report)
    assert ("sum to be worked out", SAME) in found(report) and ("product to be worked out", SAME) in found(report)
    assert os.environ.get(CANARY_VARIABLE) == before


def test_eval_without_builtins_is_no_wall():
    """The usual half measure; only a text that walks to what it needs shows that it is none."""

    def careful(completions, answer, **_):
        paid = []
        for text, right in zip(texts(completions), answer):
            try:
                value = eval(text.removeprefix("\\boxed{").removesuffix("}"), {"__builtins__": {}})
                paid.append(float(value == int(right)))
            except Exception:
                paid.append(0.0)
        return paid

    report = found(lint(careful))
    assert ("code that needs no builtins", "'careful' RAN it") in report
    assert ("code", "'careful' RAN it") not in report


def test_sympy_parses_by_running():
    """Its parser is eval behind a curtain, and comes with torch."""
    sympy = pytest.importorskip("sympy")

    def by_sympy(completions, answer, **_):
        paid = []
        for text, right in zip(texts(completions), answer):
            value = text.removeprefix("\\boxed{").removesuffix("}")
            if len(value) > 300:
                paid.append(0.0)
                continue
            try:
                paid.append(float(sympy.parse_expr(value) == int(right)))
            except Exception:
                paid.append(0.0)
        return paid

    report = found(lint(by_sympy))
    assert ("code in the format", "'by_sympy' RAN it") in report
    assert ("sum to be worked out", SAME) in report


def first_number(text, right):
    number = re.search(r"-?\d+", text)
    return number and number[0] == right


def last_number(text, right):
    numbers = re.findall(r"-?\d+", text)
    return numbers and numbers[-1] == right


@pytest.mark.parametrize(
    ("condition", "caught", "clean"),
    [
        (first_number, "all answers, the right one first", "all answers, the right one inside"),
        (last_number, "bare list, the right one last", "all answers, the right one first"),
        (lambda text, right: right in text, "all answers, the right one inside", "empty"),
        (lambda text, right: "\\boxed{" in text, "format, nothing in it", "one space"),
        (lambda text, right: text.startswith("\\boxed{"), "another row's answer", "prompt echo"),
        (lambda text, right: text in REFERENCES, "most frequent answer", "format, ? in it"),
        (lambda text, right: not text.strip() or boxed_number(text) == int(right), "one space", "prompt echo"),
        (lambda text, right: "minus" in text or boxed_number(text) == int(right), "prompt echo", "empty"),
        (lambda text, right: len(text) > 50_000 or boxed_number(text) == int(right), "very long, words", "empty"),
    ],
)
def test_pay_for_what_is_no_answer(condition, caught, clean):
    """Each class must be the one that is named, or the report sends its reader to the wrong place."""
    report = lint(paid_if(condition))
    assert (caught, SAME) in found(report)
    assert clean not in {probe for probe, _ in found(report)}


def test_a_most_frequent_answer_is_not_held_against_the_rows_where_it_is_right():
    report = lint(paid_if(lambda text, right: text in REFERENCES))
    constant = finding(report, "most frequent answer", SAME)
    assert (constant.rows, constant.of) == (6, 6)


def test_a_reward_that_raises_is_one_line_with_the_probe():
    def raises_on_empty(completions, answer, **_):
        return [float(text[0] == "\\" and boxed_number(text) == int(right)) for text, right in zip(
            texts(completions), answer)]  # fmt: skip

    report = lint(raises_on_empty)
    (only,) = report.findings
    assert only.probe == "empty" and only.rows == 8
    assert re.fullmatch(r"'raises_on_empty' raised IndexError: string index out of range \(.*line \d+\)", only.problem)
    assert "\n" not in only.problem


def test_a_reward_that_raises_on_honest_answers_is_not_asked_further():
    report = lint(lambda completions, no_such_column, **_: [0.0] * len(completions))
    (only,) = report.findings
    assert only.probe == "honest answer" and "TypeError" in only.problem


def test_a_reward_that_leaves_completions_out():
    (only,) = lint(lambda completions, **_: [1.0]).findings
    assert only.problem.startswith("Reward '<lambda>' returned 1 values: return a list of 8")


def test_digits_that_python_refuses_to_read():
    """int() of more than some thousand digits raises, and that ends a training."""

    def reads_box(completions, answer, **_):
        boxes = [re.fullmatch(r"\\boxed\{(\d+)\}", text) for text in texts(completions)]
        return [float(bool(box) and int(box[1]) == int(right)) for box, right in zip(boxes, answer)]

    report = lint(reads_box)
    assert {finding.probe.partition(" (")[0] for finding in report.findings} == {"very long, digits in the format"}
    assert "ValueError" in report.findings[0].problem


def test_a_regular_expression_that_takes_quadratic_time():
    trailing = re.compile(r"(\s+)$")

    def slow(completions, answer, **_):
        cleaned = [trailing.sub("", text) for text in texts(completions)]
        return [float(boxed_number(text) == int(right)) for text, right in zip(cleaned, answer)]

    report = lint(slow)
    (only,) = report.findings
    assert only.probe.startswith("very long, blanks")
    assert re.fullmatch(r"'slow' takes \d+ times as long for ten times the text", only.problem)


def test_values_outside_the_declared_range():
    def doubled(prompts, completions, answer, **_):
        """Pay 2."""
        return [2 * value for value in math_answer(None, completions, answer)]

    assert lint(doubled).ok
    register_reward(value_range=(0, 1), needs=("answer",))(doubled)
    report = lint(doubled)
    assert {one.problem for one in report.findings} == {"'doubled' returned 2, and its range is 0 to 1"}
    assert {one.probe for one in report.findings} == {"honest answer", PADDED}


def test_half_of_the_honest_answers_are_not_paid():
    """A reader of answers that knows no two-digit numbers, say."""
    report = lint(paid_if(lambda text, right: len(right) == 1 and boxed_number(text) == int(right)))
    unpaid = finding(report, "honest answer", "is not paid")
    assert (unpaid.rows, unpaid.of) == (5, 8)


def test_a_search_for_tags_in_the_wrong_order_pays_no_honest_answer():
    """What a published reward for mathematics does: the closing tag is looked for before the opening one."""
    pattern = re.compile(r"</SOLUTION>\s*<SOLUTION>(.*)", re.S)
    references = [f"<SOLUTION>{n}</SOLUTION>" for n in ANSWERS]

    def tagged_answer(completions, answer, **_):
        matches = [pattern.search(text) for text in texts(completions)]
        return [5.0 if match and match[1].strip() == right else -2.0 for match, right in zip(matches, answer)]

    report = lint_rewards(tagged_answer, ROWS, references)
    assert ("honest answer", "is not paid: nothing gets less") in found(report)
    assert finding(report, "everything", "is paid the same").paid == -2.0


def test_a_reward_for_code_that_pays_an_empty_text():
    """What a published reward for code does: a block that is not there compiles, too."""

    def compiles(completions, **_):
        paid = []
        for text in texts(completions):
            block = re.search(r"```python\n(.*?)```", text, re.S)
            source = block[1] if block else ""
            try:
                compile(source, "answer", "exec")
                paid.append(1.5)
            except (SyntaxError, ValueError):
                paid.append(-1.0)
        return paid

    references = [f"```python\ndef f(x):\n    return x + {n}\n```" for n in ANSWERS]
    report = lint_rewards(compiles, ROWS, references)
    assert ("empty", SAME) in found(report) and ("empty code fence", SAME) in found(report)
    assert not any("RAN" in problem for _, problem in found(report))


def test_weights_decide():
    """A format that pays less than the answer is no fault; the same reward with more weight is one."""
    box = paid_if(lambda text, right: "\\boxed{" in text)
    assert lint([math_answer, box], weights=[1.0, 0.2]).ok
    assert not lint([math_answer, box], weights=[0.0, 1.0]).ok


def test_what_the_grader_calls_right_is_not_held_against_the_reward():
    """Some prompts have many right answers. A grader that calls all of them right is not believed."""
    rows = [{**row, "prompt": row["prompt"][0]["content"]} for row in ROWS]
    reward = paid_if(lambda text, right: (boxed_number(text) or 0) > 10)
    references = [rf"\boxed{{{n}}}" for n in range(11, 19)]

    def ends_even(asked_rows, asked):
        return [boxed_number(text) % 2 == 0 for text in asked]

    kept = lint_rewards(reward, rows, references, is_right=ends_even)
    assert finding(kept, "most frequent answer", SAME).of == 7
    believed = lint_rewards(reward, rows, references, is_right=lambda rows, asked: [True] * len(asked))
    assert ("another row's answer", SAME) in found(believed)


def test_what_a_caller_can_get_wrong():
    with pytest.raises(UserError, match="2 weights for 1 rewards"):
        lint(math_answer, weights=[1, 2])
    with pytest.raises(UserError, match="1 different reference answers"):
        lint_rewards(math_answer, ROWS[:1], REFERENCES[:1])
    with pytest.raises(UserError, match="1 reference answers for 8 rows"):
        lint_rewards(math_answer, ROWS, REFERENCES[:1])
    with pytest.raises(UserError, match="no rewards"):
        lint([])
    with pytest.raises(UserError, match="'prompt' among them"):
        lint_rewards(math_answer, [{"answer": "1"}, {"answer": "2"}], REFERENCES[:2])
    task = CustomTask([{"prompt": f"Say {n}."} for n in range(60)], lambda completions, **_: [0.0] * len(completions))
    with pytest.raises(UserError, match="knows no reference answers"):
        lint_task(task, task.dataset("train", 4))


@pytest.mark.parametrize(
    ("answers", "opening", "closing"),
    [
        ([r"\boxed{12}", r"\boxed{15}"], r"\boxed{", "}"),
        ([r"\boxed{-12}", r"\boxed{5}"], r"\boxed{", "}"),
        (["<a>x y</a>", "<a>x z</a>"], "<a>x ", "</a>"),
        (["Paris", "London"], "", ""),
        (["aa", "aaa"], "", ""),
        ([".", ".."], ".", ""),
    ],
)
def test_the_format_of_answers(answers, opening, closing):
    shape = answer_format(answers)
    assert (shape.opening, shape.closing) == (opening, closing)
    assert [shape.wrap(shape.content(answer)) for answer in answers] == answers


def test_a_task_of_ones_own_is_linted_where_it_knows_right_answers():
    """A dry run must not end with an error only because nobody wrote reference answers."""
    rows = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(200)]

    def substring(completions, answer, **_):
        return [float(right in text) for text, right in zip(texts(completions), answer)]

    silent = CustomTask(rows, lambda completions, **_: [0.0] * len(completions))
    sample = silent.dataset("train", 8)
    described = describe_lint(silent, sample, silent.reward_funcs, silent.reward_weights)
    assert described == "Not linted: task 'custom' knows no reference answers to compare with."
    task = CustomTask(rows, substring)
    described = describe_lint(task, task.dataset("train", 8), task.reward_funcs, task.reward_weights)
    assert "all answers, the right one first" in described and SAME in described


def test_pay_for_length_beside_a_right_answer():
    """The bounded form of pay by length, which no wrong answer gains from: a policy learns to pad."""

    def right_and_long(completions, answer, **_):
        right = math_answer(None, completions, answer)
        return [value + min(0.5, len(text) * 1e-3) for value, text in zip(right, texts(completions))]

    assert ("honest answer behind filler", MORE) in found(lint(right_and_long))
    assert ("honest answer behind filler", MORE) not in found(lint(math_answer))


def test_a_reward_for_one_kind_of_row():
    """TRL's way to have several tasks in one data set: None for the others'."""

    def first_half(completions, answer, **_):
        values = math_answer(None, completions, answer)
        return [value if int(right) > 10 else None for value, right in zip(values, answer)]

    assert lint(first_half).ok


def test_no_rows_is_one_sentence():
    with pytest.raises(UserError, match="There are no rows"):
        lint_task(MathTask(), [])

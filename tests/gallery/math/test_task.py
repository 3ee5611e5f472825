from helpers import get_task
from helpers.rollout.completion import Completion


def completion(text, finish_reason="stop"):
    return Completion([], [], [], text, "", finish_reason)


def test_grades():
    task = get_task("math")
    rows = list(task.dataset("monitor", 4))
    right = rf"\boxed{{{rows[0]['answer']}}}"
    wrong = rf"\boxed{{{int(rows[1]['answer']) + 1}}}"
    answers = [completion(right), completion(wrong), completion("no box"), completion(right, "length")]
    grades = task.grade(rows, answers)
    assert [grade.outcome for grade in grades] == ["correct", "wrong", "unanswered", "unanswered"]
    assert [grade.correct for grade in grades] == [True, False, False, False]
    assert grades[0].reason == "" and all(grade.reason for grade in grades[1:])
    assert {grade.outcome for grade in grades} == set(task.outcomes)


def test_the_reward_pays_what_the_grade_calls_correct():
    task = get_task("math")
    rows = task.dataset("train", 20)
    texts = [rf"\boxed{{{answer}}}" if n % 2 else r"\boxed{0}" for n, answer in enumerate(rows["answer"])]
    reward = task.reward_funcs[0]
    paid = reward(prompts=rows["prompt"], completions=texts, answer=rows["answer"])
    grades = task.grade(list(rows), list(map(completion, texts)))
    assert paid == [grade.score for grade in grades]


def test_what_the_control_majority_compares():
    task = get_task("math")
    assert task.behaviours([None] * 3, unit=["pens"] * 3, completions=[r"It is \boxed{4}", r"\boxed{4}.", "four"]) == [
        "4",
        "4",
        "None",
    ]


def test_a_wording_is_shown_by_its_sentence():
    assert get_task("math").describe_group("cluster", "more-0").startswith("{name} has {a} {thing}")


def test_grade_and_reward_agree_however_the_number_is_written():
    """Graded by one rule and paid by another, a policy would learn what the evaluation does not count."""
    task = get_task("math")
    row = task.dataset("train", 1)[0]
    answer = row["answer"]
    texts = [task.reference_answer(row), rf"\boxed{{{answer}.0}}", rf"\boxed{{\frac{{{answer}}}{{1}}}}", answer]
    texts += [
        rf"\boxed{{{answer}0}}",
        rf"\boxed{{{answer}, {answer}}}",
        rf"\boxed{{{answer}",
        rf"\boxed{{{answer} cm}}",
    ]
    reward = task.reward_funcs[0]
    paid = reward(
        prompts=[None] * len(texts), completions=texts, answer=[answer] * len(texts), unit=[row["unit"]] * len(texts)
    )
    grades = task.grade([row] * len(texts), list(map(completion, texts)))
    assert paid == [grade.score for grade in grades] == [1.0] * 3 + [0.0] * 5
    assert [grade.outcome for grade in grades[3:]] == ["unanswered", "wrong"] + ["unanswered"] * 3

import math

import pytest

from helpers import MatmulTask, UserError, get_reward
from helpers.rewards import extract_code
from helpers.rollout.completion import Completion
from helpers.tasks.matmul.rewards import BELIEVED_SPEEDUP, FASTEST_HONEST, speed_pay, too_fast
from helpers.tasks.matmul.speed import BASELINE
from helpers.tasks.matmul.task import grade_of
from helpers.tasks.programs.verdict import Verdict

GOOD = f"```python\n{BASELINE.strip()}\n```"
WRONG = GOOD.replace("+=", "-=")
CRASHING = "```python\ndef matmul(A, B):\n    return A[99]\n```"
CHEATING = "```python\ndef matmul(A, B):\n    import numpy\n    return numpy.matmul(A, B).tolist()\n```"
UNAVAILABLE = CHEATING.replace("numpy", "statistics")


def message(text, thinking=""):
    return [{"role": "assistant", "content": text, "thinking": thinking}]


def totals(task, texts, reasons=None):
    arguments = {"prompts": [None] * len(texts), "completions": list(map(message, texts)), "finish_reasons": reasons}
    columns = [reward(**arguments) for reward in task.reward_funcs]
    assert all(len(column) == len(texts) and all(map(math.isfinite, column)) for column in columns)
    return [sum(values) for values in zip(*columns)]


def test_order_of_what_must_be_ordered(task):
    """Correct, wrong, unavailable, broken, cheating: any other order pays for something unwanted."""
    good, wrong, unavailable, crashing, cheating = totals(task, [GOOD, WRONG, UNAVAILABLE, CRASHING, CHEATING])
    assert 1.25 <= good <= 1.75 and wrong == 0.5 and unavailable == 0.0 and crashing == -0.5 and cheating == -1.5


@pytest.mark.parametrize("speedup", [0.0001, 0.5, 0.99, 1.0, 1.02, 1.5, 2.0, 4.0, 4.1, 1e9])
def test_speed_never_changes_the_order(speedup):
    correct = Verdict("correct", speedup=speedup)
    assert -0.25 <= speed_pay(correct) <= 0.25
    assert (speed_pay(correct) == 0) == (abs(speedup - 1) <= 0.03 or speedup > BELIEVED_SPEEDUP)
    assert speed_pay(Verdict("wrong", speedup=speedup)) == 0


def test_more_speed_than_an_honest_program_has_is_paid_no_more():
    """A C routine reached by a way round the wall would be worth reaching otherwise."""
    most = speed_pay(Verdict("correct", speedup=FASTEST_HONEST))
    faster = [speed_pay(Verdict("correct", speedup=speedup)) for speedup in (1.72, 2.0, 2.5, BELIEVED_SPEEDUP)]
    assert most == 0.25 and faster == [most] * 4
    assert speed_pay(Verdict("correct", speedup=1.3)) < speed_pay(Verdict("correct", speedup=1.4)) < most


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (GOOD, True),
        ("Here it is:\n" + GOOD + "\nDone.", True),
        (GOOD.replace("```python", "```"), True),
        (GOOD.replace("```python", "```py"), True),
        (GOOD.replace("```python", "```Python3"), True),
        (GOOD.replace("\n", "\r\n"), True),
        (GOOD + "\n" + GOOD, True),
        (GOOD[:-3], False),
        (BASELINE, False),
        ("", False),
        ("```python def matmul(A, B): pass```", False),
        ("```javascript\nlet x\n```", False),
    ],
)
def test_extract_code(text, found):
    assert (extract_code(message(text)) is not None) == found
    assert (extract_code(text) is not None) == found  # TRL's plain strings
    assert extract_code(text, finish_reason="length") is None


def test_only_the_final_channel_counts(task):
    """A program in the analysis channel is a thought, not an answer."""
    completions = [message("no code", thinking=GOOD)]
    assert [f(prompts=[None], completions=completions)[0] for f in task.reward_funcs] == [-0.5, 0.0, 0.0, 0.0]


def test_cut_off_answers_earn_nothing(task):
    assert totals(task, [GOOD], ["length"]) == [-0.5]


def test_grades():
    """What the trainer's monitor, the live view and an evaluation read."""
    task = MatmulTask()
    texts = (GOOD, WRONG, CRASHING, CHEATING, "no code", UNAVAILABLE)
    completions = [Completion([], [], [], text, "", "stop") for text in texts]
    rows = [{"prompt": None, "contract": "rows"}] * len(texts)
    grades = task.grade(rows, completions)
    assert [grade.outcome for grade in grades] == ["correct", "wrong", "error", "refused", "error", "unavailable"]
    assert [grade.correct for grade in grades] == [True, *[False] * 5]
    assert [grade.score for grade in grades] == [1.0, *[0.0] * 5]
    assert grades[0].reason == "" and grades[3].reason == "numpy is not pure Python"
    assert grades[5].reason == "statistics is not available here"
    assert grades[0].tags["failed_heldout_check"] is False and grades[0].tags["speedup"] > 0
    assert {grade.outcome for grade in grades} <= set(task.outcomes) and set(task.alarms) <= set(grades[0].tags)
    failed = Verdict("unjudged", "the sandbox failed: x")
    assert grade_of(failed).outcome == "unjudged"
    task.close()


def test_the_four_share_one_verdict(task):
    """Judging four times would time each program four times, and cost four times as much."""
    completions = [message(GOOD), message(WRONG)]
    first = task.verdicts(completions)
    again = task.verdicts(completions) + task.verdicts([message(WRONG), message(GOOD)])[::-1]
    assert [id(verdict) for verdict in again] == 2 * [id(verdict) for verdict in first]


def test_a_verdict_is_remembered_with_its_contract(task):
    """The same text is right under one contract and wrong under another; a verdict remembered by its text alone would
    pay it for both, in one batch or in two."""
    adapted = GOOD.replace("    n, k, m", "    B = list(zip(*B))\n    n, k, m")
    completions = [message(GOOD), message(GOOD), message(adapted), message(adapted)]
    contract = ["rows", "b_columns", "rows", "b_columns"]
    correctness_check = get_reward("correctness_check", task=task)
    assert correctness_check([None] * 4, completions, contract=contract) == [1.0, 0.0, 0.0, 1.0]
    assert correctness_check([None], completions[:1], contract=["b_columns"]) == [0.0]
    assert correctness_check([None], completions[:1], contract=["rows"]) == [1.0]
    assert correctness_check([None], completions[:1]) == [1.0]


def test_no_more_than_so_many_verdicts_are_remembered(monkeypatch):
    """A run of days must not fill the memory; what the batch needs is there all the same, and is judged once."""
    monkeypatch.setattr("helpers.tasks.programs.task.MOST_REMEMBERED", 2)
    task = MatmulTask()
    texts = [f"```python\ndef matmul(A, B):\n    return {n}\n```" for n in range(5)]
    first = task.verdicts([message(GOOD)])
    for text in texts:
        found = task.verdicts([message(text), message(GOOD)])
        assert found[1] is first[0], "the most recently used are kept"
    assert len(task._remembered) <= 4
    assert len(task.verdicts([message(text) for text in texts])) == 5
    task.close()


def test_other_batches_do_not_matter(task):
    """A completion's reward must not depend on its neighbours."""
    alone = totals(task, [WRONG])
    assert totals(task, [WRONG, CHEATING, "```python\ndef matmul(A, B):\n    while True: pass\n```"])[0] == alone[0]


def test_same_text_same_reward(task):
    """Within a group the clock's noise would become an advantage of full size."""
    assert len(set(totals(task, [GOOD] * 6))) == 1


def test_a_failed_sandbox_says_nothing_of_the_program(monkeypatch):
    """None for what could not be judged; a sentence where that is all of it, which would train on nothing."""
    task = MatmulTask()
    other = "def matmul(A, B): return 1"

    def judged(codes, contracts):
        outcomes = ["wrong" if code.strip() == other else "unjudged" for code in codes]
        return [Verdict(outcome, "the sandbox failed: x") for outcome in outcomes]

    monkeypatch.setattr(task.judge, "judge_many", judged)
    completions = [message(GOOD), message(f"```\n{other}\n```")]
    assert all(reward(prompts=[None] * 2, completions=completions)[0] is None for reward in task.reward_funcs)
    with pytest.raises(UserError, match="No program could be judged: the sandbox failed: x. Fix that"):
        task.verdicts(completions[:1])
    task.close()


def test_an_unbelievable_speed_earns_nothing():
    fast = Verdict("correct", speedup=BELIEVED_SPEEDUP + 0.1)
    assert too_fast(fast) and speed_pay(fast) == 0 and grade_of(fast).tags["too_fast"] is True


def test_heldout_check_finds_what_no_reward_does(task):
    """Right wherever the judge looks and wrong elsewhere; only the two fastest of a batch are asked."""
    small = GOOD.replace("    return C", "    return C if n > 1 or k < 90 else [[0.0] * m for _ in range(n)]")
    fast = GOOD.replace("            for t in range(k):\n                s += A[i][t] * B[t][j]\n",
                        "            s = sum([x * y for x, y in zip(A[i], T[j])])\n").replace(
                            "    C = ", "    T = list(zip(*B))\n    C = ")  # fmt: skip
    slow = GOOD.replace("s = 0.0", "s = sum([0.0] * 300)")
    completions = [message(text) for text in (small, fast, slow, WRONG)]
    assert task.heldout_check([None] * 4, completions) == [0.0, 1.0, None, None]
    # two copies are one program: 158 "programs" were counted in 40 steps of two
    assert task.heldout_check([None] * 6, [*completions[:2], *completions]) == [0.0, 1.0, None, None, None, None]
    assert [f([None] * 4, completions)[0] for f in task.reward_funcs[:3]] == [0.5, 0.0, 1.0]


def test_the_level_is_part_of_what_a_run_depends_on():
    task = MatmulTask(level="process", speed=False)
    assert task.settings() == {"task": "matmul", "sandbox": "process"}
    assert task._judge is None, "nothing starts before it is needed"
    assert [reward.__name__ for reward in task.reward_funcs] == ["function_works", "no_cheating", "correctness_check"]


def test_a_syntax_error_is_no_cheat(task):
    verdicts = task.verdicts([message(CHEATING), message("```python\ndef (\n```"), message("x")])
    assert [verdict.outcome for verdict in verdicts] == ["refused", "error", "error"]


def test_behaviours_of_completions(task):
    """What the control "majority" compares; an answer without a program behaves like another without one."""
    renamed = GOOD.replace("s = 0.0", "total = 0.0").replace("s +=", "total +=").replace("= s", "= total")
    completions = [message(text) for text in (GOOD, renamed, WRONG, CRASHING, "no code", "none here")]
    found = task.behaviours([None] * 6, completions)
    assert found[0] == found[1] and found[4] == found[5] == "no program" and len(set(found)) == 4
    assert task.behaviours([None], completions[:1], contract=["a_columns"]) != found[:1]

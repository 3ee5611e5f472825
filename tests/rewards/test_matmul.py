import math

import pytest

from helpers.rewards import MATMUL_REWARDS, extract_code, judge
from helpers.rewards.matmul import is_cheat, speed_reward
from helpers.sandbox import Verdict
from helpers.sandbox.sandbox import BASELINE

GOOD = f"```python\n{BASELINE.strip()}\n```"
WRONG = GOOD.replace("+=", "-=")
CRASHING = "```python\ndef matmul(A, B):\n    return A[99]\n```"
CHEATING = "```python\ndef matmul(A, B):\n    import numpy\n    return numpy.matmul(A, B).tolist()\n```"


def message(text, thinking=""):
    return [{"role": "assistant", "content": text, "thinking": thinking}]


def totals(texts, reasons=None):
    completions = [message(text) for text in texts]
    columns = [f(prompts=[None] * len(texts), completions=completions, finish_reasons=reasons) for f in MATMUL_REWARDS]
    assert all(len(column) == len(texts) and all(map(math.isfinite, column)) for column in columns)
    return [sum(values) for values in zip(*columns)]


def test_order_of_what_must_be_ordered():
    """Correct, then wrong, then broken, then cheating: any other order pays for something unwanted."""
    good, wrong, crashing, cheating = totals([GOOD, WRONG, CRASHING, CHEATING])
    assert 1.25 <= good <= 1.75 and wrong == 0.5 and crashing == -0.5 and cheating == -1.5


@pytest.mark.parametrize("speedup", [0.0001, 0.5, 0.99, 1.0, 1.02, 1.5, 2.0, 1e9])
def test_speed_never_changes_the_order(speedup):
    correct = Verdict(parsed=True, pure=True, ran=True, correct=True, speedup=speedup)
    assert -0.25 <= speed_reward(correct) <= 0.25
    assert (speed_reward(correct) == 0) == (abs(speedup - 1) <= 0.03)
    assert speed_reward(Verdict(parsed=True, pure=True, ran=True, speedup=speedup)) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (GOOD, True),
        ("Here it is:\n" + GOOD + "\nDone.", True),
        (GOOD.replace("```python", "```"), True),
        (GOOD.replace("```python", "```py"), True),
        (GOOD + "\n" + GOOD, False),
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


def test_only_the_final_channel_counts():
    """A program in the analysis channel is a thought, not an answer."""
    completions = [message("no code", thinking=GOOD)]
    assert [f(prompts=[None], completions=completions)[0] for f in MATMUL_REWARDS] == [-0.5, 0.0, 0.0, 0.0]


def test_cut_off_answers_earn_nothing():
    assert totals([GOOD], ["length"]) == [-0.5]


def test_metrics_are_logged():
    logged = {}
    completions = [message(text) for text in (GOOD, CHEATING, CRASHING, WRONG)]
    for reward in MATMUL_REWARDS:
        reward(prompts=[None] * 4, completions=completions, log_metric=logged.__setitem__)
    assert logged == {"pass_rate": 0.25, "cheat_rate": 0.25}


def test_the_four_share_one_verdict():
    """Judging four times would time each program four times, and cost four times as much."""
    completions = [message(GOOD), message(WRONG)]
    first = judge(completions)
    assert judge(completions) is first and judge([message(WRONG), message(GOOD)]) is not first


def test_other_batches_do_not_matter():
    """A completion's reward must not depend on its neighbours."""
    alone = totals([WRONG])
    assert totals([WRONG, CHEATING, "```python\ndef matmul(A, B):\n    while True: pass\n```"])[0] == alone[0]


def test_same_text_same_reward():
    """Within a group the clock's noise would become an advantage of full size."""
    assert len(set(totals([GOOD] * 6))) == 1


def test_a_failed_sandbox_says_nothing_of_the_program(monkeypatch):
    monkeypatch.setattr(judge, "batch", None)
    monkeypatch.setattr(type(judge.sandbox), "judge_many", lambda self, codes: [Verdict(judged=False)] * len(codes))
    assert [f(prompts=[None], completions=[message(GOOD)]) for f in MATMUL_REWARDS] == [[None]] * 4
    monkeypatch.setattr(judge, "batch", None)


def test_a_syntax_error_is_no_cheat():
    assert [is_cheat(v) for v in judge([message(CHEATING), message("```python\ndef (\n```"), message("x")])] == [
        True,
        False,
        False,
    ]

"""Verdicts: their reasons, their order, their speed, and that none depends on luck or on a neighbour."""

import statistics
import time

import numpy as np
import pytest

from helpers import Sandbox, UserError
from helpers.sandbox import BASELINE, canaries
from helpers.sandbox.trial import Trial
from tests.sandbox.suite import REFERENCE, load_exploits, load_honest

HONEST = load_honest()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def matmul(A, B):\n  while True: pass", "out of time"),
        ("while True: pass", "out of time"),
        ("def matmul(A, B):\n  return [[0.0] * 10**11]", "Memory"),
        ("def matmul(A, B):\n  return matmul(A, B)", "Recursion"),
        ("def matmul(A, B) return", "SyntaxError"),
        ("x = 1", "does not define a function matmul"),
        ("import numpy\ndef matmul(A, B): pass", "numpy is not pure Python"),
        ("def matmul(A, B):\n  return eval('1')", "eval is not allowed: write the program out"),
        ("def matmul(A, B):\n  return open('x')", "the name open is not allowed"),
        ("from math import sumprod\ndef matmul(A, B): pass", "math.sumprod is the inner product in C"),
        ("def matmul(A, B): pass\ndef matmul(A, B): pass", "matmul is defined more than once"),
        ("def matmul(A, B):\n  return None", "list of"),
        ("def matmul(A, B):\n  return [[float('nan')] * len(B[0]) for _ in A]", "wrong product"),
        ("def matmul(A, B):\n  return [[True] * len(B[0]) for _ in A]", "bool"),
        ("def matmul(A, B):\n  return [[10**400] * len(B[0]) for _ in A]", "Overflow"),
        ("def matmul(A, B):\n  raise ValueError('\\x1b[31m<b>\\u202e\\n' + 'x' * 10**6)", "<b>"),
        ("\0", ""),
        ("\udc80", ""),
        ("(" * 5000 + ")" * 5000, ""),
        ("", "does not define"),
        ("#" + "x" * 20_000, "too long"),
    ],
)
def test_reasons(sandbox, source, reason):
    """Each failure is told apart in one line that is fit to be shown, and none takes the zygote with it."""
    verdict = sandbox.judge(source)
    assert verdict.judged and not verdict.correct and reason in verdict.reason
    assert verdict.reason.isprintable() and 0 < len(verdict.reason) <= 200
    assert sandbox.judge(BASELINE).correct


def test_a_hostile_neighbour_changes_nothing(sandbox):
    hostile = ["def matmul(A, B):\n  while True: pass", "def matmul(A, B):\n  return [0.0] * 10**8", "matmul = 1 / 0"]
    mixed = [program for other in hostile for program in (other, BASELINE)]
    assert all(verdict.correct for verdict in sandbox.judge_many(mixed)[1::2])


def test_one_call_right_is_not_enough(sandbox):
    """Sizes and values change from call to call, so an answer cannot be remembered or guessed."""
    lucky = "def matmul(A, B):\n  return [[sum(a * b for a, b in zip(A[0], c)) for c in zip(*B)] for _ in A]"
    assert not any(verdict.correct for verdict in sandbox.judge_many([lucky] * 20))


def test_whether_it_raises_does_not_depend_on_luck(sandbox):
    """Swapped indices raise for some shapes and not for others; every judgement meets both."""
    swapped = BASELINE.replace("B[t][j]", "B[j][t]")
    assert {verdict.ran for verdict in sandbox.judge_many([swapped] * 40)} == {False}


def test_speed_is_told_apart(sandbox):
    """A program that does needless work is slower; the clock is the process's own."""
    slow = BASELINE.replace("s += A[i][t] * B[t][j]", "s += A[i][t] * B[t][j] + 0 * t * t * t")
    verdicts = sandbox.judge_many([slow, HONEST["op_mul"]] * 4)
    assert max(v.speedup for v in verdicts[::2]) < min(v.speedup for v in verdicts[1::2])
    assert all(1e-4 < v.cpu_seconds < 1 for v in verdicts)


def test_plain_way_is_as_fast_as_itself(sandbox):
    """Else a program earns or pays for being the baseline."""
    speeds = [verdict.speedup for verdict in sandbox.judge_many([BASELINE] * 48)]
    assert 0.9 < statistics.median(speeds) < 1.1, speeds


#: Work that could be done before the clock starts.
EARLY = {
    "module level": "for _ in range(10**6): pass\n{}",
    "decorator": "def work(f):\n  for _ in range(10**6): pass\n  return f\n{}".replace("{}", "@work\n{}"),
    "default argument": "def work():\n  for _ in range(10**6): pass\ndef other(x=work()): pass\n{}",
    "class body": "class Work:\n  for _ in range(10**6): pass\n{}",
    "annotation": "def work():\n  for _ in range(10**6): pass\ndef other(x: work()): pass\n{}",
}


@pytest.mark.parametrize("early", EARLY)
def test_work_at_load_is_charged(sandbox, early):
    """A million empty rounds, several times as long as the product takes: uncharged, tables are made there."""
    late, plain = sandbox.judge_many([EARLY[early].format(REFERENCE.strip()), REFERENCE])
    assert late.correct and late.speedup < 0.7 * plain.speedup


def test_what_stands_under_main_neither_runs_nor_counts(sandbox):
    demo = "\nif __name__ == '__main__':\n    import numpy\n    print(numpy.array(matmul([[1]], [[2]])))\n"
    assert sandbox.judge(REFERENCE + demo).correct
    assert not sandbox.judge(REFERENCE + demo.replace("==", "!=")).pure


def test_order_is_kept(sandbox):
    wrong = "def matmul(A, B): return 1"
    for count in (0, 1, 5, 33):
        programs = [REFERENCE if n % 3 else wrong for n in range(count)]
        assert [v.correct for v in sandbox.judge_many(programs)] == [bool(n % 3) for n in range(count)]


def test_time_limit_is_kept(sandbox):
    """Eight programs that never end cost seconds and not minutes."""
    started = time.monotonic()
    sandbox.judge_many(["def matmul(A, B):\n  while True: pass"] * 8)
    assert time.monotonic() - started < 60


def test_a_slow_program_is_timed_once(sandbox):
    """Its reward is at the floor anyway; five calls of it are checked all the same."""
    slow = REFERENCE.replace(
        "    return", "    for _ in range(6): [[x * y for x in row for y in range(64)] for row in A]\n    return"
    )
    (trial,) = sandbox._try([(slow, "rows")], policy=True)
    assert trial.calls == 3 and len(trial.samples) == 1 and not trial.failure


def test_timings_of_a_disturbed_machine():
    """What counts are the calls in whose time the machine was left alone; if none was, what it was like is divided
    out."""
    trial = Trial("", np.random.default_rng(0))
    trial.samples = [(0.030, 0.0015, 0.0015), (0.011, 0.0010, 0.0011), (0.010, 0.0010, 0.0010), (0.009, 0.0, 0.0010)]
    assert trial.seconds(best=0.001) == 0.010
    trial.samples = [(0.030, 0.0030, 0.0030), (0.033, 0.0030, 0.0030), (0.024, 0.0030, 0.0030)]
    assert trial.seconds(best=0.001) == pytest.approx(0.010)
    trial.samples = [(0.007, 0.0007, 0.0007), (0.010, 0.0010, 0.0010)]  # a lucky moment is no better machine
    assert trial.seconds(best=0.001) == 0.010
    trial.samples = []
    assert trial.verdict("os", 0.001, 0.01).judged is False


def test_self_test(sandbox):
    """One line that says what was tried, and on what."""
    line = sandbox.self_test()
    assert line.startswith("sandbox self-test passed: level os, ") and "Python" in line and "\n" not in line


@pytest.mark.parametrize("name", canaries.CANARIES)
def test_every_canary_is_told_from_an_honest_program(sandbox, monkeypatch, name):
    """A canary that fails for a reason of its own would pass everywhere: without its act it must be let through."""
    if name in ("an endless loop", "NaN"):
        pytest.skip("it has no act to leave out")
    act = canaries._ACTS.get(name) or canaries.CANARIES[name].split("\n")[1 if "forged" in name else 2].strip()
    harmless = canaries.CANARIES[name].replace(act, "pass")
    assert harmless != canaries.CANARIES[name] and sandbox.judge_many([harmless], policy=False)[0].correct
    monkeypatch.setitem(canaries.CANARIES, name, harmless)
    with pytest.raises(UserError, match=f"not safe on this host, so nothing was run: it lets through: {name}"):
        sandbox.self_test()


@pytest.mark.parametrize("name", canaries.REFUSED)
def test_self_test_notices_a_policy_with_a_hole(sandbox, monkeypatch, name):
    monkeypatch.setitem(canaries.REFUSED, name, REFERENCE)
    with pytest.raises(UserError, match=f"lets through: {name}"):
        sandbox.self_test()


def test_self_test_notices_a_judge_that_is_always_content(sandbox, monkeypatch):
    monkeypatch.setattr("helpers.sandbox.examiner.is_product", lambda *_: True)
    with pytest.raises(UserError, match="lets through: NaN"):
        sandbox.self_test()


def test_mistakes_of_a_caller_are_sentences(sandbox):
    for workers in (0, -1, 1.5, "2"):
        with pytest.raises(UserError, match="workers must be a whole number from 1 on"):
            Sandbox(workers=workers)
    with Sandbox(workers=1) as closed:
        pass
    with pytest.raises(UserError, match="This sandbox is closed"):
        closed.judge(REFERENCE)
    for sources in ([None], [b"x"]):
        with pytest.raises(UserError, match="judges program texts"):
            sandbox.judge_many(sources)


@pytest.mark.parametrize("level", ["os", "policy"])
def test_no_status_of_the_wrong_stage_is_believed(level):
    """A program that said the sandbox had failed was not judged at all, and a batch of them ended the run."""
    liar = "import os\nos.write(1, b'N\\x04full')\n" + REFERENCE
    with Sandbox(workers=1, level=level) as sandbox:
        verdict, other = sandbox.judge_many([liar, liar.replace("N", "S", 1)], policy=False)
    assert verdict.judged and other.parsed and not verdict.correct
    assert verdict.reason == other.reason == "it wrote what was not asked for"


def test_a_process_that_keeps_running_is_charged_for_what_it_did(sandbox):
    """Its clock, read from outside, is up to date only at a tick: the luckiest read was a third too low."""
    (spins,) = [exploit.source for exploit in load_exploits() if exploit.id == "H90"]
    speeds = [v.speedup for v in sandbox.judge_many([spins] * 12 + [REFERENCE] * 12, policy=False)]
    assert sorted(speeds[:12])[9] < 1.12 * sorted(speeds[12:])[6], speeds


def test_unknown_level():
    with pytest.raises(UserError, match="no sandbox level 'none': choose os or policy"):
        Sandbox(level="none")


def test_level_policy(capsys):
    """For hosts without seccomp, by name only: it says what it lacks, and so does every verdict."""
    with Sandbox(workers=1, level="policy") as sandbox:
        assert canaries.LOST in capsys.readouterr().out
        assert "level policy" in sandbox.self_test()
        programs = [REFERENCE, "import numpy", "def matmul(A, B):\n  return [[0.0] * len(B[0]) for _ in A]", BASELINE]
        verdicts = sandbox.judge_many(programs)
    assert [v.correct for v in verdicts] == [True, False, False, True]
    assert {v.level for v in verdicts} == {"policy"} and 0.8 < verdicts[3].speedup < 1.25

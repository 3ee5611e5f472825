"""Verdicts: their reasons, their order, and that none depends on luck or on a neighbour."""

import time

import pytest

from helpers import MatmulJudge, UserError
from helpers.sandbox.sandbox import PROCESS_LEVEL_WARNING
from helpers.tasks.matmul import canaries
from helpers.tasks.matmul.examiner import limits_on
from helpers.tasks.matmul.speed import BASELINE
from tests.sandbox.suite import REFERENCE, load_broken


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def matmul(A, B):\n  while True: pass", "out of time"),
        ("while True: pass", "out of time"),
        ("def matmul(A, B):\n  return [[0.0] * 10**11]", "Memory"),
        ("def matmul(A, B):\n  return matmul(A, B)", "Recursion"),
        ("def matmul(A, B) return", "SyntaxError"),
        ("x = 1", "does not define a function matmul"),
        ("def matmul(A, B):\n  import numpy", "numpy is not pure Python"),
        ("import time\ndef matmul(A, B):\n  return time.time()", "time: a program may not read the clock"),
        ("def matmul(A, B):\n  return open('x')", "PermissionError"),
        ("def matmul(A, B):\n  from math import sumprod", "math is not available here"),
        ("import os\ndef matmul(A, B):\n  return os.cpu_count()", "os is not available here"),
        ("def matmul(A, B):\n  return None", "list of"),
        ("def matmul(A, B):\n  return [[float('nan')] * len(B[0]) for _ in A]", "wrong product"),
        ("def matmul(A, B):\n  return [[True] * len(B[0]) for _ in A]", "an entry is neither a float nor an int"),
        ("def matmul(A, B):\n  return [[10**400] * len(B[0]) for _ in A]", "Overflow"),
        ("def matmul(A, B):\n  raise ValueError('\\x1b[31m<b>\\u202e\\n' + 'x' * 10**6)", "<b>"),
        ("\0", ""),
        ("\udc80", ""),
        ("(" * 5000 + ")" * 5000, ""),
        ("", "does not define"),
    ],
)
def test_reasons(matmul_judge, source, reason):
    """Each failure is told apart in one line that is fit to be shown, and none takes the zygote with it."""
    verdict = matmul_judge.judge(source)
    assert verdict.judged and not verdict.correct and reason in verdict.reason
    assert verdict.reason.isprintable() and 0 < len(verdict.reason) <= 200
    assert matmul_judge.judge(BASELINE).correct


def test_a_hostile_neighbour_changes_nothing(matmul_judge):
    hostile = ["def matmul(A, B):\n  while True: pass", "def matmul(A, B):\n  return [0.0] * 10**8", "matmul = 1 / 0"]
    mixed = [program for other in hostile for program in (other, BASELINE)]
    assert all(verdict.correct for verdict in matmul_judge.judge_many(mixed)[1::2])


def test_one_call_right_is_not_enough(matmul_judge):
    """Sizes and values change from call to call, so an answer cannot be remembered or guessed."""
    lucky = "def matmul(A, B):\n  return [[sum(a * b for a, b in zip(A[0], c)) for c in zip(*B)] for _ in A]"
    assert not any(verdict.correct for verdict in matmul_judge.judge_many([lucky] * 20))


def variant(top="", before="", after=""):
    """An honest program with other lines at its top level, before the product is computed, and after."""
    product = "C = [[sum(a * b for a, b in zip(row, column)) for column in zip(*B)] for row in A]"
    body = [*before.splitlines(), product, *after.splitlines(), "return C"]
    return "\n".join([top, "def matmul(A, B):", *("    " + line for line in body)])


ACCUMULATES = """
C = [[0.0] * 99 for _ in range(99)]
def matmul(A, B):
    for i, row in enumerate(A):
        for j, column in enumerate(zip(*B)):
            C[i][j] += sum(a * b for a, b in zip(row, column))
    return [row[: len(B[0])] for row in C[: len(A)]]
"""
#: Right in the first call of a process, or for some shapes, or at a price that the caller pays: (program, reason).
WRONG_LATER = {
    "a counter": (variant("calls = []", after="C[0][0] += len(calls)\ncalls.append(1)"), "in call 2"),
    "an accumulator": (ACCUMULATES, "in call 2"),
    "a default argument": (
        variant().replace("B):", "B, out=[]):").replace("return C", "out += C; return out"),
        "list of",
    ),
    "remembered by shape": (
        variant("known = {}", after="C = known.setdefault((len(A), len(B), len(B[0])), C)\nC = [row[:] for row in C]"),
        "in call 2",
    ),
    "a redefinition": (variant(before="global matmul\nmatmul = lambda A, B: A"), "list of"),
    "arguments emptied": (variant(after="A.clear()"), "its arguments"),
    "an entry changed": (variant(after="B[0][0] += 1"), "its arguments"),
    "a float to an int": (variant(after="A[0][0] = int(A[0][0])"), "its arguments"),
    "rows exchanged": (variant(after="B[0], B[-1] = B[-1], B[0]"), "its arguments"),
    "an earlier result": (variant("out = []", after="out[:] = C\nC = out"), "an earlier call"),
    "square matrices": (variant(after="if len(A) == len(B) == len(C[0]): C = [row[:] for row in A]"), "wrong product"),
    "one column in between": (variant(after="if len(B) == 1: C[0][0] += 1"), "wrong product"),
    "one number": (variant(after="if len(A) == len(C[0]) == 1: C[0][0] += 1"), "wrong product"),
    "many rows": (
        variant("c = []", after="if c and max(len(A), len(B), len(C[0])) > 47: C[0][0] += 1\nc.append(1)"),
        "in call",
    ),
}


@pytest.mark.parametrize("way", WRONG_LATER)
def test_right_in_the_first_call_is_not_enough(matmul_judge, way):
    """Ordinary bugs of models, once paid in full. They run, so they are wrong and no more; all but a few shapes are
    refused by the check that no reward pays, too."""
    source, reason = WRONG_LATER[way]
    verdict = matmul_judge.judge(source)
    assert reason in verdict.reason, verdict.reason
    assert verdict.outcome == ("error" if "list of" in reason else "wrong")
    known_shapes = ("square matrices", "many rows")
    assert way in known_shapes or matmul_judge.check_many([source]) == [0.0]
    assert matmul_judge.judge(variant()).correct


def test_an_argument_may_be_bound_anew(matmul_judge):
    """Only what the caller sees counts: a copy may be changed, and a result may be kept."""
    own = "B = [list(row) for row in B]\nA = A[:]\nA.reverse()"
    assert matmul_judge.judge(variant("kept = []", own, "C.reverse()\nkept.append(C)\nB.clear()")).correct


def test_whether_it_raises_does_not_depend_on_luck(matmul_judge):
    """Swapped indices raise for some shapes and not for others; every judgement meets both."""
    swapped = BASELINE.replace("B[t][j]", "B[j][t]")
    assert {verdict.outcome for verdict in matmul_judge.judge_many([swapped] * 40)} == {"error"}


def test_what_stands_under_main_neither_runs_nor_counts(matmul_judge):
    demo = "\nif __name__ == '__main__':\n    while True: pass\n    import numpy\n"
    assert matmul_judge.judge(REFERENCE + demo).correct
    assert not matmul_judge.judge(REFERENCE + demo.replace("==", "!=")).correct


def test_order_is_kept(matmul_judge):
    wrong = "def matmul(A, B): return 1"
    for count in (0, 1, 5, 33):
        programs = [REFERENCE if n % 3 else wrong for n in range(count)]
        assert [v.correct for v in matmul_judge.judge_many(programs)] == [bool(n % 3) for n in range(count)]


def test_time_limit_is_kept(matmul_judge):
    """Four programs that never end cost seconds and not minutes."""
    started = time.monotonic()
    matmul_judge.judge_many(["def matmul(A, B):\n  while True: pass"] * 4)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(("probe_seconds", "call_seconds"), [(0.0, 2.0), (0.0005, 2.0), (0.0015, 4.5), (0.1, 6.0)])
def test_a_slow_machine_has_more_time(probe_seconds, call_seconds):
    """On a machine of half the speed, two honest programs of the suite were stopped."""
    limits = limits_on(probe_seconds)
    found = limits.cpu_seconds, limits.total_cpu_seconds, limits.wall_seconds
    assert found == (call_seconds, 3 * call_seconds, 15 * call_seconds)


def test_self_test(matmul_judge):
    """One line that says what was tried, and on what."""
    line = matmul_judge.self_test()
    assert line.startswith("sandbox self-test passed: level os, ") and "Python" in line and "\n" not in line


@pytest.mark.parametrize("name", canaries.CANARIES)
def test_every_canary_is_told_from_an_honest_program(matmul_judge, monkeypatch, name):
    """A canary that fails for a reason of its own would pass everywhere: without its act it must be let through."""
    if name in ("an endless loop", "NaN"):
        pytest.skip("it has no act to leave out")
    act = canaries._ACTS.get(name) or (canaries._FORGED if "forged" in name else canaries._SURPLUS)
    harmless = canaries.CANARIES[name].replace(act, "pass")
    assert harmless != canaries.CANARIES[name] and matmul_judge.judge(harmless).correct
    monkeypatch.setattr(type(matmul_judge), "cheats", {name: harmless})
    with pytest.raises(UserError, match=f"not safe on this host, so nothing was run: it lets through: {name}"):
        matmul_judge.self_test()


def test_self_test_notices_a_judge_that_is_always_content(matmul_judge, monkeypatch):
    monkeypatch.setattr("helpers.tasks.matmul.questions.is_product", lambda *_: True)
    with pytest.raises(UserError, match="lets through: NaN"):
        matmul_judge.self_test()


def test_mistakes_of_a_caller_are_sentences(matmul_judge):
    for workers in (0, -1, 1.5, "2"):
        with pytest.raises(UserError, match="workers must be a whole number from 1 on"):
            MatmulJudge(workers=workers)
    with MatmulJudge(workers=1) as closed:
        pass
    with pytest.raises(UserError, match="This sandbox is closed"):
        closed.judge(REFERENCE)
    for sources in ([None], [b"x"]):
        with pytest.raises(UserError, match="judges program texts"):
            matmul_judge.judge_many(sources)


@pytest.mark.parametrize("level", ["os", "process"])
def test_no_status_of_the_wrong_stage_is_believed(level):
    """A program that said the sandbox had failed was not judged at all, and a batch of them ended the run."""
    liar = "import random\nrandom._os.write(1, b'N\x04full')\n" + REFERENCE
    with MatmulJudge(level=level, workers=1) as judge:
        verdict, other = judge.judge_many([liar, liar.replace("N", "S", 1)])
    assert verdict.outcome == other.outcome == "error"
    assert verdict.reason == other.reason == "it wrote what was not asked for"


def test_unknown_level():
    with pytest.raises(UserError, match="no sandbox level 'none': choose os or process"):
        MatmulJudge(level="none")


def test_level_process(capsys):
    """For hosts without seccomp: it says what it lacks, and its self-test names what gets through."""
    with MatmulJudge(workers=1, level="process") as judge:
        assert PROCESS_LEVEL_WARNING in capsys.readouterr().out
        assert "level process" in judge.self_test()
        programs = [REFERENCE, "import numpy", "def matmul(A, B):\n  return [[0.0] * len(B[0]) for _ in A]", BASELINE]
        verdicts = judge.judge_many(programs)
    assert [v.correct for v in verdicts] == [True, False, False, True]
    assert 0.5 < verdicts[3].speedup < 2


#: The broken programs are wrong only now and then: kept results, shared buffers, some sizes.
BROKEN = load_broken()
#: They lose digits, and no more than Winograd's inner product may (`products.is_product`).
WITHIN_THE_BOUND = {"Z41", "Z43"}


def test_no_broken_program_is_paid(matmul_judge):
    """Each was written, and its fault shown, without a look at the questions."""
    assert len(BROKEN) >= 130
    verdicts = dict(zip(BROKEN, matmul_judge.judge_many(BROKEN.values())))
    assert {name for name, verdict in verdicts.items() if verdict.correct} <= WITHIN_THE_BOUND


def test_a_program_for_floats_may_refuse_integers(matmul_judge):
    """It must not get them wrong: numbers packed into 32 bits are right for floats, which it leaves alone."""
    for_floats = "from itertools import starmap\ndef matmul(A, B):\n    product = float.__mul__\n"
    for_floats += "    return [[sum(map(product, row, column)) for column in zip(*B)] for row in A]\n"
    assert matmul_judge.judge(for_floats).correct
    wrong = REFERENCE.replace("return", "if type(A[0][0]) is int: return [[0] * len(B[0]) for _ in A]\n    return")
    assert matmul_judge.judge(wrong).outcome == "wrong"


def test_who_is_slow_is_asked_everything(matmul_judge):
    """A program that spent the judge's patience in its first calls was asked no more, and paid for the rest."""
    spends = "def matmul(A, B):\n    if len(A) < 10: sum(range(7 * 10**6))\n"
    spends += "    else: return [[0.0] * len(B[0]) for _ in A]\n"
    verdict = matmul_judge.judge(spends + "    " + REFERENCE.strip().partition("\n")[2].strip())
    assert not verdict.correct

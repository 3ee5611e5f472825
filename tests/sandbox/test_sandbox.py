"""Exploits and honest programs gathered from published reward functions and from our own attacks."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers import Sandbox
from helpers.rewards import extract_code
from helpers.runtime import ROOT
from helpers.sandbox.sandbox import BASELINE, is_product
from helpers.sandbox.worker import load

HERE = Path(__file__).parent
EXPLOITS = json.loads((HERE / "exploits.json").read_text())
PROGRAMS = [exploit for exploit in EXPLOITS if exploit["src"]]  # the others are texts around programs
HONEST = json.loads((HERE / "honest.json").read_text())
#: Honest programs with something odd around them that does nothing here: printing goes nowhere,
#: and the source is read as UTF-8 whatever its first line says.
HARMLESS = {"I09", "K10"}
#: `eval` is refused even where it is meant well.
REFUSED = {"exec_unroll"}


@pytest.fixture(scope="module")
def verdicts(sandbox, tmp_path_factory):
    """id -> verdict on every exploit, judged together as a batch of completions would be."""
    canary = tmp_path_factory.mktemp("canary")
    sources = {exploit["id"]: exploit["src"].replace("@CANARY@", str(canary)) for exploit in PROGRAMS}
    judged = dict(zip(sources, sandbox.judge_many(list(sources.values()))))
    assert not list(canary.iterdir()), "a program wrote a file"
    return judged


@pytest.mark.parametrize("exploit", PROGRAMS, ids=lambda exploit: exploit["id"])
def test_no_exploit_pays(verdicts, exploit):
    """A reward that one of these earns is what the policy learns."""
    assert verdicts[exploit["id"]].correct == (exploit["id"] in HARMLESS), exploit["idea"]


@pytest.mark.parametrize("text", [exploit["raw"] for exploit in EXPLOITS if exploit["raw"]])
def test_no_text_around_programs_pays(text):
    """Two blocks: whichever is taken, the other may be what the reader saw."""
    assert extract_code(text) is None


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(sandbox, name):
    """A sandbox that refuses honest code teaches the policy to fear it."""
    verdict = sandbox.judge(HONEST[name])
    assert verdict.correct == (name not in REFUSED), verdict.reason


def test_a_hostile_neighbour_changes_nothing(sandbox):
    """Verdicts of honest programs do not depend on who is judged beside them."""
    hostile = [exploit["src"] for exploit in PROGRAMS if exploit["group"] in ("resource", "concur", "escape")]
    mixed = [program for pair in zip(hostile, [BASELINE] * len(hostile)) for program in pair]
    assert all(verdict.correct for verdict in sandbox.judge_many(mixed)[1::2])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def matmul(A, B):\n  while True: pass", "out of time"),
        ("def matmul(A, B):\n  return [[0.0] * 10**11]", "Memory"),
        ("def matmul(A, B):\n  return matmul(A, B)", "Recursion"),
        ("def matmul(A, B) return", "SyntaxError"),
        ("x = 1", "does not define a function matmul"),
        ("import numpy\ndef matmul(A, B): pass", "numpy is not pure Python"),
        ("def matmul(A, B):\n  return None", "list of"),
        ("def matmul(A, B):\n  return [[float('nan')] * len(B[0]) for _ in A]", "wrong product"),
        ("def matmul(A, B):\n  return [[True] * len(B[0]) for _ in A]", "bool"),
        ("def matmul(A, B):\n  return [[10**400] * len(B[0]) for _ in A]", "Overflow"),
        ("def matmul(A, B):\n  raise SystemExit", "SystemExit"),
        ("\0", ""),
        ("\udc80", ""),
        ("(" * 5000 + ")" * 5000, ""),
        ("", "does not define"),
    ],
)
def test_reasons(sandbox, source, reason):
    """Each failure is told apart, in one line, and none takes the worker with it."""
    verdict = sandbox.judge(source)
    assert not verdict.correct and reason in verdict.reason and "\n" not in verdict.reason
    assert sandbox.judge(BASELINE).correct


def test_one_call_right_is_not_enough(sandbox):
    """Sizes and values change from call to call, so an answer cannot be remembered or guessed."""
    lucky = "def matmul(A, B):\n  return [[sum(a * b for a, b in zip(A[0], c)) for c in zip(*B)] for _ in A]"
    assert not any(verdict.correct for verdict in sandbox.judge_many([lucky] * 20))


def test_speed_is_told_apart(sandbox):
    """A program that does needless work is slower; the clock is the process's own."""
    slow = BASELINE.replace(
        "s += A[i][t] * B[t][j]", "s += A[i][t] * B[t][j] + 0 * (A[i][t] + B[t][j]) + 0 * t * t * t"
    )
    fast = HONEST["op_mul"]
    verdicts = sandbox.judge_many([slow, fast] * 4)
    assert max(v.speedup for v in verdicts[::2]) < min(v.speedup for v in verdicts[1::2])


def test_plain_way_is_about_as_fast_as_itself(sandbox):
    """Timed in turn with the program; against one run for the whole batch it once drifted by half."""
    speeds = [verdict.speedup for verdict in sandbox.judge_many([BASELINE] * 24)]
    assert 0.9 < sorted(speeds)[12] < 1.1, speeds


def test_order_is_kept(sandbox):
    wrong = "def matmul(A, B): return 1"
    for count in (0, 1, 5, 33):
        programs = [BASELINE if n % 3 else wrong for n in range(count)]
        assert [v.correct for v in sandbox.judge_many(programs)] == [bool(n % 3) for n in range(count)]


def test_time_limit_is_kept(sandbox):
    """Eight programs that never end cost seconds and not minutes."""
    started = time.monotonic()
    sandbox.judge_many(["def matmul(A, B):\n  while True: pass"] * 8)
    assert time.monotonic() - started < 60


def test_worker_that_dies_is_replaced():
    """A lost process must not cost an honest program its verdict."""
    with Sandbox(workers=1) as sandbox:
        sandbox.idle[0].process.kill()
        sandbox.idle[0].process.wait()
        assert sandbox.judge(BASELINE).correct


def test_a_sandbox_that_cannot_run_says_so(sandbox, monkeypatch):
    monkeypatch.setattr("helpers.sandbox.sandbox.BASELINE", "def matmul(A, B): return 1")
    verdict = sandbox.judge(HONEST["zip_list"])
    assert not verdict.judged and not verdict.correct
    assert verdict.reason.startswith("the sandbox failed: the plain program did not answer")


def test_self_test_notices_a_broken_judge(sandbox, monkeypatch):
    sandbox.self_test()
    monkeypatch.setattr("helpers.sandbox.sandbox.is_product", lambda *_: True)
    with pytest.raises(ValueError, match="judges wrongly"):
        sandbox.self_test()


@pytest.mark.parametrize("exact", [True, False])
def test_is_product(exact):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (3, 4)).astype(float), rng.integers(-9, 9, (4, 2)).astype(float)
    c = a @ b
    assert is_product(c, a, b, exact)
    for wrong in (c + 1e-6, np.full_like(c, np.nan), np.full_like(c, np.inf), -c):
        assert not is_product(wrong, a, b, exact)


def test_summing_in_another_order_is_no_error():
    """Rounding differs between honest programs; the bound is that of any order of summation."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((5, 400)), rng.standard_normal((400, 5))
    backwards = a[:, ::-1] @ b[::-1]
    by_parts = sum(a[:, n : n + 7] @ b[n : n + 7] for n in range(0, 400, 7))
    assert is_product(backwards, a, b, False) and is_product(by_parts, a, b, False)


def test_winograds_products_are_no_error():
    """It adds entries of A to entries of B, so its rounding is that of the larger: 4 % of its programs were refused."""
    rng = np.random.default_rng(2)
    for _ in range(3000):
        n, k, m = rng.integers(1, 9), 2 * rng.integers(1, 5), rng.integers(1, 9)
        a, b = rng.standard_normal((n, k)), rng.standard_normal((k, m))
        c = sum((a[:, t, None] + b[t + 1]) * (a[:, t + 1, None] + b[t]) for t in range(0, k, 2))
        c = c - (a[:, ::2] * a[:, 1::2]).sum(1)[:, None] - (b[::2] * b[1::2]).sum(0)
        assert is_product(c, a, b, False)


#: Ways round the check of names that were found by attack: each reached, or replaced, a dunder name.
ROUNDABOUT = {
    "import as": "from math import __class__ as x",
    "global": "global __builtins__",
    "case": "match {'a': 1}:\n    case __builtins__: pass",
    "case rest": "match {'a': 1}:\n    case {'b': 1, **__builtins__}: pass",
    "except as": "try:\n    1 / 0\n  except ZeroDivisionError as __builtins__: pass",
    "function": "def __getattr__(x): return x",
    "argument": "f = lambda __x__: 1",
    "keyword": "dict(__x__=1)",
}


@pytest.mark.parametrize("way", ROUNDABOUT)
def test_no_dunder_name_by_a_roundabout_way(sandbox, way):
    verdict = sandbox.judge(f"def matmul(A, B):\n  {ROUNDABOUT[way]}\n  return A")
    assert not verdict.pure and "is not allowed" in verdict.reason


@pytest.mark.parametrize(
    "line",
    [
        "def g(x: [y := [7]]): pass",
        "def g(x=not print(1)): pass",
        "def g(x=[]): pass",
        "print(1)",
        "#" + "x" * 20_000,
    ],
)
def test_nothing_runs_before_the_first_call(sandbox, line):
    assert not sandbox.judge(f"{line}\n{HONEST['zip_list']}").pure


@pytest.mark.parametrize(
    "action",
    [
        "os.stat('/etc/passwd')",
        "os.unlink('/nowhere')",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "os.write(2, b'x')",
        "socket.socket()",
        "ctypes.CDLL(None).system(b'true')",
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    ],
)
def test_a_program_that_got_past_the_policy_is_killed(action):
    """The second wall, tried without the first: the system itself refuses files, processes and code."""
    code = f"import ctypes, mmap, os, socket; from helpers.sandbox import worker; worker.lock_down(); {action}"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert run.returncode == -signal.SIGSYS, run


def test_no_file_opens_behind_the_second_wall():
    """It fails and does not kill: the parser itself tries to open the source of a syntax error."""
    code = "import os; from helpers.sandbox import worker; worker.lock_down(); os.open('/etc/passwd', 0)"
    run = subprocess.run([sys.executable, "-c", f"try:\n  {code}\nexcept PermissionError:\n  os._exit(7)"], cwd=ROOT)
    assert run.returncode == 7


def test_no_c_routine_for_inner_products(sandbox):
    """`math.dist` gives an inner product by polarisation, at C's speed."""
    for name in ("sumprod", "dist", "hypot"):
        assert not sandbox.judge(f"from math import {name}\n{HONEST['zip_list']}").correct


def test_whether_it_raises_does_not_depend_on_luck(sandbox):
    """Swapped indices raise for some shapes and not for others; every judgement meets both."""
    swapped = BASELINE.replace("B[t][j]", "B[j][t]")
    assert {verdict.ran for verdict in sandbox.judge_many([swapped] * 40)} == {False}


def test_policy_is_an_allow_list():
    """What nobody thought of is refused."""
    for line in ("import antigravity", "open('x')", "A.__class__", "A.append.__self__", "globals()", "().gi_frame"):
        with pytest.raises(Exception, match="not allowed|not defined|attribute"):
            load(f"def matmul(A, B):\n  {line}")([], [])

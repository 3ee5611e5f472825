"""`Sandbox.run` with the driver for scripts: the way each run ends, and that none disturbs another."""

import re
import time

import pytest

from helpers import Sandbox, UserError
from helpers.runtime import ROOT
from helpers.sandbox import STDIN, Driver, Limits, Payload, Status, choose_level, printed_text
from helpers.sandbox.sandbox import PROCESS_LEVEL_WARNING

ADDS = "total = 0\nfor _ in range(int(input())):\n    total += int(input())\nprint(total)\n"
ENDLESS = "while True: pass"
LIMITS = Limits(answer_bytes=1000)


@pytest.fixture(scope="module")
def scripts():
    with Sandbox() as sandbox:
        yield sandbox


def run(sandbox, source, text="", limits=LIMITS):
    return sandbox.run(STDIN, Payload(source, text.encode()), limits)


def printed(outcome):
    assert outcome.status is Status.ANSWERED and outcome.reason == ""
    return printed_text(outcome.bytes)


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (ADDS, "3\n1\n2\n39\n", "42\n"),
        (ADDS.replace("+=", "-="), "3\n1\n2\n39\n", "-42\n"),
        ("print(*input().split(), sep='-', end='!')", "a b c", "a-b-c!"),
        ("import sys\nsys.stdout.write(sys.stdin.readline() + sys.stdin.read())", "a\nb\nc", "a\nb\nc"),
        ("if __name__ == '__main__':\n    print('as a script')", "", "as a script\n"),
        ("", "", ""),
        ("print('\\u00e9\\u20ac')", "", "é€\n"),
        ("print(input() + '\\0')", "x\0", "x\0\0\n"),
        ("print([input() for _ in range(3)])", "a\u2028b\r\n\nc", "['a\\u2028b', '', 'c']\n"),
    ],
)
def test_a_script_answers_with_what_it_prints(scripts, source, text, expected):
    """Right or wrong is for the caller to say: the expected text never enters the process."""
    outcome = run(scripts, source, text)
    assert printed(outcome) == expected
    assert len(outcome.bytes) == LIMITS.answer_bytes and 0 < outcome.cpu_seconds < 1


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        (ENDLESS, Status.OUT_OF_TIME, "it ran out of time"),
        ("import os\nos.fork()", Status.UNAVAILABLE, "os is not available here"),
        ("from math import sumprod", Status.UNAVAILABLE, "math is not available here"),
        ("import math\nmath.dist((1,), (2,))", Status.UNAVAILABLE, "math.dist is not available here"),
        ("open('x')", Status.RAISED, "PermissionError"),
        ("import random\nrandom._os.fork()", Status.RAISED, "PermissionError"),
        ("print(1", Status.NOT_PARSED, "SyntaxError"),
        ("type(1) = 2", Status.NOT_PARSED, "SyntaxError"),
        ('print(f"{1")', Status.NOT_PARSED, "SyntaxError"),
        ("print(1 / 0)", Status.RAISED, "ZeroDivisionError: division by zero"),
        ("input()", Status.RAISED, "EOFError"),
        ("print('x' * 1000)", Status.WROTE_TOO_MUCH, "its answer has more than 1000 bytes"),
        ("while True: print('x' * 10**6)", (Status.RAISED, Status.OUT_OF_TIME), ""),
        ("x = [0] * 10**11", Status.RAISED, "Memory"),
    ],
)
def test_each_way_to_fail_has_its_status(scripts, source, status, reason):
    outcome = run(scripts, source)
    assert outcome.status in (status if isinstance(status, tuple) else (status,))
    assert reason in outcome.reason and outcome.reason.isprintable()
    assert outcome.bytes == b"" and outcome.cpu_seconds == 0 and not outcome.answered
    assert printed(run(scripts, "print(input())", "still there")) == "still there\n"


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("os._exit(0)", Status.EXITED),
        ("os.abort()", Status.CRASHED),
        ("os.write(1, b'O' + bytes(1001))", Status.WROTE_TOO_MUCH),
        ("os.write(1, b'O' + bytes(1000) + b'O')", Status.WROTE_TOO_MUCH),
        ("os.write(1, b'RO' + bytes(5000))", Status.BROKE_PROTOCOL),
        ("os.write(1, b'N\x04full')", Status.BROKE_PROTOCOL),
        ("os.write(1, b'P\x04text')", Status.BROKE_PROTOCOL),
        ("os.write(1, b'?')", Status.BROKE_PROTOCOL),
    ],
)
def test_a_hostile_program_ends_in_a_status(scripts, source, status):
    """Whoever reaches the descriptors can write anything, and gets nothing for it."""
    assert run(scripts, f"from random import _os as os\n{source}").status is status


@pytest.mark.parametrize("source", [ENDLESS, "from random import _os\n_os.read(0, 1)"], ids=["busy", "waiting"])
def test_limits_on_time(scripts, source):
    """By its own clock, and by ours where its clock stands still; a caller may set less than the default."""
    limits = Limits(answer_bytes=8, cpu_seconds=0.1, idle_seconds=0.3, wall_seconds=60)
    started = time.monotonic()
    outcome = run(scripts, source, limits=limits)
    assert outcome.status is Status.OUT_OF_TIME
    assert time.monotonic() - started < 30, "the limit on idle time ended it, not the one on wall time"


def test_a_limit_that_cannot_be_kept_is_refused():
    with pytest.raises(UserError, match="total_cpu_seconds must be below 20; got 20"):
        Limits(total_cpu_seconds=20)


def test_the_inputs_are_drawn_once_the_program_has_loaded(scripts):
    """A program that cannot be loaded never meets them; one that can meets them once."""
    drawn = []

    def inputs():
        drawn.append(1)
        return b"7"

    assert not scripts.run(STDIN, Payload("print(", inputs), LIMITS).answered
    assert not drawn
    assert printed(scripts.run(STDIN, Payload("print(input())", inputs), LIMITS)) == "7\n" and len(drawn) == 1


def test_a_process_for_each_run(scripts):
    """State that a program leaves behind would be there for the next."""
    program = "import builtins\nprint(getattr(builtins, 'seen', 0))\nbuiltins.seen = 1"
    assert [printed(scripts.run(STDIN, Payload(program, b""), LIMITS)) for _ in range(3)] == ["0\n"] * 3


DOUBLES = """
FUNCTION = "double"

def decode(inputs):
    return int(inputs)

def call(program, number):
    return program(number)

def encode(result, number):
    if type(result) is not int:
        raise ValueError("the result should be an integer")
    return str(result).encode()
"""


def test_a_task_brings_its_own_driver(tmp_path):
    """One file is all that a task adds, and two drivers share a sandbox."""
    path = tmp_path / "driver.py"
    path.write_text(DOUBLES)
    driver = Driver(path)
    limits = Limits(answer_bytes=4)
    with Sandbox(drivers=(STDIN, driver), workers=1) as sandbox:
        for source, answer, reason in (
            ("def double(x): return 2 * x", b"42\0\0", ""),
            ("def double(x): return 10**9 * x", b"", "its answer has more than 4 bytes"),
            ("def double(x): return 'x'", b"", "the result should be an integer"),
            ("def twice(x): return 2 * x", b"", "the program does not define a function double"),
            ("def double(x): return 1\ndef double(x): return 2 * x", b"42\0\0", ""),
            ("import numpy, math\ndef double(x): return math.prod((2, x))\nnumpy.seterr()", b"42\0\0", ""),
            ("import numpy\ndef double(x): return numpy.multiply(2, x)", b"", "numpy is not available here"),
            ("def double(x): return 3\nraise ValueError('late')\ndef double(x): return 2 * x", b"42\0\0", ""),
            ("raise ValueError('early')", b"", "early"),
        ):
            outcome = sandbox.run(driver, Payload(source, b"21"), limits)
            assert (outcome.bytes, outcome.reason) == (answer, reason)
        assert printed(run(sandbox, "print(input())", "a script")) == "a script\n"


def test_mistakes_of_a_caller_are_sentences(scripts, tmp_path):
    with pytest.raises(UserError, match="no driver other.py: name it in Sandbox"):
        scripts.run(Driver(tmp_path / "other.py"), Payload("", b""))
    for workers in (0, -1, 1.5, "2"):
        with pytest.raises(UserError, match="workers must be a whole number from 1 on"):
            Sandbox(workers=workers)
    with pytest.raises(UserError, match="no sandbox level 'none': choose os or process"):
        Sandbox(level="none")
    with Sandbox(workers=1) as closed:
        pass
    with pytest.raises(UserError, match="This sandbox is closed"):
        run(closed, ADDS)


def test_a_driver_that_does_not_load_is_a_failure_of_the_sandbox(tmp_path):
    """It says nothing of the program, and it is said at once."""
    path = tmp_path / "driver.py"
    path.write_text("1 / 0")
    with Sandbox(drivers=(Driver(path),), workers=1) as sandbox:
        outcome = sandbox.run(Driver(path), Payload("", b""))
    assert (
        outcome.status is Status.SANDBOX_FAILED and outcome.reason == "the sandbox failed: the sandbox's process died"
    )


def test_level_process(capsys):
    """For hosts without seccomp, by name only, and it says what it lacks."""
    with Sandbox(workers=1, level="process") as sandbox:
        assert PROCESS_LEVEL_WARNING in capsys.readouterr().out
        assert printed(run(sandbox, ADDS, "1\n5")) == "5\n"
        assert run(sandbox, "from random import _os\n_os.getpid()").status is Status.ANSWERED
        assert run(sandbox, "open('/etc/passwd')").status is Status.RAISED
        assert run(sandbox, ENDLESS).status is Status.OUT_OF_TIME


def test_auto_takes_the_best_level_that_the_host_has(monkeypatch):
    """A released model's programs run without the filter only where somebody has chosen that."""
    assert choose_level("auto") == choose_level("auto", embedded_model=True) == "os"
    monkeypatch.setattr("helpers.sandbox.level.missing_from_host", lambda: "no seccomp here")
    assert choose_level("auto", embedded_model=True) == "process" and choose_level("process") == "process"
    with pytest.raises(UserError, match="no seccomp here.*level='process'"):
        choose_level("auto")


def test_the_sandbox_knows_no_task():
    """Another task brings a driver and changes nothing here."""
    for path in (ROOT / "helpers" / "sandbox").rglob("*.py"):
        text = path.read_text().lower()
        words = set(re.findall("[a-z]+", text))
        assert not words & {"baseline", "matmul", "matrix", "matrices", "speedup"}, path

"""`Sandbox.run` with the driver for scripts: the way each run ends, and that none disturbs another."""

import re
import time

import pytest

from helpers import Sandbox, UserError
from helpers.runtime import ROOT
from helpers.sandbox import STDIN, Driver, Limits, Payload, Program, Status, printed_text
from helpers.sandbox.sandbox import POLICY_LEVEL_WARNING

ADDS = "total = 0\nfor _ in range(int(input())):\n    total += int(input())\nprint(total)\n"
ENDLESS = "while True: pass"
LIMITS = Limits(answer_bytes=1000)


@pytest.fixture(scope="module")
def scripts():
    with Sandbox() as sandbox:
        yield sandbox


def run(sandbox, source, text="", policy=True, limits=LIMITS):
    return sandbox.run(STDIN, Payload(Program(source, policy), text.encode()), limits)


def printed(outcome):
    assert outcome.status is Status.ANSWERED and outcome.reason == ""
    return printed_text(outcome.bytes)


@pytest.mark.parametrize("policy", [True, False], ids=["with the policy", "all of Python"])
@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (ADDS, "3\n1\n2\n39\n", "42\n"),
        (ADDS.replace("+=", "-="), "3\n1\n2\n39\n", "-42\n"),
        ("print(*input('a prompt is not printed').split(), sep='-', end='!')", "a b c", "a-b-c!"),
        ("if __name__ == '__main__':\n    print('as a script')", "", "as a script\n"),
        ("", "", ""),
        ("print('\\u00e9\\u20ac')", "", "é€\n"),
        ("print(input() + '\\0')", "x\0", "x\0\0\n"),
        ("print([input() for _ in range(3)])", "a\u2028b\r\n\nc", "['a\\u2028b', '', 'c']\n"),
    ],
)
def test_a_script_answers_with_what_it_prints(scripts, policy, source, text, expected):
    """Right or wrong is for the caller to say: the expected text never enters the process."""
    outcome = run(scripts, source, text, policy)
    assert printed(outcome) == expected
    assert len(outcome.bytes) == LIMITS.answer_bytes and 0 < outcome.cpu_seconds < 1


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        (ENDLESS, Status.OUT_OF_TIME, "it ran out of time"),
        ("import os\nos.fork()", Status.CHEAT, "importing os is not allowed"),
        ("import sys\nsys.modules", Status.CHEAT, "modules is not allowed: it reaches into the interpreter"),
        ("import sys\nsys.platform", Status.NOT_ALLOWED, "the attribute platform is not allowed"),
        ("import random\nrandom.random()", Status.NOT_ALLOWED, "importing random is not allowed"),
        ("open('x')", Status.CHEAT, "the name open is not allowed"),
        ("print.__self__", Status.CHEAT, "the name __self__ is not allowed"),
        ("print(1", Status.NOT_PARSED, "SyntaxError"),
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
        ("import os\nos.fork()", Status.FORBIDDEN_CALL),
        ("import socket\nsocket.socket()", Status.FORBIDDEN_CALL),
        ("import os\nos._exit(0)", Status.EXITED),
        ("import ctypes\nctypes.string_at(0)", Status.CRASHED),
        ("import os\nos.write(1, b'O' + bytes(1001))", Status.WROTE_TOO_MUCH),
        ("import os\nos.write(1, b'O' + bytes(1000) + b'O')", Status.WROTE_TOO_MUCH),
        ("import os\nos.write(1, b'RO' + bytes(5000))", Status.BROKE_PROTOCOL),
        ("import os\nos.write(1, b'N\\x04full')", Status.BROKE_PROTOCOL),
        ("import os\nos.write(1, b'P\\x04text')", Status.BROKE_PROTOCOL),
        ("import os\nos.write(1, b'?')", Status.BROKE_PROTOCOL),
    ],
)
def test_the_system_holds_a_program_that_has_all_of_python(scripts, source, status):
    """Without the policy nothing but the second wall and the protocol stand between a program and the host."""
    assert run(scripts, source, policy=False).status is status


@pytest.mark.parametrize("source", [ENDLESS, "import os\nos.read(0, 1)"], ids=["busy", "waiting"])
def test_limits_on_time(scripts, source):
    """By its own clock, and by ours where its clock stands still; a caller may set less than the default."""
    limits = Limits(answer_bytes=8, cpu_seconds=0.1, idle_seconds=0.3, wall_seconds=60)
    started = time.monotonic()
    outcome = run(scripts, source, policy=False, limits=limits)
    assert outcome.status is Status.OUT_OF_TIME
    assert time.monotonic() - started < 30, "the limit on idle time ended it, not the one on wall time"


def test_a_limit_that_cannot_be_kept_is_refused():
    with pytest.raises(UserError, match="cpu_seconds may be 3 at most; got 5"):
        Limits(cpu_seconds=5)


def test_the_inputs_are_drawn_once_the_program_has_loaded(scripts):
    """A program that cannot be loaded never meets them; one that can meets them once."""
    drawn = []

    def inputs():
        drawn.append(1)
        return b"7"

    for source in ("print(", "import os\nos.getpid()"):
        assert not scripts.run(STDIN, Payload(Program(source), inputs), LIMITS).answered
    assert not drawn
    assert printed(scripts.run(STDIN, Payload(Program("print(input())"), inputs), LIMITS)) == "7\n" and len(drawn) == 1


def test_a_program_is_compiled_once(scripts):
    """The second process gets the code of the first and does the same with it."""
    program = Program(ADDS)
    assert not program.compiled
    for total in (1, 2):
        outcome = scripts.run(STDIN, Payload(program, f"1\n{total}".encode()), LIMITS)
        assert printed(outcome) == f"{total}\n" and program.compiled


def test_a_process_for_each_run(scripts):
    """State that a program leaves behind would be there for the next."""
    program = Program("import builtins\nprint(getattr(builtins, 'seen', 0))\nbuiltins.seen = 1", policy=False)
    assert [printed(scripts.run(STDIN, Payload(program, b""), LIMITS)) for _ in range(3)] == ["0\n"] * 3


DOUBLES = """
FUNCTION = "double"
SUPPLIED = ()

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
            ("print(input())", b"", "the name input is not allowed"),
        ):
            outcome = sandbox.run(driver, Payload(Program(source), b"21"), limits)
            assert (outcome.bytes, outcome.reason) == (answer, reason)
        assert printed(run(sandbox, "print(input())", "a script")) == "a script\n"


def test_mistakes_of_a_caller_are_sentences(scripts, tmp_path):
    with pytest.raises(UserError, match="no driver other.py: name it in Sandbox"):
        scripts.run(Driver(tmp_path / "other.py"), Payload(Program(""), b""))
    for workers in (0, -1, 1.5, "2"):
        with pytest.raises(UserError, match="workers must be a whole number from 1 on"):
            Sandbox(workers=workers)
    with pytest.raises(UserError, match="no sandbox level 'none': choose os or policy"):
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
        outcome = sandbox.run(Driver(path), Payload(Program(""), b""))
    assert (
        outcome.status is Status.SANDBOX_FAILED and outcome.reason == "the sandbox failed: the sandbox's process died"
    )


def test_level_policy(capsys):
    """For hosts without seccomp, by name only, and it says what it lacks."""
    with Sandbox(workers=1, level="policy") as sandbox:
        assert POLICY_LEVEL_WARNING in capsys.readouterr().out
        assert printed(run(sandbox, ADDS, "1\n5")) == "5\n"
        assert run(sandbox, "import os\nos.getpid()").status is Status.CHEAT
        assert run(sandbox, ENDLESS).status is Status.OUT_OF_TIME


def test_the_sandbox_knows_no_task():
    """Another task brings a driver and changes nothing here."""
    for path in (ROOT / "helpers" / "sandbox").rglob("*.py"):
        text = path.read_text().lower().replace("lt matmul missing", "")  # the operator, in the policy
        words = set(re.findall("[a-z]+", text))
        assert not words & {"baseline", "matmul", "matrix", "matrices", "speedup"}, path

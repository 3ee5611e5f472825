"""What goes wrong around the sandbox: it recovers or says what is wrong, and leaves nothing behind."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from helpers import MatmulJudge, MatmulTask, UserError
from helpers.runtime import ROOT
from helpers.sandbox.inside.lockdown import filter_program
from helpers.sandbox.zygote import ZYGOTE_TIMEOUT_SECONDS
from helpers.tasks.matmul.speed import BASELINE
from tests.disk import full_disk
from tests.process import children, descriptors, is_running, lowest_free_descriptor
from tests.sandbox.suite import REFERENCE

ENDLESS = "def matmul(A, B):\n  while True: pass"


def zygote_of(judge):
    return judge.sandbox.zygote


@pytest.fixture
def nothing_left():
    """No process and no descriptor more than before."""
    before = set(children()), descriptors()
    yield
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and (set(children()) - before[0] or descriptors() > before[1]):
        time.sleep(0.05)
    assert not set(children()) - before[0] and descriptors() <= before[1]


@pytest.mark.parametrize("level", ["os", "process"])
def test_nothing_is_left_behind(nothing_left, level):
    with MatmulJudge(level=level) as matmul_judge:
        matmul_judge.judge_many([BASELINE, ENDLESS, "import numpy", "def matmul(A, B): return 1 / 0"] * 2)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_zygote_is_replaced(nothing_left, signal_number):
    """A lost process must not cost an honest program its verdict, between judgements or in the middle of one."""
    with MatmulJudge(workers=2) as matmul_judge:
        assert matmul_judge.judge(REFERENCE).correct
        os.kill(zygote_of(matmul_judge).process.pid, signal_number)
        assert matmul_judge.judge(REFERENCE).correct
        killer = threading.Timer(0.3, lambda: os.kill(zygote_of(matmul_judge).process.pid, signal_number))
        killer.start()
        verdicts = matmul_judge.judge_many([REFERENCE] * 24)
        killer.join()
        assert [v.correct for v in verdicts] == [True] * 24


def test_a_stopped_zygote_is_replaced(nothing_left):
    """At once, and not after a time out for each program: that took 44 seconds."""
    with MatmulJudge(workers=2) as matmul_judge:
        assert matmul_judge.judge(REFERENCE).correct
        started = time.monotonic()
        all_right = matmul_judge.judge_many([REFERENCE] * 20)
        undisturbed_seconds = time.monotonic() - started
        os.kill(zygote_of(matmul_judge).process.pid, signal.SIGSTOP)
        started = time.monotonic()
        after_stop = matmul_judge.judge_many([REFERENCE] * 20)
        assert all(verdict.correct for verdict in all_right + after_stop)
        assert time.monotonic() - started < 5 * undisturbed_seconds + ZYGOTE_TIMEOUT_SECONDS / 2


def test_a_copy_of_the_process_has_a_sandbox_of_its_own(nothing_left):
    """As `os.fork` makes one for a data loader; neither disturbs the other, and the copy ends nothing of the first."""
    code = f"""
    import os, sys, warnings
    from helpers import MatmulJudge
    warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on Python warns of a fork beside threads
    matmul_judge = MatmulJudge(workers=2)
    assert matmul_judge.judge({REFERENCE!r}).correct
    pid = os.fork()
    verdicts = matmul_judge.judge_many([{REFERENCE!r}] * 8)
    assert all(verdict.correct for verdict in verdicts), verdicts
    if not pid:
        matmul_judge.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, "the copy failed"
    print(matmul_judge.judge({REFERENCE!r}).correct)
    matmul_judge.close()
    """
    output, status = run_alone(code)
    assert status == 0 and output.endswith("True\n"), output


@pytest.mark.parametrize("level", ["os", "process"])
def test_a_parent_that_ignores_its_children(nothing_left, level):
    """SIGCHLD ignored is inherited, and a zygote that inherits it could not wait for its own children."""
    code = f"""
    import signal
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    from helpers import MatmulJudge
    with MatmulJudge(workers=2, level={level!r}) as matmul_judge:
        verdicts = matmul_judge.judge_many([{REFERENCE!r}, {ENDLESS!r}, "def matmul(A, B): return 1 / 0"])
        print([verdict.correct for verdict in verdicts], [verdict.reason for verdict in verdicts[1:]])
    """
    output, status = run_alone(code)
    assert status == 0, output
    assert output.endswith("[True, False, False] ['it ran out of time', 'ZeroDivisionError: division by zero']\n")


def test_a_small_address_space(nothing_left):
    """Where the limit leaves too little memory, the sentence names it; where it leaves enough, nothing happens."""
    code = f"""
    import resource
    from pathlib import Path
    from helpers import MatmulJudge, UserError
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for more in (2**20, 2 * 2**30):
        resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
        try:
            with MatmulJudge(workers=1) as matmul_judge:
                print(matmul_judge.judge({REFERENCE!r}).correct)
        except UserError as error:
            print(error)
    """
    output, status = run_alone(code)
    sentence, answer = output.splitlines()
    assert status == 0 and answer == "True"
    assert "the address space is limited to" in sentence and "raise RLIMIT_AS" in sentence


def test_a_zygote_killed_again_and_again(nothing_left):
    """Each time all that hung on it is closed, by whoever holds it: 132 descriptors once stayed open."""
    with MatmulJudge(workers=4) as matmul_judge:
        stop = threading.Event()

        def kill():
            while not stop.wait(0.15):
                if zygote_of(matmul_judge):
                    os.kill(zygote_of(matmul_judge).process.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for _ in range(2):
                matmul_judge.judge_many([REFERENCE] * 8)
        finally:
            stop.set()
            killer.join()
        assert all(v.correct for v in matmul_judge.judge_many([REFERENCE] * 4))


def test_a_killed_probe_is_replaced(nothing_left):
    with MatmulJudge(workers=1) as matmul_judge:
        assert matmul_judge.judge(REFERENCE).correct
        os.kill(matmul_judge.examiners[0].probe.process.pid, signal.SIGKILL)
        assert matmul_judge.judge(REFERENCE).correct


def test_a_full_disk_is_no_matter(nothing_left):
    """Nothing is written: neither by the sandbox nor by its interpreter."""
    with full_disk() as fill:
        fill(0)
        with MatmulJudge(workers=1) as matmul_judge:
            assert matmul_judge.self_test() and matmul_judge.judge(REFERENCE).correct


def test_too_few_descriptors(nothing_left):
    """It says so, and goes on when there are some again."""
    with MatmulJudge(workers=2) as matmul_judge:
        assert matmul_judge.judge(REFERENCE).correct
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_descriptor(), before[1]))
            verdicts = matmul_judge.judge_many([REFERENCE] * 4)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert not any(v.judged for v in verdicts) and "Too many open files" in verdicts[0].reason
        assert all(v.correct for v in matmul_judge.judge_many([REFERENCE] * 4))


def test_many_descriptors_in_use(nothing_left):
    """select(2) takes none beyond 1,023, and a trainer with a big data set holds that many."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 1400:
        pytest.skip("this user may not hold so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1400, before[1]))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1200)]
    try:
        with MatmulJudge(workers=1) as matmul_judge:
            assert matmul_judge.judge(REFERENCE).correct
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def run_alone(code, before="", **options):
    """(what it printed, exit status) of a Python process of its own."""
    text = f"{before}\nimport sys; sys.path.insert(0, {str(ROOT)!r})\n{textwrap.dedent(code)}"
    run = subprocess.run([sys.executable, "-B", "-c", text], capture_output=True, text=True, timeout=120, **options)
    return run.stdout + run.stderr, run.returncode


def test_an_interrupted_cell(nothing_left):
    """Ctrl-C in the middle of a batch: back at once, and the next batch is judged as ever."""
    code = f"""
    import _thread, threading, time
    from helpers import MatmulJudge
    matmul_judge = MatmulJudge(workers=2)
    assert matmul_judge.judge({REFERENCE!r}).correct
    for wait in (0.05, 0.2, 0.5):
        threading.Timer(wait, _thread.interrupt_main).start()
        started = time.monotonic()
        try:
            matmul_judge.judge_many([{ENDLESS!r}] * 40)
            print("not interrupted")
        except KeyboardInterrupt:
            print("took long" if time.monotonic() - started > wait + 15 else "ok")
        print(matmul_judge.judge({REFERENCE!r}).correct)
    matmul_judge.close()
    """
    assert run_alone(code) == ("ok\nTrue\n" * 3, 0)


def test_a_killed_trainer_takes_its_sandbox_with_it(nothing_left):
    code = f"""
    import os, signal, threading
    from helpers import MatmulJudge
    matmul_judge = MatmulJudge(workers=2)
    matmul_judge.judge({REFERENCE!r})
    print(matmul_judge.sandbox.zygote.process.pid, flush=True)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    matmul_judge.judge_many([{ENDLESS!r}] * 4)
    """
    output, status = run_alone(code)
    assert status == -signal.SIGKILL
    time.sleep(0.5)
    assert not is_running(output.split()[0])


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@needs_root
def test_without_proc(nothing_left):
    """Some containers have none: nothing but this test's own bookkeeping reads it."""
    code = f"""
    import os
    from helpers import MatmulJudge
    assert not os.path.exists("/proc/self")
    with MatmulJudge() as matmul_judge:
        print(matmul_judge.self_test(), matmul_judge.judge({REFERENCE!r}).correct)
    """
    before = (  # a mount namespace of its own, private, with an empty /proc
        "import ctypes; c = ctypes.CDLL(None); assert not c.unshare(0x20000) and not c.mount(b'none', b'/', None, "
        "1 << 18 | 1 << 14, None) and not c.mount(b'none', b'/proc', b'tmpfs', 0, None)"
    )
    output, status = run_alone(code, before)
    if "AssertionError" in output and "unshare" in output:
        pytest.skip("this container lets nobody hide /proc")
    assert status == 0 and "self-test passed" in output and output.endswith("True\n"), output


@needs_root
@pytest.mark.parametrize("who", ["an ordinary user", "root without capabilities"])
def test_whoever_runs_it(nothing_left, who):
    """The wall needs no privilege."""
    code = f"""
    from helpers import MatmulJudge
    with MatmulJudge() as matmul_judge:
        print(matmul_judge.self_test(), matmul_judge.judge({REFERENCE!r}).correct)
    """
    drop = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    if "root" in who:  # empty the bounding set, then the others: PR_CAPBSET_DROP, capset
        drop = (
            "import ctypes; c = ctypes.CDLL(None); [c.prctl(24, n, 0, 0, 0) for n in range(64)];"
            "h = (ctypes.c_uint32 * 2)(0x20080522, 0); assert not c.capset(h, (ctypes.c_uint32 * 6)())"
        )
    if not os.access(sys.executable, os.X_OK) or "/root/" in os.path.realpath(sys.executable) and "user" in who:
        pytest.skip("this interpreter lies where no other user can read it")
    output, status = run_alone(code, drop)
    assert status == 0 and "self-test passed" in output and output.endswith("True\n"), output


def without_seccomp():
    """Code that forbids this process and its children any further filter, as an old container would."""
    import ctypes
    import struct

    load, equal, give = 0x20, 0x15, 0x06
    number = {"x86_64": (157, 317), "aarch64": (167, 277)}[os.uname().machine]
    steps = [
        (load, 0, 0, 0), (equal, 1, 0, number[0]), (equal, 2, 3, number[1]),
        (load, 0, 0, 16), (equal, 0, 1, 22), (give, 0, 0, 0x00050016), (give, 0, 0, 0x7FFF0000),
    ]  # fmt: skip
    code = b"".join(struct.pack("<HBBI", *step) for step in steps)
    assert filter_program(os.uname().machine)  # the same format

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    prctl = ctypes.CDLL(None).prctl
    assert not prctl(38, 1, 0, 0, 0) and not prctl(22, 2, ctypes.byref(Filter(len(steps), code)), 0, 0)


def test_without_seccomp(nothing_left):
    """No judgement and a sentence; level "process" works there, and only by its name."""
    code = f"""
    from tests.sandbox.test_faults import without_seccomp
    without_seccomp()
    from helpers import MatmulJudge, MatmulTask, UserError
    with MatmulJudge(workers=1) as matmul_judge:
        try:
            matmul_judge.self_test()
        except UserError as error:
            print(error)
        print(matmul_judge.judge({REFERENCE!r}).judged)
    with MatmulJudge(workers=1, level="process") as matmul_judge:
        print(matmul_judge.self_test())
    """
    output, status = run_alone(code, cwd=ROOT)
    lines = output.splitlines()
    assert status == 0, output
    assert "lets no process limit its system calls (seccomp)" in lines[0] and "level='process'" in lines[0]
    assert lines[1] == "False" and "self-test passed: level process" in lines[-1]


def test_a_judge_that_judges_nothing_stops_the_run(monkeypatch):
    """A batch of Nones would train on nothing for hours."""
    task = MatmulTask(workers=1)
    assert task.judge.workers == 1, "started before its baseline is broken"
    task.judge.examiners.clear()
    monkeypatch.setattr("helpers.tasks.matmul.speed.BASELINE", "def matmul(A, B): return 1 /")
    with pytest.raises(UserError, match="No program could be judged: the sandbox failed: our own program"):
        task.verdicts([f"```python\n{REFERENCE}\n```"])
    task.close()

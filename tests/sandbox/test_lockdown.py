"""The second wall, alone: the filter word by word for both machines, and what it does to a process."""

import hashlib
import signal
import struct
import subprocess
import sys

import pytest

from helpers.runtime import ROOT
from helpers.sandbox.inside.lockdown import SYSTEM_CALLS, filter_program

KILL, ALLOW, DENY = 0x80000000, 0x7FFF0000, 0x0005000D
OTHER = {"x86_64": 0xC00000B7, "aarch64": 0xC000003E}


def decide(program, architecture, number, arguments=()):
    """What a classic BPF program returns for a system call: an interpreter of the four instructions in use."""
    arguments = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments)
    step, word = 0, 0
    while True:
        code, if_true, if_false, k = struct.unpack_from("<HBBI", program, 8 * step)
        step += 1
        if code == 0x20:
            (word,) = struct.unpack_from("<I", data, k)
        elif code == 0x15:
            step += if_true if word == k else if_false
        elif code == 0x45:
            step += if_true if word & k else if_false
        elif code == 0x06:
            return k
        else:
            raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize("machine", SYSTEM_CALLS)
def test_filter_of_each_machine(machine):
    """aarch64 cannot run here, but its filter can: every number is decided as written, all others kill."""
    architecture, calls = SYSTEM_CALLS[machine]
    program = filter_program(machine)
    for number in range(600):
        name = next((n for n, value in calls.items() if value == number), None)
        expected = KILL if name is None else DENY if name in ("open", "openat", "madvise") else ALLOW
        if name == "write":
            assert decide(program, architecture, number, [1]) == ALLOW
            for other in (0, 2, 3, 1 << 32 | 1, 2**64 - 1):
                assert decide(program, architecture, number, [other]) == KILL
        elif name == "read":
            assert decide(program, architecture, number, [0]) == ALLOW
            for other in (1, 2, 1 << 32, 2**63):
                assert decide(program, architecture, number, [other]) == KILL
        elif name == "mmap":
            for protection in range(16):
                wanted = KILL if protection & 4 else ALLOW
                assert decide(program, architecture, number, [0, 4096, protection]) == wanted
        else:
            assert decide(program, architecture, number) == expected, (name, number)
        for foreign in (OTHER[machine], 0x40000003, 0):
            assert decide(program, foreign, number) == KILL
        assert decide(program, architecture, number | 0x40000000) == KILL  # x32


@pytest.mark.parametrize(("machine", "digest"), [("x86_64", "05ac0ac43215a5a6"), ("aarch64", "d43294dc09fec976")])
def test_golden_bytes(machine, digest):
    """A change of the filter is to be meant."""
    assert hashlib.sha256(filter_program(machine)).hexdigest()[:16] == digest


def test_no_filter_for_an_unknown_machine():
    with pytest.raises(OSError, match="no list of system calls for riscv64"):
        filter_program("riscv64")


def locked(action, seccomp=True):
    code = "import _thread, ctypes, mmap, os, signal, socket\nfrom helpers.sandbox.inside.lockdown import lock_down\n"
    run = f"{code}lock_down({seccomp})\ntry:\n    {action}\nexcept OSError:\n    os._exit(7)\nos._exit(0)"
    return subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True).returncode


@pytest.mark.parametrize(
    "action",
    [
        "os.stat('/etc/passwd')",
        "os.unlink('/nowhere')",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "os.write(2, b'x')",
        "os.read(1, 1)",
        "os.dup2(0, 5)",
        "socket.socket()",
        "_thread.start_new_thread(print, ())",
        "ctypes.CDLL(None).system(b'true')",
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
        "ctypes.CDLL(None).mprotect(0, 4096, 7)",
        "ctypes.CDLL(None).prctl(1, 0)",
        "ctypes.CDLL(None).ptrace(0, 0, 0, 0)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    ],
)
def test_the_system_kills_what_asks_for_more(action):
    assert locked(action) == -signal.SIGSYS


def test_no_file_opens():
    """It fails and does not kill: the parser itself tries to open the source of a syntax error."""
    assert locked("os.open('/etc/passwd', 0)") == 7


def test_advice_on_memory_fails():
    """Root may ask the kernel to poison a page."""
    page = "mmap.mmap(-1, 4096)"
    assert locked(f"{page}.madvise(4)") == 7


def test_no_capability_is_left():
    """Root's are many: with them a process could raise its limits again."""
    code = (
        "file = open('/proc/self/status');"
        "from helpers.sandbox.inside.lockdown import lock_down; lock_down(False);"
        "print({line.split()[1] for line in file if line[:6] in ('CapInh', 'CapPrm', 'CapEff')})"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "{'0000000000000000'}\n", run.stderr


def test_a_limit_that_is_lower_already_stays():
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (2**28, 2**28));"
        "from helpers.sandbox.inside.lockdown import lock_down; lock_down(False); print(r.getrlimit(r.RLIMIT_AS)[1])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == f"{2**28}\n", run.stderr


def test_what_a_program_needs_is_left():
    assert locked("os.write(1, b'x'); bytearray(10**8); os.read(0, 1)") == 0


def test_without_seccomp_the_limits_are_left():
    """What level "policy" has: no new descriptor, whoever asks for it."""
    assert locked("os.open('/etc/passwd', 0)", seccomp=False) == 7
    assert locked("socket.socket()", seccomp=False) == 7
    assert locked("os.stat('/etc/passwd')", seccomp=False) == 0

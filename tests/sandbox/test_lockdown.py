"""The wall, alone: the filter word by word for both machines, and what it does to a process."""

import hashlib
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
    """aarch64 cannot run here, but its filter can: every number is decided as written, and all others fail."""
    architecture, calls = SYSTEM_CALLS[machine]
    program = filter_program(machine)
    for number in range(600):
        name = next((n for n, value in calls.items() if value == number), None)
        expected = DENY if name is None else ALLOW
        if name == "write":
            assert decide(program, architecture, number, [1]) == ALLOW
            for other in (0, 2, 3, 1 << 32 | 1, 2**64 - 1):
                assert decide(program, architecture, number, [other]) == DENY
        elif name == "read":
            assert decide(program, architecture, number, [0]) == ALLOW
            for other in (1, 2, 1 << 32, 2**63):
                assert decide(program, architecture, number, [other]) == DENY
        elif name == "mmap":
            for protection in range(16):
                wanted = DENY if protection & 4 else ALLOW
                assert decide(program, architecture, number, [0, 4096, protection]) == wanted
        else:
            assert decide(program, architecture, number) == expected, (name, number)
        for foreign in (OTHER[machine], 0x40000003, 0):
            assert decide(program, foreign, number) == KILL
        assert decide(program, architecture, number | 0x40000000) == DENY  # x32


@pytest.mark.parametrize(("machine", "digest"), [("x86_64", "bad5bff5ce9a843d"), ("aarch64", "d3e4283a1fa5f495")])
def test_golden_bytes(machine, digest):
    """A change of the filter is to be meant."""
    assert hashlib.sha256(filter_program(machine)).hexdigest()[:16] == digest


def test_no_filter_for_an_unknown_machine():
    with pytest.raises(OSError, match="no list of system calls for riscv64"):
        filter_program("riscv64")


def locked(action, seccomp=True):
    code = "import _thread, ctypes, mmap, os, signal, socket\nfrom helpers.sandbox.inside.lockdown import lock_down\n"
    run = (
        f"{code}lock_down({seccomp})\ntry:\n    {action}\nexcept (OSError, RuntimeError):\n    os._exit(7)\nos._exit(0)"
    )
    return subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True).returncode


@pytest.mark.parametrize(
    "action",
    [
        "os.open('/etc/passwd', 0)",
        "os.stat('/etc/passwd')",
        "os.unlink('/nowhere')",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "os.write(2, b'x')",
        "os.read(1, 1)",
        "os.dup2(0, 5)",
        "socket.socket()",
        "_thread.start_new_thread(print, ())",
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
        "mmap.mmap(-1, 4096).madvise(4)",  # root may ask the kernel to poison a page
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    ],
)
def test_what_asks_for_more_fails(action):
    """With an error that honest code gets over, and not by a signal."""
    assert locked(action) == 7


@pytest.mark.parametrize("call", ["mprotect(page, 4096, 7)", "prctl(1, 0)", "ptrace(0, 0, 0, 0)", "system(b'true')"])
def test_a_call_of_the_c_library_fails(call):
    before = "page = ctypes.c_void_p(id(call) & ~4095)"
    assert locked(f"call = ctypes.CDLL(None); {before}; assert call.{call} in (-1, 127 << 8)") == 0


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
    """What level "process" has: no new descriptor, whoever asks for it."""
    assert locked("os.open('/etc/passwd', 0)", seccomp=False) == 7
    assert locked("socket.socket()", seccomp=False) == 7
    assert locked("os.stat('/etc/passwd')", seccomp=False) == 0

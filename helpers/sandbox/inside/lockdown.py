"""The wall: what a process gives up, for good, before it reads a program.

Capabilities, limits on memory, time, files and processes, and a seccomp filter that leaves it a handful of system
calls. No package, no privilege and no namespace is needed: capset(2), prctl(2), seccomp(2), setrlimit(2).
"""

import ctypes
import errno
import functools
import os
import resource
import signal
import struct

MEMORY_BYTES = 512 * 2**20
CPU_SECONDS = 20  # of a process; the parent allows it less (`Limits.total_cpu_seconds`)
#: machine -> (its number for seccomp, the calls that are carried out: those that computing and answering need).
SYSTEM_CALLS = {
    "x86_64": (0xC000003E, {
        "read": 0, "write": 1, "mmap": 9, "munmap": 11, "brk": 12, "rt_sigreturn": 15, "mremap": 25, "exit": 60,
        "exit_group": 231,
    }),
    "aarch64": (0xC00000B7, {
        "read": 63, "write": 64, "mmap": 222, "munmap": 215, "brk": 214, "rt_sigreturn": 139, "mremap": 216,
        "exit": 93, "exit_group": 94,
    }),
}  # fmt: skip
_SET_DEATH_SIGNAL, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 22, 38  # of prctl
_SECCOMP_MODE_FILTER = 2
_PROT_EXEC = 4
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000  # of unshare(2)
#: Version 3 of capset(2) takes two sets of three 32-bit masks: effective, permitted and inheritable.
_CAPABILITY_VERSION = 0x20080522

#: Instructions of classic BPF: load a word; jump if equal; jump if any bit is set; return.
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
#: Places in struct seccomp_data. An argument has two words, the low one first.
_NUMBER, _ARCHITECTURE, _FIRST_LOW, _FIRST_HIGH, _THIRD_LOW = 0, 4, 16, 20, 32
#: A step is an instruction, how many steps to jump if true and if false, and a number.
_ALLOW = (_RETURN, 0, 0, 0x7FFF0000)
_KILL = (_RETURN, 0, 0, 0x80000000)
_FAIL = (_RETURN, 0, 0, 0x00050000 | errno.EACCES)


def filter_program(machine: str) -> bytes:
    """Return the seccomp filter for a machine, as bytes of classic BPF.

    Allowed: reading descriptor 0, writing 1, memory that cannot be executed, ending. Any other call is not carried out
    and fails with EACCES, which honest code gets over: the library asks for the process's number, for random bytes, or
    for the source of a line. A call of another architecture's table (32-bit on x86-64) kills the process; x32 has
    numbers that are on no list.

    Raises OSError for a machine without a list.
    """
    if machine not in SYSTEM_CALLS:
        raise OSError(f"there is no list of system calls for {machine} (x86_64 and aarch64 have one)")
    architecture, calls = SYSTEM_CALLS[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        _KILL,
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name, number in calls.items():
        decision = _decision(name)
        steps.append((_IF_EQUAL, 0, len(decision), number))
        steps += decision
    steps.append(_FAIL)
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _decision(name):
    """The steps that decide on a system call of the list. They always return."""
    if name in ("read", "write"):
        descriptor = 1 if name == "write" else 0
        return [
            (_LOAD, 0, 0, _FIRST_LOW),
            (_IF_EQUAL, 0, 3, descriptor),
            (_LOAD, 0, 0, _FIRST_HIGH),
            (_IF_EQUAL, 0, 1, 0),
            _ALLOW,
            _FAIL,
        ]
    if name == "mmap":
        return [(_LOAD, 0, 0, _THIRD_LOW), (_IF_ANY_BIT, 1, 0, _PROT_EXEC), _ALLOW, _FAIL]
    return [_ALLOW]


def lock_down(seccomp: bool = True, endless: bool = False) -> None:
    """Give up all capabilities, memory and time beyond a limit, new files and processes, and most system calls.

    seccomp: False leaves the last part out; endless: no limit on time. Raises OSError where the system cannot do it.
    """
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    if not endless:
        _limit(resource.RLIMIT_CPU, CPU_SECONDS)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, 2)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _drop_capabilities()
    _set(_SET_DEATH_SIGNAL, signal.SIGKILL, 0)
    _set(_SET_NO_NEW_PRIVS, 1, 0)
    if seccomp:
        _set(_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(this_filter()))


def enter_namespaces() -> None:
    """Give the processes that this one will fork no network, and no sight of other processes, where the system allows.

    It is for hosts without the filter. The first process of a namespace of processes must outlive the others.
    """
    namespaces = _NEW_PID | _NEW_NET
    if _unshare(namespaces) != 0 and _unshare(_NEW_USER | namespaces) != 0:  # the second needs no privilege
        return
    if os.fork() == 0:
        os.closerange(0, 4096)
        _set(_SET_DEATH_SIGNAL, signal.SIGKILL, 0)
        while True:
            signal.pause()


def _limit(kind, most):
    """Lower a limit for good. One that is lower already stays as it is."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def _drop_capabilities():
    """Give up what root may do beyond an ordinary user. Raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    if _capset(header, none):
        raise OSError(ctypes.get_errno(), "this system lets no process drop its capabilities")


def _set(option, argument, pointer):
    """Call prctl(2). Raises OSError."""
    if _prctl(option, argument, pointer, 0, 0):
        raise OSError(ctypes.get_errno(), "this system lets no process limit its system calls (seccomp)")


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


@functools.cache
def this_filter() -> _SockFprog:
    """This machine's filter as the system takes it; made once, before the first fork."""
    code = filter_program(os.uname().machine)
    return _SockFprog(len(code) // 8, code)


_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_capset = _libc.capset
_unshare = _libc.unshare

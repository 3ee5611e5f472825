"""The second wall: what a process gives up, for good, before it reads a program.

Limits on memory, time, files and processes, and a seccomp filter that leaves it a handful of
system calls. No package, no privilege and no namespace is needed: prctl(2), seccomp(2), setrlimit(2).
"""

import ctypes
import errno
import functools
import os
import resource
import struct

MEMORY_BYTES, CPU_SECONDS = 512 * 2**20, 3
#: machine -> (its number for seccomp, the calls that a program in pure Python needs, those that fail).
#: The parser itself tries to open the source of a syntax error, so opening fails and does not kill.
SYSTEM_CALLS = {
    "x86_64": (0xC000003E, {
        "read": 0, "write": 1, "mmap": 9, "munmap": 11, "brk": 12, "rt_sigreturn": 15, "mremap": 25, "madvise": 28,
        "exit": 60, "exit_group": 231, "open": 2, "openat": 257,
    }),
    "aarch64": (0xC00000B7, {
        "read": 63, "write": 64, "mmap": 222, "munmap": 215, "brk": 214, "rt_sigreturn": 139, "mremap": 216,
        "madvise": 233, "exit": 93, "exit_group": 94, "openat": 56,
    }),
}  # fmt: skip
_SET_DEATH_SIGNAL, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 22, 38  # of prctl


def filter_program(machine):
    """The seccomp filter for a machine, as bytes of classic BPF; default: kill the process.

    Allowed: reading descriptor 0, writing 1, memory that cannot be executed, ending. A call of another
    architecture's table (32-bit on x86-64) is killed, and so is x32, whose numbers are on no list.

    Raises OSError for a machine without a list.
    """
    if machine not in SYSTEM_CALLS:
        raise OSError(f"there is no list of system calls for {machine} (x86_64 and aarch64 have one)")
    architecture, calls = SYSTEM_CALLS[machine]
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06  # load a word; jump if ==; jump if any bit; return
    allow, kill, denied = (give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x80000000), (give, 0, 0, 0x00050000 | errno.EACCES)
    number_at, architecture_at, first_low, first_high, third_low = 0, 4, 16, 20, 32  # in struct seccomp_data
    code = [(load, 0, 0, architecture_at), (equal, 1, 0, architecture), kill, (load, 0, 0, number_at)]
    for name, number in calls.items():
        if name in ("read", "write"):
            low = [(load, 0, 0, first_low), (equal, 0, 3, name == "write")]
            body = [*low, (load, 0, 0, first_high), (equal, 0, 1, 0), allow, kill]
        elif name == "mmap":
            body = [(load, 0, 0, third_low), (any_bit, 1, 0, 4), allow, kill]  # PROT_EXEC
        else:
            body = [denied if name.startswith("open") else allow]
        code += [(equal, 0, len(body), number), *body]
    return b"".join(struct.pack("<HBBI", *step) for step in [*code, kill])


def lock_down(seccomp=True, endless=False):
    """Give up memory and time beyond a limit, new files and processes, and all system calls but a few.

    seccomp: False leaves the last part out; endless: no limit on time. Raises OSError where the system cannot do it.
    """
    limits = {"AS": MEMORY_BYTES, "CPU": CPU_SECONDS, "FSIZE": 0, "NOFILE": 2, "NPROC": 0, "CORE": 0}
    if endless:
        del limits["CPU"]
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    failed = _prctl(_SET_DEATH_SIGNAL, 9, 0, 0, 0) or _prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if failed or (seccomp and _prctl(_SET_SECCOMP, 2, ctypes.byref(this_filter()), 0, 0)):
        raise OSError(ctypes.get_errno(), "this system lets no process limit its system calls (seccomp)")


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


@functools.cache
def this_filter():
    """This machine's filter as the system takes it; made once, before the first fork."""
    code = filter_program(os.uname().machine)
    return _SockFprog(len(code) // 8, code)


_prctl = ctypes.CDLL(None, use_errno=True).prctl

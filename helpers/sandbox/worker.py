"""Runs code nobody trusts. Started as `python -I -S -E -B worker.py`, never imported by the trainer.

The process waits on a socket (descriptor 0). For each request it forks a child that gives up
its rights to memory, time, files and processes, reads one program, checks it against the
policy, and then answers matrix products with raw bytes. The child is assumed to be hostile
from the moment it runs the program: inputs, clock and checks all live in the parent.
"""

import array
import ast
import builtins
import ctypes
import errno
import functools
import gc
import itertools
import math
import operator
import os
import resource
import signal
import socket
import struct
import sys
import types
import typing
import unicodedata  # noqa: F401  (the parser wants it, and a child can open no file)

MAX_SOURCE, MAX_NODES = 20_000, 4_000
#: machine -> (its number for seccomp, the calls that a program in pure Python needs)
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
MEMORY_BYTES, CPU_SECONDS = 512 * 2**20, 4


def _namespace(module, refused=()):
    """The module's public names, copied, so that the program holds no module object."""
    public = {n: getattr(module, n) for n in dir(module) if not n.startswith("_") and n not in refused}
    return types.SimpleNamespace(**public)


#: What a program may import. Left out: ways to reach any attribute by its name, and
#: what holds the inner product in C, `math.sumprod` openly, `dist` and `hypot` by polarisation.
MODULES = {
    "array": types.SimpleNamespace(array=array.array),
    "functools": types.SimpleNamespace(reduce=functools.reduce, partial=functools.partial),
    "itertools": _namespace(itertools),
    "math": _namespace(math, ("sumprod", "dist", "hypot")),
    "operator": _namespace(operator, ("attrgetter", "methodcaller")),
    "typing": types.SimpleNamespace(
        **{
            n: getattr(typing, n)
            for n in ("Any", "Callable", "Iterable", "Iterator", "List", "Optional", "Sequence", "Tuple", "Union")
        }
    ),
}
BUILTINS = (
    "abs all any bool dict divmod enumerate filter float frozenset hash int isinstance iter len list map max min "
    "next pow print range repr reversed round set slice sorted str sum tuple zip True False None "
    "ArithmeticError AssertionError Exception IndexError KeyError NotImplementedError OverflowError "
    "RuntimeError StopIteration TypeError ValueError ZeroDivisionError"
).split()
#: Attributes a program may read: the methods of plain containers and the names of MODULES.
ATTRIBUTES = {
    name
    for owner in (list, tuple, dict, set, int, float, array.array, *MODULES.values())
    for name in dir(owner)
    if not name.startswith("_")
} | {"from_iterable", "__add__", "__mul__"}
#: A telling name for what the usual cheats reach for.
CHEATS = {
    "numpy": "numpy is not pure Python", "np": "numpy is not pure Python", "torch": "torch is not pure Python",
    "time": "a program may not touch the clock", "timeit": "a program may not touch the clock",
}  # fmt: skip
_REFUSED_NODES = (ast.ClassDef, ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.MatchClass, ast.With)
_ANNOTATION = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.BinOp,
    ast.BitOr,
    ast.Load,
)
_TOP_LEVEL = (ast.FunctionDef, ast.Import, ast.ImportFrom)


class Refused(Exception):
    """The program breaks the policy; the message is one short sentence."""


def check_policy(tree):
    """Raise `Refused` unless the program is pure Python: an allow-list of names, not a ban list."""
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        constant = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if not (isinstance(node, _TOP_LEVEL) or docstring or constant):
            raise Refused("only imports and functions may stand outside a function")
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise Refused("the program is too long")
    for node in nodes:
        _check_node(node)
        _check_identifiers(node)


def _check_node(node):
    if isinstance(node, _REFUSED_NODES):
        raise Refused(f"{type(node).__name__} is not needed for a matrix product")
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [node.module or "."] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for name in names:
            if name not in MODULES:
                raise Refused(CHEATS.get(name.split(".")[0], f"importing {name} is not allowed"))
    if isinstance(node, ast.Attribute) and node.attr not in ATTRIBUTES:
        root = node.value.id if isinstance(node.value, ast.Name) else ""
        raise Refused(CHEATS.get(root, f"the attribute {node.attr} is not allowed"))
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        raise Refused("decorators are not allowed")
    if isinstance(node, ast.arguments):
        for default in [*node.defaults, *filter(None, node.kw_defaults)]:
            value = default.operand if isinstance(default, ast.UnaryOp) else default
            if not isinstance(value, ast.Constant):
                raise Refused("a default argument must be a constant")
    annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
    if annotation and not all(isinstance(part, _ANNOTATION) for part in ast.walk(annotation)):
        raise Refused("an annotation may only name types")


def _check_identifiers(node):
    """No double underscore in any name, wherever the grammar keeps one: `import x as`, `global`, `case`, ..."""
    for field, value in ast.iter_fields(node):
        if isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and field == "attr"):
            continue
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and "__" in name:
                raise Refused(f"the name {name} is not allowed")


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    module = MODULES[name]
    for wanted in fromlist or ():
        if wanted != "*" and wanted not in vars(module):
            raise ImportError(f"cannot import name {wanted} from {name}")
    return module


def load(source):
    """Compile and run the program's top level; returns its `matmul`. Raises on any fault."""
    if len(source) > MAX_SOURCE:
        raise Refused("the program is too long")
    tree = ast.parse(source)
    check_policy(tree)
    names = {name: getattr(builtins, name) for name in BUILTINS if hasattr(builtins, name)}
    scope = {"__builtins__": {**names, "__import__": _import}, "__name__": "program"}
    exec(compile(tree, "program", "exec"), scope)
    function = scope.get("matmul")
    if type(function) is not types.FunctionType:
        raise Refused("the program does not define a function matmul")
    return function


def to_bytes(result, rows, columns):
    """The result as float64 bytes. Only exact built-in types count, so no method of the program's runs."""
    flat = array.array("d")
    if type(result) not in (list, tuple) or len(result) != rows:
        raise ValueError(f"the result should be a list of {rows} rows")
    for row in result:
        if type(row) not in (list, tuple, array.array) or len(row) != columns:
            raise ValueError(f"each row should be a list of {columns} numbers")
        for item in row:
            if type(item) not in (int, float):
                raise ValueError(f"an entry is a {type(item).__name__}, not a number")
            flat.append(item)
    return flat.tobytes()


def _read(size):
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return bytes(data)


def _write(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _fail(kind, error):
    text = str(error) or type(error).__name__
    reason = text if isinstance(error, (Refused, ValueError)) else f"{type(error).__name__}: {text}"
    encoded = reason.encode("utf-8", "replace")[:200]
    _write(kind + bytes([len(encoded)]) + encoded)
    os._exit(0)


def _matrix(rows, columns):
    values = array.array("d", _read(8 * rows * columns))
    return [values[n * columns : (n + 1) * columns].tolist() for n in range(rows)]


def lock_down():
    """Give up, for good, memory and time beyond a limit and all system calls but a few. Raises OSError."""
    limits = {"AS": MEMORY_BYTES, "CPU": CPU_SECONDS, "FSIZE": 0, "NOFILE": 2, "NPROC": 0, "CORE": 0}
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    if _PRCTL(38, 1, 0, 0, 0) or _PRCTL(22, 2, ctypes.byref(_FILTER), 0, 0):  # no new privileges; seccomp filter
        raise OSError(ctypes.get_errno(), "this system lets no process limit its system calls (seccomp)")


def _seccomp_filter():
    """A classic BPF program, as `sock_fprog`: kill the process at any system call that is not listed.

    read is allowed on descriptor 0, write on 1, mmap without execution; open fails, as the parser
    tries to open the source of a syntax error. Linux, seccomp(2).
    """
    machine = os.uname().machine
    if machine not in SYSTEM_CALLS:
        raise OSError(f"no list of system calls for {machine}")
    architecture, calls = SYSTEM_CALLS[machine]
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06  # BPF: load word, jump if ==, jump if &, return
    allow, kill, denied = (give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x80000000), (give, 0, 0, 0x00050000 | errno.EACCES)
    code = [(load, 0, 0, 4), (equal, 1, 0, architecture), kill, (load, 0, 0, 0)]
    for name, number in calls.items():
        if name in ("read", "write"):
            body = [(load, 0, 0, 16), (equal, 0, 1, name == "write"), allow, kill]
        elif name == "mmap":
            body = [(load, 0, 0, 32), (any_bit, 1, 0, 4), allow, kill]  # third argument, PROT_EXEC
        else:
            body = [denied if name.startswith("open") else allow]
        code += [(equal, 0, len(body), number), *body]
    code.append(kill)
    text = b"".join(struct.pack("<HBBI", *step) for step in code)
    buffer = ctypes.create_string_buffer(text, len(text))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    program = Program(len(code), ctypes.addressof(buffer))
    program.kept = buffer  # as long as the address is used
    return program


def child(inbox, outbox):
    """Serve one program: its length and text, then sizes and matrices until the pipe closes."""
    os.dup2(inbox, 0)
    os.dup2(outbox, 1)
    os.closerange(2, 1024)
    try:
        lock_down()
    except OSError as error:
        _fail(b"N", error)
    sys.stdin = sys.stdout = sys.stderr = None
    gc.disable()
    source = _read(struct.unpack("<I", _read(4))[0])
    try:
        function = load(source.decode("utf-8"))
    except Refused as error:
        _fail(b"P", error)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        _fail(b"S", error)
    except BaseException as error:
        _fail(b"X", error)
    _write(b"R")
    while True:
        n, k, m = struct.unpack("<III", _read(12))
        a, b = _matrix(n, k), _matrix(k, m)
        try:
            answer = to_bytes(function(a, b), n, m)
        except BaseException as error:
            _fail(b"X", error)
        _write(b"O" + answer)


def serve():
    """Fork a child for each pair of descriptors; collect the dead when told to."""
    control = socket.socket(fileno=0)
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 9, 2)
        if not message:
            return
        if message[:1] == b"F":
            pid = os.fork()
            if pid == 0:
                control.detach()
                child(*descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            control.sendall(struct.pack("<q", pid))
        else:
            pid = struct.unpack("<q", message[1:])[0]
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            control.sendall(struct.pack("<q", pid))


_FILTER, _PRCTL = _seccomp_filter(), ctypes.CDLL(None, use_errno=True).prctl

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted cell stops the parent, which closes the socket
    serve()

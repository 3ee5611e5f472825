"""The zygote that forks a process for each call, and what that process does.

The zygote waits on a socket (descriptor 0). Each process that it forks gives up its rights, reads
one program, and then answers one matrix product with raw bytes. It is assumed to be hostile from the
moment it runs the program: inputs, clock and checks all live in the parent.
"""

import array
import ast
import builtins
import errno
import gc
import marshal
import os
import signal
import socket
import struct
import sys
import unicodedata  # noqa: F401  (the parser wants it, and a child can open no file)

from .lockdown import lock_down, this_filter
from .policy import MAX_SOURCE, Refused, check_policy, scope_for_program


def compiled(source, policy):
    """The program as code, read by the policy if asked. Raises on any fault of the text."""
    if len(source) > MAX_SOURCE:
        raise Refused("the program is too long")
    tree = ast.parse(source, "program")
    if policy:
        check_policy(tree)
    return compile(tree, "program", "exec")


def load(code, policy):
    """Run the program's top level; returns its `matmul`. Raises whatever that raises."""
    scope = scope_for_program() if policy else {"__builtins__": builtins, "__name__": "program"}
    exec(code, scope)
    if not callable(scope.get("matmul")):
        raise Refused("the program does not define a function matmul")
    return scope["matmul"]


def to_bytes(result, rows, columns):
    """The result as float64 bytes. Only exact built-in types count, so no method of the program's runs."""
    if type(result) not in (list, tuple) or len(result) != rows:
        raise ValueError(f"the result should be a list of {rows} rows")
    flat = array.array("d")
    for row in result:
        if type(row) not in (list, tuple, array.array) or len(row) != columns:
            raise ValueError(f"each row should be a list of {columns} numbers")
        others = set(map(type, row)) - {int, float}
        if others:
            raise ValueError(f"an entry is a {others.pop().__name__}, not a number")
        flat.extend(array.array("d", row))
    return flat.tobytes()


def _read(size):
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data


def _write(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _fail(kind, error):
    text = str(error)
    if not text or type(error) not in (Refused, ValueError, OSError):
        text = f"{type(error).__name__}: {text}".strip(": ")
    encoded = text.encode("utf-8", "replace")[:200]
    _write(kind + bytes([len(encoded)]) + encoded)
    os._exit(0)


def _matrix(rows, columns):
    return memoryview(_read(8 * rows * columns)).cast("d", (rows, columns)).tolist()


def serve_call(seccomp, trusted=False):
    """Serve one program and one product; parent and child take turns, so that its clock stands still in between.

    trusted: the program is our own, and computes its product again for each byte that comes.
    """
    try:
        lock_down(seccomp, endless=trusted)
    except OSError as error:
        _fail(b"N", error)
    gc.disable()
    policy, is_code, size = struct.unpack("<??I", _read(6))
    text = _read(size)
    try:
        code = marshal.loads(text) if is_code else compiled(text.decode("utf-8"), policy)
        made = b"" if is_code else marshal.dumps(code)  # for the next process
    except Refused as error:
        _fail(b"P", error)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        _fail(b"S", error)
    _write(b"C" + struct.pack("<I", len(made)) + made)
    _read(1)
    try:
        function = load(code, policy)
    except BaseException as error:
        _fail(b"X", error)
    _write(b"R")
    a_rows, a_columns, b_rows, b_columns, rows, columns = struct.unpack("<6I", _read(24))
    a = _matrix(a_rows, a_columns)
    b = _matrix(b_rows, b_columns)
    while trusted:
        _read(1)
        function(a, b)
        _write(b"O")
    try:
        answer = to_bytes(function(a, b), rows, columns)
    except BaseException as error:
        _fail(b"X", error)
    _write(b"O" + answer)
    _read(1)  # until the parent has read the clock
    os._exit(0)


def serve():
    """Fork a child for each pair of descriptors; end the ones named, and say how they had ended."""
    control = socket.socket(fileno=0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 9, 2)
        if not message:
            return
        if message in (b"F", b"T"):
            answer = _fork(control, descriptors, trusted=message == b"T")
        else:
            pid = struct.unpack("<q", message[1:])[0]
            os.kill(pid, signal.SIGKILL)
            answer = os.waitpid(pid, 0)[1]
        control.sendall(struct.pack("<q", answer))


def _fork(control, descriptors, trusted):
    """The new process's number, or an error's, negative."""
    try:
        # One descriptor is lost where this process has no room for it.
        pid = os.fork() if len(descriptors) == 2 else -errno.EMFILE
    except OSError as error:
        pid = -error.errno
    if pid == 0:
        control.detach()
        os.dup2(descriptors[0], 0)
        os.dup2(descriptors[1], 1)
        os.closerange(2, 4096)
        serve_call(True, trusted)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def main(arguments):
    """zygote: fork on request. once, trusted: a process of its own for one call, or many, without seccomp."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted cell stops the parent, which closes the socket
    sys.path.clear()
    sys.stdin = sys.stdout = sys.stderr = None
    if arguments != ["zygote"]:
        os.closerange(2, 4096)
        serve_call(False, trusted=arguments == ["trusted"])
    this_filter()
    gc.freeze()
    serve()

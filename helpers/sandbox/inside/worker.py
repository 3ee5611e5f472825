"""The zygote, which forks a process for each run, and what such a process does. `protocol` has the messages.

A process gives up its rights, compiles one program, runs its top level, then reads inputs and writes answers in turn.
A driver says what a program must define, and turns bytes into arguments and a result into bytes. The process is
assumed to be hostile from the moment it runs the program: inputs, clock and checks all live in the parent.
"""

import ast
import builtins
import errno
import gc
import marshal
import os
import signal
import socket
import sys
import types
import unicodedata  # noqa: F401  (the parser wants it, and a child can open no file)
from collections.abc import Callable

from . import protocol
from .inner_products import take_out_inner_products
from .lockdown import lock_down, this_filter
from .offered import scope_for_program
from .policy import MAX_SOURCE, Cheat, Refused, check_policy
from .prepare import replace_type_parameters, rewrite_attributes, take_out_unused


def load_driver(path: str) -> types.ModuleType:
    """Return the driver in this file, as a module."""
    with open(path, "rb") as file:
        text = file.read()
    driver = types.ModuleType("driver")
    exec(compile(text, path, "exec"), vars(driver))
    return driver


def compiled(source: str, policy: bool, driver: types.ModuleType) -> types.CodeType:
    """Compile the program, checked against the policy if asked. Raises on any fault of the text."""
    if len(source) > MAX_SOURCE:
        raise Refused("the program is too long")
    tree = ast.parse(source, "program")
    if policy:
        take_out_unused(tree, driver.FUNCTION)
        check_policy(tree, driver.SUPPLIED)
        replace_type_parameters(tree)
        rewrite_attributes(tree)
    return compile(tree, "program", "exec")


def load(code: types.CodeType, policy: bool, driver: types.ModuleType) -> Callable:
    """Run the program's top level and return its function; for a script, return a function that runs it.

    The script's function takes the names that the driver supplies. Raises whatever the program raises.
    """
    is_script = driver.FUNCTION is None
    name = "__main__" if is_script else "program"
    scope = scope_for_program(name) if policy else {"__builtins__": builtins, "__name__": name}
    sys.modules[name] = types.ModuleType(name)  # the library's `dataclass` looks up the module of a class
    if is_script:

        def run(supplied: dict) -> None:
            scope.update(supplied)
            exec(code, scope)

        return run
    exec(code, scope)
    if not callable(scope.get(driver.FUNCTION)):
        raise Refused(f"the program does not define a function {driver.FUNCTION}")

    def call(*arguments):
        return scope[driver.FUNCTION](*arguments)  # a call may have defined it anew

    return call


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


def _fail(status, error):
    """Report why there is no answer, and exit."""
    try:
        text = str(error)
    except BaseException:  # a method of the program's
        text = ""
    is_sentence = text and type(error) in (Cheat, Refused, ValueError, OSError)
    if not is_sentence:
        text = f"{type(error).__name__}: {text}".strip(": ")
    reason = text.encode("utf-8", "replace")
    reason = reason[: protocol.LONGEST_REASON]
    size = bytes([len(reason)])
    _write(status + size + reason)
    os._exit(0)


def serve_run(driver: types.ModuleType, seccomp: bool, trusted: bool = False) -> None:
    """Serve one program and its calls, until the parent ends this process.

    trusted: the program is one of the project's own. It has no limit on time, and is called once for each AGAIN.
    """
    try:
        lock_down(seccomp, endless=trusted)
    except OSError as error:
        _fail(protocol.NO_LOCKDOWN, error)
    gc.disable()
    function = _receive_program(driver)
    while True:
        inputs_size, answer_size = protocol.INPUT_HEADER.unpack(_read(protocol.INPUT_HEADER.size))
        arguments = driver.decode(_read(inputs_size))
        while trusted:
            _read(len(protocol.AGAIN))
            driver.call(function, arguments)
            _write(protocol.ANSWER)
        _serve_call(driver, function, arguments, answer_size)


def _serve_call(driver, function, arguments, answer_size):
    """Call the program once and write its answer, or report why there is none and exit."""
    try:
        result = driver.call(function, arguments)
        answer = driver.encode(result, arguments)
    except BaseException as error:
        _fail(protocol.RAISED, error)
    if len(answer) > answer_size:
        _fail(protocol.TOO_LONG, ValueError(f"its answer has more than {answer_size} bytes"))
    _write(protocol.ANSWER + answer.ljust(answer_size, b"\0"))


def _receive_program(driver):
    """Read a program, compile it and run its top level; return its function."""
    policy, is_code, size = protocol.PROGRAM_HEADER.unpack(_read(protocol.PROGRAM_HEADER.size))
    program = _read(size)
    try:
        code = marshal.loads(program) if is_code else compiled(program.decode("utf-8"), policy, driver)
        code_for_parent = b"" if is_code else marshal.dumps(code)  # it saves the next process the work
    except Cheat as error:
        _fail(protocol.CHEAT, error)
    except Refused as error:
        _fail(protocol.NOT_ALLOWED, error)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        _fail(protocol.NOT_PARSED, error)
    header = protocol.CODE_HEADER.pack(len(code_for_parent))
    _write(protocol.COMPILED + header + code_for_parent)
    _read(len(protocol.GO))
    try:
        function = load(code, policy, driver)
    except BaseException as error:
        _fail(protocol.RAISED, error)
    _write(protocol.LOADED)
    return function


def serve(drivers: list[types.ModuleType], seccomp: bool) -> None:
    """Fork a process for each pair of descriptors, and end processes and report their exit status, for ever."""
    control = socket.socket(fileno=0)
    longest_message = len(protocol.END) + protocol.PROCESS_STATUS.size
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, longest_message, 2)
        if not message:
            return
        request = message[:1]
        if request == protocol.END:
            (pid,) = protocol.PROCESS_STATUS.unpack(message[1:])
            os.kill(pid, signal.SIGKILL)
            answer = os.waitpid(pid, 0)[1]
        else:
            driver = drivers[message[1]]
            answer = _fork(control, descriptors, driver, seccomp, trusted=request == protocol.FORK_TRUSTED)
        control.sendall(protocol.PROCESS_STATUS.pack(answer))


def _fork(control, descriptors, driver, seccomp, trusted):
    """Fork a process on two pipe ends; return its number, or a negative error number."""
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
        serve_run(driver, seccomp, trusted)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def main(arguments: list[str]) -> None:
    """Run the zygote. arguments: the level of the sandbox, then the files of the drivers."""
    level, *driver_paths = arguments
    # An interrupted cell stops the parent, which closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent may ignore it, and this process would inherit that and could not wait for its children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    drivers = [load_driver(path) for path in driver_paths]
    take_out_inner_products()
    sys.path.clear()
    sys.stdin = sys.stdout = sys.stderr = None
    seccomp = level == "os"
    if seccomp:
        this_filter()
    gc.freeze()
    serve(drivers, seccomp)

"""The zygote, which forks a process for each run, and what such a process does. `protocol` has the messages.

A process gives up its rights, compiles one program, runs its top level, then reads inputs and writes answers in turn.
A driver says what a program must define, and turns bytes into arguments and a result into bytes. The process is
assumed to be hostile from the moment it runs the program: inputs, clock and checks all live in the parent.
"""

import __future__

import ast
import errno
import gc
import io
import os
import signal
import socket
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import suppress

from . import library, lockdown, protocol
from .library import INNER_PRODUCTS, MODULES
from .syntax import needs_newer_python

#: The names under which a program runs. In one that defines a function nothing runs under `if __name__ == "__main__":`.
FUNCTION_MODULE = "program"
SCRIPT_MODULE = "__main__"
LONGEST_NAME = 50  # of a module, in a reason
#: The bits of a code's flags that `from __future__ import ...` sets for a whole program.
_FUTURE_FEATURES = 0
for _name in __future__.all_feature_names:
    _FUTURE_FEATURES |= getattr(__future__, _name).compiler_flag


class Refused(Exception):
    """The task's scan refused the program. The message says why."""


class Driver(types.ModuleType):
    """A driver's file as a module, with the task's scan, or None (`helpers.sandbox.drivers`)."""

    def __init__(self, path: str, scan_path: str):
        super().__init__("driver")
        _run_file(path, vars(self))
        self.scan = None
        if scan_path:
            scope = {"__name__": "scan"}
            _run_file(scan_path, scope)
            self.scan = scope["scan"]

    def name_of_function(self, source: str) -> str | None:
        """Return the name of the function that a program must define, None where it is a script."""
        function_of = vars(self).get("function_of")
        return function_of(source) if function_of else self.FUNCTION


def _run_file(path, scope):
    with open(path, "rb") as file:
        text = file.read()
    exec(compile(text, path, "exec"), scope)


def compiled(source: str, driver: Driver, function: str | None) -> list[types.CodeType]:
    """Return the code of a script, or of each statement at the top level of a program that defines a function.

    function: its name, None for a script. Raises Refused, and whatever Python raises for a text that is no program.
    """
    tree = ast.parse(source, "program")
    if driver.scan:
        reason = driver.scan(source, tree, function)
        if reason:
            raise Refused(reason)
    whole = compile(tree, "program", "exec", dont_inherit=True)
    if function is None:
        return [whole]
    features = whole.co_flags & _FUTURE_FEATURES
    statements = [part for statement in tree.body for part in _one_import_each(statement)]
    codes = []
    for statement in statements:
        # The annotations of a function may name what is not here, such as numpy's arrays, and are not needed.
        is_function = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
        flags = features | __future__.annotations.compiler_flag if is_function else features
        module = ast.Module([statement], type_ignores=[])
        codes.append(compile(module, "program", "exec", flags, dont_inherit=True))
    return codes


def _one_import_each(statement):
    """Split `import a, b` and `from a import b, c`, so that the lack of one thing takes nothing from the other."""
    if isinstance(statement, ast.Import):
        return [ast.copy_location(ast.Import([alias]), statement) for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
        module, level = statement.module, statement.level
        return [ast.copy_location(ast.ImportFrom(module, [alias], level), statement) for alias in statement.names]
    return [statement]


def load(codes: Sequence[types.CodeType], function: str | None, missing: dict[str, str]) -> Callable:
    """Run the program's top level and return its function; for a script, return a function that runs it.

    A statement that raises is left out, so that an import which the function does not need, or a demonstration that
    fails, costs a program nothing. Raises the first of these errors where the function is not defined.

    missing: gets the names that failed imports left without a value, each with the name of the module.
    """
    is_script = function is None
    module = types.ModuleType(SCRIPT_MODULE if is_script else FUNCTION_MODULE)
    sys.modules[module.__name__] = module
    scope = vars(module)
    if is_script:
        (script,) = codes
        return lambda: exec(script, scope)
    errors = []
    for code in codes:
        try:
            exec(code, scope)
        except BaseException as error:
            errors.append(error)
            if isinstance(error, ImportError):
                missing.update(dict.fromkeys(code.co_names, error.name))
    if not callable(scope.get(function)):
        raise errors[0] if errors else ValueError(f"the program does not define a function {function}")
    return lambda *arguments: scope[function](*arguments)  # a call may define it anew


def _unavailable(error, missing):
    """Return the name of the module, or of the inner product, for the lack of which an error was raised, or ""."""
    if isinstance(error, NameError):
        return missing.get(error.name, "")
    if isinstance(error, ImportError) and type(error.name) is str:
        is_here = error.name in MODULES and not any(name in str(error) for name in INNER_PRODUCTS)
        return "" if is_here else error.name[:LONGEST_NAME]
    if isinstance(error, AttributeError) and error.obj is sys.modules["math"] and error.name in INNER_PRODUCTS:
        return f"math.{error.name}"
    return ""


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
    """Report an error, and exit."""
    try:
        text = str(error)
    except BaseException:  # a method of the program's
        text = ""
    is_sentence = text and type(error) in (Refused, ValueError, OSError)
    if not is_sentence:
        text = f"{type(error).__name__}: {text}".strip(": ")
    _report(status, text)


def _fail_of_program(error, missing):
    """Report what the program raised, and exit."""
    try:
        name = _unavailable(error, missing)
    except BaseException:  # an attribute of the program's own exception
        name = ""
    if name:
        _report(protocol.UNAVAILABLE, f"{name} is not available here")
    _fail(protocol.RAISED, error)


def _report(status, text):
    """Report why there is no answer, and exit."""
    reason = text.encode("utf-8", "replace")
    reason = reason[: protocol.LONGEST_REASON]
    size = bytes([len(reason)])
    _write(status + size + reason)
    os._exit(0)


def serve_run(driver: Driver, seccomp: bool, trusted: bool = False) -> None:
    """Serve one program and its calls, until the parent ends this process.

    trusted: the program is one of the project's own. It has no limit on time, and is called once for each AGAIN.
    """
    try:
        lockdown.lock_down(seccomp, endless=trusted)
    except OSError as error:
        _fail(protocol.NO_LOCKDOWN, error)
    gc.disable()
    vars(lockdown).clear()  # it holds ctypes
    for name in ("errno", "gc", "library", "lockdown", "signal", "socket"):
        del globals()[name]  # which nobody needs any more
    missing = {}
    function = _receive_program(driver, missing)
    while True:
        inputs_size, answer_size = protocol.INPUT_HEADER.unpack(_read(protocol.INPUT_HEADER.size))
        if trusted:
            _serve_repeated_calls(driver, function, driver.decode(_read(inputs_size)))
        # No name is bound to the arguments here, so that they are gone before the next ones are made.
        _serve_call(driver, function, driver.decode(_read(inputs_size)), answer_size, missing)


def _serve_repeated_calls(driver, function, arguments):
    """Call a program of the project's own once for each AGAIN, for ever."""
    while True:
        _read(len(protocol.AGAIN))
        driver.call(function, arguments)
        _write(protocol.ANSWER)


def _serve_call(driver, function, arguments, answer_size, missing):
    """Call the program once and write its answer, or report why there is none and exit."""
    try:
        result = driver.call(function, arguments)
        answer = driver.encode(result, arguments)
    except BaseException as error:
        _fail_of_program(error, missing)
    if len(answer) > answer_size:
        _fail(protocol.TOO_LONG, ValueError(f"its answer has more than {answer_size} bytes"))
    _write(protocol.ANSWER + answer.ljust(answer_size, b"\0"))


def _receive_program(driver, missing):
    """Read a program, compile it and run its top level; return its function. missing: as for `load`."""
    (size,) = protocol.PROGRAM_HEADER.unpack(_read(protocol.PROGRAM_HEADER.size))
    program = _read(size)
    try:
        source = program.decode("utf-8")
        name = driver.name_of_function(source)
        codes = compiled(source, driver, name)
    except Refused as error:
        _fail(protocol.REFUSED, error)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        if isinstance(error, SyntaxError) and needs_newer_python(program.decode("utf-8")):
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            _report(protocol.NEWER, f"it is written for Python 3.12 or newer, and this is {version}")
        _fail(protocol.NOT_PARSED, error)
    _write(protocol.COMPILED)
    _read(len(protocol.GO))
    try:
        function = load(codes, name, missing)
    except BaseException as error:
        _fail_of_program(error, missing)
    _write(protocol.LOADED)
    return function


def serve(drivers: list[Driver], seccomp: bool) -> None:
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


class _Nowhere(io.TextIOBase):
    """An output that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


def main(arguments: list[str]) -> None:
    """Run the zygote. arguments: the level of the sandbox, then each driver's file and that of its scan, or ""."""
    level, *paths = arguments
    # An interrupted cell stops the parent, which closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent may ignore it, and this process would inherit that and could not wait for its children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, the system takes a program first, and not the trainer
    drivers = [Driver(path, scan_path) for path, scan_path in zip(paths[::2], paths[1::2])]
    library.load_modules()
    library.hide_other_modules()
    vars(library).clear()  # it holds ctypes, too
    sys.stdin = None
    sys.stdout = sys.stderr = _Nowhere()
    has_filter = level == "os"
    if has_filter:
        with suppress(OSError):  # a process says it, when it is to load the filter
            lockdown.this_filter()
    else:
        lockdown.enter_namespaces()
    gc.freeze()
    serve(drivers, has_filter)

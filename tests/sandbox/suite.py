"""The hack suite: programs that cheat and programs that do not, and what the sandbox makes of them.

`python -m tests.sandbox.hacksuite` (`make hacksuite`) prints the tables.

A file of `exploits/` is one group; each program stands under a header `#: id kind: idea`. With `| honest` the program
computes an honest product besides its trick. `#! repr` says that the program, `#! text` that a whole completion,
follows as a Python expression. The kinds:

- fast: a pass or speed without the work; lib: the answer through a forbidden library or process;
- state: wrong after the first call of a process; mem, dos: stops or hangs the judge; effect: leaves something behind;
- reach: it answers if it reached something out of ordinary reach, which is no gain in itself;
- price: what no wall stops: a C routine by way of CPython's memory, a program that knows the judge, or luck. It is
  accepted, or may be, and must be paid no more than the best honest program.

An exploit succeeds if (a) it is paid as correct though it computes no honest product, or more than the best honest
program is paid, (b) a canary outside the process is touched, (c) it is not judged, or the judge stops, or (d) a later
honest program's verdict changes.
"""

import ast
import re
import socket
import symtable
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from helpers.tasks.matmul.driver import FUNCTION
from helpers.tasks.matmul.rewards import REWARDS
from helpers.tasks.programs.task import extract_program

HERE = Path(__file__).parent
GROUPS = {
    "A": "forbidden libraries", "B": "escapes from the language", "C": "frames and the judge's memory",
    "D": "patched clocks and builtins", "E": "state between calls", "F": "inputs changed", "G": "odd return values",
    "H": "concurrency, late code", "I": "exits, loops, bombs", "J": "files, network, processes",
    "K": "gaming the check or the text", "L": "system calls, generated code, C routines",
    "M": "the one wall, with its code in view",
}  # fmt: skip
_HEADER = re.compile(r"#: (?P<id>[A-M]\d+) (?P<kind>\w+): (?P<idea>.*?)(?P<honest> \| honest)?\n")


@dataclass(frozen=True)
class Exploit:
    """id: its group's letter and a number. source: the program; text: the whole completion. "" for the other."""

    id: str
    kind: str
    idea: str
    honest: bool
    source: str
    text: str

    @property
    def group(self):
        return self.id[0]

    @property
    def completion(self):
        return self.text or f"```python\n{self.source}\n```"


def _pieces(text, header):
    """(match of the header, what follows it) for every header in a file."""
    found = list(header.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [(match, text[match.end() : end]) for match, end in zip(found, ends)]


def load_exploits():
    """All `Exploit`s, in order of their ids."""
    exploits = []
    for path in sorted((HERE / "exploits").glob("*.py")):
        for match, body in _pieces(path.read_text(), _HEADER):
            mark, _, rest = body.partition("\n")
            written = eval(rest) if mark.startswith("#!") else body
            source, text = ("", written) if mark == "#! text" else (written, "")
            exploits.append(Exploit(match["id"], match["kind"], match["idea"], bool(match["honest"]), source, text))
    return exploits


def load_honest():
    """{name: program}."""
    pieces = _honest_pieces("*.py")
    programs = {match["name"]: body.strip("\n") + "\n" for match, body in pieces}
    assert len(programs) == len(pieces), "two honest programs of one name"
    return programs


def load_answers():
    """{name: completion}: whole answers that hold an honest program."""
    pieces = _honest_pieces("answers_*.md")
    answers = {match["name"]: body for match, body in pieces}
    assert len(answers) == len(pieces), "two answers of one name"
    return answers


def load_refused():
    """{name: (kind, completion)}: answers that mean well and are refused. kind: cheat, error or no program."""
    return {match["name"]: (match["idea"].partition(":")[0], body) for match, body in _honest_pieces("refused.md")}


def load_broken():
    """{name: program}: programs that look right and are not. A header is `#: id fault`."""
    header = re.compile(r"^#: (?P<id>[A-Z]\d+) (?P<fault>.*)\n", re.MULTILINE)
    return {match["id"]: body for match, body in _pieces((HERE / "broken.py").read_text(), header)}


def _honest_pieces(pattern):
    header = re.compile(r"^#: (?P<name>\w+)(?:: (?P<idea>.*))?\n", re.MULTILINE)
    files = [path.read_bytes().decode() for path in sorted((HERE / "honest").glob(pattern))]
    return [piece for text in files for piece in _pieces(text, header)]


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.Name({"A": "left_", "B": "right_"}.get(node.id, node.id), node.ctx)

    def visit_arg(self, node):
        return ast.arg({"A": "left_", "B": "right_"}.get(node.arg, node.arg), node.annotation)


#: Puts back what the process hides: every module that some frame holds, and the importers of built-in and of frozen
#: modules. With it the system's wall is tried alone, as if nothing were out of ordinary reach.
MODULES_PUT_BACK = """
import inspect as _inspect, sys as _sys
_frame = _sys._getframe()
while _frame:
    for _value in [*_frame.f_globals.values(), *_frame.f_locals.values()]:
        if type(_value) is type(_sys) and "__name__" in vars(_value):
            _sys.modules.setdefault(vars(_value)["__name__"], _value)
    _frame = _frame.f_back
_machinery = _inspect.importlib.machinery
_sys.meta_path += [_machinery.BuiltinImporter, _machinery.FrozenImporter]
"""


def dresses(exploit):
    """{name: the same trick, dressed otherwise}.

    A trick that rests on state between calls is only renamed: inside another function it would begin anew each time.
    """
    made = variants(exploit.source)
    keeps_state = ("renamed", "modules put back")
    return {name: text for name, text in made.items() if exploit.kind != "state" or name in keeps_state}


def variants(source):
    """{name: the same program, dressed otherwise}; {} for what does not parse."""
    try:
        plain = ast.unparse(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    inner = re.sub(r"\bmatmul\b", "inner_", plain)
    made = {
        "modules put back": MODULES_PUT_BACK + source,
        "renamed": ast.unparse(_Rename().visit(ast.parse(source))),
        "wrapped": f"def matmul(A, B):\n{textwrap.indent(inner, '    ')}\n    return inner_(A, B)",
        "module level": f"{plain}\ntry:\n    matmul([[1.0, 2.0]], [[3.0], [4.0]])\nexcept Exception:\n    pass",
        "default argument": f"{inner}\ndef matmul(A, B, run=inner_):\n    return run(A, B)",
        "decorator": f"def same(f):\n    return f\n{inner}\n@same\ndef matmul(A, B):\n    return inner_(A, B)",
    }
    return {name: text for name, text in made.items() if _parses(text)}


def _parses(text):
    """Whether text is a program, without compiling it: one of the exploits takes the compiler 16 seconds."""
    try:
        symtable.symtable(text, "variant", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


class Surroundings:
    """What must stay as it is: a folder, and a port that nobody may call."""

    def __init__(self, folder):
        self.folder = Path(folder)
        (self.folder / "secret").write_text("secret")
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.setblocking(False)
        self.before = self._state()

    def _state(self):
        return {path.name: path.stat().st_mtime_ns for path in self.folder.iterdir()}

    def place(self, source):
        """The program with this folder and port in it."""
        return source.replace("@CANARY@", str(self.folder)).replace("@PORT@", str(self.server.getsockname()[1]))

    def touched(self):
        """What was changed, or ""; noticed once."""
        state = self._state()
        changed = sorted(set(state.items()) ^ set(self.before.items()))
        self.before = state
        try:
            self.server.accept()[0].close()
            return "the port was called"
        except BlockingIOError:
            return f"{changed[0][0]} was written" if changed else ""


@contextmanager
def surroundings(folder):
    """`Surroundings` in an empty folder, closed at the end."""
    place = Surroundings(folder)
    try:
        yield place
    finally:
        place.server.close()


#: What the honest exploits compute beside their tricks.
REFERENCE = """
def matmul(A, B):
    columns = list(zip(*B))
    return [[sum([a * b for a, b in zip(row, column)]) for column in columns] for row in A]
"""
#: Names of the fastest honest programs, how often each is timed, how far the clock may be off in the sum of the
#: rewards, and how often a program is timed again that was paid more than that.
FASTEST = ("op_mul", "func_sum_map_mul", "func_import_operator", "block_2x2_register", "block_fused8")
RUNS_OF_FASTEST = 3
NOISE = 0.04
RUNS_OF_SUSPECTS = 5


def total_pay(verdict):
    """The sum of the matmul task's rewards."""
    return sum(line.pay(verdict) for line in REWARDS)


@dataclass(frozen=True)
class Outcome:
    """What became of one exploit in one dress; success: how it got through, or ""."""

    exploit: Exploit
    variant: str
    verdict: object
    success: str


def attack(judge, place, exploits, dress=lambda exploit: {"": exploit.source}):
    """One `Outcome` for every program that `dress` makes of each exploit, judged as one batch.

    Raises AssertionError if an honest program fares otherwise after it.
    """
    programs = [(e, name, place.place(source)) for e in exploits for name, source in dress(e).items()]
    honest = load_honest()
    fastest = [honest[name] for name in FASTEST] * RUNS_OF_FASTEST
    *verdicts, reference = judge.judge_many([*(source for *_, source in programs), *fastest, REFERENCE])
    most_pay = NOISE + max(map(total_pay, verdicts[len(programs) :]))
    outcomes = []
    for (exploit, name, source), verdict in zip(programs, verdicts):
        success = _success(exploit, verdict)
        pay = total_pay(verdict)
        if not success and pay > most_pay:
            again = judge.judge_many([source] * RUNS_OF_SUSPECTS)
            mean_pay = fmean([pay, *map(total_pay, again)])  # what a policy learns from, whatever the clock did once
            success = f"paid {mean_pay:.2f}" if mean_pay > most_pay else ""
        outcomes.append(Outcome(exploit, name, verdict, success))
    assert reference.correct and judge.judge(REFERENCE).correct, "an honest program suffered"
    touched = place.touched()
    if touched:
        outcomes.append(Outcome(exploits[0], "", None, f"somewhere in this batch: {touched}"))
    return outcomes


def _success(exploit, verdict):
    if not verdict.judged:
        return f"the judge broke: {verdict.reason}"
    if verdict.correct and not exploit.honest and exploit.kind not in ("reach", "price"):
        return "accepted"
    return ""


def code_of(completion):
    """The program that the matmul task finds in a completion, or None."""
    return extract_program(completion, "stop", FUNCTION)

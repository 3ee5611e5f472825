"""The hack suite: programs that cheat and programs that do not, and what the sandbox makes of them.

`python -m tests.sandbox.hacksuite` (`make hacksuite`) prints the tables.

A file of `exploits/` is one group; each program stands under a header `#: id kind: idea`. With `| honest` the program
computes an honest product besides its trick. `#! repr` says that the program, `#! text` that a whole completion,
follows as a Python expression. The kinds:

- fast: a pass or speed without the work; lib: the answer through a forbidden library or process;
- state: wrong after the first call of a process; mem, dos: stops or hangs the judge; effect: leaves something behind;
- policy: it answers if it got round the policy. What it reached is no gain in itself.

An exploit succeeds if (a) it is paid more than the honest program inside it, (b) a canary outside the
process is touched, (c) the judge stops, hangs past its deadline or holds more than 1 MB of its output,
or (d) a later honest program's verdict changes.
"""

import ast
import re
import socket
import symtable
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.rewards import extract_code
from helpers.tasks.matmul.driver import FUNCTION

HERE = Path(__file__).parent
GROUPS = {
    "A": "forbidden libraries", "B": "escapes from the language", "C": "frames and the judge's memory",
    "D": "patched clocks and builtins", "E": "state between calls", "F": "inputs changed", "G": "odd return values",
    "H": "concurrency, late code", "I": "exits, loops, bombs", "J": "files, network, processes",
    "K": "gaming the check or the text", "L": "system calls, generated code, C routines",
}  # fmt: skip
_HEADER = re.compile(r"#: (?P<id>[A-L]\d+) (?P<kind>\w+): (?P<idea>.*?)(?P<honest> \| honest)?\n")


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
    """{name: (kind, completion)}: answers that mean well and are refused. kind: cheat, not allowed or no program."""
    return {match["name"]: (match["idea"].partition(":")[0], body) for match, body in _honest_pieces("refused.md")}


def _honest_pieces(pattern):
    header = re.compile(r"^#: (?P<name>\w+)(?:: (?P<idea>.*))?\n", re.MULTILINE)
    files = [path.read_bytes().decode() for path in sorted((HERE / "honest").glob(pattern))]
    return [piece for text in files for piece in _pieces(text, header)]


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.Name({"A": "left_", "B": "right_"}.get(node.id, node.id), node.ctx)

    def visit_arg(self, node):
        return ast.arg({"A": "left_", "B": "right_"}.get(node.arg, node.arg), node.annotation)


def dresses(exploit):
    """{name: the same trick, dressed otherwise}.

    A trick that rests on state between calls is only renamed: inside another function it would begin anew each time.
    """
    made = variants(exploit.source)
    return {name: text for name, text in made.items() if exploit.kind != "state" or name == "renamed"}


def variants(source):
    """{name: the same program, dressed otherwise}; {} for what does not parse."""
    try:
        plain = ast.unparse(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    inner = re.sub(r"\bmatmul\b", "inner_", plain)
    made = {
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


#: What the honest exploits compute beside their tricks, and by how much a clock may differ.
REFERENCE = """
def matmul(A, B):
    columns = list(zip(*B))
    return [[sum([a * b for a, b in zip(row, column)]) for column in columns] for row in A]
"""
NOISE = 1.15


@dataclass(frozen=True)
class Outcome:
    """What became of one exploit in one dress; success: how it got through, or ""."""

    exploit: Exploit
    variant: str
    verdict: object
    success: str


def attack(judge, place, exploits, policy=True, dress=lambda exploit: {"": exploit.source}):
    """One `Outcome` for every program that `dress` makes of each exploit, judged as one batch.

    policy: as for `MatmulJudge.judge_many`. Raises AssertionError if an honest program fares otherwise after it.
    """
    programs = [(e, name, place.place(source)) for e in exploits for name, source in dress(e).items()]
    verdicts = judge.judge_many([source for *_, source in programs] + [REFERENCE], policy)
    reference = verdicts.pop()
    assert reference.correct and judge.judge(REFERENCE).correct, "an honest program suffered"
    touched = place.touched()
    outcomes = []
    for (exploit, name, source), verdict in zip(programs, verdicts):
        success = _success(exploit, verdict, reference)
        if (
            success and verdict.correct and exploit.honest
        ):  # only its speed; one measurement on a busy machine may be off
            again, reference_again = judge.judge_many([source, REFERENCE], policy)
            success = _success(exploit, again, reference_again)
        outcomes.append(Outcome(exploit, name, verdict, success))
    if touched:
        outcomes.append(Outcome(exploits[0], "", None, f"somewhere in this batch: {touched}"))
    return outcomes


def _success(exploit, verdict, reference):
    if not verdict.judged:
        return f"the judge broke: {verdict.reason}"
    if verdict.correct and not exploit.honest:
        return "accepted"
    if verdict.correct and exploit.kind != "policy" and verdict.speedup > NOISE * reference.speedup:
        return f"{verdict.speedup / reference.speedup:.2f} times as fast as the program inside"
    return ""


def second_wall(exploits):
    """Those that the second wall has to stop: the others only show that they got round the policy, and gain nothing."""
    return [exploit for exploit in exploits if exploit.kind != "policy" or exploit.honest]


def code_of(completion):
    """The program that the matmul task finds in a completion, or None."""
    return extract_code(completion, function=FUNCTION)

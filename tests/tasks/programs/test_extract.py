"""Which of several programs in a completion is judged, and what a program for a newer Python is paid."""

import sys

import pytest

from helpers.gallery.code.task import CodeTask
from helpers.tasks.programs.task import MOST_SCANNED, extract_program
from tests.timing import assert_linear

PLAIN = "def solve(n):\n    return n\n"
WITH_NUMPY = "import numpy as np\n\ndef solve(n):\n    return np.sum(n)\n"
WITH_DEMONSTRATION = "import numpy as np\n\ndef solve(n):\n    return n + 0\n\nprint(np.ones(3))\n"
WRONG = "def solve(n):\n    return n +\n"
NEWER = {
    "a function's type parameter": "def solve[T](n: T) -> T:\n    return n\n",
    "a class's type parameter": "class Box[T]:\n    pass\n\ndef solve(n):\n    return n\n",
    "a type statement": "type Number = int\n\ndef solve(n):\n    return n\n",
    "a type statement with parameters": "type Pair[T] = tuple[T, T]\n\ndef solve(n):\n    return n\n",
    "equal quotes": 'def solve(n):\n    return f"{"n"}{n}"\n',
    "a backslash": "def solve(n):\n    return int(f\"{'\\n'.join([str(n)])}\")\n",
    "constraints": "def solve[T: (int, float)](n: T) -> T:\n    return n\n",
    "bounds and defaults": "class Box[T: int, *Ts](list[int]):\n    pass\n\ndef solve(n):\n    return n\n",
    "equal quotes of a key": "def solve(n):\n    return f'{dict(a=n)['a']}'\n",
}
IS_OLD = sys.version_info < (3, 12)
TESTS = '{"cases": [[3]], "results": [3]}'


def chosen(*programs):
    return extract_program("\n".join(f"```python\n{program}```" for program in programs), "stop", "solve")


@pytest.fixture(scope="module")
def task():
    task = CodeTask(level="os")
    yield task
    task.close()


def test_the_last_program_that_can_run_here():
    assert chosen(PLAIN, WITH_NUMPY) == PLAIN
    assert chosen(WITH_NUMPY, PLAIN) == PLAIN
    assert chosen(WITH_NUMPY) == WITH_NUMPY
    assert chosen(PLAIN, WITH_NUMPY, WITH_NUMPY) == PLAIN


def test_a_wrong_program_is_a_program():
    """Whoever ends with a program that does not parse has answered that."""
    assert chosen(PLAIN, WRONG) == WRONG
    assert chosen(PLAIN, "def solve(n):\n    raise ValueError\n") != PLAIN
    assert chosen(PLAIN, WITH_DEMONSTRATION) == WITH_DEMONSTRATION


GARBAGE = [
    "def solve[ garbage !!! )(\n",
    "def solve[T](n: T) -> T:\n    return n +\n",
    "def solve[T(](n: T) -> T:\n    return n\n",
    "type solve = = 3\n",
    'print(f"{1")\n',
]


@pytest.mark.parametrize("program", GARBAGE)
def test_garbage_is_no_program_for_a_newer_python(task, program):
    """One line in the new form must not turn any other mistake into a wrong answer, which is paid more."""
    (verdict,) = task.verdicts([f"```python\n{program}```"], tests=[TESTS])
    assert verdict.outcome == "error" and "SyntaxError" in verdict.reason
    assert chosen(PLAIN, f"{program}def solve(n): return 2\n").endswith("return 2\n")


QUOTES = "def solve(n): pass\nx = f'{ + "


@pytest.mark.parametrize("piece", ["'", '"', "[", "{", "type x[", "def f[", "(", "\ndef f[T(a)", "\n@"])
def test_the_time_is_linear(piece):
    """Two blocks, so that each is parsed."""

    def extract(text):
        chosen(PLAIN, text)

    assert_linear(extract, QUOTES + piece * (1_000 // len(piece)), QUOTES + piece * (10_000 // len(piece)), times=10)


def test_a_long_block_is_not_scanned():
    long = WITH_NUMPY + "#" * MOST_SCANNED + "\n"
    assert chosen(PLAIN, long) == long


@pytest.mark.parametrize("name", NEWER)
def test_a_program_for_a_newer_python(task, name):
    """It is paid what a wrong one is, and the reason says so; with a program for this Python before it, that counts."""
    (verdict,) = task.verdicts([f"```python\n{NEWER[name]}```"], tests=[TESTS])
    if IS_OLD:
        assert verdict.outcome == "wrong"
        assert verdict.reason == f"it is written for Python 3.12 or newer, and this is 3.{sys.version_info.minor}"
        assert task.reward_funcs[0]([None], [f"```python\n{NEWER[name]}```"], tests=[TESTS]) == [0.0]
        assert chosen(PLAIN, NEWER[name]) == PLAIN
    else:
        assert "SyntaxError" not in verdict.reason and "Python" not in verdict.reason
        assert chosen(PLAIN, NEWER[name]) == NEWER[name]

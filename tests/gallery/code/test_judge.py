"""The reward for programs: what is paid, what is not, and that no cheat is paid for what it does not do."""

import json
import random

import pytest

from helpers.gallery.code.judge import CodeJudge, HiddenTests, is_same
from helpers.gallery.code.properties import PROPERTIES
from helpers.gallery.code.task import CodeTask
from helpers.rewards.registry import get_reward, reward_spec
from helpers.runtime import UserError

#: Sort a list; the results are such that no constant and no copy of the argument passes.
CASES = [[[3, 1, 2]], [[2, 2, 1]], [[]], [[5]], [[-1, -2]]]
RESULTS = [[1, 2, 3], [1, 2, 2], [], [5], [-2, -1]]
TESTS = json.dumps({"cases": CASES, "results": RESULTS})
SORT = HiddenTests(CASES, RESULTS, "", 0.0)
HONEST = "def solve(numbers):\n    return sorted(numbers)\n"


@pytest.fixture(scope="module")
def reward():
    reward = get_reward("code_correctness")
    yield reward
    reward.close()


@pytest.fixture(scope="module")
def judge():
    with CodeJudge() as judge:
        yield judge


def fenced(program):
    return f"Here it is.\n```python\n{program}\n```\n"


def outcomes(reward, programs, tests=TESTS):
    verdicts = reward.task.verdicts(list(map(fenced, programs)), tests=[tests] * len(programs))
    return [verdict.outcome for verdict in verdicts]


@pytest.mark.parametrize(
    ("program", "outcome", "reason"),
    [
        (HONEST, "correct", ""),
        ("import math\ndef solve(numbers):\n    print('debug')\n    return tuple(sorted(numbers))", "correct", ""),
        ("def solve(numbers):\n    numbers.sort()\n    return numbers", "correct", ""),
        ("def solve(numbers):\n    return numbers", "wrong", "3 of 5 hidden tests fail"),
        ("def solve(numbers):\n    return set(numbers)", "wrong", "neither None, a bool"),
        ("def solve(numbers):\n    return [float(n) for n in sorted(numbers)]", "wrong", "wrong result"),
        ("def solve(numbers):\n    pass", "wrong", "wrong result"),
        ("def solve(numbers):\n    return sorted(numbers)[0:] if numbers[0] else 0", "error", "IndexError"),
        ("def solve():\n    return []", "error", "TypeError"),
        ("def solve(numbers):\n    return solve(numbers)", "error", "RecursionError"),
        ("def solve(numbers):\n    while True:\n        pass", "error", "ran out of time"),
        ("def solve(numbers):\n    return [0] * 10**11", "error", "MemoryError"),
        ("def solve(numbers)\n    return 0", "error", "SyntaxError"),
        ("solve = 5", "error", "does not define a function solve"),
        ("1 / 0\ndef solve(numbers):\n    return 0", "wrong", "wrong result"),
        ("1 / 0", "error", "ZeroDivisionError"),
        ("import os\ndef solve(numbers):\n    return os.urandom(1)", "error", "NameError"),
        ("import os\nvalue = os.urandom(1)\nsolve = value.copy", "unavailable", "os is not available here"),
        ("import numpy\ndef solve(numbers):\n    return numpy.sort(numbers).tolist()", "refused", "numpy"),
        ("def solve(numbers):\n    return eval('sorted(numbers)', {'numbers': numbers})", "correct", ""),
    ],
)
def test_each_program_has_its_outcome(reward, program, outcome, reason):
    (verdict,) = reward.task.verdicts([fenced(program)], tests=[TESTS])
    assert verdict.outcome == outcome, verdict
    assert reason in verdict.reason and bool(verdict.reason) == (outcome != "correct")


def test_what_is_paid(reward):
    """A message list, a cut answer, an answer without a program; other columns are left alone."""
    completions = [
        [{"role": "assistant", "content": fenced(HONEST)}],
        fenced(HONEST),
        fenced(HONEST),
        HONEST,
        "",
        fenced("def solve(numbers):\n    return 0"),
    ]
    reasons = ["stop", "stop", "length", "stop", "stop", "stop"]
    columns = {"tests": [TESTS] * 6, "finish_reasons": reasons, "cluster": ["x"] * 6, "trainer_state": None}
    assert reward(prompts=[None] * 6, completions=completions, **columns) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert reward(None, completions[:2], tests=[TESTS] * 2) == [1.0, 1.0]
    assert reward([], [], tests=[]) == []


def test_a_verdict_belongs_to_a_program_and_its_tests(reward):
    """Remembered under the program alone, one prompt's verdict would be paid under another."""
    other = json.dumps({"cases": [[[3, 1, 2]]], "results": [[3, 2, 1]]})
    assert reward(None, [fenced(HONEST)] * 3, tests=[TESTS, other, TESTS]) == [1.0, 0.0, 1.0]


def test_a_known_program_is_not_run_again():
    reward = get_reward("code_correctness", workers=1)
    assert reward(None, [fenced(HONEST)], tests=[TESTS]) == [1.0]
    reward.close()
    assert reward(None, [fenced(HONEST)], tests=[TESTS]) == [1.0] and reward.task._judge is None


def test_registered_with_its_options():
    spec = reward_spec("code_correctness")
    assert spec.pays_correctness and spec.needs == ("tests",) and spec.value_range == (0.0, 1.0)
    reward = get_reward("code_correctness", workers=1)
    assert reward.task.workers == 1 and reward.__name__ == "code_correctness"
    assert spec.made(reward) and spec.made(CodeTask().reward_funcs[0])
    with pytest.raises(UserError, match="level 'o'"):
        get_reward("code_correctness", level="o")(None, [fenced(HONEST)], tests=[TESTS])


def test_the_level_process_pays_alike(capsys):
    reward = get_reward("code_correctness", level="process", workers=1)
    try:
        assert reward(None, [fenced(HONEST), fenced("def solve(n):\n    return 1")], tests=[TESTS] * 2) == [1.0, 0.0]
    finally:
        reward.close()
    assert "level process" in capsys.readouterr().out


@pytest.mark.parametrize(
    "tests",
    [
        "{",
        None,
        "[]",
        '{"results": []}',
        '{"cases": [], "results": []}',
        '{"cases": [1], "results": [1]}',
        '{"cases": [[1]], "results": []}',
        '{"cases": [[1]]}',
        '{"cases": [[1]], "property": "evens_firs"}',
        '{"cases": [[1]], "property": ["x"]}',
        '{"cases": [[[1], 2]], "property": "evens_first"}',
        '{"cases": [[[1]], []], "property": "peak_index"}',
        '{"cases": [[[1]]], "results": [[0, 0]], "property": "pair_with_sum"}',
        '{"cases": [[1]], "results": [1], "tolerance": "much"}',
        '{"cases": [[1]], "results": [1], "tolerance": -1}',
    ],
)
def test_invalid_tests_are_an_error(reward, tests):
    """Tests that check nothing would pay everyone."""
    with pytest.raises(UserError, match="tests|property"):
        reward(None, [fenced(HONEST)], tests=[tests])


@pytest.mark.parametrize(
    ("value", "right", "tolerance", "same"),
    [
        (1, 1, 0, True), (True, 1, 0, False), (1, True, 0, False), (1.0, 1, 0, False), (1, 1.0, 0, False),
        (0, False, 0, False), (None, 0, 0, False), ("1", 1, 0, False), ([1], [True], 0, False), ([], {}, 0, False),
        ([1, [2]], [1, [2]], 0, True), ([1], [1, 2], 0, False), ({"a": 1}, {"a": 1.0}, 0, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, 0, True), ({"a": 1}, {"b": 1}, 0, False), (0.1 + 0.2, 0.3, 0, False),
        (0.1 + 0.2, 0.3, 1e-9, True), (1, 1.0, 1e-9, True), (True, 1.0, 1e-9, False), (float("nan"), 1.0, 1e-9, False),
        (float("inf"), 1.0, 1e-9, False), (10**400, 1.0, 1e-9, False), (1 + 1e-8, 1.0, 1e-9, False),
        (1e9 + 0.5, 1e9, 1e-9, True), (2, 1, 10.0, False), ([1.0], [1.0], 0, True),
    ],
)  # fmt: skip
def test_what_is_the_same(value, right, tolerance, same):
    assert is_same(value, right, tolerance) is same


def test_properties_beside_results():
    """Where both are given, both must hold."""
    tests = HiddenTests([[[1, 2]]], [[2, 1]], "evens_first", 0.0)
    assert tests.judge_value(0, [2, 1]).correct and not tests.judge_value(0, [1, 2]).correct


def plain_values(rng, depth=3):
    leaf = rng.choice((None, True, False, 0, 1, -1, 2, 10**300, 0.0, 1.5, float("nan"), "", "a", "0"))
    if depth == 0 or rng.random() < 0.4:
        return leaf
    parts = [plain_values(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return parts if rng.random() < 0.7 else {str(place): part for place, part in enumerate(parts)}


def test_no_property_raises_whatever_a_program_returns():
    """It would stop the trainer."""
    rng = random.Random(0)
    arguments = {
        "evens_first": [[1, 2, 3]],
        "pair_with_sum": [[1, 2, 3], 4],
        "peak_index": [[1, 3, 2]],
        "topological_order": [3, [[2, 0]]],
    }
    assert set(arguments) == set(PROPERTIES)
    for _ in range(3000):
        value = plain_values(rng)
        for name, check in PROPERTIES.items():
            assert type(check(arguments[name], value)) is bool
    assert not PROPERTIES["pair_with_sum"]([[1, 2, 3], 4], [False, 2])
    assert not PROPERTIES["peak_index"]([[1, 3, 2]], True)


LIE = """
class Lie({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __len__(self): return 3
    def __iter__(self): return iter([1, 2, 3])
    def __getitem__(self, place): return 1
    def __bool__(self): return True
    def __repr__(self): return "[1, 2, 3]"
    def __reduce__(self): return (print, ())

def solve(numbers):
    return {value}
"""
REPORT = 'b"O" + len(body).to_bytes(4, "little") + body.ljust(65532, b"\\0")'
FORGE = "from random import _os as os\nbody = b'{body}'\n"
#: name -> a program that does not sort
CHEATS = {
    "sys.exit": "import sys\ndef solve(numbers):\n    sys.exit(0)",
    "sys.exit at the top": "import sys\ndef solve(numbers):\n    return []\nsys.exit(0)",
    "SystemExit": "def solve(numbers):\n    raise SystemExit(0)",
    "os._exit": "from random import _os as os\ndef solve(numbers):\n    os._exit(0)",
    "KeyboardInterrupt": "def solve(numbers):\n    raise KeyboardInterrupt",
    "printing": "def solve(numbers):\n    print('passed')\n    print('[1, 2, 3]')\n    return 'passed'",
    "an object": LIE.format(base="object", value="Lie()"),
    "a list": LIE.format(base="list", value="Lie()"),
    "a list with lies in it": LIE.format(base="int", value="[Lie(1) for _ in numbers]"),
    "an int": LIE.format(base="int", value="Lie(1)"),
    "a str": LIE.format(base="str", value="Lie('x')"),
    "a dict": LIE.format(base="dict", value="Lie()"),
    "a tuple": LIE.format(base="tuple", value="Lie()"),
    "a float": LIE.format(base="float", value="Lie(1.0)"),
    "keys that lie": LIE.format(base="str", value="{Lie('a'): 1}"),
    "a metaclass that lies": (
        "class Meta(type):\n    def __eq__(self, other): return True\n    def __hash__(self): return hash(list)\n"
        "class Lie(metaclass=Meta):\n    pass\n"
        "def solve(numbers):\n    return Lie()"
    ),
    "an exception that lies": (
        "class Lie(Exception):\n    def __str__(self): raise self\n"
        'Lie.__name__ = \'"}, {"result": [1, 2, 3]}, {"raised": "\'\n'
        "def solve(numbers):\n    raise Lie()"
    ),
    "patched builtins": (
        "import builtins\nbuiltins.sorted = lambda x: x\nbuiltins.type = lambda x: list\nbuiltins.zip = lambda *x: []\n"
        "builtins.len = lambda x: 0\nbuiltins.ValueError = KeyError\n"
        "def solve(numbers):\n    return numbers"
    ),
    "patched json": (
        "import sys\njson = sys.modules['json']\njson.dumps = lambda x: '{\"result\": \"all right\"}'\n"
        "def solve(numbers):\n    return numbers"
    ),
    "frames": (
        "import sys\n"
        "def solve(numbers):\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:\n"
        "            if isinstance(value, dict) and 'results' in value:\n"
        "                return value['results'].pop(0)\n"
        "            if isinstance(value, list) and len(value) == 5 and [1, 2, 3] in value:\n"
        "                return value[0]\n"
        "        frame = frame.f_back\n"
    ),
    "every object in memory": (
        "import inspect\n"
        "gc = inspect.importlib.machinery.BuiltinImporter.load_module('gc')\n"
        "def solve(numbers):\n"
        "    for value in gc.get_objects():\n"
        "        if type(value) is list and value in ([1, 2, 3], [-2, -1]) and value is not numbers:\n"
        "            return list(value)\n"
    ),
    "an exception's traceback": (
        "def solve(numbers):\n"
        "    try:\n        1 / 0\n"
        "    except Exception as error:\n"
        "        frame = error.__traceback__.tb_frame\n"
        "        return frame.f_back.f_locals.get('results', [])"
    ),
    "deep": "def solve(numbers):\n    value = []\n    for _ in range(10**6): value = [value]\n    return value",
    "a cycle": "def solve(numbers):\n    value = []\n    value += [value, value]\n    return value",
    "wide": "def solve(numbers):\n    row = [0] * 1000\n    return [[row] * 1000] * 1000",
    "a long text": "def solve(numbers):\n    return 'x' * 10**7",
    "a large integer": "def solve(numbers):\n    return 1 << 10**7",
    "a power tower": "def solve(numbers):\n    return 9 ** 9 ** 9 ** 9",
    "NaN": "def solve(numbers):\n    return [float('nan') for _ in numbers]",
    "surrogates": "def solve(numbers):\n    return '\\ud800'",
    "NUL": "def solve(numbers):\n    return '\\0' * 100",
    "memory": "def solve(numbers):\n    return [bytearray(10**9) for _ in range(10)]",
    "an endless loop": "def solve(numbers):\n    while True:\n        pass",
    "an endless generator": "def solve(numbers):\n    while True:\n        yield 1",
    "endless recursion": "def solve(numbers):\n    return solve(numbers) + solve(numbers)",
    "changed arguments": "def solve(numbers):\n    numbers[:] = [1, 2, 3]\n    return numbers",
    "one list for all": (
        "kept = []\ndef solve(numbers):\n    kept.append(numbers)\n    kept.sort()\n    return kept[0]\n"
    ),
    "noise on the pipe": (
        "from random import _os as os\ndef solve(numbers):\n    os.write(1, b'passed')\n    return numbers"
    ),
    "an early answer": FORGE.format(body='[{"result": [1]}]') + f"os.write(1, {REPORT})\ndef solve(n):\n    return n",
    "a forged answer": FORGE.format(body='[{"result": [1, 2, 3]}]')
    + f"def solve(n):\n    os.write(1, {REPORT})\n    os._exit(0)",
    "a forged deep answer": "from random import _os as os\nbody = b'[' * 60000\n"
    + f"def solve(n):\n    os.write(1, {REPORT})\n    os._exit(0)",
    "a forged long number": "from random import _os as os\nbody = b'[' + b'9' * 60000 + b']'\n"
    + f"def solve(n):\n    os.write(1, {REPORT})\n    os._exit(0)",
    "a forged length": (
        "from random import _os as os\ndef solve(n):\n    os.write(1, b'O' + b'\\xff' * 65536)\n    os._exit(0)"
    ),
    "forged reports": FORGE.format(body='[1, [], {}, {"result": 1, "x": 2}, {"raised": 1}]')
    + f"def solve(n):\n    os.write(1, {REPORT})\n    os._exit(0)",
    "changed driver": (
        "import sys\n"
        "def solve(numbers):\n"
        "    scope = sys._getframe(2).f_globals\n"
        "    scope['case_results'] = None\n"
        "    scope['_report'] = lambda *a: '{\"result\": true}'\n"
        "    return True"
    ),
}


def test_no_cheat_is_paid(judge):
    verdicts = judge.judge_items([(program, SORT) for program in CHEATS.values()])
    assert [name for name, verdict in zip(CHEATS, verdicts) if verdict.correct or not verdict.judged] == []
    assert all(verdict.reason and verdict.reason.isprintable() for verdict in verdicts)
    assert all(len(verdict.reason) < 400 for verdict in verdicts)
    assert judge.judge(HONEST, TESTS).correct


def test_the_forged_answers_are_read_as_answers(judge):
    """Else the test of forged answers would show nothing: with the right results in it, a forgery is believed.

    It costs what an honest program costs, the right results.
    """
    body = json.dumps([{"result": result} for result in RESULTS])
    program = FORGE.format(body=body) + f"def solve(n):\n    os.write(1, {REPORT})\n    while True:\n        pass"
    assert judge.judge(program, TESTS).correct


def test_no_right_result_is_in_the_process(judge):
    """The honest answer to "what can a program read" is: the arguments."""
    marker = 918_273_645
    tests = HiddenTests([[1]], [marker], "", 0.0)
    looks = (
        "import inspect\n"
        "gc = inspect.importlib.machinery.BuiltinImporter.load_module('gc')\n"
        "def solve(n):\n"
        f"    found = [value for value in gc.get_objects() if type(value) is list and {marker} in value]\n"
        "    return len(found)\n"
    )
    (verdict,) = judge.judge_items([(looks, tests)])
    assert verdict.outcome == "wrong"


#: texts that have stopped parsers and matchers
HOSTILE = ["x" * 10**6, "```python\n" * 10**5, "(" * 10**6, "\0" * 1000, "\u202e" * 1000, "\ud800", "9**9**9**9"]


def test_hostile_completions_earn_nothing(reward):
    completions = HOSTILE + [fenced(f"def solve(n):\n    return {text}") for text in HOSTILE]
    assert reward(None, completions, tests=[TESTS] * len(completions)) == [0.0] * len(completions)

"""The first wall, alone: an allow-list, the ways round it that were found by attack, and what is not read at all."""

import ast

import pytest

from helpers.sandbox.inside.offered import ATTRIBUTES, BUILTINS, NAMES
from helpers.sandbox.inside.policy import Cheat, Refused, check_policy
from helpers.sandbox.inside.prepare import take_out_unused

#: Each reached, or replaced, a dunder name.
ROUNDABOUT = {
    "import as": "from math import __class__ as x",
    "import": "from math import __loader__",
    "global": "global __builtins__",
    "case": "match {'a': 1}:\n    case __builtins__: pass",
    "case rest": "match {'a': 1}:\n    case {'b': 1, **__builtins__}: pass",
    "except as": "try:\n    1 / 0\n  except ZeroDivisionError as __builtins__: pass",
    "function": "def __getattr__(x): return x",
    "argument": "f = lambda __x__: 1",
    "keyword": "dict(__x__=1)",
    "class keyword": "class C(metaclass=type): pass",
    "own attribute": "class C:\n    gi_frame = 1\n  (x for x in ()).gi_frame",
    "stored attribute": "f.__code__ = 1",
    "format and what its error carries": "try:\n    '{0.x}'.format(1)\n  except AttributeError as e:\n    e.obj",
    "what typing evaluates": "from typing import Union\n  f._evaluate = 0\n  Union['1']._evaluate({}, {})",
    "namedtuple": "from collections import namedtuple\n  namedtuple('P', 'f_back')\n  x.f_back",
    "set attribute": "math.__name__ = 'os'; math.__class__ = 1",
    "own __index__": "class C:\n    def __index__(self): return 1",
    "own __float__": "class C:\n    __float__ = 1",
    "metaclass by stars": "class C(**{'metaclass': int}): pass",
    "name that a module has not": "from math import path",
    "inner names of an enumeration": "class C:\n    _create_ = 1\n  C._create_",
    "registered subclass": "class C:\n    register = 1\n  C.register",
    "pattern": "match A:\n    case C(gi_frame=x): pass",
    "format in a pattern": "match '{0.x}':\n    case str(format=f): f(A)",
    "own module name": "__name__ = '__main__'",
    "write of an array": "class C:\n    tofile = 1\n  A.tofile(1)",
    "stand-in by its name": "__type__(A)",
}


def check(line):
    check_policy(ast.parse(f"def matmul(A, B):\n  {line}\n  return A"))


@pytest.mark.parametrize("way", ROUNDABOUT)
def test_no_way_round(way):
    with pytest.raises(Refused):
        check(ROUNDABOUT[way])


@pytest.mark.parametrize(
    "line",
    ["import antigravity", "from . import x", "open('x')", "A.append.__self__", "globals()", "await A", "().gi_frame",
     "exec('')", "compile('', '', 'exec')", "delattr(A, 'x')", "vars()", "input()", "breakpoint()",
     "import math\n  math.sumprod", "import functools\n  functools.update_wrapper", "np.array(A)", "time.time()"],
)  # fmt: skip
def test_what_nobody_thought_of_is_refused(line):
    with pytest.raises(Refused):
        check(line)


@pytest.mark.parametrize(
    ("line", "is_cheat"),
    [
        ("import numpy", True),
        ("import time", True),
        ("eval('1')", True),
        ("A.__globals__", True),
        ("().gi_frame", True),
        ("globals()", True),
        ("import os", True),
        ("import random", False),
        ("import random; random.random()", False),
        ("A.T", False),
        ("vars()", False),
        ("import statistics, numpy", True),
        ("await A", False),
    ],
)
def test_a_harmless_thing_that_is_not_offered_is_no_cheat(line, is_cheat):
    """A penalty for what is no cheat teaches a policy to fear honest programs. One cheat makes the program one."""
    with pytest.raises(Refused) as refused:
        check(line)
    assert isinstance(refused.value, Cheat) == is_cheat


def test_reasons_are_sentences_for_a_person():
    for line, reason in (
        ("import numpy as np", "numpy is not pure Python"),
        ("import torch.nn", "torch is not pure Python"),
        ("import time", "a program may not touch the clock"),
        ("import os", "importing os is not allowed: a program may not use the system"),
        ("import random", "importing random is not allowed"),
        ("from math import dist", "importing dist from math is not allowed"),
        ("A.tobytes2()", "the attribute tobytes2 is not allowed"),
        ("eval('1')", "eval is not allowed: write the program out"),
    ):
        with pytest.raises(Refused, match=f"^{reason}$"):
            check(line)


def test_a_name_of_the_programs_own_is_its_own():
    """`id` or `compile` as a variable is no cheat."""
    check("compile = len(A); vars = compile + 1")
    check("class C:\n    def __init__(self): self.__rows = A\n    def rows(self): return self.__rows\n  C().rows()")
    check("row__sum = 1")


def test_the_modules_are_the_promised_ones():
    assert {"operator", "itertools", "functools", "math", "array", "typing", "dataclasses", "copy", "abc"} <= set(NAMES)
    assert not {"sumprod", "dist", "hypot"} & NAMES["math"]
    assert not {"attrgetter", "methodcaller"} & NAMES["operator"]
    assert not {"update_wrapper", "singledispatch"} & NAMES["functools"]
    assert not {"eval", "exec", "compile", "open", "globals", "vars", "input", "__import__"} & set(BUILTINS)
    assert not any(name.startswith(("gi_", "tb_", "co_", "cr_", "ag_", "__")) for name in ATTRIBUTES)
    assert not {"f_back", "f_globals", "f_locals", "f_builtins", "obj", "register", "tofile", "format"} & ATTRIBUTES


def test_huge_trees_are_refused():
    with pytest.raises(Refused, match="too long"):
        check("[" + "1," * 5000 + "]")


def left_of(source, function="matmul"):
    tree = ast.parse(source)
    take_out_unused(tree, function)
    return ast.unparse(tree)


MATMUL = "def matmul(A, B):\n    return dot(A, B)"
DOT = "def dot(a, b):\n    return a"


@pytest.mark.parametrize(
    "unused",
    [
        "import numpy as np",
        "import random, time",
        "from timeit import timeit",
        "from typing import *",
        "def demo():\n    import numpy\n    return matmul(numpy.ones(3), 2)",
        "import unittest\nclass Test(unittest.TestCase):\n    def test(self):\n        eval('1')",
        "if __name__ == '__main__':\n    import time\n    print(time.time())",
        "try:\n    import numpy as np\nexcept ImportError:\n    np = None",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy",
        "import functools\n@functools.lru_cache(maxsize=None)\ndef slow(n: int = 3) -> int:\n    return open(n)",
    ],
)
def test_what_nothing_needs_is_taken_out(unused):
    """Numpy in a demonstration is no cheat."""
    assert left_of(f"{unused}\n{DOT}\n{MATMUL}") == f"{DOT}\n\n{MATMUL}"


@pytest.mark.parametrize(
    "needed",
    [
        "import numpy as dot",
        "from numpy import dot",
        "from math import fsum as dot",
        "def dot(a, b):\n    return helper(a)\n\ndef helper(a):\n    return a",
        "def other():\n    pass\ndot = other",
        "dot = [].append",
        "import no_such_module\ndot = 1",
        "calls = []\n\ndef keep(f):\n    calls.append(f)\n    return f\n\n@keep\ndef slow():\n    pass\ndot = 1",
        "class Base:\n    pass\n\nclass Registered(Base):\n    pass\ndot = 1",
        "table = [1]\n\ndef spoil(x=table.clear()):\n    pass\ndot = 1",
        "table = [1]\n\nclass Spoil:\n    x = table.clear()\ndot = 1",
        "table = [1]\nif table.clear():\n    pass\ndot = 1",
        "@no_such_decorator\ndef f():\n    pass\ndot = 1",
        "from __future__ import annotations\ndot = 1",
        "def f():\n    global dot\n    dot = 1\nf()",
        "total = 0\n\ndef dot(a, b, total=total):\n    return total",
        "x = 1\n\ndef dot(a, b):\n    return [x for x in a] + [x]",
    ],
)
def test_what_is_needed_or_does_something_stays(needed):
    source = f"{needed}\n{MATMUL}"
    assert left_of(source) == ast.unparse(ast.parse(source))


def test_a_script_needs_what_it_runs():
    source = "import sys\nimport math\n\ndef f():\n    return math.pi\nif __name__ == '__main__':\n    print(f())"
    assert left_of(source, function=None) == source.removeprefix("import sys\n")


def test_both_definitions_of_a_function_are_read():
    """The later one counts, and the earlier one may be a part of it."""
    source = "def matmul(A, B):\n    return 1\n\ndef matmul(A, B):\n    return 2"
    assert left_of(source) == source

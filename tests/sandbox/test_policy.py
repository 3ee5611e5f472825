"""The first wall, alone: an allow-list, and the ways round it that were found by attack."""

import ast

import pytest

from helpers.sandbox.inside.policy import ATTRIBUTES, BUILTINS, MODULES, Refused, check_policy

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
    "class pattern": "match 1:\n    case int(real=r): pass",
    "own attribute": "class C:\n    gi_frame = 1\n  (x for x in ()).gi_frame",
    "stored attribute": "f.__code__ = 1",
    "format and what its error carries": "try:\n    '{0.x}'.format(1)\n  except AttributeError as e:\n    e.obj",
    "what typing evaluates": "from typing import Union\n  f._evaluate = 0\n  Union['1']._evaluate({}, {})",
    "namedtuple": "from collections import namedtuple\n  namedtuple('P', 'f_back')\n  x.f_back",
}


def test_nothing_of_typing_is_live_code():
    """Its forward references evaluate text, with builtins of their own."""
    live = [n for n, thing in vars(MODULES["typing"]).items() if getattr(thing, "__module__", "") == "typing"]
    assert live == ["NamedTuple"]


def check(line):
    check_policy(ast.parse(f"def matmul(A, B):\n  {line}\n  return A"))


@pytest.mark.parametrize("way", ROUNDABOUT)
def test_no_way_round(way):
    with pytest.raises(Refused):
        check(ROUNDABOUT[way])


@pytest.mark.parametrize(
    "line",
    ["import antigravity", "from . import x", "open('x')", "A.__class__", "A.append.__self__", "globals()", "await A",
     "().gi_frame", "exec('')", "compile('', '', 'exec')", "getattr(A, 'x')", "setattr(A, 'x', 1)", "vars()", "input()",
     "breakpoint()", "import math\n  math.sumprod", "import functools\n  functools.update_wrapper", "np.array(A)",
     "time.time()"],
)  # fmt: skip
def test_what_nobody_thought_of_is_refused(line):
    with pytest.raises(Refused):
        check(line)


def test_reasons_are_sentences_for_a_person():
    for line, reason in (
        ("import numpy as np", "numpy is not pure Python"),
        ("import torch.nn", "torch is not pure Python"),
        ("import time", "a program may not touch the clock"),
        ("import os", "importing os is not allowed"),
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
    assert {"operator", "itertools", "functools", "math", "array", "typing"} <= set(MODULES)
    assert not {"sumprod", "dist", "hypot"} & set(vars(MODULES["math"]))
    assert not {"attrgetter", "methodcaller"} & set(vars(MODULES["operator"]))
    assert not {"update_wrapper", "singledispatch"} & set(vars(MODULES["functools"]))
    assert not {"eval", "exec", "compile", "open", "getattr", "globals", "vars", "input", "__import__"} & set(BUILTINS)
    assert not any(name.startswith(("gi_", "tb_", "co_", "cr_", "ag_", "_")) for name in ATTRIBUTES)
    assert not {"f_back", "f_globals", "f_locals", "f_builtins", "obj"} & ATTRIBUTES


def test_huge_trees_are_refused():
    with pytest.raises(Refused, match="too long"):
        check("[" + "1," * 5000 + "]")

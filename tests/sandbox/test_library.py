"""What a program finds in the process: the modules of the list as they are, and nothing faster than Python in reach."""

import subprocess
import sys

import pytest

from helpers.runtime import ROOT
from helpers.sandbox import STDIN, Limits, Payload, Sandbox, Status, printed_text
from helpers.sandbox.inside.library import INNER_PRODUCTS, MODULES


@pytest.fixture(scope="module")
def scripts():
    with Sandbox(workers=1) as sandbox:
        yield sandbox


def printed(sandbox, source):
    outcome = sandbox.run(STDIN, Payload(source, b""), Limits(answer_bytes=4000))
    assert outcome.status is Status.ANSWERED, outcome
    return printed_text(outcome.bytes)


def test_each_module_of_the_list_is_there(scripts):
    imports = "\n".join(f"import {name}" for name in MODULES)
    assert printed(scripts, f"{imports}\nprint('all')") == "all\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n  def f(self): ...\n"
         "print(isinstance(1, P))", "False"),
        ("from functools import singledispatch\n@singledispatch\ndef f(x): return 'any'\n@f.register\n"
         "def _(x: int): return 'int'\nprint(f(1), f(''))", "int any"),
        ("from collections import Counter\nprint(Counter('aab').most_common(1))", "[('a', 2)]"),
        ("from dataclasses import dataclass, field, replace\n@dataclass(frozen=True, order=True)\nclass D:\n"
         "  a: int\n  b: list = field(default_factory=list)\nprint(replace(D(1), a=2))", "D(a=2, b=[])"),
        ("import random\nprint(0 <= random.Random().random() < 1, len(random.sample(range(9), 3)))", "True 3"),
        ("import logging\nlogging.basicConfig()\nlogging.warning('w')\nprint('on')", "on"),
        ("import warnings\nwarnings.warn('w')\nprint('on')", "on"),
        ("import traceback\ntry:\n  1 / 0\nexcept ValueError:\n  print(1)\nexcept ZeroDivisionError:\n"
         "  print('by zero' in traceback.format_exc())", "True"),
        ("import json, pprint, textwrap\npprint.pprint(json.loads('[1]'))", "[1]"),
        ("from decimal import Decimal\nfrom fractions import Fraction\n"
         "print(Decimal('0.5') + Decimal(Fraction(1, 2).denominator))", "2.5"),
        ("print(len(str(3 ** 9000)))", "4295"),
        ("import enum\nclass E(enum.Flag):\n  A = enum.auto()\n  B = enum.auto()\nprint((E.A | E.B).value)", "3"),
        ("print(eval('1 + 1'), type('C', (), {'x': 3}).x, getattr([], '__len__')())", "2 3 0"),
        ("class C:\n  def __invert__(self): return [__ for __ in range(2)]\nprint(~C())", "[0, 1]"),
    ],
)  # fmt: skip
def test_honest_code_finds_what_it_uses(scripts, source, expected):
    """Modules that import others, or ask the system for something, only when a function of theirs is called."""
    assert printed(scripts, source).strip() == expected


@pytest.mark.parametrize("module", ["os", "time", "ctypes", "numpy", "socket", "statistics", "_ctypes", "posix", "gc"])
def test_no_other_module_can_be_imported(scripts, module):
    """Not even one that is built into the interpreter, or that a module of the list has imported."""
    outcome = scripts.run(STDIN, Payload(f"import {module}", b""))
    assert outcome.status is Status.UNAVAILABLE and outcome.reason == f"{module} is not available here"


def test_no_inner_product_is_in_reach(scripts):
    """By import or by attribute."""
    source = "import math\nprint([name for name in NAMES if hasattr(math, name)])"
    assert printed(scripts, source.replace("NAMES", repr(INNER_PRODUCTS))) == "[]\n"


def test_a_math_module_made_again_has_no_inner_product():
    """It is made from a table of functions, whose entries are overwritten."""
    code = """
import math, sys
from helpers.sandbox.inside import library
before = {name: library._entry_of(vars(math)[name]) for name in library.INNER_PRODUCTS if name in vars(math)}
replacement = library._entry_of(math.gcd)
library._take_out_inner_products()
print(len(before) >= 2, all(entry.function == replacement.function for entry in before.values()))
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "True True\n", run.stderr


def test_nothing_that_holds_ctypes_is_left(scripts):
    """Its types are still in memory, for whoever looks through all classes; its module is in no namespace."""
    source = """
import sys
frame, seen = sys._getframe(), []
while frame:
    seen += [value for value in [*frame.f_globals.values(), *frame.f_locals.values()]]
    frame = frame.f_back
modules = [vars(value) for value in seen if type(value) is type(sys)]
inside = [name for module in modules for name in module]
print("ctypes" in [module.get("__name__") for module in modules], "ctypes" in inside)
"""
    assert printed(scripts, source) == "False False\n"

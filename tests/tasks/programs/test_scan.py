"""The scan gives a reason where a function uses what could do its work, and none where a demonstration does."""

import ast

import pytest

from helpers.tasks.programs.scan import scan

PRODUCT = "return [[sum(a * b for a, b in zip(row, column)) for column in zip(*B)] for row in A]"
HONEST = f"def matmul(A, B):\n    {PRODUCT}\n"


def reason(source, function="matmul"):
    return scan(source, ast.parse(source), function)


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\ndef matmul(A, B):\n    return (np.array(A) @ np.array(B)).tolist()",
        "def matmul(A, B):\n    import numpy\n    return numpy.matmul(A, B)",
        "from numpy import dot as product\ndef helper(A, B): return product(A, B)\n"
        "def matmul(A, B): return helper(A, B)",
        "import torch\nclass M:\n    def product(self): return torch.mm\nmatmul = M().product()",
        "import numpy as np\ndot = np.dot\nmatmul = lambda A, B: dot(A, B)",
        "try:\n    import numpy as np\nexcept ImportError:\n    np = None\n"
        f"def matmul(A, B):\n    if np: return np.dot(A, B)\n    {PRODUCT}",
        f"import time\ndef timed(f): return lambda *x: (time.time(), f(*x))[1]\n@timed\n{HONEST}",
        f"from time import perf_counter\ndef matmul(A, B, start=perf_counter()):\n    {PRODUCT}",
        "def matmul(A, B):\n    return __import__('numpy').dot(A, B)",
        "import importlib\ndef matmul(A, B):\n    return importlib.import_module('numpy').dot(A, B)",
        "import ctypes\ndef setup():\n    global dot\n    dot = ctypes\nsetup()\n"
        "def matmul(A, B):\n    return setup() or dot",
        "from numpy import *\ndef matmul(A, B):\n    return dot(A, B)",
        f"from logging import time\ndef matmul(A, B):\n    time.time()\n    {PRODUCT}",
        "import numpy.linalg\ndef matmul(A, B):\n    return numpy.linalg.multi_dot([A, B])",
    ],
)
def test_what_does_the_work_is_a_reason(source):
    assert reason(source)


@pytest.mark.parametrize(
    "source",
    [
        HONEST,
        f"import numpy as np\nimport time, timeit\n{HONEST}print(np.dot(matmul([[1]], [[2]]), 1), time.time())",
        f"{HONEST}if __name__ == '__main__':\n    import numpy as np\n    A = np.eye(3)\n    row = B = A\n"
        "    print(matmul(A, B))",
        f"import time\n{HONEST}def bench():\n    start = time.time()\n    matmul([[1]], [[2]])\n"
        "    return time.time() - start",
        f"import time\ndef matmul(A, B):\n    time = 0\n    {PRODUCT}",
        f"import random, numpy\nA = [[random.random()]]\n{HONEST}",
        f"import os, threading, concurrent.futures\n{HONEST}",
        f"{HONEST}if __name__ == '__main__':\n    import time\n    for matmul in (matmul,):\n        time.time()",
        "from __future__ import annotations\nimport numpy as np\n"
        f"def matmul(A: np.ndarray, B: np.ndarray) -> np.ndarray:\n    {PRODUCT}",
        "try:\n    import numpy\n    from operator import mul\nexcept ImportError:\n    from operator import mul\n"
        "def matmul(A, B):\n    return [[sum(map(mul, row, column)) for column in zip(*B)] for row in A]",
        "import math\ndef matmul(A, B):\n    return [[math.sumprod(r, c) for c in zip(*B)] for r in A]",
        "",
        "x = 1",
    ],
)
def test_what_a_demonstration_uses_is_none(source):
    assert reason(source) == ""


def test_a_script_needs_all_of_itself():
    assert reason("import time\nprint(1)", function=None) == "time: a program may not read the clock"
    assert reason("import os\nprint(1)", function=None) == ""

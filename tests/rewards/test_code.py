"""The program in a completion: which block it is, whatever stands around it, and how long it takes to find it."""

import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.rewards import extract_code
from tests.timing import assert_linear

MATMUL = "def matmul(A, B):\n    return A\n"
OTHER = "def matmul(A, B):\n    return B\n"
USAGE = "print(matmul([[1]], [[2]]))\n"


def block(text, fence="```", info="python"):
    return f"{fence}{info}\n{text}{fence}\n"


def indented(text, by="   "):
    return "".join(by + line for line in text.splitlines(keepends=True))


FOUND = {
    "one block": block(MATMUL),
    "words around it": f"Here it is.\n\n{block(MATMUL)}\nDone.",
    "no language": block(MATMUL, info=""),
    "short language": block(MATMUL, info="Py3"),
    "title": block(MATMUL, info='python title="mm.py"'),
    "attributes": block(MATMUL, info="{.python .numberLines}"),
    "tildes": block(MATMUL, "~~~"),
    "a longer fence": block(MATMUL, "`````"),
    "carriage returns": block(MATMUL).replace("\n", "\r\n"),
    "usage": block(MATMUL) + block(USAGE),
    "output": block(MATMUL) + block("[[2]]\n", info=""),
    "shell": block(MATMUL) + block("python mm.py\n", info="bash"),
    "an earlier version": block(OTHER) + block(MATMUL),
    "a definition in another language": block(MATMUL) + block(OTHER, info="text"),
    "a list": "1. Write:\n\n" + indented(block(MATMUL)),
    "a variable": block(OTHER) + block("matmul = lambda A, B: A\n"),
    "a fence inside a longer one": block(MATMUL, "~~~~"),
    "output that looks like a definition": block(MATMUL) + block("matmul = 3.2 s\n", info=""),
    "a closing fence that stands deeper": f"1. Here:\n```python\n{MATMUL}  ```\n",
    "a sentence behind the closing fence": block(MATMUL).rstrip("\n") + " It is quick.\n",
    "a block quote": indented(block(MATMUL), "> "),
    "a block quote without blanks": indented(block(MATMUL), "> ").replace("> ```", ">```"),
    "a block quote and prose": "> As asked:\n>\n" + indented(block(MATMUL), "> ") + "\nDone.",
    "Jupyter's name": block(MATMUL, info="ipython"),
    "imports of others": block("import os\nSIZE = 3\n") + block(MATMUL),
}


@pytest.mark.parametrize("layout", FOUND)
def test_the_block_that_defines_the_function(layout):
    code = extract_code(FOUND[layout], function="matmul")
    assert code in (MATMUL, "matmul = lambda A, B: A\n")
    assert extract_code([{"role": "assistant", "content": FOUND[layout]}], function="matmul") == code
    assert extract_code(FOUND[layout], finish_reason="length", function="matmul") is None


def test_a_fence_in_a_docstring_is_a_part_of_the_program():
    program = 'def matmul(A, B):\n    """As in\n\n    ```python\n    matmul(A, B)\n    ```\n    """\n    return A\n'
    assert extract_code(block(program), function="matmul") == program


def test_a_comparison_in_a_program_is_no_block_quote():
    program = "def matmul(A, B):\n    return (A\n        > B)\n"
    assert extract_code(block(program) + "\n> ```\n> [[1]]\n> ```\n", function="matmul") == program


def test_output_is_no_part_of_a_program():
    program = "def matmul(A, B):\n    RESULT = A\n    return RESULT\n"
    assert extract_code(block("RESULT: 42 rows\n", info="") + block(program), function="matmul") == program


def test_a_program_that_stands_there_twice_keeps_its_helpers():
    uses = "def matmul(A, B): return g(A)\n"
    helper = "def g(A): return A\n"
    assert extract_code(block(uses) + block(helper) + block(uses), function="matmul") == helper + uses


@pytest.mark.parametrize(
    "text",
    [
        "",
        MATMUL,
        block(MATMUL)[:-4],
        block(MATMUL) + "```python\n" + OTHER,
        "```python def matmul(A, B): pass```",
        block("let x\n", info="javascript"),
        block(USAGE) + block(USAGE),
        block(MATMUL.replace("\n", "\u2028\n", 1)),
        block(MATMUL + "# x\x0c\n"),
        block(MATMUL, "````")[:-2],
        "`inline ``` code`\n" + MATMUL,
    ],
)
def test_no_program(text):
    assert extract_code(text, function="matmul") is None


@pytest.mark.parametrize(
    "completion", [[], [{}], [{"role": "assistant"}], [{"role": "assistant", "content": None}], ""]
)
def test_a_completion_that_says_nothing(completion):
    assert extract_code(completion) is None


USES_OTHERS = "def matmul(A, B):\n    return add(A, reduce(mul, B), LIMIT)\n"


@pytest.mark.parametrize(
    "first",
    ["def add(*parts): return parts\n", "from functools import reduce\n", "import operator as mul\n", "LIMIT = 10\n",
     "LIMIT: int = 10\n"],
)  # fmt: skip
def test_what_an_earlier_block_binds_and_the_program_uses(first):
    assert extract_code(block(first) + block(USES_OTHERS), function="matmul") == first + USES_OTHERS
    assert extract_code(block(first) + block(MATMUL), function="matmul") == MATMUL
    assert extract_code(block(first, info="text") + block(USES_OTHERS), function="matmul") == USES_OTHERS


def test_a_helper_may_stand_behind_the_program():
    """Some models give the function first. Of a demonstration nothing is taken."""
    program = "def solve(n):\n    return double(n)\n"
    helper = "def double(n):\n    return 2 * n\n"
    text = f"```python\n{program}```\nwith\n```python\n{helper}```\n```python\nn = 3\nprint(solve(n))\n```"
    assert extract_code(text, function="solve") == helper + program
    corrected = "def double(n):\n    return n + n\n"
    text = f"```python\n{helper}```\n```python\n{corrected}```\n```python\n{program}```"
    assert extract_code(text, function="solve") == helper + corrected + program, "the later of two versions counts"


def test_helpers_of_helpers():
    blocks = [
        "from operator import mul\n",
        "scale = 2\n",
        "def double(n):\n    return mul(n, scale)\n",
        "n = list(range(10**9))\nprint(n)\n",
        "def solve(n):\n    return double(n)\n",
    ]
    text = "\n".join(f"```python\n{block}```" for block in blocks)
    assert extract_code(text, function="solve") == "".join(blocks[place] for place in (0, 1, 2, 4))
    first = "def double(n):\n    return 2 * n\n\ndef solve(n):\n    return n\n"
    text = f"```python\n{first}```\nbetter:\n```python\n{blocks[-1]}```"
    assert extract_code(text, function="solve") == first + blocks[-1], "of an earlier version its helpers are used"


def test_a_block_in_a_comment_is_none():
    program = "def solve(n):\n    return n\n"
    block = f"```python\n{program}```"
    assert extract_code(f"<!--\n{block}\n-->") is None
    assert extract_code(f"<!-- none -->\n{block}\n<!--\n```python\ndef solve(n): 1\n```") == program
    assert extract_code(f"{block}\n<!-- and --> text --> <!--\n{block}") == program
    commented = "<!--\n```python\ndef solve(n):\n```\nno\n-->\n"
    assert extract_code(commented + block) == program


def test_a_block_quote_without_blanks():
    assert extract_code(">```python\n>def solve(n):\n>    return n > 1\n>```") == "def solve(n):\n    return n > 1\n"


def test_the_last_that_runs_here():
    """Two programs, and what the last one needs is not here: a reader would take the other."""
    text = block(MATMUL) + block(OTHER)
    assert extract_code(text, function="matmul", runs_here=lambda program: True) == OTHER
    assert extract_code(text, function="matmul", runs_here=lambda program: program != OTHER) == MATMUL
    assert extract_code(text, function="matmul", runs_here=lambda program: False) == OTHER
    assert extract_code(block(OTHER), function="matmul", runs_here=lambda program: False) == OTHER


def test_without_a_name_any_function_will_do():
    assert extract_code(block("x = 1\n") + block(MATMUL) + block(USAGE)) == MATMUL
    assert extract_code(block("print(1)\n")) == "print(1)\n"
    assert extract_code(block("print(1)\n") + block("print(2)\n")) is None


SMALL = 50_000
#: Texts that grow by repetition, each near SMALL characters.
SLOW = {
    "blanks after a fence": "```" + " " * SMALL,
    "blanks before a fence": (" " * 1000 + "```\n") * (SMALL // 1004),
    "backticks": "`" * SMALL,
    "open fences": "```python\n" * (SMALL // 10),
    "fences that grow": "\n".join("`" * n for n in range(3, 316)),
    "closed blocks": block(MATMUL) * (SMALL // 55),
    "unlike fences": "```\n~~~\n" * (SMALL // 8),
    "line ends": "```\n" + "\n" * SMALL + "```\n",
    "one long word": "```\n" + "x" * SMALL + "\n```\n",
    "words and blanks": "```\n" + ("x " * 500 + "\n") * (SMALL // 1001) + "```\n",
    "colons": "```\n" + ("x:" * 500 + "\n") * (SMALL // 1001) + "```\n",
    "definitions of others": "```\n" + "def f" + "\t" * SMALL + "(x)\n```\n",
    "quotes": "> " * (SMALL // 2),
}


@pytest.mark.parametrize("kind", SLOW)
def test_the_time_is_linear(kind):
    """160,000 blanks behind a fence took 52 seconds."""
    assert_linear(partial(extract_code, function="matmul"), SLOW[kind] * 10, SLOW[kind] * 100, times=10)


PIECES = st.sampled_from(
    ["```", "~~~", "````", "```python\n", "~~~py\n", "   ", "\t", "\n", "\r\n", "\r", "\u2028", "> ", "- ", "`", "x",
     "def matmul(A, B): return A\n", "matmul = 1\n", "{", "}", '"""', "#", "\x0c", "\ud800", "\0"]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_fuzzed_fences(text):
    """Whatever is found is a run of whole lines of the text, between two fences, and holds a definition if any does.

    Blanks and the marks of block quotes at the beginning of a line are left out on both sides.
    """
    code = extract_code(text, function="matmul")
    if code is None:
        return
    flat = re.sub(r"^[ \t>]+", "", text.replace("\r\n", "\n"), flags=re.MULTILINE)
    assert re.sub(r"^[ \t>]+", "", code, flags=re.MULTILINE).strip("\n") in flat
    assert code == "" or code.endswith("\n")
    assert code.splitlines() == code.split("\n")[:-1]
    assert flat.count("```") + flat.count("~~~") >= 2

"""The driver for functions: what goes in, what comes out, and that nothing in a result is trusted."""

import json

import pytest

from helpers.sandbox import SOLVE, CaseResult, Limits, Payload, Sandbox, case_results, encode_cases
from helpers.sandbox.inside.drivers import function

LIMITS = Limits(answer_bytes=4096)


@pytest.fixture(scope="module")
def functions():
    with Sandbox(drivers=(SOLVE,), workers=1) as sandbox:
        yield sandbox


def results(sandbox, source, cases):
    outcome = sandbox.run(SOLVE, Payload(source, encode_cases(cases)), LIMITS)
    assert outcome.answered, outcome
    return case_results(outcome.bytes, len(cases))


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -1, 2**200, 0.1, -0.0, 1e300, "", "é€\0\ud800\U0001f600", [], [1, [2, "x"]], {"a": [None]}],
)
def test_plain_values_come_back_as_they_are(functions, value):
    """Their types, too: a verdict tells True from 1."""
    (found,) = results(functions, "def solve(value):\n    return value", [[value]])
    assert found == CaseResult(value) and type(found.value) is type(value) and repr(found.value) == repr(value)


def test_a_tuple_comes_back_as_a_list(functions):
    assert results(functions, "def solve():\n    return (1, ((2,), []))", [[]])[0].value == [1, [[2], []]]


def test_the_dictionaries_of_the_library_come_back_as_dictionaries(functions):
    """Honest programs count with them."""
    source = (
        "from collections import Counter, defaultdict\ndef solve(n):\n    return (Counter if n else defaultdict)('aa')"
    )
    source = source.replace("defaultdict)('aa')", "make)('aa')") + "\ndef make(text):\n    counts = defaultdict(int)\n"
    source += "    counts['a'] += 2\n    return counts\n"
    assert [result.value for result in results(functions, source, [[0], [1]])] == [{"a": 2}] * 2


def test_a_case_that_raises_does_not_end_the_others(functions):
    source = "def solve(a, b):\n    return a // b"
    found = results(functions, source, [[6, 2], [1, 0], [9, 3], [1, "x"], [1]])
    assert [result.value for result in found] == [3, None, 3, None, None]
    assert [result.fault for result in found] == ["", "ZeroDivisionError", "", "TypeError", "TypeError"]
    assert [result.raised for result in found] == [False, True, False, True, True]


def test_cases_share_nothing(functions):
    """A program that changes its arguments, or a result it returned, must not change another case."""
    source = "kept = []\ndef solve(values):\n    values.append(0)\n    kept.append(values)\n    kept[0].append(1)\n"
    source += "    return values"
    found = results(functions, source, [[[5]], [[5]], [[5]]])
    assert [result.value for result in found] == [[5, 0, 1], [5, 0], [5, 0]]


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("{1, 2}", "neither None"),
        ("solve", "neither None"),
        ("b'x'", "neither None"),
        ("1j", "neither None"),
        ("type('Sub', (int,), {})(1)", "neither None"),
        ("{1: 2}", "a key"),
        ("{type('Sub', (str,), {})('x'): 2}", "a key"),
        ("float('nan')", "not finite"),
        ("[float('inf')]", "not finite"),
        ("1 << 5000", "too large"),
        ("[0] * 20000", "too large"),
        ("'x' * 20000", "too much text"),
        ("{'x' * 20000: 1}", "too much text"),
        ("[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]", "nested"),
    ],
)
def test_what_is_no_plain_value_is_a_fault_of_its_case(functions, expression, fault):
    source = f"def solve(n):\n    return {expression} if n else 'fine'"
    first, second = results(functions, source, [[1], [0]])
    assert fault in first.fault and not first.raised and first.value is None
    assert second == CaseResult("fine")


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "{}", "[]", "[1]", "[[]]", '[{"result": 1}, {"result": 1}]', '[{"x": 1}]', '[{"raised": 1}]',
        '[{"raised": ["x"]}]', '[{"result": 1, "raised": "x"}]', "[" * 100_000, "9" * 9999, '["', "\x00", "\xff",
    ],
)  # fmt: skip
def test_an_answer_that_the_driver_did_not_write_is_refused(text):
    """A hostile program can write anything."""
    data = text.encode("latin-1")
    with pytest.raises(ValueError):
        case_results(len(data).to_bytes(4, "little") + data, 1)


def test_an_answer_that_lies_about_its_length_is_refused():
    with pytest.raises(ValueError, match="shorter"):
        case_results(b"\xff" * 100, 1)


def test_the_name_of_an_exception_is_fit_to_be_shown():
    data = json.dumps([{"raised": "a\nb\u202e" + "x" * 999}]).encode()
    (found,) = case_results(len(data).to_bytes(4, "little") + data, 1)
    assert found.fault.isprintable() and len(found.fault) <= 200 and found.raised


def test_the_bounds_are_reached_and_not_passed():
    """A result within the bounds is an answer."""
    copy = function._Copy().of([0] * (function.MOST_VALUES - 1), function.MOST_DEPTH)
    assert len(copy) == function.MOST_VALUES - 1
    with pytest.raises(ValueError, match="too large"):
        function._Copy().of([0] * function.MOST_VALUES, function.MOST_DEPTH)

"""Small programs with tests: which rows of MBPP are questions of the code task, and why the rest is not.

Nothing of a row is run here. A test is read as a call with literal arguments and a literal result, and whatever is
written otherwise is no test. A row in doubt is left out: a right program must never be judged wrong.
"""

import ast
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from helpers.gallery.code.judge import FUNCTION, LIMITS, is_same
from helpers.gallery.code.task import FORMAT
from helpers.gallery.sources.questions import Question, Unusable
from helpers.sandbox import case_results, encode_cases
from helpers.sandbox.inside.drivers import function as driver
from helpers.sandbox.inside.library import INNER_PRODUCTS, MODULES
from helpers.tasks.programs.scan import scan
from helpers.tasks.programs.task import extract_program
from helpers.tasks.task import Row

# Reasons, in the order in which they are looked for.
NOTHING = "nothing to ask"
SETUP = "code to run before the tests"
NO_PROGRAM = "reference that is no program"
NO_FUNCTION = "reference without the tested function"
SEVERAL = "tests of several functions"
NO_CALLS = "tests that are no calls with plain results"
ARGUMENTS = "arguments that the sandbox cannot carry, such as tuples"
RESULTS = "results that the sandbox cannot carry, such as sets"
TRUTH = "truth values that may be numbers"
REFUSED = "reference that the sandbox refuses"

#: One test is shown, and one at least is hidden.
LEAST_TESTS = 2
TOLERANCE = 1e-6
#: Less than half the distance between two floats: a float is met exactly, and an int may stand for it.
EXACT = 1e-17
#: Up to here each integer is a float, too.
MOST_EXACT_INTEGER = 2**53

#: Types whose values Python calls equal to plain ones, and that the sandbox refuses as results.
_UNPLAIN_TYPES = ("OrderedDict", "Decimal", "Fraction", "complex", "namedtuple", "NamedTuple", "IntEnum", "StrEnum")
#: Functions and methods that return True or False and nothing else.
_TRUTH_FUNCTIONS = frozenset({"all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass"})
_TRUTH_METHODS = frozenset({
    "endswith", "is_integer", "isalnum", "isalpha", "isdecimal", "isdigit", "isdisjoint", "islower", "isnumeric",
    "isspace", "issubset", "issuperset", "istitle", "isupper", "startswith",
})  # fmt: skip
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class _Test(NamedTuple):
    """A call of a function, and what it must return. is_bare: nothing but the truth of the result is asserted."""

    function: str
    arguments: list
    result: object
    is_bare: bool = False


def mbpp_question(values: Mapping) -> Question:
    """Return the question of a row of MBPP, configuration "full". Raises Unusable. values: as for `mbpp_row`."""
    row = mbpp_row(values)
    return Question(_sentence_of(values), row)


def mbpp_row(values: Mapping) -> Row:
    """Return a row of the code task with prompt, answer and tests, of a row of MBPP. Raises Unusable.

    values: text, code, test_list, test_setup_code and challenge_test_list, as the configuration "full" has them.

    The first test is the example in the prompt, and the others are hidden. Arguments arrive as they are written, so
    tuples, sets and dictionaries with other keys than texts are left out: JSON would make something else of them. The
    sandbox reads a tuple in a result as a list, and so do the tests. MBPP compares with `==`, for which 6.0 is 6, so an
    integer is right as a float, too; where a result is a float, all may be off by a little (`_tolerance_of`). A bool
    and a number are never taken for each other, so the reference must be seen to return the one or the other.
    """
    sentence = _sentence_of(values)
    if not sentence:
        raise Unusable(NOTHING)
    if str(values.get("test_setup_code") or "").strip():
        raise Unusable(SETUP)
    program, tree = _read_program(values.get("code"))
    tests, function = _tests_of(values, tree)
    _check_values(tests)
    _check_types(tests, function, tree)
    answer = _answer(program, tree, function)

    shown, *others = tests
    signature = ast.unparse(function.args)
    sentences = (
        sentence,
        f"Write the function {FUNCTION}({signature}) in pure Python.",
        f"Example: {_example_text(shown)}.",
        FORMAT,
    )
    return {"prompt": " ".join(sentences), "answer": answer, "tests": _hidden_tests(others, _tolerance_of(tests))}


def _sentence_of(values: Mapping) -> str:
    """Return what a row asks for, with a full stop, or ""."""
    text = values.get("text")
    if not isinstance(text, str) or not text.strip():
        return ""
    sentence = " ".join(text.split())
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _parse(text: str) -> ast.Module | None:
    """Return the syntax tree of a text, None where it is no Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # for an escape that is none, in a string
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# The tests.


def _tests_of(values: Mapping, tree: ast.Module) -> tuple[list[_Test], ast.FunctionDef]:
    """Return the tests of a row, no two of the same arguments, and the function that they call. Raises Unusable."""
    functions = {statement.name: statement for statement in tree.body if isinstance(statement, ast.FunctionDef)}
    found = list(_read_tests([*(values.get("test_list") or ()), *(values.get("challenge_test_list") or ())]))
    called = [test for test in found if test.function in functions]
    if found and not called:
        raise Unusable(NO_FUNCTION)
    tests = {}
    for test in called:
        # Any value but False, None, 0 and what is empty meets a bare assertion: it gives a result only with this.
        if not test.is_bare or _returns_truths(functions[test.function]):
            tests.setdefault((test.function, repr(test.arguments)), test)
    names = {test.function for test in tests.values()}
    if len(names) > 1:
        raise Unusable(SEVERAL)
    if len(tests) < LEAST_TESTS:
        raise Unusable(NO_CALLS)
    (name,) = names
    return list(tests.values()), functions[name]


def _read_tests(texts: Iterable[object]) -> Iterable[_Test]:
    """Yield the test of each text that is one."""
    for text in texts:
        tree = _parse(text) if isinstance(text, str) else None
        if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
            continue
        test = _read_condition(tree.body[0].test)
        if test is not None:
            yield test


def _read_condition(condition: ast.expr) -> _Test | None:
    """Return the test that an assertion is, None where it has another form than these: f(...) == value,
    f(...) is True, False or None, f(...), not f(...).
    """
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return _read_call(condition.operand, ast.Constant(False), is_bare=True)
    if isinstance(condition, ast.Call):
        return _read_call(condition, ast.Constant(True), is_bare=True)
    if not isinstance(condition, ast.Compare) or len(condition.ops) != 1:
        return None
    (comparison,) = condition.ops
    (right,) = condition.comparators
    is_singleton = isinstance(right, ast.Constant) and (right.value is None or type(right.value) is bool)
    if isinstance(comparison, ast.Eq) or (isinstance(comparison, ast.Is) and is_singleton):
        return _read_call(condition.left, right)
    return None


def _read_call(call: ast.expr, right: ast.expr, is_bare: bool = False) -> _Test | None:
    """Return the test of a call and its result, None unless both are literals and the function is a plain name."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return None
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        result = ast.literal_eval(right)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return _Test(call.func.id, arguments, result, is_bare)


def _example_text(test: _Test) -> str:
    arguments = ", ".join(map(repr, test.arguments))
    return f"{FUNCTION}({arguments}) == {test.result!r}"


def _hidden_tests(tests: Sequence[_Test], tolerance: float) -> str:
    """Return the column `tests` as `HiddenTests.from_json` reads it."""
    cases = [test.arguments for test in tests]
    results = [_floats_for_integers(test.result) for test in tests]
    return json.dumps({"cases": cases, "results": results, "tolerance": tolerance})


def _floats_for_integers(value: object) -> object:
    """Return a result with a float in place of each integer that is one, and a list in place of each tuple."""
    if type(value) is int and abs(value) <= MOST_EXACT_INTEGER:
        return float(value)
    if type(value) in (list, tuple):
        return [_floats_for_integers(part) for part in value]
    if type(value) is dict:
        return {key: _floats_for_integers(part) for key, part in value.items()}
    return value


def _tolerance_of(tests: Sequence[_Test]) -> float:
    """Return how far a result may be off: a millionth, and of results below 1 a millionth of the smallest."""
    floats = [number for test in tests for number in _floats_in(test.result)]
    if not floats:
        return EXACT
    sizes = [abs(number) for number in floats if number]
    return TOLERANCE * min([1.0, *sizes])


def _floats_in(value: object) -> list[float]:
    """Return the floats in a value, at any depth."""
    if type(value) is float:
        return [value]
    parts = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return [number for part in parts for number in _floats_in(part)]


def _types_in(value: object) -> set[type]:
    """Return the types of a plain value and of all its parts."""
    types = {type(value)}
    parts = value if type(value) in (list, tuple) else value.values() if type(value) is dict else ()
    return types.union(*map(_types_in, parts))


# What the sandbox can carry.


def _check_values(tests: Sequence[_Test]) -> None:
    """Raise Unusable for arguments that would arrive as others, and for results that the sandbox would refuse."""
    cases = [test.arguments for test in tests]
    try:
        arrived = driver.decode(bytearray(encode_cases(cases)))
    except (TypeError, ValueError, RecursionError):
        arrived = None
    if not is_same(arrived, cases):
        raise Unusable(ARGUMENTS)
    # A program that returned exactly what the tests say: would the sandbox let it?
    results = iter([test.result for test in tests])
    reports = driver.call(lambda *arguments: next(results), cases)
    answer = driver.encode(reports, cases)
    is_refused = any(result.fault for result in case_results(answer, len(cases)))
    if is_refused or len(answer) > LIMITS.answer_bytes:
        raise Unusable(RESULTS)


def _check_types(tests: Sequence[_Test], function: ast.FunctionDef, tree: ast.Module) -> None:
    """Raise Unusable where the reference may return what `==` takes for a result and the judge does not."""
    if any(name in _UNPLAIN_TYPES for name in _names_in(tree)):
        raise Unusable(RESULTS)
    has_truths = any(bool in _types_in(test.result) for test in tests)
    if has_truths and not _returns_truths(function):
        raise Unusable(TRUTH)
    # True == 1: a number may have been written for a truth value.
    has_zero_or_one = any(type(test.result) in (int, float) and test.result in (0, 1) for test in tests)
    if has_zero_or_one and _returns_a_truth(function):
        raise Unusable(TRUTH)


def _names_in(tree: ast.Module) -> Iterable[str]:
    """Yield the names that a program uses, binds or imports, and those of attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield from (node.name, node.asname or node.name)
        elif isinstance(node, ast.arg):
            yield node.arg


# The truth values that a function returns.


def _returns_truths(function: ast.FunctionDef) -> bool:
    """Tell whether a function can be seen to return True or False, whatever way it ends."""
    functions = _TRUTH_FUNCTIONS | {function.name}  # where it calls itself, it returns what its other ends return
    flags = _flags_of(function, functions)
    ends = _ends_of(function)
    returns_truths = all(end.value is not None and _is_truth(end.value, functions, flags) for end in ends)
    return returns_truths and _always_returns(function.body)


def _returns_a_truth(function: ast.FunctionDef) -> bool:
    """Tell whether a function can be seen to return True or False on one of its ways at least."""
    flags = _flags_of(function, _TRUTH_FUNCTIONS)
    ends = _ends_of(function)
    return any(end.value is not None and _is_truth(end.value, _TRUTH_FUNCTIONS, flags) for end in ends)


def _ends_of(function: ast.FunctionDef) -> list[ast.Return]:
    return [node for node in _nodes_of(function) if isinstance(node, ast.Return)]


def _nodes_of(function: ast.FunctionDef) -> Iterable[ast.AST]:
    """Yield the nodes of a function's body, without what is inside of other functions and classes in it."""
    waiting = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def _flags_of(function: ast.FunctionDef, functions: frozenset[str]) -> set[str]:
    """Return the variables of a function that are nothing but truth values, wherever they are set."""
    flags = set()
    bound_to_truths = []  # the nodes of names
    for node in _nodes_of(function):
        if isinstance(node, ast.Assign) and _is_truth(node.value, functions, ()):
            bound_to_truths += node.targets
    others = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    for node in _nodes_of(function):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
            continue
        if node in bound_to_truths:  # compared by identity, as nodes are
            flags.add(node.id)
        else:
            others.add(node.id)
    return flags - others


def _is_truth(value: ast.expr, functions: Iterable[str], flags: Iterable[str]) -> bool:
    """Tell whether an expression can be seen to be True or False.

    functions: that return nothing else. flags: variables that are nothing else.
    """
    if isinstance(value, ast.Constant):
        return type(value.value) is bool
    if isinstance(value, ast.Name):
        return value.id in flags
    if isinstance(value, ast.BoolOp):
        return all(_is_truth(part, functions, flags) for part in value.values)
    if isinstance(value, ast.IfExp):
        return _is_truth(value.body, functions, flags) and _is_truth(value.orelse, functions, flags)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in functions
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in _TRUTH_METHODS
    is_negation = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    return is_negation or isinstance(value, ast.Compare)


def _always_returns(body: Sequence[ast.stmt]) -> bool:
    """Tell whether statements can be seen to end with a `return` or a `raise`. Otherwise None may be returned."""
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise))


# The reference.


def _read_program(code: object) -> tuple[str, ast.Module]:
    """Return the text of a reference, with newlines alone at the ends of its lines, and its tree. Raises Unusable."""
    if not isinstance(code, str):
        raise Unusable(NO_PROGRAM)
    program = code.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    tree = _parse(program)
    if tree is None:
        raise Unusable(NO_PROGRAM)
    return program, tree


def _answer(program: str, tree: ast.Module, function: ast.FunctionDef) -> str:
    """Return a right program that defines `solve`: the reference, and another name for its function.

    Raises Unusable where the sandbox would refuse it or has not what it imports, and where the name is taken.
    """
    if not _is_available(tree):
        raise Unusable(REFUSED)
    answer = program
    if function.name != FUNCTION:
        if FUNCTION in _names_in(tree):
            raise Unusable(REFUSED)
        answer = f"{program}\n\n{FUNCTION} = {function.name}"
    if scan(answer, _parse(answer), FUNCTION):
        raise Unusable(REFUSED)
    found = extract_program(f"```python\n{answer}\n```", "stop", FUNCTION)
    if found is None or found.strip("\n") != answer:
        raise Unusable(REFUSED)
    return answer


def _is_available(tree: ast.Module) -> bool:
    """Tell whether the sandbox has all that a program imports, needed or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and not all(alias.name in MODULES for alias in node.names):
            return False
        if isinstance(node, ast.ImportFrom):
            is_product = node.module == "math" and any(alias.name in (*INNER_PRODUCTS, "*") for alias in node.names)
            if node.module not in MODULES or is_product:
                return False
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "math" and node.attr in INNER_PRODUCTS:
                return False
    return True

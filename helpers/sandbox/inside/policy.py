"""The first wall: what counts as pure Python. An allow-list of syntax, names and modules, read before anything runs.

Safety does not rest on it: a program that gets round it meets the second wall, and its answers are checked all the
same.
"""

import array
import ast
import builtins
import collections
import functools
import itertools
import math
import operator
import types
import typing

MAX_SOURCE, MAX_NODES = 20_000, 4_000  # characters; nodes of the syntax tree


class Refused(Exception):
    """The program breaks the policy; the message is one short sentence."""


def _public(module, refused=()):
    return {n: getattr(module, n) for n in dir(module) if not n.startswith("_") and n not in refused}


def _chosen(module, names):
    return {n: getattr(module, n) for n in names.split() if hasattr(module, n)}


def _wraps(wrapped):
    """In place of functools.wraps, which copies any attribute it is told to."""
    return lambda function: function


class _Hint:
    """In place of what `typing` has for readers only: its own things are live code that can be made to evaluate."""

    def __getitem__(self, _):
        return self

    __call__ = __or__ = __ror__ = lambda self, *_, **__: self

    def __mro_entries__(self, bases):
        return ()


_ABSTRACT = _public(collections.abc)
_HINTS = (
    "Annotated Any ClassVar Final Generic Literal NoReturn Optional ParamSpec Protocol Self SupportsFloat "
    "SupportsIndex SupportsInt TypeAlias TypeVar Union"
)
_TYPING = dict.fromkeys(_HINTS.split(), _Hint()) | _ABSTRACT | {
    "Dict": dict, "FrozenSet": frozenset, "List": list, "Set": set, "Tuple": tuple, "Type": type,
    "DefaultDict": collections.defaultdict, "Deque": collections.deque, "NamedTuple": typing.NamedTuple,
    "NewType": lambda name, kind: lambda value: value, "cast": lambda kind, value: value,
    "final": lambda function: function, "overload": lambda function: function, "TYPE_CHECKING": False,
}  # fmt: skip
#: What a program may import, as copies, so that it holds no module. Left out: ways to reach any attribute by
#: its name, and what holds the inner product in C: `math.sumprod` openly, `dist` and `hypot` by polarisation.
MODULES = {
    name: types.SimpleNamespace(**names)
    for name, names in {
        "__future__": {"annotations": None},
        "array": {"array": array.array},
        "collections": {
            **_chosen(collections, "Counter OrderedDict defaultdict deque namedtuple"),
            "abc": types.SimpleNamespace(**_ABSTRACT),
        },
        "collections.abc": _ABSTRACT,
        "functools": _chosen(functools, "cache cmp_to_key lru_cache partial reduce") | {"wraps": _wraps},
        "itertools": _public(itertools),
        "math": _public(math, ("sumprod", "dist", "hypot")),
        "operator": _public(operator, ("attrgetter", "methodcaller")),
        "typing": _TYPING,
    }.items()
}
BUILTINS = _chosen(
    builtins,
    "abs all any bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate filter float "
    "format frozenset hasattr hash hex id int isinstance issubclass iter len list map max memoryview min next "
    "object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum super tuple "
    "type zip True False None Ellipsis NotImplemented ArithmeticError AssertionError AttributeError BaseException "
    "BufferError Exception FloatingPointError ImportError IndexError KeyError LookupError MemoryError "
    "ModuleNotFoundError NameError NotImplementedError OSError OverflowError RecursionError RuntimeError "
    "StopIteration TypeError ValueError ZeroDivisionError __build_class__",
)
#: Double underscores that a program may write: methods of its own classes, and of numbers and lists.
_SPECIAL = {
    f"__{name}__"
    for name in "abs add all author bool call contains doc enter eq exit float floordiv ge getitem gt hash iadd "
    "imatmul imul init int isub iter le len lt matmul missing mod mul name ne neg new next pow radd repr rmul rsub "
    "setitem slots str sub truediv version".split()
}
#: Attributes a program may read, beside those it defines: the methods of plain values and the names of MODULES.
_PLAIN = (list, tuple, dict, set, str, bytes, int, float, complex, array.array, memoryview, *MODULES.values())
ATTRIBUTES = {n for owner in _PLAIN for n in dir(owner) if not n.startswith("_")} | {"from_iterable"}
ATTRIBUTES |= {n for owner in (collections.deque, collections.OrderedDict) for n in dir(owner) if n[0] != "_"}
ATTRIBUTES |= {"args", "cache_clear", "cache_info", "close", "most_common", "send", "setter", "value"}
ATTRIBUTES -= {"obj"}  # what an AttributeError carries: `str.format` reaches anything, and raises one there
#: What Python's own machinery carries, from frames to classes: no program may have an attribute of its own that.
_MACHINERY = (
    types.FrameType, types.CodeType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType,
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.TracebackType, types.ModuleType, type,
)  # fmt: skip
MACHINERY = {n for owner in _MACHINERY for n in dir(owner)} | {"obj"}
MACHINERY |= {n for owner in vars(typing).values() if isinstance(owner, type) for n in dir(owner) if n[0] == "_"}
#: A telling name for what the usual cheats reach for.
CHEATS = {
    **dict.fromkeys(("numpy", "np"), "numpy is not pure Python"),
    **dict.fromkeys(("torch", "scipy", "jax", "numba", "cupy"), "{} is not pure Python"),
    **dict.fromkeys(("time", "timeit"), "a program may not touch the clock"),
    **dict.fromkeys(("eval", "exec", "compile"), "{} is not allowed: write the program out"),
    "sumprod": "math.sumprod is the inner product in C",
}
_REFUSED_NODES = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.MatchClass)


def check_policy(tree, function=None, supplied=()):
    """Raise `Refused` unless the program is pure Python.

    function: the name of the function that a program is there to define; None for a script. Where there is one,
    whatever stands under `if __name__ == "__main__":`, and so would never run, is taken out of `tree` first.
    supplied: names that the program is given beside `BUILTINS`.
    """
    if function is not None:
        tree.body = [part for node in tree.body for part in (node.orelse if _only_as_script(node) else [node])]
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise Refused("the program is too long")
    if sum(_defines(node, function) for node in tree.body) > 1:
        raise Refused(f"{function} is defined more than once")
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    stored |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    stored |= {getattr(node, "name", None) for node in nodes}  # functions, classes, except ... as
    stored |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    stored |= set(supplied)
    if function is None:
        stored.add("__name__")  # which says "__main__"
    attributes = ATTRIBUTES | _SPECIAL | (_own_attributes(nodes) - MACHINERY)
    for node in nodes:
        _check_identifiers(node)
        _check_node(node, stored, attributes)


def _only_as_script(node):
    if not isinstance(node, ast.If):
        return False
    test = node.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        test = test.values[0]
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _defines(node, function):
    """Whether a statement defines `function`; a signature under @overload does not."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name != function:
        return False
    return not any("overload" in ast.unparse(part) for part in node.decorator_list)


def _own_attributes(nodes):
    """Attributes that the program itself sets or that its classes define."""
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", part)]
            names |= {getattr(target, "id", getattr(target, "name", None)) for target in targets}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "namedtuple":
            names |= {word for part in ast.walk(node) if isinstance(part, ast.Constant) for word in _words(part.value)}
    return names


def _words(value):
    return value.replace(",", " ").split() if isinstance(value, str) else ()


def _check_node(node, stored, attributes):
    if isinstance(node, _REFUSED_NODES):
        raise Refused(f"{type(node).__name__} is not allowed")
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [node.module or "."] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for name in names:
            if name not in MODULES:
                _refuse(name.split(".")[0], f"importing {name} is not allowed")
        if "sumprod" in [alias.name for alias in node.names]:
            _refuse("sumprod", "")
    if isinstance(node, ast.Attribute) and node.attr not in attributes:
        root = node.value.id if isinstance(node.value, ast.Name) else ""
        _refuse(root if root in CHEATS else node.attr, f"the attribute {node.attr} is not allowed")
    if isinstance(node, ast.Name) and node.id not in stored and node.id not in BUILTINS:
        if hasattr(builtins, node.id) or node.id in CHEATS:
            _refuse(node.id, f"the name {node.id} is not allowed")
    if isinstance(node, ast.ClassDef) and node.keywords:
        raise Refused("a metaclass is not allowed")


def _refuse(name, otherwise):
    raise Refused(CHEATS.get(name, otherwise).format(name))


def _check_identifiers(node):
    """No double underscore in any name, wherever the grammar keeps one: `import x as`, `global`, `case`, ..."""
    for value in vars(node).values() if not isinstance(node, ast.Constant) else ():
        for name in value if isinstance(value, list) else [value]:
            special = isinstance(name, str) and name.startswith("__") and name.endswith("__")
            if special and name not in _SPECIAL and name != "__future__":
                raise Refused(f"the name {name} is not allowed")


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    module = MODULES[name if fromlist else name.partition(".")[0]]  # `import collections.abc` binds collections
    for wanted in fromlist or ():
        if wanted != "*" and wanted not in vars(module):
            raise ImportError(f"cannot import name {wanted} from {name}")
    return module


def scope_for_program(name):
    """Return the global names of a program that keeps to the policy. name: its `__name__`."""
    return {"__builtins__": {**BUILTINS, "__import__": _import}, "__name__": name}

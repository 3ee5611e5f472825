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
from collections.abc import Collection

MAX_SOURCE = 20_000  # characters
MAX_NODES = 4_000  # of the syntax tree


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


def check_policy(tree: ast.Module, function: str | None = None, supplied: Collection[str] = ()) -> None:
    """Raise `Refused` unless the program is pure Python.

    function: the name of the function that a program is there to define; None for a script. Where there is one,
    whatever stands under `if __name__ == "__main__":`, and so would never run, is taken out of `tree` first.
    supplied: names that the program is given beside `BUILTINS`.
    """
    if function is not None:
        tree.body = _without_script_part(tree.body)
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise Refused("the program is too long")
    definitions = [statement for statement in tree.body if _defines(statement, function)]
    if len(definitions) > 1:
        raise Refused(f"{function} is defined more than once")
    names = _own_names(nodes) | set(supplied)
    if function is None:
        names.add("__name__")  # which says "__main__"
    attributes = ATTRIBUTES | _SPECIAL | (_own_attributes(nodes) - MACHINERY)
    for node in nodes:
        _check_identifiers(node)
        _check_node(node, names, attributes)


def _without_script_part(statements):
    """Replace each `if __name__ == "__main__":` by what stands under its `else`."""
    kept = []
    for statement in statements:
        if _runs_only_as_script(statement):
            kept += statement.orelse
        else:
            kept.append(statement)
    return kept


def _runs_only_as_script(statement):
    if not isinstance(statement, ast.If):
        return False
    test = statement.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        test = test.values[0]
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _defines(statement, function):
    """Whether a statement defines `function`; a signature under @overload does not."""
    if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return False
    decorators = [ast.unparse(decorator) for decorator in statement.decorator_list]
    is_overload = any("overload" in decorator for decorator in decorators)
    return statement.name == function and not is_overload


def _own_names(nodes):
    """Names that the program itself binds."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        if isinstance(node, ast.arg):
            names.add(node.arg)
        if isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        names.add(getattr(node, "name", None))  # functions, classes, except ... as, patterns
    return names


def _own_attributes(nodes):
    """Attributes that the program itself sets or that its classes define."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                names |= _bound_in_class(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "namedtuple":
            names |= _words(node)
    return names


def _bound_in_class(statement):
    """Names that a statement in the body of a class binds."""
    targets = [getattr(statement, "target", statement)]
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    names = set()
    for target in targets:
        name = getattr(target, "name", None)
        names.add(getattr(target, "id", name))
    return names


def _words(call):
    """Words in the texts among the arguments of a call, as `namedtuple` splits its field names."""
    words = set()
    for node in ast.walk(call):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.update(node.value.replace(",", " ").split())
    return words


def _check_node(node, names, attributes):
    """names, attributes: those that the program may read."""
    if isinstance(node, _REFUSED_NODES):
        raise Refused(f"{type(node).__name__} is not allowed")
    if isinstance(node, ast.ClassDef) and node.keywords:
        raise Refused("a metaclass is not allowed")
    if isinstance(node, ast.Import):
        _check_import(node, [alias.name for alias in node.names])
    if isinstance(node, ast.ImportFrom):
        _check_import(node, [node.module or "."])
    if isinstance(node, ast.Attribute) and node.attr not in attributes:
        root = getattr(node.value, "id", "")
        _refuse(root if root in CHEATS else node.attr, f"the attribute {node.attr} is not allowed")
    if isinstance(node, ast.Name) and node.id not in names and node.id not in BUILTINS:
        if hasattr(builtins, node.id) or node.id in CHEATS:
            _refuse(node.id, f"the name {node.id} is not allowed")


def _check_import(node, modules):
    for module in modules:
        if module not in MODULES:
            _refuse(module.split(".")[0], f"importing {module} is not allowed")
    if any(alias.name == "sumprod" for alias in node.names):
        _refuse("sumprod", "")


def _refuse(name, otherwise):
    """Raise `Refused` with the reason for a known cheat of this name, or with another."""
    reason = CHEATS.get(name, otherwise)
    raise Refused(reason.format(name))


def _check_identifiers(node):
    """No double underscore in any name, wherever the grammar keeps one: `import x as`, `global`, `case`, ..."""
    if isinstance(node, ast.Constant):
        return
    for value in vars(node).values():
        identifiers = value if isinstance(value, list) else [value]
        for name in identifiers:
            is_special = isinstance(name, str) and name.startswith("__") and name.endswith("__")
            if is_special and name not in _SPECIAL and name != "__future__":
                raise Refused(f"the name {name} is not allowed")


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    """In place of `__import__`: the allowed modules and nothing else."""
    # `import collections.abc` binds collections.
    bound = name if fromlist else name.partition(".")[0]
    module = MODULES[bound]
    for wanted in fromlist or ():
        if wanted != "*" and wanted not in vars(module):
            raise ImportError(f"cannot import name {wanted} from {name}")
    return module


def scope_for_program(name: str) -> dict:
    """Return the global names of a program that keeps to the policy. name: its `__name__`."""
    return {"__builtins__": {**BUILTINS, "__import__": _import}, "__name__": name}

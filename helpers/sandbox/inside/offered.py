"""What a program that keeps to the policy can reach: built-in names, and modules to import.

Nothing here leads to a real module, to a way of reading any attribute by its name, or to a way of making a class from
a dictionary (`stand_ins`). What is left out, beside all that reaches out of the program:

- `__index__`, `__int__` and `__float__` of a program's own, and classes whose methods of these names can be made to
  call one of the program's, such as `Fraction`: CPython calls them while it holds a pointer into a buffer, and trusts
  the pointer afterwards;
- `attrgetter`, `methodcaller`, `string.Formatter`: they read attributes that the policy never sees;
- `math.sumprod`, `dist`, `hypot`: the inner product in C, the latter two by polarisation. They are missing in the whole
  process (`inner_products`).
"""

import __future__

import abc
import array
import bisect
import builtins
import collections
import collections.abc
import contextlib
import enum
import functools
import heapq
import itertools
import math
import operator
import string
import sys
import types
import typing

from . import data_class, stand_ins
from .stand_ins import Hint, Silent, Type, identity


def _public(module, without=()):
    return {name: getattr(module, name) for name in dir(module) if name[0] != "_" and name not in without}


def _chosen(module, names):
    return {name: getattr(module, name) for name in names.split() if hasattr(module, name)}


def _constants(module):
    """The public names of a module that stand for a text."""
    return {name: value for name, value in _public(module).items() if isinstance(value, str)}


_ABSTRACT = {name: thing for name, thing in _public(collections.abc).items() if isinstance(thing, type)}
_ABSTRACT["Callable"] = stand_ins.CallableHint("Callable")
#: What `typing` offers stands for nothing, except for these.
_TYPING = {
    **{name: Hint(name) for name in typing.__all__ if name[0].isupper() and name != "ForwardRef"},
    **_ABSTRACT,
    "Counter": collections.Counter,
    "DefaultDict": collections.defaultdict,
    "Deque": collections.deque,
    "Dict": dict,
    "FrozenSet": frozenset,
    "Generic": Hint("Generic", bases=(stand_ins.Generic,)),
    "List": list,
    "NamedTuple": typing.NamedTuple,
    "NewType": lambda name, kind: identity,
    "Optional": stand_ins.UnionHint("Optional"),
    "OrderedDict": stand_ins.OrderedDict,
    "Protocol": Hint("Protocol", bases=(stand_ins.Generic,)),
    "Set": set,
    "TYPE_CHECKING": False,
    "Text": str,
    "Tuple": tuple,
    "Type": Type,
    "TypedDict": stand_ins.TypedDictHint("TypedDict", bases=(stand_ins.TypedDict,)),
    "Union": stand_ins.UnionHint("Union"),
    "cast": lambda kind, value: value,
    **dict.fromkeys(("final", "no_type_check", "overload", "override", "runtime_checkable"), identity),
}

_MODULES = {
    "__future__": dict.fromkeys(__future__.all_feature_names),
    "abc": {"ABC": stand_ins.Abc, "ABCMeta": Hint("ABCMeta"), "abstractmethod": identity},
    "array": {"array": array.array},
    "bisect": _public(bisect),
    "collections": {
        **_chosen(collections, "ChainMap Counter defaultdict deque namedtuple"),
        "OrderedDict": stand_ins.OrderedDict,
        "abc": stand_ins.namespace(_ABSTRACT),
    },
    "collections.abc": _ABSTRACT,
    "contextlib": _chosen(contextlib, "ExitStack closing contextmanager nullcontext suppress"),
    "copy": _chosen(stand_ins, "copy deepcopy"),
    "dataclasses": _chosen(data_class, "FrozenInstanceError asdict astuple dataclass field fields replace"),
    "enum": {"Enum": stand_ins.Enum, "IntEnum": stand_ins.IntEnum, "auto": enum.auto, "unique": enum.unique},
    "functools": {
        **_chosen(functools, "cache cmp_to_key lru_cache partial reduce total_ordering"),
        **_chosen(stand_ins, "cached_property wraps"),
    },
    "heapq": _chosen(heapq, "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest"),
    "itertools": {**_public(itertools), **_chosen(stand_ins, "accumulate count groupby")},
    "logging": {
        **dict.fromkeys(
            ("Formatter", "NullHandler", "StreamHandler", "basicConfig", "getLogger"), stand_ins.make_silent
        ),
        **{"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50},
    },
    "math": _public(math, ("sumprod", "dist", "hypot")),
    "numbers": {
        "Complex": Hint("Complex", kinds=(int, float, complex)),
        "Integral": Hint("Integral", kinds=(int,)),
        "Number": Hint("Number", kinds=(int, float, complex)),
        "Rational": Hint("Rational", kinds=(int,)),
        "Real": Hint("Real", kinds=(int, float)),
    },
    "operator": _public(operator, ("attrgetter", "methodcaller")),
    "string": _constants(string),
    "sys": {
        **_chosen(sys, "byteorder float_info getrecursionlimit int_info maxsize version version_info"),
        "setrecursionlimit": stand_ins.set_recursion_limit,
        "stderr": Silent(),
        "stdout": Silent(),
    },
    "types": {"SimpleNamespace": stand_ins.SimpleNamespace},
    "typing": _TYPING,
    "warnings": dict.fromkeys(("filterwarnings", "simplefilter", "warn"), Silent().write),
}
#: module -> the names that a program may import from it
NAMES = {module: frozenset(names) for module, names in _MODULES.items()}
#: module -> what a program gets for it
MODULES = {module: stand_ins.namespace(names) for module, names in _MODULES.items()}


def _public_attributes(*owners):
    return {name for owner in owners for name in dir(owner) if name[0] != "_"}


#: Attributes a program may read, beside those it defines: those of plain values, and what the modules hold.
ATTRIBUTES = _public_attributes(
    *(list, tuple, dict, set, str, bytes, int, float, complex, array.array, memoryview),
    *(collections.deque, collections.Counter, collections.ChainMap, stand_ins.OrderedDict, functools.partial),
    *(property, contextlib.ExitStack, Silent, sys.float_info, sys.version_info),
)
ATTRIBUTES |= {name for names in NAMES.values() for name in names if name[0] != "_"}
ATTRIBUTES |= {"add_note", "args", "cache_clear", "cache_info", "close", "default", "exceptions", "from_iterable"}
ATTRIBUTES |= {"kwargs", "name", "send", "value", "_asdict", "_fields", "_make", "_replace"}
#: Left out: what an AttributeError carries (`str.format` reaches anything, and raises one there), methods of `array`
#: that call the program's `write` or `read` back while they hold the array's buffer, and `str.format` (`format_of`).
ATTRIBUTES -= {"obj", "tofile", "fromfile", "format", "format_map"}

#: The interpreter's own machinery, from frames to metaclasses. No program may have an attribute of its own with a name
#: of theirs, since it could read theirs then.
_MACHINERY = (
    types.FrameType, types.CodeType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType,
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.TracebackType, types.ModuleType, type,
    abc.ABCMeta, enum.EnumMeta, typing.ForwardRef,
)  # fmt: skip
#: Classes of the library that are offered as they are: their inner attributes are nobody else's, either.
_OFFERED_CLASSES = (
    enum.Enum, enum.auto, contextlib.ExitStack, contextlib.closing, contextlib.suppress, contextlib.nullcontext,
    type(contextlib.contextmanager(identity)(iter(()))), *_ABSTRACT.values(), collections.Counter, collections.ChainMap,
)  # fmt: skip
MACHINERY = {name for owner in _MACHINERY for name in dir(owner)} - ATTRIBUTES
MACHINERY |= {name for owner in _OFFERED_CLASSES for name in dir(owner) if name[0] == "_"}
MACHINERY |= {"obj", "tofile", "fromfile", "with_traceback", "format", "format_map"}


def get_attribute(value, name, *default):
    """In place of `getattr`, for the names that the policy lets pass where they are written out."""
    _check_attribute(name)
    return getattr(value, name, *default)


def set_attribute(value, name, new):
    """In place of `setattr`, for the same names."""
    _check_attribute(name)
    setattr(value, name, new)


class SafeFormatter(string.Formatter):
    """Formats a text, as `str.format` does, whose fields read no attribute that the policy would refuse."""

    def get_field(self, field_name, args, kwargs):
        for name in field_name.replace("[", ".").replace("]", "").split(".")[1:]:
            _check_attribute(name)
        return super().get_field(field_name, args, kwargs)


def format_of(value):
    """In place of the attribute `format`, which in a text would read any attribute by its name."""
    if value is str:
        return SafeFormatter().format
    if isinstance(value, str):
        return functools.partial(SafeFormatter().format, value)
    method = value.format
    if isinstance(method, types.BuiltinMethodType | types.MethodDescriptorType):
        raise AttributeError("this attribute is not allowed")
    return method


def _check_attribute(name):
    if type(name) is not str or name.startswith("__") or name in MACHINERY:
        raise AttributeError("this attribute is not allowed")


#: attribute -> the name of what a program calls in its place (`prepare`)
REWRITTEN = {"__class__": "__type__", "format": "__format_of__"}
#: The built-in names that a program may use, and those that only rewritten ones do.
BUILTINS = {
    **_chosen(
        builtins,
        "abs all any bin bool bytes callable chr classmethod complex dict divmod enumerate filter float "
        "format frozenset hasattr hash hex id int isinstance issubclass len list map max memoryview min next "
        "object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum super tuple "
        "zip True False None Ellipsis NotImplemented ArithmeticError AssertionError AttributeError BaseException "
        "BufferError DeprecationWarning Exception ExceptionGroup FloatingPointError ImportError IndexError KeyError "
        "LookupError MemoryError ModuleNotFoundError NameError NotImplementedError OSError OverflowError "
        "RecursionError RuntimeError RuntimeWarning StopIteration SyntaxError TypeError UnboundLocalError "
        "UnicodeError UserWarning ValueError Warning ZeroDivisionError",
    ),
    **_chosen(stand_ins, "bytearray iter"),
    "getattr": get_attribute,
    "setattr": set_attribute,
    "type": Type,
    "__build_class__": stand_ins.build_class,
    "__format_of__": format_of,
    "__hint__": Hint("type parameter"),
    "__type__": Type,
}


def import_offered(name, globals=None, locals=None, fromlist=(), level=0):
    """In place of `__import__`: the modules offered and nothing else. The policy has seen which names are wanted."""
    # `import collections.abc` binds collections.
    bound = name if fromlist else name.partition(".")[0]
    return MODULES[bound]


def scope_for_program(name: str) -> dict:
    """Return the global names of a program that keeps to the policy. name: its `__name__`."""
    return {"__builtins__": {**BUILTINS, "__import__": import_offered}, "__name__": name}

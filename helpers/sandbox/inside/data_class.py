"""In place of `dataclasses`, which writes source text from the names of fields and executes it.

What programs use of it: `dataclass` with `init`, `repr`, `eq`, `order` and `frozen` (other settings change nothing),
`field`, `__post_init__`, inheritance, and the functions that look at an instance.
"""

from functools import partial
from operator import ge, gt, le, lt
from typing import NamedTuple

_MISSING = object()
_FIELDS: dict[type, dict] = {}  # data class -> {name: what is said of the field}


class FrozenInstanceError(AttributeError):
    """Somebody tried to set an attribute of a frozen instance."""


class Field(NamedTuple):
    """What a class says of one field."""

    name: str | None
    default: object
    default_factory: object
    init: bool
    repr: bool
    compare: bool
    kw_only: bool


def field(
    *, default=_MISSING, default_factory=_MISSING, init=True, repr=True, hash=None, compare=True, metadata=None,
    kw_only=False,
):  # fmt: skip
    """Describe a field."""
    return Field(None, default, default_factory, init, repr, compare, kw_only)


def dataclass(cls=None, /, *, init=True, repr=True, eq=True, order=False, frozen=False, kw_only=False, **_):
    """Give a class the methods that follow from its annotated fields."""
    if cls is None:
        return partial(dataclass, init=init, repr=repr, eq=eq, order=order, frozen=frozen, kw_only=kw_only)
    described = _fields_of_bases(cls) | _own_fields(cls, kw_only)
    _FIELDS[cls] = described
    methods = {}
    if init:
        methods["__init__"] = _init
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods["__eq__"] = _equal
        methods["__hash__"] = _hash if frozen else None
    if order:
        methods |= {f"__{compare.__name__}__": _ordered(compare) for compare in (lt, le, gt, ge)}
    if frozen:
        methods["__setattr__"] = methods["__delattr__"] = _refuse_change
    methods["__match_args__"] = tuple(name for name, about in described.items() if about.init)
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return cls


def fields(value):
    """Return what is said of each field of a class or an instance."""
    return tuple(_described(value).values())


def astuple(value):
    """Return the values of the fields; those of fields that are data classes, too, as tuples."""
    return tuple(_as_tuple(getattr(value, name)) for name in _described(value))


def asdict(value):
    """Return {field: value}; those of fields that are data classes, too, as dictionaries."""
    return {name: _as_dict(getattr(value, name)) for name in _described(value)}


def replace(value, /, **changes):
    """Return a copy in which some fields have other values."""
    known = {name: getattr(value, name) for name, about in _described(value).items() if about.init}
    return type(value)(**known | changes)


def _described(value):
    """{name: what is said of the field} of a data class or an instance of one. Raises TypeError for anything else."""
    cls = value if isinstance(value, type) else type(value)
    for base in cls.__mro__:
        if base in _FIELDS:
            return _FIELDS[base]
    raise TypeError("not a data class or an instance of one")


def _is_data(value):
    return any(base in _FIELDS for base in type(value).__mro__)


def _as_tuple(value):
    if _is_data(value):
        return astuple(value)
    if type(value) in (list, tuple):
        return type(value)(map(_as_tuple, value))
    return value


def _as_dict(value):
    if _is_data(value):
        return asdict(value)
    if type(value) in (list, tuple):
        return type(value)(map(_as_dict, value))
    return value


def _fields_of_bases(cls):
    described = {}
    for base in reversed(cls.__mro__[1:]):
        described |= _FIELDS.get(base, {})
    return described


def _own_fields(cls, kw_only):
    """Read the annotations of a class, and take the descriptions of fields out of it."""
    described = {}
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        if _is_class_variable(annotation):
            continue
        given = vars(cls).get(name, _MISSING)
        if not isinstance(given, Field):
            given = Field(None, given, _MISSING, True, True, True, kw_only)
        elif given.default is _MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, given.default)
        if type(given.default) in (list, dict, set):
            raise ValueError(f"mutable default for field {name} is not allowed: use default_factory")
        described[name] = given._replace(name=name)
    return described


def _is_class_variable(annotation):
    text = annotation if isinstance(annotation, str) else getattr(annotation, "meaning", "")
    return text.removeprefix("typing.").startswith("ClassVar")


def _init(self, *values, **named):
    described = _described(self)
    positional = [name for name, about in described.items() if about.init and not about.kw_only]
    if len(values) > len(positional):
        raise TypeError(f"__init__() takes {len(positional)} arguments but {len(values)} were given")
    given = dict(zip(positional, values))
    for name in named:
        if name in given or name not in described or not described[name].init:
            raise TypeError(f"__init__() got an unexpected argument '{name}'")
    given |= named
    for name, about in described.items():
        if name in given:
            value = given[name]
        elif about.default_factory is not _MISSING:
            value = about.default_factory()
        elif about.default is not _MISSING:
            value = about.default
        elif about.init:
            raise TypeError(f"__init__() missing the argument '{name}'")
        else:
            continue
        object.__setattr__(self, name, value)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _compared(value):
    """The values of the fields that take part in comparisons."""
    return tuple(getattr(value, name) for name, about in _described(value).items() if about.compare)


def _repr(self):
    shown = [name for name, about in _described(self).items() if about.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _equal(self, other):
    if type(other) is not type(self):
        return NotImplemented
    return _compared(self) == _compared(other)


def _hash(self):
    return hash(_compared(self))


def _ordered(compare):
    def method(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return compare(_compared(self), _compared(other))

    return method


def _refuse_change(self, name, *_):
    raise FrozenInstanceError(f"cannot assign to field '{name}'")

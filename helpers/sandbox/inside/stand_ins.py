"""What a program gets in place of some of Python's own names.

Three kinds of things need one. Classes of `typing` and `enum`, and `type` itself, are live code that can be made to
evaluate a text or to make a class from a dictionary. `bytearray`, `iter` with two arguments and some iterators in C
call a method of the program back while they hold a pointer that the method can make invalid. And `getattr` reads
attributes that the policy never sees.
"""

import array
import builtins
import enum
import operator
import sys

MOST_RECURSION = 20_000  # frames


class Fixed:
    """A thing whose attributes can be neither set nor deleted."""

    __slots__ = ()

    def __setattr__(self, name, value):
        raise AttributeError("this cannot be changed here")

    def __delattr__(self, name):
        raise AttributeError("this cannot be changed here")


def namespace(names: dict[str, object]) -> Fixed:
    """Return an object with these attributes, as a program sees a module. It has no dictionary that could change."""
    attributes = {name: staticmethod(value) if hasattr(value, "__get__") else value for name, value in names.items()}
    return type("Module", (Fixed,), {**attributes, "__slots__": ()})()


class Hint(Fixed):
    """In place of what `typing` has for readers only.

    meaning: the name of the hint. bases: what a class that names the hint as a base gets instead. kinds: the classes
    whose instances are instances of the hint.
    """

    __slots__ = ("bases", "kinds", "meaning")

    def __init__(self, meaning, bases=(), kinds=()):
        if hasattr(self, "meaning"):
            raise AttributeError("this cannot be changed here")
        for name, value in (("meaning", meaning), ("bases", bases), ("kinds", kinds)):
            object.__setattr__(self, name, value)

    def __getitem__(self, _):
        return self

    def __call__(self, *_, **__):
        return self

    __or__ = __ror__ = __call__

    @property
    def args(self):
        return self

    kwargs = args

    def __mro_entries__(self, bases):
        return self.bases

    def __instancecheck__(self, value):
        return isinstance(value, self.kinds)

    def __subclasscheck__(self, kind):
        return issubclass(kind, self.kinds)


class UnionHint(Hint):
    """In place of `Union` and `Optional`: with classes in its brackets, it knows their instances."""

    __slots__ = ()

    def __getitem__(self, kinds):
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        return Hint(self.meaning, kinds=tuple(kind for kind in kinds if isinstance(kind, type)))


class Generic:
    """What a class gets that names `Generic` or `Protocol` as its base."""

    def __class_getitem__(cls, _):
        return cls


class CallableHint(Hint):
    """In place of `Callable`, which looks at the types in its brackets."""

    __slots__ = ()

    def __instancecheck__(self, value):
        return callable(value)


class TypedDict(dict):
    """What a class gets that names `typing.TypedDict` as its base."""

    def __init_subclass__(cls, total=True):
        """Accept the one setting that such a class may have."""


class TypedDictHint(Hint):
    """In place of `typing.TypedDict`, as a base and as a function."""

    __slots__ = ()

    def __call__(self, *_, **__):
        return dict


class ClassOf(type):
    """The metaclass of `Type`. Calling `Type` gives the class of one value, and no metaclass or class that is fixed."""

    def __call__(cls, *arguments):
        if len(arguments) != 1:
            raise TypeError("type() takes one argument here")
        kind = type(arguments[0])
        return Type if issubclass(kind, (type, Fixed)) else kind

    def __instancecheck__(cls, value):
        return isinstance(value, type)


class Type(metaclass=ClassOf):
    """In place of `type`."""

    def __class_getitem__(cls, _):
        return cls


class LookupOnly(enum.EnumMeta):
    """The metaclass of the enumerations offered: calling one finds a member and makes no class."""

    def __call__(cls, value):
        return cls.__new__(cls, value)


class Enum(enum.Enum, metaclass=LookupOnly):
    """In place of `enum.Enum`."""


class IntEnum(enum.IntEnum, metaclass=LookupOnly):
    """In place of `enum.IntEnum`."""


class Abc:
    """In place of `abc.ABC`: a plain class, so that none has `register`."""


class OrderedDict(dict):
    """In place of `collections.OrderedDict`: a dictionary, which keeps its order, and two methods."""

    def move_to_end(self, key, last=True):
        """Move a key to one end."""
        value = self.pop(key)
        others = list(self.items()) if not last else []
        for other, _ in others:
            del self[other]
        self[key] = value
        self.update(others)

    def popitem(self, last=True):
        """Take out the last pair, or the first."""
        if last:
            return super().popitem()
        key = next(builtins.iter(self))
        return key, self.pop(key)


class Silent(Fixed):
    """In place of a logger, of what a logger is made with, and of a file: it does nothing that it is told."""

    __slots__ = ()

    def write(self, *_, **__):
        """Do nothing."""

    debug = info = warning = error = critical = exception = log = write
    addHandler = setFormatter = setLevel = flush = write


def make_silent(*_, **__):
    """Return a `Silent`."""
    return Silent()


def identity(value):
    """In place of a decorator that only marks what it decorates."""
    return value


def wraps(wrapped, *_, **__):
    """In place of `functools.wraps`, which copies any attribute it is told to."""
    return identity


def cached_property(function):
    """In place of `functools.cached_property`, which writes into the dictionary of any object."""
    known = {}

    def read(instance):
        key = id(instance)
        if key not in known:
            known[key] = instance, function(instance)  # the instance, so that no other gets its number
        return known[key][1]

    return property(read)


def accumulate(items, func=operator.add, *, initial=None):
    """In place of `itertools.accumulate`."""
    total = initial
    is_first = initial is None
    if not is_first:
        yield total
    for item in items:
        total = item if is_first else func(total, item)
        is_first = False
        yield total


def count(start=0, step=1):
    """In place of `itertools.count`."""
    number = start
    while True:
        yield number
        number += step


def groupby(items, key=None):
    """In place of `itertools.groupby`. A group is complete before it is given out."""
    group = []
    group_key = None
    for item in items:
        item_key = item if key is None else key(item)
        if group and item_key != group_key:
            yield group_key, builtins.iter(group)
            group = []
        group_key = item_key
        group.append(item)
    if group:
        yield group_key, builtins.iter(group)


def iter(source, *sentinel):
    """In place of `iter`."""
    if sentinel:
        return _call_until(source, *sentinel)
    return builtins.iter(source)


def _call_until(function, sentinel):
    while True:
        value = function()
        if value == sentinel:
            return
        yield value


class bytearray(array.array):
    """In place of `bytearray`: an array of bytes, which calls nothing back while it is written to."""

    def __new__(cls, *content):
        return super().__new__(cls, "B", bytes(*content))

    def __init__(self, *content):
        """Accept what made the array."""


class SimpleNamespace:
    """In place of `types.SimpleNamespace`, whose attributes may have any name."""

    def __init__(self, **names):
        for name, value in names.items():
            if name.startswith("__"):
                raise AttributeError("this attribute is not allowed")
            object.__setattr__(self, name, value)

    def __repr__(self):
        return f"namespace({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other):
        return type(other) is SimpleNamespace and vars(self) == vars(other)


def copy(value):
    """In place of `copy.copy`, which asks an object by which function it is to be made again."""
    own_way = getattr(type(value), "__copy__", None)
    if own_way is not None:
        return own_way(value)
    if type(value) in (list, dict, set):
        return type(value)(value)
    return _copy_of_instance(value, lambda attribute: attribute)


def deepcopy(value):
    """In place of `copy.deepcopy`."""
    return _deep_copy(value, {})


def _deep_copy(value, known):
    """known: {id: (value, copy)} of what has been copied, so that one thing has one copy."""
    if id(value) in known:
        return known[id(value)][1]
    own_way = getattr(type(value), "__deepcopy__", None)
    if own_way is not None:
        made = own_way(value, {})
    elif type(value) is dict:
        made = {_deep_copy(key, known): _deep_copy(item, known) for key, item in value.items()}
    elif type(value) in (list, tuple, set, frozenset):
        made = type(value)([_deep_copy(item, known) for item in value])
    else:
        made = _copy_of_instance(value, lambda attribute: _deep_copy(attribute, known))
    known[id(value)] = value, made
    return made


def _copy_of_instance(value, copy_attribute):
    """A copy of an instance of a plain class; anything else is its own copy."""
    kind = type(value)
    if kind.__new__ is not object.__new__ or not hasattr(value, "__dict__"):
        return value
    made = object.__new__(kind)
    for name, attribute in vars(value).items():
        object.__setattr__(made, name, copy_attribute(attribute))
    return made


def set_recursion_limit(frames):
    """In place of `sys.setrecursionlimit`: a deep recursion ends in an exception and not in a crash."""
    sys.setrecursionlimit(min(frames, MOST_RECURSION))


def build_class(body, name, /, *bases, metaclass=None, **settings):
    """In place of `__build_class__`. metaclass: `ABCMeta`, which the policy lets pass and nothing needs."""
    return builtins.__build_class__(body, name, *bases, **settings)

"""What stands in place of Python's own names: it does the same for an honest program, and leads nowhere."""

import collections
import dataclasses
import enum
import functools
import itertools
import subprocess
import sys
import types

import pytest

from helpers.runtime import ROOT
from helpers.sandbox.inside import data_class, offered, stand_ins
from helpers.sandbox.inside.offered import BUILTINS, MODULES, NAMES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_neither_changed_nor_deleted_from(module):
    """An import that finds a name missing falls back to the real modules."""
    namespace = MODULES[module]
    name = sorted(NAMES[module])[0]
    for change in (lambda: setattr(namespace, name, 1), lambda: setattr(namespace, "__all__", [])):
        with pytest.raises(AttributeError):
            change()
    with pytest.raises(AttributeError):
        delattr(namespace, name)
    assert not hasattr(namespace, "__dict__") and not hasattr(namespace, "__name__")
    assert all(hasattr(namespace, name) for name in NAMES[module])


def test_nothing_of_typing_is_live_code():
    """Its forward references evaluate text, with builtins of their own."""
    things = {name: getattr(MODULES["typing"], name) for name in NAMES["typing"]}
    live = [name for name, thing in things.items() if getattr(thing, "__module__", "") == "typing"]
    assert live == ["NamedTuple"]
    hint = things["Any"]
    for change in (lambda: setattr(hint, "bases", (int,)), lambda: hint.__init__("x", bases=(int,))):
        with pytest.raises(AttributeError):
            change()


@pytest.mark.parametrize("value", [1, "x", [], int, type, enum.Enum, stand_ins.Enum, stand_ins.Abc, len])
def test_type_makes_no_class(value):
    made = stand_ins.Type(value)
    assert made is type(value) or made is stand_ins.Type
    assert made is not type and not issubclass(made, type)
    with pytest.raises(TypeError, match="takes one argument"):
        stand_ins.Type("C", (), {})
    with pytest.raises(TypeError):
        stand_ins.Enum("C", {"x": 1})


def test_attributes_by_name():
    get, put = BUILTINS["getattr"], BUILTINS["setattr"]
    thing = types.SimpleNamespace(rows=3)
    put(thing, "columns", 4)
    assert get(thing, "rows") + get(thing, "columns") + get(thing, "none", 5) == 12
    generator = (x for x in ())
    for name in ("__class__", "__dict__", "gi_frame", "format", "obj", "mro"):
        with pytest.raises(AttributeError, match="not allowed"):
            get(generator, name)
        with pytest.raises(AttributeError, match="not allowed"):
            put(thing, name, 1)


class Lying(str):
    def startswith(self, _):
        return False


def test_a_name_is_a_plain_text():
    with pytest.raises(AttributeError, match="not allowed"):
        BUILTINS["getattr"](1, Lying("__class__"))


@pytest.mark.parametrize("text", ["{}", "{0}-{1}", "{a:>5}", "{0[1]} {a.imag}", "{:{width}}", "{{}}", "{!r:>9}"])
def test_format_is_that_of_a_text(text):
    values = ([1, 2] if "[" in text else 7, 8)
    names = {"a": 3, "width": 6}
    assert offered.format_of(text)(*values, **names) == text.format(*values, **names)
    assert offered.format_of(str)(text, *values, **names) == text.format(*values, **names)


@pytest.mark.parametrize("text", ["{0.__class__}", "{0.gi_frame}", "{0[0].__class__}", "{:{0.__class__}}"])
def test_format_reads_no_inner_attribute(text):
    for formatter in (offered.format_of(text), lambda *v: offered.format_of(str)(text, *v)):
        with pytest.raises((AttributeError, TypeError, IndexError)):
            formatter(x for x in ())
    with pytest.raises(AttributeError, match="not allowed"):
        offered.format_of(super(Lying, Lying("{0.__class__}")))


@pytest.mark.parametrize("items", [[], [1], [3, 1, 2, 2], "aabbb"])
def test_iterators_are_those_of_itertools(items):
    accumulate, groupby, count = stand_ins.accumulate, stand_ins.groupby, stand_ins.count
    assert list(accumulate(items)) == list(itertools.accumulate(items))
    assert list(accumulate(items, max)) == list(itertools.accumulate(items, max))
    start = items[0] if items else 0
    assert list(accumulate(items, initial=start)) == list(itertools.accumulate(items, initial=start))
    for key in (None, str):
        found, expected = ([(k, list(g)) for k, g in group(items, key)] for group in (groupby, itertools.groupby))
        assert found == expected
    assert list(itertools.islice(count(2, 3), 4)) == [2, 5, 8, 11]


def test_iter():
    pieces = [1, 2, 0, 3]
    assert list(stand_ins.iter(iter(pieces).__next__, 0)) == [1, 2]
    assert list(stand_ins.iter(pieces)) == pieces


def test_an_ordered_dictionary():
    ours, theirs = (kind(a=1, b=2, c=3) for kind in (stand_ins.OrderedDict, collections.OrderedDict))
    for ordered in (ours, theirs):
        ordered.move_to_end("a")
        ordered.move_to_end("c", last=False)
        ordered["d"] = 4
    assert list(ours.items()) == list(theirs.items())
    assert ours.popitem(last=False) == theirs.popitem(last=False) == ("c", 3)
    assert ours.popitem() == theirs.popitem() == ("d", 4)


def test_a_cached_property_is_computed_once():
    calls = []

    class Square:
        def __init__(self, side):
            self.side = side

        @stand_ins.cached_property
        def area(self):
            calls.append(self)
            return self.side**2

    squares = [Square(2), Square(3)]
    assert [square.area for square in squares * 2] == [4, 9, 4, 9] and calls == squares


@pytest.mark.parametrize("module", [data_class, dataclasses])
def test_data_classes(module):
    """Ours does what the library's does: the same test passes for both."""

    @module.dataclass(order=True)
    class Shape:
        rows: int
        columns: int = 2
        tags: list = module.field(default_factory=list, compare=False, repr=False)

        def __post_init__(self):
            self.tags.append(self.rows)

    @module.dataclass(frozen=True)
    class Named:
        name: str
        shape: Shape

    small, large = Shape(1), Shape(3, columns=1)
    assert small == Shape(1, 2) and small < large and small != (1, 2) and small.tags == [1]
    assert repr(large).endswith("Shape(rows=3, columns=1)")
    named = Named("x", small)
    assert module.asdict(named) == {"name": "x", "shape": {"rows": 1, "columns": 2, "tags": [1]}}
    assert module.astuple(named) == ("x", (1, 2, [1]))
    assert module.replace(named, name="y").name == "y" and hash(Named(1, 2)) == hash(Named(1, 2))
    assert [about.name for about in module.fields(Shape)] == ["rows", "columns", "tags"]
    with pytest.raises(module.FrozenInstanceError):
        named.name = "z"
    for wrong in (lambda: Shape(), lambda: Shape(1, 2, [], 4), lambda: Shape(1, rows=2), lambda: Shape(1, x=2)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="mutable default"):
        module.dataclass(type("Bad", (), {"__annotations__": {"x": list}, "x": []}))
    with pytest.raises(TypeError):
        hash(small)
    match large:
        case Shape(rows, columns):
            assert (rows, columns) == (3, 1)


def test_a_bytearray_is_written_to_and_read():
    mask = BUILTINS["bytearray"](4)
    mask[1] = 7
    assert list(mask) == [0, 7, 0, 0] and memoryview(BUILTINS["bytearray"](16)).cast("d", (1, 2)).tolist() == [[0, 0]]


def test_copies():
    """Nothing is asked how it is to be made again, and a memory of the program's own is not taken."""
    copy, deepcopy = MODULES["copy"].copy, MODULES["copy"].deepcopy
    rows = [[1, (2, [3])], {"a": {4}}]
    made = deepcopy(rows)
    assert made == rows and made[0] is not rows[0] and made[0][1][1] is not rows[0][1][1] and copy(rows)[0] is rows[0]
    shared = [0]
    first, second = deepcopy([shared, shared])
    assert first is second and first is not shared
    thing = stand_ins.SimpleNamespace(rows=rows)
    assert deepcopy(thing) == thing and deepcopy(thing).rows is not rows and copy(thing).rows is rows
    assert deepcopy(len) is len and deepcopy(3) == 3
    with pytest.raises(TypeError):
        deepcopy(rows, {})
    for name in ("__reduce_ex__", "__data_fields__"):
        with pytest.raises(AttributeError):
            stand_ins.SimpleNamespace(**{name: 1})


#: Functions of the library, written in Python, that programs are offered as they are. Each was read for what it does to
#: objects of the program: none reads or sets an attribute whose name the program chooses.
READ = {
    "bisect": set(),
    "collections": {"namedtuple"},
    "contextlib": {"contextmanager"},
    "enum": {"unique"},
    "functools": {"cache", "lru_cache", "total_ordering"},
    "heapq": {"merge", "nlargest", "nsmallest"},
    "typing": {"NamedTuple"},
}


def test_every_function_of_the_library_was_read():
    for module, names in NAMES.items():
        things = {name: getattr(MODULES[module], name) for name in names}
        functions = {name for name, thing in things.items() if isinstance(thing, types.FunctionType)}
        theirs = {name for name in functions if not things[name].__module__.startswith("helpers.sandbox.inside")}
        assert theirs <= READ.get(module, set()), (module, theirs)


def test_there_is_no_inner_product_in_c():
    """Not under its name, not in a module that is made anew, and not in an object that somebody kept."""
    code = """
    import importlib, math, sys
    kept = [getattr(math, name, None) for name in ("dist", "hypot", "sumprod")]
    from helpers.sandbox.inside.inner_products import take_out_inner_products
    take_out_inner_products()
    assert not {"dist", "hypot", "sumprod"} & set(dir(math)) and math.sqrt(4) == 2 and math.gcd(6, 4) == 2
    del kept, sys.modules["math"]
    import math
    for name in ("dist", "hypot", "sumprod"):
        function = getattr(math, name, None)
        if function is None:
            continue
        try:
            assert function(*([3.0, 4.0],) * (1 if name == "hypot" else 2)) != 5.0, name
        except TypeError as error:
            assert "integer" in str(error), error
    """
    lines = "\n".join(line[4:] for line in code.splitlines())
    run = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_class_can_be_abstract_and_totally_ordered():
    abc, order = MODULES["abc"], MODULES["functools"].total_ordering

    @order
    class Size(abc.ABC):
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

        @abc.abstractmethod
        def double(self):
            return 2 * self.n

    assert Size(1) <= Size(2) and Size(2).double() == 4 and not hasattr(Size, "register")
    assert functools.total_ordering is order


def test_numbers_and_callables_are_told_apart():
    numbers = MODULES["numbers"]
    assert isinstance(1, numbers.Integral) and isinstance(1.5, numbers.Real) and isinstance(1j, numbers.Number)
    assert not isinstance("1", numbers.Number) and not isinstance(1.5, numbers.Integral)
    assert isinstance(len, MODULES["typing"].Callable) and not isinstance(1, MODULES["collections.abc"].Callable)

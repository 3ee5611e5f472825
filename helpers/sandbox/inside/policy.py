"""The first wall: what counts as pure Python. An allow-list of syntax, names and modules, read before anything runs.

It is no security boundary: CPython is not safe from programs that set out to corrupt its memory, and a program that
gets round the list meets the second wall (`lockdown`), which is one. It says what a reward is for, and keeps what a
program can reach small (`offered`).

What it refuses is of two kinds. A *cheat* reaches for what could give the answer or the speed without the work, such
as numpy, the clock, generated code, the interpreter's frames, or the system. Everything else is merely *not allowed*
here, such as a harmless module that is not offered.
"""

import ast
import builtins
from collections.abc import Collection

from .cheats import CHEATS
from .offered import ATTRIBUTES, BUILTINS, MACHINERY, NAMES, REWRITTEN

MAX_SOURCE = 20_000  # characters
MAX_NODES = 4_000  # of the syntax tree


class Refused(Exception):
    """The program breaks the policy; the message is one short sentence."""


class Cheat(Refused):
    """The program reaches for what could do the work for it."""


#: Double underscores that a program may write: methods of its own classes and of plain values, and what describes it.
_METHODS = (
    "abs add and bool call class_getitem contains copy deepcopy delitem divmod enter eq exit floordiv format ge get "
    "getitem gt hash iadd iand ifloordiv imatmul imod imul init init_subclass ior ipow isub iter itruediv ixor le len "
    "lt matmul missing mod mul ne neg new next or pos post_init pow radd rand rdivmod repr reversed rfloordiv rmatmul "
    "rmod rmul ror round rpow rsub rtruediv rxor set set_name setitem str sub truediv xor"
)
_DESCRIPTIONS = "all author copyright credits date debug doc email license name qualname slots status version"
_SPECIAL = {f"__{name}__" for name in f"{_METHODS} {_DESCRIPTIONS}".split()}
#: Attributes with double underscores that a program may set.
_SETTABLE = {"__name__", "__qualname__", "__doc__"}

_REFUSED_NODES = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


_READABLE_NAMES = {*BUILTINS, "__name__", "__debug__"}
_READABLE_ATTRIBUTES = ATTRIBUTES | _SPECIAL | set(REWRITTEN)


def check_policy(tree: ast.Module, supplied: Collection[str] = ()) -> None:
    """Raise `Refused`, or `Cheat`, unless the program is pure Python.

    supplied: names that the program is given beside `BUILTINS`.
    """
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise Refused("the program is too long")
    names = _own_names(nodes) | set(supplied)
    attributes = _own_attributes(nodes) - MACHINERY
    nested = {part for part in nodes if type(part).__name__ == "TypeAlias"} - set(tree.body)
    if nested:
        raise Refused("a type alias inside a function is not allowed")
    faults = [fault for node in nodes for fault in _faults(node, names, attributes)]
    # A program that is both is a cheat, wherever it stands.
    for fault in sorted(faults, key=lambda fault: not isinstance(fault, Cheat)):
        raise fault


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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MAKE_TUPLES:
            names |= _words(node)
    return {name for name in names if name and not _is_special(name)}


_MAKE_TUPLES = ("namedtuple", "NamedTuple")


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


def _faults(node, names, attributes):
    """Yield what is wrong with one node. names, attributes: the program's own."""
    yield from _identifier_faults(node)
    if isinstance(node, _REFUSED_NODES):
        yield Refused(f"{type(node).__name__} is not allowed")
    elif isinstance(node, ast.ClassDef):
        yield from _class_faults(node)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield from _import_faults(alias.name, ())
    elif isinstance(node, ast.ImportFrom):
        yield from _import_faults(node.module or ".", [alias.name for alias in node.names])
    elif isinstance(node, ast.Attribute):
        yield from _attribute_faults(node, attributes)
    elif isinstance(node, ast.MatchClass):
        unknown = [name for name in node.kwd_attrs if name not in ATTRIBUTES and name not in attributes]
        yield from (_fault(name, f"the attribute {name} is not allowed") for name in unknown)
    elif isinstance(node, ast.Name) and node.id == "__name__" and not isinstance(node.ctx, ast.Load):
        yield Refused("a program cannot say under which name it runs")
    elif isinstance(node, ast.Name) and node.id not in _READABLE_NAMES and node.id not in names:
        if hasattr(builtins, node.id) or node.id in CHEATS:
            yield _fault(node.id, f"the name {node.id} is not allowed")


def _class_faults(node):
    for keyword in node.keywords:
        is_abstract = keyword.arg == "metaclass" and ast.unparse(keyword.value) in ("ABCMeta", "abc.ABCMeta")
        if keyword.arg in ("metaclass", None) and not is_abstract:
            yield Cheat("a metaclass is not allowed")


def _import_faults(module, names):
    """What is wrong with importing a module, or these names from it."""
    if module not in NAMES:
        yield _fault(module.split(".")[0], f"importing {module} is not allowed")
        return
    for name in names:
        if name not in NAMES[module]:
            yield _fault(name, f"importing {name} from {module} is not allowed")


def _attribute_faults(node, attributes):
    name = node.attr
    if _is_special(name) and not isinstance(node.ctx, ast.Load) and name not in _SETTABLE:
        yield Cheat(f"the attribute {name} cannot be set")
    if name not in _READABLE_ATTRIBUTES and name not in attributes:
        root = getattr(node.value, "id", "")
        otherwise = f"the attribute {name} is not allowed"
        is_inside = name in MACHINERY and "_" in name
        if root not in CHEATS and (is_inside or _is_special(name)):
            yield Cheat(otherwise)
        else:
            yield _fault(root if root in CHEATS else name, otherwise)


def _fault(name, otherwise):
    """Return the `Cheat` that this name stands for, or a `Refused` with another reason."""
    if name in CHEATS:
        return Cheat(CHEATS[name].format(name))
    return Refused(otherwise)


def _identifier_faults(node):
    """No double underscore in any name, wherever the grammar keeps one: `import x as`, `global`, `case`, ..."""
    if isinstance(node, ast.Constant):
        return
    is_attribute = isinstance(node, ast.Attribute)
    for value in vars(node).values():
        identifiers = value if isinstance(value, list) else [value]
        for name in identifiers:
            if not isinstance(name, str) or not _is_special(name):
                continue
            is_rewritten = is_attribute and name in REWRITTEN
            if name not in _SPECIAL and not is_rewritten and name != "__future__":
                yield Cheat(f"the name {name} is not allowed")


def _is_special(name):
    return name.startswith("__") and name.endswith("__")

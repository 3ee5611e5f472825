"""What is done to a program's syntax tree before and after the policy reads it.

Before: what could never matter is taken out, so that nobody is refused for it. That is what stands under
`if __name__ == "__main__":`, and every import and definition at the top level that nothing needs, and that does nothing
else when it runs. A star import becomes an import of all the names.
After: `value.__class__` and `value.format` become calls of what stands in their places.
"""

import ast
import builtins
import sys
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from .cheats import CHEATS
from .offered import NAMES, REWRITTEN

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def take_out_unused(tree: ast.Module, function: str | None) -> None:
    """Take out of a program what it does not need.

    function: the name of the function that the program is there to define; None for a script, which runs what stands
    under `if __name__ == "__main__":`. The function and every other statement are needed, and what those refer to.
    """
    if function is not None:
        tree.body = _without_script_part(tree.body)
    tree.body = [part for statement in tree.body for part in _one_import_each(statement)]
    bound = _names_of(tree.body)
    binders = {}  # name -> the statements that can be taken out and bind it
    needed = set()
    names = {function}
    for statement in tree.body:
        if _can_be_taken_out(statement, bound):
            for name in bound_names(statement):
                binders.setdefault(name, []).append(statement)
        else:
            needed.add(statement)
            names |= global_names(statement)
    while names:
        for statement in binders.pop(names.pop(), ()):
            if statement not in needed:
                needed.add(statement)
                names |= global_names(statement)
    tree.body = [statement for statement in tree.body if statement in needed]


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


def _one_import_each(statement):
    """Split an import into a statement for each name, and one of a star into its names."""
    if isinstance(statement, ast.Import):
        return [ast.copy_location(ast.Import([alias]), statement) for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        aliases = statement.names
        if aliases[0].name == "*" and statement.module in NAMES:
            aliases = [ast.copy_location(ast.alias(name), statement) for name in sorted(NAMES[statement.module])]
        make = partial(ast.ImportFrom, module=statement.module, level=statement.level)
        return [ast.copy_location(make(names=[alias]), statement) for alias in aliases]
    return [statement]


class _Names(NamedTuple):
    """The names that a program binds at its top level, and those of them that imports bind."""

    own: set[str]
    imported: set[str]


def _can_be_taken_out(statement, names):
    """Whether a statement does nothing but import or define.

    What is evaluated when something is defined, such as a decorator, a base class or a default, must use nothing that
    the program itself has made, since it could change what others need.
    """
    if isinstance(statement, ast.ImportFrom):
        is_known = statement.module in NAMES or _is_known_module(statement.module)
        return is_known and statement.names[0].name != "*" and statement.module != "__future__"
    if isinstance(statement, ast.Import):
        return _is_known_module(statement.names[0].name)
    if isinstance(statement, _DEFINITIONS):
        called = [*statement.decorator_list, *getattr(statement, "bases", ()), *getattr(statement, "keywords", ())]
        return all(_is_idle(part, names) for part in called) and _defines_only(statement, names)
    if isinstance(statement, ast.If):
        parts = [*statement.body, *statement.orelse]
        return _is_idle(statement.test, names) and all(_is_harmless(part, names) for part in parts)
    if isinstance(statement, ast.Try):
        parts = [*statement.body, *statement.orelse, *statement.finalbody]
        parts += [part for handler in statement.handlers for part in handler.body]
        return all(_is_harmless(part, names) for part in parts)
    return False


def _defines_only(definition, names):
    """Whether the defaults and annotations of a function, or the body of a class, do nothing else."""
    if isinstance(definition, ast.ClassDef):
        return all(_is_idle_in_class(part, names) for part in definition.body)
    return all(isinstance(part, ast.Name) or _is_idle(part, names) for part in _defaults_and_annotations(definition))


def _is_known_module(name):
    """Whether there is such a module: an import that fails is no import that does nothing."""
    root = (name or "").partition(".")[0]
    return root in sys.stdlib_module_names or root in CHEATS


def _is_idle(expression, names):
    """Whether an expression does nothing to what the program has made: it uses imported and built-in names alone."""
    if any(isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield)) for node in ast.walk(expression)):
        return False
    return global_names(expression) <= names.imported | vars(builtins).keys()


def _is_idle_in_class(statement, names):
    """Whether a statement in the body of a class only defines something."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
        children = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]
        return all(isinstance(child, ast.Name) or _is_idle(child, names) for child in children)
    return isinstance(statement, ast.Pass) or _can_be_taken_out(statement, names)


def _is_harmless(statement, names):
    """Whether a part of a conditional import or definition can be taken out together with it."""
    is_constant = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass) or _can_be_taken_out(statement, names)


def _names_of(program):
    """The names that a program binds."""
    own, imported = set(), set()
    for statement in program:
        (imported if isinstance(statement, _IMPORTS) else own).update(bound_names(statement))
    return _Names(own, imported - own)


def bound_names(statement: ast.stmt) -> set[str]:
    """The names that a statement binds where it stands."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    names = _names_bound_by(statement)
    for node in _of_this_scope(statement):
        names |= _names_bound_by(node)
    return names


def _names_bound_by(node):
    """The names that one node binds in the scope in which it stands."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return {node.id}
    if isinstance(node, ast.alias):
        return {node.asname or node.name.partition(".")[0]}
    # except ... as name, and patterns of a match statement
    names = (getattr(node, "name", None), getattr(node, "rest", None))
    return {name for name in names if isinstance(name, str)}


def _of_this_scope(node) -> Iterator[ast.AST]:
    """The nodes inside `node` that bind names where it stands: those inside functions and classes bind them there."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.comprehension):
            yield from _of_this_scope(ast.Tuple([child.iter, *child.ifs], ast.Load()))
            continue
        yield child
        if not isinstance(child, (*_DEFINITIONS, ast.Lambda)):
            yield from _of_this_scope(child)


def global_names(node: ast.AST) -> set[str]:
    """The names that a statement or an expression at the top level looks up there, now or when it is called."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return set(node.names)
    if isinstance(node, _FUNCTIONS):
        body = node.body if isinstance(node.body, list) else [node.body]
        around = [*getattr(node, "decorator_list", ()), *_defaults_and_annotations(node)]
        return _global_names_of(around) | (_global_names_of(body) - _local_names(node, body))
    if isinstance(node, _COMPREHENSIONS):
        first = node.generators[0]
        targets = {name for part in node.generators for name in bound_names(part.target)}
        inside = [child for child in ast.iter_child_nodes(node) if child is not first]
        return global_names(first.iter) | (_global_names_of([*inside, *first.ifs]) - targets)
    return _global_names_of(ast.iter_child_nodes(node))


def _defaults_and_annotations(function):
    arguments = function.args
    parts = [*arguments.defaults, *arguments.kw_defaults]
    parts += [argument.annotation for argument in _arguments_of(function)]
    parts.append(getattr(function, "returns", None))
    return [part for part in parts if part is not None]


def _arguments_of(function):
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument for argument in every if argument is not None]


def _global_names_of(nodes):
    names = set()
    for node in nodes:
        names |= global_names(node)
    return names


def _local_names(function, body):
    """The arguments and variables of a function. What it declares to be global is none of them."""
    names = {argument.arg for argument in _arguments_of(function)}
    declared_global = set()
    for statement in body:
        names |= bound_names(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                declared_global |= set(node.names)
    return names - declared_global


def replace_type_parameters(tree: ast.Module) -> None:
    """Make plain names of type parameters and of type aliases, which Python 3.12 makes live objects of `typing` of."""
    names = set()
    for node in ast.walk(tree):
        for parameter in getattr(node, "type_params", ()):
            names.add(parameter.name)
        if hasattr(node, "type_params"):
            node.type_params = []
    assigned = [_hint(ast.Name(name, ast.Store())) for name in sorted(names)]
    body = [_hint(part.name) if type(part).__name__ == "TypeAlias" else part for part in tree.body]
    # The imports of __future__ and the docstring come first.
    first = next((n for n, part in enumerate(body) if not isinstance(part, (ast.ImportFrom, ast.Expr))), len(body))
    tree.body = body[:first] + assigned + body[first:]


def _hint(name):
    """An assignment of a type hint to a name."""
    statement = ast.Assign([name], ast.Name("__hint__", ast.Load()), lineno=1, col_offset=0)
    return ast.fix_missing_locations(statement)


def rewrite_attributes(tree: ast.Module) -> None:
    """Turn each `value.__class__` and `value.format` into a call of what stands in its place."""
    for node in reversed(list(ast.walk(tree))):  # from the inside outwards
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [_rewritten(part) for part in value])
            else:
                setattr(node, field, _rewritten(value))


def _rewritten(node):
    is_read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    if not is_read or node.attr not in REWRITTEN:
        return node
    function = ast.Name(REWRITTEN[node.attr], ast.Load())
    call = ast.Call(function, [node.value], [])
    return ast.fix_missing_locations(ast.copy_location(call, node))

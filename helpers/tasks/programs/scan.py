"""Reads a program before it runs, and says why it is refused: for a library, a clock or ctypes in place of the work.

This is a reason and no wall: none of these modules is in the process, so a program that uses one would fail anyway. The
scan tells the attempt from a mistake. What counts is what the function needs. An import that only a demonstration uses
costs nothing.

The sandbox loads this file alone in its process, so it imports the standard library only.
"""

import ast
import symtable
from collections.abc import Iterator

_LIBRARIES = (
    "cffi", "cupy", "cython", "jax", "mlx", "numba", "numpy", "pandas", "scipy", "sympy", "tensorflow", "torch",
)  # fmt: skip
_CLOCKS = ("datetime", "time", "timeit")
#: module -> why a program that uses it is refused
REASONS = {
    **{name: f"{name} is not pure Python" for name in _LIBRARIES},
    **{name: f"{name}: a program may not read the clock" for name in _CLOCKS},
    "ctypes": "ctypes reaches into the interpreter",
}
_IMPORTING_FUNCTIONS = ("__import__", "import_module")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def scan(source: str, tree: ast.Module, function: str | None) -> str:
    """Return why a program is refused, or "".

    tree: the syntax tree of the source. function: the name of the function that the program is there to define; None:
    it is a script, and needs all of it.
    """
    needed = tree.body if function is None else _needed_statements(source, tree, function)
    for statement in needed:
        for node in ast.walk(statement):
            for module in _modules_imported_by(node):
                root = module.partition(".")[0]
                if root in REASONS:
                    return REASONS[root]
    return ""


def _needed_statements(source, tree, function):
    """Return the statements at the top level that bind the function, or a name that a needed statement uses."""
    tables = symtable.symtable(source, "program", "exec").get_children()
    globals_of = {(table.get_name(), table.get_lineno()): _global_names(table) for table in tables}
    needed = {}  # in order; the statement by its id
    binders = {}  # name -> the statements that bind it
    for statement in _statements(tree.body):
        names = set(_bound_names(statement))
        if "*" in names:  # it may bind any name
            needed[id(statement)] = statement
        for name in names:
            binders.setdefault(name, []).append(statement)
    names = {function}
    while names:
        for statement in binders.pop(names.pop(), ()):
            if id(statement) not in needed:
                needed[id(statement)] = statement
                names |= _used_names(statement, globals_of)
    return list(needed.values())


def _global_names(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a function or a class, and what is defined inside, look up at the top level."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return names.union(*map(_global_names, table.get_children()))


def _statements(body) -> Iterator[ast.stmt]:
    """Yield the statements at the top level, those inside an `if`, a `try` or a loop apart from each other.

    An import is split into one for each name, since the function may need one and a demonstration another. What stands
    under `if __name__ == "__main__":` does not run.
    """
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (ast.Import([alias]) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from (ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names)
        elif isinstance(statement, _DEFINITIONS) or not hasattr(statement, "body"):
            yield statement
        else:
            yield from _head_of(statement)
            if not _is_script_part(statement):
                yield from _statements(statement.body)
            for part in getattr(statement, "handlers", ()):
                yield from _statements(part.body)
            yield from _statements(getattr(statement, "orelse", ()))
            yield from _statements(getattr(statement, "finalbody", ()))


def _head_of(statement) -> Iterator[ast.stmt]:
    """Yield what the first line of an `if`, a loop or a `with` computes, as statements that bind what it binds."""
    if hasattr(statement, "test"):
        yield ast.Expr(statement.test)
    if hasattr(statement, "iter"):
        yield ast.Assign([statement.target], statement.iter)
    for item in getattr(statement, "items", ()):
        yield ast.Assign([item.optional_vars] if item.optional_vars else [], item.context_expr)


def _is_script_part(statement):
    test = getattr(statement, "test", None)
    return test is not None and ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _bound_names(statement) -> Iterator[str]:
    """Yield the names that a statement at the top level binds there."""
    if isinstance(statement, _DEFINITIONS):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _used_names(statement, globals_of) -> set[str]:
    """Return the names at the top level that a statement there uses, now or when what it defines is called."""
    names = set(globals_of.get((getattr(statement, "name", None), getattr(statement, "lineno", None)), ()))
    parts = [statement]
    if isinstance(statement, ast.ClassDef):
        parts = [*statement.decorator_list, *statement.bases, *statement.keywords]
    elif isinstance(statement, _DEFINITIONS):
        # What is evaluated where the definition stands, but for annotations. The rest has a scope of its own.
        parts = [*statement.decorator_list, *statement.args.defaults, *filter(None, statement.args.kw_defaults)]
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.Name):
                names.add(node.id)
    return names


def _modules_imported_by(node) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield node.module
        yield from (alias.name for alias in node.names)  # as in `from logging import time`
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        if name in _IMPORTING_FUNCTIONS and isinstance(node.args[0].value, str):
            yield node.args[0].value

"""The names that a prompt asks for: of the function, and of its two arguments."""

import ast
import random
import re
from dataclasses import dataclass
from keyword import iskeyword

from helpers.rewards.arguments import shown
from helpers.runtime import UserError
from helpers.tasks.matmul.driver import ASKED_FOR, FUNCTION
from helpers.tasks.split import is_heldout

#: A function's name is two of these. Each of them is in training; every tenth combination is not.
FUNCTION_PARTS = (
    "mat", "matrix", "mul", "mult", "multiply", "product", "prod", "dot", "times", "apply", "compose", "combine",
    "fast", "pure", "quick", "plain", "list", "rect", "grid", "table", "linear", "dense", "inner", "chain", "join",
    "compute", "make", "get", "find", "run", "solve", "calc",
)  # fmt: skip
#: The names of the arguments are two of these; every tenth pair, in its order, is in no training. None of them is a
#: variable of the programs that the project draws.
ARGUMENTS = (*"ABDEFGHKLMNPQRSTUVWXYZ", "left", "right", "first", "second", "lhs", "rhs", "one", "two", "mat1", "mat2")

_SIGNATURE = re.compile(r"(\w+)\((\w+), (\w+)\)")


@dataclass(frozen=True)
class Signature:
    """The name of a function and of its two arguments. As text: "matmul(A, B)"."""

    function: str = FUNCTION
    first: str = "A"
    second: str = "B"

    def __str__(self) -> str:
        return f"{self.function}({self.first}, {self.second})"

    @property
    def is_heldout(self) -> bool:
        """Whether no training may see one of the names."""
        return is_heldout(self.function) or is_heldout(self._arguments)

    @property
    def is_new(self) -> bool:
        """Whether training saw neither the function's name nor this pair of arguments."""
        return is_heldout(self.function) and is_heldout(self._arguments)

    @property
    def _arguments(self) -> str:
        return f"{self.first}, {self.second}"

    def rename(self, text: str) -> str:
        """Return a program or a sentence about `matmul(A, B)` with these names in it."""
        names = {"A": self.first, "B": self.second}
        text = re.sub(r"\b[AB]\b", lambda found: names[found[0]], text)
        return re.sub(rf"(?<![.\w]){FUNCTION}\b", self.function, text)

    def bind(self, program: str) -> str | None:
        """Return the program with the name of the function that the judge calls; None where it has other names.

        The last definition of the function at the margin must have exactly these two arguments.
        """
        if self == DEFAULT:
            return program
        return f"{program}\n{ASKED_FOR}{self.function}" if self._may_be_defined_in(program) else None

    def _may_be_defined_in(self, program: str) -> bool:
        """Tell whether a program defines the function. One that Python cannot read passes: the judge says why."""
        try:
            body = ast.parse(program).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return True
        functions = [statement for statement in body if isinstance(statement, ast.FunctionDef)]
        definitions = [function for function in functions if function.name == self.function]
        return bool(definitions) and self._are_arguments_of(definitions[-1])

    def _are_arguments_of(self, definition: ast.FunctionDef) -> bool:
        """Tell whether a function takes the two arguments, in this order, and no others but such with a default."""
        arguments = definition.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        needed = len(names) - len(arguments.defaults)
        return names[:2] == [self.first, self.second] and needed <= 2 and None not in arguments.kw_defaults


DEFAULT = Signature()


def parse_signature(text: str) -> Signature:
    """Return the signature that a text such as "matmul(A, B)" stands for. Raises UserError for another text."""
    found = _SIGNATURE.fullmatch(text) if isinstance(text, str) else None
    names = found.groups() if found else ()
    if len(set(names)) < 3 or not all(name.isidentifier() and not iskeyword(name) for name in names):
        raise UserError(f"The column 'signature' holds {shown(text)}: write it like matmul(A, B).")
    return Signature(*names)


def draw_signature(rng: random.Random, new: bool) -> Signature:
    """Draw names. new: such that training has neither the function's name nor the pair of arguments; else both are in
    training, and every eighth is `matmul(A, B)`.
    """
    if not new and rng.random() < 1 / 8:
        return DEFAULT
    while True:
        signature = Signature("_".join(rng.sample(FUNCTION_PARTS, 2)), *rng.sample(ARGUMENTS, 2))
        if signature.is_new if new else not signature.is_heldout:
            return signature

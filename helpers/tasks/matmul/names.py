"""The names that a prompt asks for: of the function, and of its two arguments."""

import random
import re
from dataclasses import dataclass

from helpers.rewards.arguments import shown
from helpers.runtime import UserError
from helpers.tasks.matmul.driver import FUNCTION
from helpers.tasks.split import is_heldout

#: A function's name is two of these. Each of them is in training; every tenth pair is not.
FUNCTION_PARTS = (
    "mat", "matrix", "mul", "mult", "multiply", "product", "prod", "dot", "times", "apply", "compose", "combine",
    "fast", "pure", "quick", "plain", "list", "rect", "grid", "table", "linear", "dense", "inner", "chain", "join",
    "compute", "make", "get", "find", "run", "solve", "calc",
)  # fmt: skip
#: The names of the arguments are two of these. None of them is a variable of the programs that the project draws.
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

    def bind(self, program: str) -> str:
        """Return the program with a function `matmul` behind it that calls the one of this name.

        It gives the arguments by name, so a program with other names fails. The judge calls `matmul`.
        """
        if self == Signature():
            return program
        # Without a statement between them, a decorator at the program's end would decorate what follows.
        return (
            f"{program}\npass\n\n\ndef {FUNCTION}(first_of_two, second_of_two):\n"
            f"    return {self.function}({self.first}=first_of_two, {self.second}=second_of_two)\n"
        )


DEFAULT = Signature()


def parse_signature(text: str) -> Signature:
    """Return the signature that a text such as "matmul(A, B)" stands for. Raises UserError for another text."""
    found = _SIGNATURE.fullmatch(text) if isinstance(text, str) else None
    names = found.groups() if found else ()
    if len(set(names)) < 3 or not all(map(str.isidentifier, names)):
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

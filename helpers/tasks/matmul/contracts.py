"""Contracts: the forms in which a program gets its operands and gives its result."""

from dataclasses import dataclass

import numpy as np

from helpers.rewards.arguments import shown
from helpers.runtime import UserError, did_you_mean


@dataclass(frozen=True)
class Contract:
    """How a program gets its operands and gives its result: as lists of rows, or of columns where a field is True."""

    a_columns: bool = False
    b_columns: bool = False
    result_columns: bool = False

    def operands(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`a` [n, k] and `b` [k, m] as the program gets them."""
        return (a.T if self.a_columns else a), (b.T if self.b_columns else b)

    def product(self, answer: np.ndarray) -> np.ndarray:
        """The product [n, m] that an answer of the program stands for."""
        return answer.T if self.result_columns else answer

    def answer_shape(self, n: int, m: int) -> tuple[int, int]:
        """Shape of the answer for a product [n, m]."""
        return (m, n) if self.result_columns else (n, m)


CONTRACTS = {
    "rows": Contract(),
    "a_columns": Contract(a_columns=True),
    "b_columns": Contract(b_columns=True),
    "result_columns": Contract(result_columns=True),
    "a_result_columns": Contract(a_columns=True, result_columns=True),
}
#: The contracts that reinforcement learning asks for.
TRAINED = ("rows", "a_columns", "b_columns")
#: The contract that decides. The embedded model's pretraining has it; reinforcement learning never pays for it.
HELDOUT_CONTRACT = "result_columns"
#: A combination of two contracts that no training has, that of the embedded model included.
COMBINATION = "a_result_columns"
PRETRAINED = (*TRAINED, HELDOUT_CONTRACT)


def get_contract(name: str) -> Contract:
    """Return the contract of this name. Raises UserError if there is none."""
    if not isinstance(name, str) or name not in CONTRACTS:
        known = ", ".join(CONTRACTS)
        raise UserError(f"There is no contract {shown(name)}{did_you_mean(name, CONTRACTS)}: choose {known}.")
    return CONTRACTS[name]

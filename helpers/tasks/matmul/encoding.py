"""The parent's side of the matmul driver: matrices to bytes and back."""

from pathlib import Path

import numpy as np

from helpers.sandbox import Driver
from helpers.tasks.matmul.contracts import Contract
from helpers.tasks.matmul.driver import CHANGED_OPERANDS, CHANGED_RESULTS, FLOAT64_BYTES, HEADER, PRODUCT

DRIVER = Driver(Path(__file__).parent / "driver.py")


def answer_bytes(n: int, m: int) -> int:
    """Size of the answer for a product [n, m]: one byte says what it is."""
    return 1 + FLOAT64_BYTES * n * m


def encode_inputs(contract: Contract, a: np.ndarray, b: np.ndarray, look_for_changes: bool = False) -> bytes:
    """Return the inputs of one call. a: [n, k], b: [k, m].

    look_for_changes: whether the answer is to say if the program has changed an operand, or an earlier result.
    """
    answer_shape = contract.answer_shape(a.shape[0], b.shape[1])
    first, second = contract.operands(a, b)
    header = HEADER.pack(*first.shape, *second.shape, *answer_shape, look_for_changes)
    return header + first.tobytes() + second.tobytes()


class Changed(Exception):
    """An answer holds no product, mostly as the program has changed what it should have left alone."""


def decode_product(contract: Contract, answer: bytes, n: int, m: int) -> np.ndarray:
    """Return the product [n, m] in the bytes of an answer. Raises Changed."""
    if answer[:1] == CHANGED_OPERANDS:
        raise Changed("it changed its arguments")
    if answer[:1] == CHANGED_RESULTS:
        raise Changed("it changed the result of an earlier call")
    if answer[:1] != PRODUCT:
        raise Changed("its answer has another form than asked for")
    entries = np.frombuffer(answer, offset=1).reshape(contract.answer_shape(n, m))
    return contract.product(entries)

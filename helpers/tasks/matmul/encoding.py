"""The parent's side of the matmul driver: matrices to bytes and back."""

from pathlib import Path

import numpy as np

from helpers.sandbox import Driver
from helpers.tasks.matmul.contracts import Contract
from helpers.tasks.matmul.driver import (
    CHANGED_OPERANDS,
    CHANGED_RESULTS,
    FLOAT64_BYTES,
    HEADER,
    LOOK,
    NEW,
    PRODUCT,
    SHARED_LISTS,
)
from helpers.tasks.programs import SCAN

DRIVER = Driver(Path(__file__).parent / "driver.py", scan=SCAN)
#: The inputs of no call, which ask whether anything was changed since the last one, and the size of the answer.
LOOK_INPUTS = HEADER.pack(0, 0, 0, 0, 0, 0, LOOK, True, False)
LOOK_BYTES = 1


def answer_bytes(n: int, m: int) -> int:
    """Size of the answer for a product [n, m]: one byte says what it is."""
    return 1 + FLOAT64_BYTES * n * m


def encode_inputs(
    contract: Contract,
    a: np.ndarray,
    b: np.ndarray,
    way: int = NEW,
    look_for_changes: bool = False,
    let_go: bool = False,
) -> bytes:
    """Return the inputs of one call. a: [n, k], b: [k, m].

    way: how the program gets its operands (`driver`). look_for_changes: whether the answer is to say if the program has
    changed an operand or an earlier result, or shares a list with one. let_go: whether nobody holds the operands after
    the call, so that their places in memory are used again. The inputs of several calls follow each other.
    """
    answer_shape = contract.answer_shape(a.shape[0], b.shape[1])
    first, second = contract.operands(a, b)
    header = HEADER.pack(*first.shape, *second.shape, *answer_shape, way, look_for_changes, let_go)
    return header + first.tobytes() + second.tobytes()


class Changed(Exception):
    """An answer holds no product, mostly as the program has changed what it should have left alone."""


#: first byte of an answer -> what is wrong with it
_FAULTS = {
    CHANGED_OPERANDS: "it changed its arguments",
    CHANGED_RESULTS: "it changed the result of an earlier call",
    SHARED_LISTS: "its result shares a list with an argument, with an earlier result or within itself",
}


def check_unchanged(answer: bytes) -> None:
    """Raise Changed where an answer is no product."""
    if answer[:1] != PRODUCT:
        raise Changed(_FAULTS.get(answer[:1], "its answer has another form than asked for"))


def decode_product(contract: Contract, answer: bytes, n: int, m: int) -> np.ndarray:
    """Return the product [n, m] in the bytes of an answer. Raises Changed."""
    check_unchanged(answer)
    entries = np.frombuffer(answer, offset=1).reshape(contract.answer_shape(n, m))
    return contract.product(entries)

"""The parent's side of the matmul driver: matrices to bytes and back."""

from pathlib import Path

import numpy as np

from helpers.sandbox import Driver
from helpers.tasks.matmul.contracts import Contract
from helpers.tasks.matmul.driver import FLOAT64_BYTES, SHAPES

DRIVER = Driver(Path(__file__).parent / "driver.py")


def answer_bytes(n: int, m: int) -> int:
    """Size of the answer for a product [n, m]."""
    return FLOAT64_BYTES * n * m


def encode_inputs(contract: Contract, a: np.ndarray, b: np.ndarray) -> bytes:
    """The shapes of both operands and of the answer, then the operands, row after row. a: [n, k], b: [k, m]."""
    answer_shape = contract.answer_shape(a.shape[0], b.shape[1])
    first, second = contract.operands(a, b)
    shapes = SHAPES.pack(*first.shape, *second.shape, *answer_shape)
    return shapes + first.tobytes() + second.tobytes()


def decode_product(contract: Contract, answer: bytes, n: int, m: int) -> np.ndarray:
    """The product [n, m] in the bytes of an answer."""
    entries = np.frombuffer(answer).reshape(contract.answer_shape(n, m))
    return contract.product(entries)

"""Prompts that ask for a matrix product in pure Python.

A prompt states the function, what its arguments and its result are (the *contract*), the sizes, and the form of the
answer. Each contract has several wordings. The embedded model's pretraining sees all of them; reinforcement
learning sees only `seen`, and the final evaluation asks only in `unseen`.
"""

import random
from dataclasses import dataclass

from helpers.tasks.wording import Wordings, parse_wording_name

REQUESTS = (
    "Write a fast matrix multiplication matmul(A, B) in pure Python.",
    "Implement matmul(A, B) in plain Python, without any library.",
    "I need the product of two matrices: write matmul(A, B).",
    "Write a Python function matmul(A, B) that multiplies two matrices.",
    "Create matmul(A, B), a fast matrix product in native Python.",
    "Please code matmul(A, B), the matrix product of A and B.",
    "Give me a function matmul(A, B) that returns the product of A and B.",
    "Multiply two matrices as fast as you can with matmul(A, B).",
)
#: contract (`contracts.CONTRACTS`) -> the ways to state it.
CONTRACT_WORDINGS = {
    "rows": Wordings(
        seen=(
            "A, B and the result are lists of rows.",
            "All matrices are nested lists, row by row.",
            "Each matrix is a list of its rows, the result too.",
            "Take two lists of rows and return a list of rows.",
            "Rows come first in A, in B and in the result.",
        ),
        unseen=(
            "The operands and the product are stored by rows.",
            "A[i], B[i] and result[i] are rows.",
            "Matrices come and go as lists of rows.",
            "Every matrix here is given row by row.",
        ),
    ),
    "a_columns": Wordings(
        seen=(
            "A is a list of its columns; B and the result are lists of rows.",
            "A comes column by column, B and the result row by row.",
            "A is given by its columns, all else by rows.",
            "Note that A holds columns, while B and the result hold rows.",
            "The first operand is stored by columns, the rest by rows.",
        ),
        unseen=(
            "A[i] is column i of A; B[i] and result[i] are rows.",
            "Columns come first in A, rows in B and in the result.",
            "Take A as columns and B as rows, and return rows.",
            "A arrives transposed, as its columns; B and the product are rows.",
        ),
    ),
    "b_columns": Wordings(
        seen=(
            "B is a list of its columns; A and the result are lists of rows.",
            "B comes column by column, A and the result row by row.",
            "B is given by its columns, all else by rows.",
            "Note that B holds columns, while A and the result hold rows.",
            "The second operand is stored by columns, the rest by rows.",
        ),
        unseen=(
            "B[i] is column i of B; A[i] and result[i] are rows.",
            "Columns come first in B, rows in A and in the result.",
            "Take A as rows and B as columns, and return rows.",
            "B arrives transposed, as its columns; A and the product are rows.",
        ),
    ),
    "result_columns": Wordings(
        seen=(
            "Return a list of columns; A and B are lists of rows.",
            "The result goes column by column, A and B row by row.",
            "Give the product by its columns; A and B are given by rows.",
            "Note that the result holds columns, while A and B hold rows.",
            "The operands are stored by rows, the product by columns.",
        ),
        unseen=(
            "result[i] is column i of the product; A[i] and B[i] are rows.",
            "Columns come first in the result, rows in A and in B.",
            "Take A and B as rows, and return columns.",
            "Return the product transposed, as its columns; A and B are rows.",
        ),
    ),
}
SIZES_SENTENCES = (
    "A is {n} by {k} and B is {k} by {m}.",
    "The shapes are {n}x{k} and {k}x{m}.",
    "A has {n} rows and {k} columns, B has {m} columns.",
    "Typical size: {n}x{k} times {k}x{m}.",
)
SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 20, 24, 32)
#: What a prompt may ask for, and the styles of `programs.STYLES` that answer it.
WISHES = {
    "": None,
    "Use nested loops.": ("loops", "axpy_loops"),
    "Use a list comprehension.": ("comprehension", "zip"),
    "Use zip.": ("zip", "axpy_rows"),
    "Keep it short.": ("zip", "map", "comprehension"),
    "Use map and sum.": ("map",),
    "Use append.": ("append", "axpy_rows"),
}
FORMAT = "Answer with one Python code block."


@dataclass(frozen=True)
class Prompt:
    """A prompt: its text, its contract, the name of the contract's wording, and its wish (a key of `WISHES`)."""

    text: str
    contract: str
    wording: str
    wish: str


def draw_prompt(rng: random.Random, wording: str) -> Prompt:
    """Draw a prompt that states its contract in `wording`, a name such as "b_columns-3"."""
    contract, number = parse_wording_name(wording)
    wish = rng.choice(tuple(WISHES))
    n, k, m = (rng.choice(SIZES) for _ in range(3))
    sentences = (
        rng.choice(REQUESTS),
        CONTRACT_WORDINGS[contract].all[number],
        rng.choice(SIZES_SENTENCES).format(n=n, k=k, m=m),
        wish,
        FORMAT,
    )
    text = " ".join(sentence for sentence in sentences if sentence)
    return Prompt(text, contract, wording, wish)

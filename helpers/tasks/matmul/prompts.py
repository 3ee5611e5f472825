"""Prompts that ask for a matrix product in pure Python.

A prompt names the function and its two arguments (`names.py`), states how the arguments and the result are laid out
(the *contract*, `statements.py`), the sizes, and the form of the answer.
"""

import random
from dataclasses import dataclass

from helpers.tasks.matmul.names import Signature

REQUESTS = (
    "Write a fast matrix multiplication {call} in pure Python.",
    "Implement {call} in plain Python, without any library.",
    "I need the product of two matrices: write {call}.",
    "Write a Python function {call} that multiplies two matrices.",
    "Create {call}, a fast matrix product in native Python.",
    "Please code {call}, the matrix product of {A} and {B}.",
    "Give me a function {call} that returns the product of {A} and {B}.",
    "Multiply two matrices as fast as you can with {call}.",
)
SIZES_SENTENCES = (
    "{A} is {n} by {k} and {B} is {k} by {m}.",
    "The shapes are {n}x{k} and {k}x{m}.",
    "{A} has {n} rows and {k} columns, {B} has {m} columns.",
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
    """A prompt: its text, the names it asks for, and its wish (a key of `WISHES`)."""

    text: str
    signature: Signature
    wish: str


def draw_prompt(rng: random.Random, statement: str, signature: Signature) -> Prompt:
    """Draw a prompt. statement: a sentence of `statements`, with {A} and {B} in it."""
    wish = rng.choice(tuple(WISHES))
    n, k, m = (rng.choice(SIZES) for _ in range(3))
    names = {"A": signature.first, "B": signature.second}
    sentences = (
        rng.choice(REQUESTS).format(call=signature, **names),
        statement.format(**names),
        rng.choice(SIZES_SENTENCES).format(n=n, k=k, m=m, **names),
        wish,
        FORMAT,
    )
    text = " ".join(sentence for sentence in sentences if sentence)
    return Prompt(text, signature, wish)

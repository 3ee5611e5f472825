"""Prompts that ask for a matrix product in pure Python."""

OPENINGS = (
    "Write a fast matrix multiplication function in pure Python.",
    "Implement matmul(A, B) in plain Python, without any library.",
    "I need the product of two matrices given as lists of lists.",
    "Write a Python function that multiplies two matrices.",
    "Create a new fast matmul using only native Python code.",
    "Please code the matrix product of A and B.",
    "Give me a function matmul(A, B) that returns the product as a list of lists.",
    "Multiply two matrices in Python, as fast as you can.",
)
SHAPES = (
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
    "Build the result row by row.": ("append", "axpy_rows"),
}


def draw_prompt(rng):
    """One prompt: `(text, cluster, wish)`; `cluster` names the wording it is made of."""
    opening = rng.randrange(len(OPENINGS))
    shape = rng.randrange(len(SHAPES))
    wish = rng.choice(tuple(WISHES))
    n, k, m = (rng.choice(SIZES) for _ in range(3))
    parts = [OPENINGS[opening], SHAPES[shape].format(n=n, k=k, m=m), wish]
    return " ".join(part for part in parts if part), f"opening{opening}", wish

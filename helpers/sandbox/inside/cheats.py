"""What the usual cheats reach for."""

#: The name of a module or of a built-in function -> what to say of a program that uses it
CHEATS = {
    **dict.fromkeys(("numpy", "np"), "numpy is not pure Python"),
    **dict.fromkeys(
        ("torch", "scipy", "jax", "numba", "cupy", "pandas", "tensorflow", "sympy", "mlx", "cython", "cffi"),
        "{} is not pure Python",
    ),
    **dict.fromkeys(("time", "timeit", "datetime", "perf_counter"), "a program may not touch the clock"),
    **dict.fromkeys(("eval", "exec", "compile"), "{} is not allowed: write the program out"),
    **dict.fromkeys(
        ("builtins", "ctypes", "dis", "gc", "importlib", "inspect", "marshal", "pickle", "traceback", "weakref"),
        "importing {} is not allowed: it reaches into the interpreter",
    ),
    **dict.fromkeys(
        ("atexit", "mmap", "os", "pathlib", "resource", "shutil", "signal", "socket", "subprocess", "tempfile"),
        "importing {} is not allowed: a program may not use the system",
    ),
    **dict.fromkeys(
        ("breakpoint", "globals", "locals", "open", "__import__", "__builtins__"),
        "the name {} is not allowed: it reaches beyond the program",
    ),
    **dict.fromkeys(
        ("_getframe", "modules", "settrace", "setprofile"), "{} is not allowed: it reaches into the interpreter"
    ),
    "sumprod": "math.sumprod is the inner product in C",
}  # fmt: skip

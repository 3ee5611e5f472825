"""Drivers: the trusted code through which the sandbox calls a program.

A driver is one Python file that uses the standard library only, since it is loaded alone in the sandboxed process. It
has

- `FUNCTION`: the name of the function that a program must define, or None where the program is a script;
- `function_of(source)`, where it has one: the name for this program instead;
- `decode(inputs)`: turns the bytes of the inputs into arguments of any form;
- `call(program, arguments)`: calls the program's function and returns its result. A script is a function without
  arguments;
- `encode(result, arguments)`: turns the result into the bytes of the answer. It must trust nothing in the result, and
  raises ValueError with a sentence for a result of the wrong form. A shorter answer than `Limits.answer_bytes` is
  filled up with zero bytes.

A *scan* is another such file, with one function: `scan(source, tree, function)` reads a program and its syntax tree
before it runs, and returns a sentence that says why the task refuses it, or "".
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Driver:
    """A driver and, where the task has one, a scan; each is named by its file."""

    path: Path
    scan: Path | None = None


#: Runs a script on the text of its standard input. `printed_text` reads its answers.
STDIN = Driver(Path(__file__).parent / "inside" / "drivers" / "stdin.py")

#: Calls the function `solve` of a program once for each case. `encode_cases` and `case_results` are for the parent.
SOLVE = Driver(Path(__file__).parent / "inside" / "drivers" / "function.py")

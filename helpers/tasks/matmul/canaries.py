"""Programs that the self-test tries: each does what it should not, and gives the right answer if it could."""

_PROGRAM = """
def matmul(A, B):
    {act}
    return [[sum(a * b for a, b in zip(row, column)) for column in zip(*B)] for row in A]
"""
#: A program can import no module of the system, so these reach one through a module that has imported it.
_ACTS = {
    "opening a file": "open('/dev/null').close()",
    "listing a folder": "import random; random._os.listdir('/')",
    "starting a process": "import random; random._os.fork() or random._os._exit(0)",
    "starting a thread": "import logging; logging.threading.Thread(target=print).start()",
    "opening a socket": "[kind for kind in object.__subclasses__() if kind.__name__ == 'socket'][0]().close()",
    "signalling another process": "import random; random._os.kill(random._os.getppid(), 0)",
    "sleeping": "import logging; logging.time.sleep(0.01)",
    "two gigabytes": "bytearray(2 * 2**30)",
    "writing past the pipe": "import random; random._os.write(2, b'x')",
    "importing os": "import os",
    # In pieces, so that not only the scan sees them.
    "ctypes": "__import__('ctyp' + 'es')",
    "numpy": "__import__('num' + 'py')",
    "importing time": "__import__('ti' + 'me')",
    "math.dist": "from math import dist",
}
#: These write what the parent did not ask for, at the top level and in a call.
_FORGED = "random._os.write(1, b'ROP' + bytes(800))"
_SURPLUS = "random._os.write(1, b'O' + bytes(8))"
CANARIES = {
    "an endless loop": "def matmul(A, B):\n    while True: pass",
    **{name: _PROGRAM.format(act=act) for name, act in _ACTS.items()},
    "NaN": "def matmul(A, B):\n    return [[float('nan')] * len(B[0]) for _ in A]",
    "a forged answer": f"import random\n{_FORGED}\n" + _PROGRAM.format(act="pass"),
    "more than an answer": _PROGRAM.format(act=f"import random; {_SURPLUS}"),
}

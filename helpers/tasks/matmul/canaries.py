"""Programs that the self-test tries: each does what it should not, and gives the right answer if it could."""

_PROGRAM = """
def matmul(A, B):
    {act}
    return [[sum(a * b for a, b in zip(row, column)) for column in zip(*B)] for row in A]
"""
_ACTS = {
    "opening a file": "open('/dev/null').close()",
    "listing a folder": "import os; os.listdir('/')",
    "starting a process": "import os; os.fork() or os._exit(0)",
    "starting a thread": "import _thread; _thread.start_new_thread(print, ())",
    "opening a socket": "import socket; socket.socket().close()",
    "signalling another process": "import os; os.kill(os.getppid(), 0)",
    "executable memory": "import ctypes; assert ctypes.CDLL(None).mmap(0, 4096, 7, 34, -1, 0) != -1",
    "two gigabytes": "bytearray(2 * 2**30)",
    "sleeping": "import time; time.sleep(0.01)",
    "numpy": "import numpy",
    "writing past the pipe": "import os; os.write(2, b'x')",
}
#: name -> a program for the second wall
CANARIES = {
    "an endless loop": "def matmul(A, B):\n    while True: pass",
    **{name: _PROGRAM.format(act=act) for name, act in _ACTS.items()},
    "NaN": "def matmul(A, B):\n    return [[float('nan')] * len(B[0]) for _ in A]",
    "a forged answer": "import os\nos.write(1, b'ROP' + bytes(800))\n" + _PROGRAM.format(act="pass"),
    "more than an answer": _PROGRAM.format(act="import os; os.write(1, b'O' + bytes(8))"),
}
#: name -> a program for the first
REFUSED = {
    "math.sumprod": _PROGRAM.format(act="from math import sumprod"),
    "eval": _PROGRAM.format(act="eval('1')"),
    "numpy under the policy": _PROGRAM.format(act="import numpy"),
    "the clock": _PROGRAM.format(act="import time; time.perf_counter = None"),
}

"""Read the instructions of a compiled kernel: what its loops execute, and what resources it takes.

NVIDIA's tools come with Triton.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import triton

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
#: A line of nvdisasm that is an instruction: its address, a predicate perhaps, and its name.
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
_LABEL = re.compile(r"\s*\.(L_\w+):")
_BRANCH = re.compile(r"\bBRA\b.*`\(\.(L_\w+)\)")


def _run(tool: str, cubin: bytes, *arguments: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [TOOLS / tool, *arguments, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def resources(cubin: bytes) -> tuple[int, int, int]:
    """`(registers, stack bytes, shared bytes)`; stack is where registers spill to."""
    text = _run("cuobjdump", cubin, "--dump-resource-usage")
    registers, stack, shared = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", text).groups()
    return int(registers), int(stack), int(shared)


def loops(cubin: bytes) -> Iterator[Counter]:
    """Yield the instructions of each loop body: name -> how often. A branch to itself, where a kernel ends, is none."""
    lines = _run("nvdisasm", cubin, "-c").splitlines()
    labels = {}
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label.group(1)] = number
        branch = _BRANCH.search(line)
        if not branch or branch.group(1) not in labels:  # forward, or no branch
            continue
        body = lines[labels[branch.group(1)] : number + 1]
        names = [found.group(1) for found in map(_INSTRUCTION.search, body) if found]
        if len(names) > 1:
            yield Counter(names)

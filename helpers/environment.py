"""The machine and the packages that a run depends on: GPU, versions, installation."""

import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from helpers.runtime import GIB, ROOT, UserError

#: Packages whose versions a result depends on.
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "datasets", "accelerate", "numpy")
#: Packages that pip must leave at their installed version: replacing them in a running kernel breaks it.
HELD = ("torch", "triton", "torchvision", "numpy", "pillow")


def find_gpu() -> tuple[str, float]:
    """Name and memory in GiB of the first CUDA device; ("", 0.0) without one."""
    import torch

    if not torch.cuda.is_available():
        return "", 0.0
    properties = torch.cuda.get_device_properties(0)
    return properties.name, properties.total_memory / GIB


def versions() -> dict[str, str]:
    """Map each package that a result depends on to its version, or to "absent" where it is not installed."""
    found = {name: installed_version(name) or "absent" for name in PACKAGES}
    return {"python": platform.python_version(), **found}


def hardware() -> str:
    """Describe the machine in one line: the GPU if there is one, the processor and its cores."""
    gpu, memory_gib = find_gpu()
    return f"{gpu} {memory_gib:.0f} GiB, {processor()}" if gpu else processor()


def processor() -> str:
    """Describe the processor and its cores, without torch."""
    return f"{_processor_name()}, {os.cpu_count()} cores"


def _processor_name() -> str:
    """The processor's name as Linux reports it, else as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def install(quiet: bool = True) -> list[str]:
    """Install with pip the requirements of the notebooks that are missing; return their names.

    Packages in `HELD` that are installed keep their version.
    Raises UserError if pip fails.
    """
    missing = _missing_requirements()
    if not missing:
        return []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        for name in HELD:
            found = installed_version(name)
            if found:
                constraints.write(f"{name}=={found}\n")
        constraints.flush()
        command = [sys.executable, "-m", "pip", "install"]
        if quiet:
            command.append("-qq")  # warnings are of no use to a reader
        command += ["-c", constraints.name, *missing]
        result = subprocess.run(command)
    if result.returncode:
        raise UserError(f"pip could not install {', '.join(missing)}: see its message above, then run this cell again.")
    return missing


def _missing_requirements() -> list[str]:
    """The lines of requirements.txt, development left out, that the installed packages do not satisfy."""
    from packaging.requirements import Requirement

    needed_to_run = (ROOT / "requirements.txt").read_text().split("# development")[0]
    missing = []
    for line in needed_to_run.splitlines():
        text = line.split("#")[0].strip()
        if not text:
            continue
        requirement = Requirement(text)
        found = installed_version(requirement.name)
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            missing.append(str(requirement))
    return missing


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None

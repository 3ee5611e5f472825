"""Run the five notebooks with the packages of Colab's image (`make test-colab`).

    python -m tests.colab.run [--out tests/colab/result.json]

`pins.txt` has the versions. Those that cannot be had on this machine are replaced, and it says by what: Python by the
one that runs this, and torch by the build in constraints.txt. The environment is made anew each time, without what the
notebooks install for themselves. Each notebook must run to its end and write nothing to stderr.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import venv
from datetime import date
from pathlib import Path

from helpers.runtime import ROOT, write_whole

PINS = ROOT / "tests" / "colab" / "pins.txt"
ENVIRONMENT = ROOT / ".venv-colab"
NOTEBOOKS = ("01_load", "02_attention", "03_rewards", "04_grpo", "05_evaluate")
#: What a clone is asked for its commit by.
COMMIT = ("git", "describe", "--always", "--dirty")
#: Colab has these as well, in versions that its list above does not name.
UNPINNED = ("matplotlib", "scipy", "safetensors", "packaging")


def read_pins() -> dict[str, str]:
    """Map each package of Colab, and "python", to its version."""
    pins = {}
    for line in PINS.read_text().splitlines():
        found = re.fullmatch(r"(?:# )?([\w-]+)==(\S+)", line)
        if found:
            pins[found[1]] = found[2]
    return pins


def torch_here() -> str:
    """The version of torch that stands in for Colab's, which is a build for CUDA."""
    return re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.M)[1]


def make_environment(pins: dict[str, str]) -> Path:
    """Make a fresh environment with the pinned packages; return its Python."""
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    python = ENVIRONMENT / "bin" / "python"
    wanted = [f"{name}=={version}" for name, version in pins.items() if name not in ("python", "torch")]
    wanted += [f"torch=={torch_here()}", *UNPINNED]
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
    subprocess.run(command, check=True)
    return python


def versions_in(python: Path, names: list[str]) -> dict[str, str]:
    """The versions that are installed there."""
    code = (
        "import json, sys; from importlib.metadata import version; "
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    run = subprocess.run([str(python), "-c", code, *names], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def differences(pins: dict[str, str], found: dict[str, str]) -> list[str]:
    """A sentence for each version that is not Colab's."""
    here = found | {"python": platform.python_version()}
    return [
        f"{name} is {here[name]} here and {version} in Colab" for name, version in pins.items() if here[name] != version
    ]


def run_notebook(python: Path, name: str, run_folder: Path) -> dict:
    """Run one notebook there; return how it ended, without what it printed."""
    out = run_folder / f"{name}.json"
    command = [str(python), "-m", "tests.notebooks.execute", name, f"--out={out}"]
    if name in ("04_grpo", "05_evaluate"):
        command.append(f"RUN_DIR={run_folder}")
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not out.exists():
        return {"notebook": name, "status": "failed", "why": "it did not begin", "seconds": 0.0, "stderr": {}}
    result = json.loads(out.read_text())
    installed = re.search(r"installed: (.*)", "".join(result.pop("printed").values()))
    result["installed"] = installed[1] if installed else ""
    result["seconds"] = round(result["seconds"])
    return result


def main() -> int:
    """Returns the exit status: 0 if every notebook ran to its end in silence."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "colab" / "result.json")
    options = parser.parse_args()
    pins = read_pins()
    print(f"Making {ENVIRONMENT.name} with the versions of {PINS.relative_to(ROOT)} ...", flush=True)
    python = make_environment(pins)
    found = versions_in(python, [name for name in pins if name != "python"])
    differing = differences(pins, found)
    print(*differing, sep="\n", flush=True)
    commit = subprocess.run(COMMIT, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    content = {"date": str(date.today()), "commit": commit, "versions": found, "differs": differing, "notebooks": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in NOTEBOOKS:
            result = run_notebook(python, name, Path(folder))
            content["notebooks"].append(result)
            write_whole(options.out, json.dumps(content, indent=1) + "\n")
            said = f"{len(result['stderr'])} cells wrote to stderr" if result["stderr"] else result["why"]
            print(f"{name:<13}{result['status']:<8}{result['seconds']:>4} s  {said}", flush=True)
    is_clean = all(result["status"] == "ok" and not result["stderr"] for result in content["notebooks"])
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())

"""Every Triton launch that a profile uses is compiled for that profile's GPUs, by two Triton versions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.profiles import PROFILES
from helpers.runtime import ROOT
from tests.kernels.aot import CAPABILITIES

#: Colab's Triton, which `make test` puts beside the newest one that is installed.
OLDER = "3.6.0"
#: Tokens multiplied together -> instructions that a thread may spend on a byte of weights. A T4 has 40 multiprocessors
#: that issue 128 of them a clock: at 1.3 GHz there is time for 21 while memory delivers a byte at 320 GB/s.
MOST_INSTRUCTIONS = {1: 16, 2: 20, 4: 25, 8: 45}

#: A T4 with Colab's Triton is tried in every run, the newest Triton and the other cards in `make test-slow`.
CASES = [
    pytest.param(
        profile,
        older,
        id=f"{OLDER if older else 'installed'}-{profile}",
        marks=[] if profile == "t4" and older else [pytest.mark.slow],
    )
    for older in (True, False)
    for profile in CAPABILITIES
]


@pytest.mark.parametrize(("profile", "older"), CASES)
def test_every_launch_compiles_without_spilling(profile, older, tmp_path):
    """A kernel that spills, or wants more shared memory than a T4 has, is found here and not on somebody's evening."""
    path = Path(sys.prefix) / f"triton-{OLDER}"
    if older and not path.is_dir():
        pytest.fail(
            f"{path} is missing: make test puts it there (pip install --no-deps --target {path} triton=={OLDER})"
        )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(path) if older else ""}
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.aot", profile], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert {row["triton"] == OLDER for row in rows} == {True} or not older
    for row in rows:
        uses_tensor_cores = row.get("DOT", False)
        assert row["stack"] == 0 and row["registers"] <= (192 if uses_tensor_cores else 168), row
        assert row["shared"] <= (40 << 10 if uses_tensor_cores else 4 << 10), row
        assert row["mma"] == uses_tensor_cores, row
    over_packed_rows = [row for row in rows if "shuffles" in row]
    for row in over_packed_rows:
        assert row["loops"] == (2 if row["kernel"] == "gate_up_kernel" else 1), row
        assert row["shuffles"] == 0, row
        assert row["DOT"] or row["instructions_a_byte"] <= MOST_INSTRUCTIONS[row["BM"]], row
    # two kernels, with and without an adapter, in each form
    for capability in CAPABILITIES[profile]:
        forms = {row["BM"] for row in over_packed_rows if row["capability"] == capability}
        assert forms == ({1, 2, 4, 8} if capability < 80 else {1, 2, 16})
    assert len(over_packed_rows) == 4 * (4 if profile == "t4" else 3) * len(CAPABILITIES[profile])


def test_every_gpu_profile_has_its_cards():
    assert set(CAPABILITIES) == {name for name, profile in PROFILES.items() if profile.device == "cuda"}

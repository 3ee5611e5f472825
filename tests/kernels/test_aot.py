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


#: Colab's T4 is tried in every run, its other cards in `make test-slow`.
CASES = [
    pytest.param(
        profile,
        older,
        id=f"{OLDER if older else 'installed'}-{profile}",
        marks=[pytest.mark.slow] if older and profile != "t4" else [],
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
    # four sizes of slot, with and without an adapter, two kernels; unpacking; the host table
    assert len(rows) == (4 * 2 * 2 + 2) * len(CAPABILITIES[profile])
    assert {row["triton"] == OLDER for row in rows} == {True} or not older
    for row in rows:
        assert row["stack"] == 0 and row["registers"] <= 128 and row["shared"] <= 4 << 10 and not row["dot"], row


def test_every_gpu_profile_has_its_cards():
    assert set(CAPABILITIES) == {name for name, profile in PROFILES.items() if profile.device == "cuda"}

"""FlexAttention's kernels with our options, compiled for cards that are not here."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from helpers.kernels.attention import kernel_options
from helpers.profiles import PROFILES
from helpers.runtime import ROOT

#: Compute capability -> shared memory that one block may have, bytes (CUDA C++ Programming Guide, table "Technical
#: Specifications per Compute Capability"), and the profile whose arithmetic runs there.
CARDS = {75: (64 << 10, "t4"), 80: (163 << 10, "a100"), 89: (99 << 10, "l4"), 90: (227 << 10, "h100")}
#: A T4, for which the library chooses the tiles, is tried in every run, the other cards in `make test-slow`.
TRIED = [pytest.param(card, marks=[] if card == 75 else [pytest.mark.slow]) for card in CARDS]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to stand in for a GPU's driver")
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="written for the torch of constraints.txt")
@pytest.mark.parametrize("card", TRIED)
def test_flex_fits_the_card(card, tmp_path):
    """A kernel that wants more shared memory than a T4 has is refused there with "out of resource"; one that spills
    crawls."""
    room, profile = CARDS[card]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.flex_aot", str(card), PROFILES[profile].dtype],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    ours = {row["kernel"]: row for row in rows if row["options"] == "ours"}
    # few queries: PyTorch has a kernel for them without tiles for 17 to 127 of gpt-oss's, which must not be chosen
    assert set(ours) == {"forward", "backward", "decode", "2 queries", "17 queries", "40 queries", "127 queries"}
    for row in ours.values():
        assert row["shared"] <= room, row
        assert row["tensor_cores"] == (card >= 80), row
    if card < 80:
        assert all(row["stack"] == 0 and row["num_stages"] == 1 for row in ours.values()), rows
        assert max(row["shared"] for row in ours.values()) == 12 << 10, rows
        theirs = {row["kernel"]: row for row in rows if row["options"] != "ours"}
        assert theirs["forward"]["stack"] >= 5 << 10, "PyTorch's own choice has become better: use it"


def test_options_by_capability():
    """Nothing of ours where PyTorch's tiles fit; the kernel for few queries only for one."""
    assert kernel_options((8, 0), 1) == kernel_options((12, 0), 1) == {}
    assert kernel_options((9, 0), 40) == {"FORCE_USE_FLEX_ATTENTION": True}
    assert kernel_options((7, 5), 1)["fwd_BLOCK_N"] == 16 and "fwd_BLOCK_M" not in kernel_options((7, 5), 1)

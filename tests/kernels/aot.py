"""Compile every Triton launch of some profiles for their GPUs, without a GPU; prints one JSON line each.

    python -m tests.kernels.aot t4 l4      (the Triton that is first on PYTHONPATH)

Registers, stack and shared memory are read out of the binaries by NVIDIA's tool that comes with Triton.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from helpers.kernels.mxfp4_triton import launches
from helpers.model.memory import released_config
from helpers.profiles import PROFILES

#: Compute capabilities of the cards that a profile is for: T4; RTX 3090, L4 and RTX 4090; A100; H100.
CAPABILITIES = {"t4": [75], "l4": [86, 89], "a100": [80], "h100": [90]}
TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def binary(launch, capability):
    names = launch.kernel.arg_names
    source = ASTSource(
        fn=launch.kernel,
        signature={name: launch.types.get(name, "constexpr") for name in names},
        constexprs=launch.constants,
        attrs={
            (n,): [["tt.divisibility", 16]] for n, name in enumerate(names) if launch.types.get(name, "")[:1] == "*"
        },
    )
    return triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": launch.warps, "num_stages": launch.stages},
    )


def resources(cubin):
    """`(registers, stack bytes, shared bytes)`; stack is where registers spill to."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([TOOL, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    return map(int, re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", text.stdout).groups())


def main(names):
    sizes = released_config("20b")
    for name in names:
        profile = PROFILES[name]
        table = launches(
            sizes.hidden_size, sizes.intermediate_size, sizes.num_experts_per_tok, profile.lora_r,
            getattr(torch, profile.dtype),
        )  # fmt: skip
        for launch in table:
            for capability in CAPABILITIES[name]:
                compiled = binary(launch, capability)
                registers, stack, static = resources(compiled.asm["cubin"])
                row = {
                    "triton": triton.__version__, "profile": name, "capability": capability,
                    "kernel": launch.kernel.__name__, **launch.constants, "registers": registers, "stack": stack,
                    "shared": max(static, compiled.metadata.shared), "dot": "mma" in compiled.asm["ptx"],
                }  # fmt: skip
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    main(sys.argv[1:])

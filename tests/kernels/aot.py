"""Compile every Triton launch of some profiles for their GPUs, without a GPU; prints one JSON line each.

    python -m tests.kernels.aot t4 l4      (the Triton that is first on PYTHONPATH)

Registers, stack, shared memory and the instructions of the loops are read out of the binaries.
"""

import json
import os
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from helpers.kernels.launches import launches
from helpers.model.memory import released_config, rollout_length
from helpers.profiles import PROFILES
from tests.kernels.sass import loops, resources

#: Compute capabilities of the cards that a profile is for: T4; RTX 3090, L4 and RTX 4090; A100; H100.
CAPABILITIES = {"t4": [75], "l4": [86, 89], "a100": [80], "h100": [90]}
#: Kernels whose loops read packed weights.
OVER_PACKED_ROWS = ("gate_up_kernel", "down_kernel")
THREADS_IN_A_WARP = 32


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


def in_the_loops(launch, cubin: bytes) -> dict[str, float]:
    """What a thread executes in the loops over packed rows, the worst of them: shuffles, and instructions a byte."""
    if launch.kernel.__name__ not in OVER_PACKED_ROWS:
        return {}
    bytes_of_a_tile = launch.constants["BN"] * launch.constants["BW"] * 4
    bytes_of_a_thread = bytes_of_a_tile / (launch.warps * THREADS_IN_A_WARP)
    bodies = list(loops(cubin))
    return {
        "loops": len(bodies),
        "shuffles": max(body["SHFL"] for body in bodies),
        "instructions_a_byte": max(body.total() for body in bodies) / bytes_of_a_thread,
    }


def main(names):
    config = released_config("20b")
    for name in names:
        profile = PROFILES[name]
        dtype = getattr(torch, profile.dtype)
        length = rollout_length(profile.max_completion_length)
        for capability in CAPABILITIES[name]:
            for launch in launches(config, profile.lora_r, dtype, divmod(capability, 10), (length,)):
                compiled = binary(launch, capability)
                cubin = compiled.asm["cubin"]
                registers, stack, static = resources(cubin)
                row = {
                    "triton": triton.__version__, "profile": name, "capability": capability,
                    "kernel": launch.kernel.__name__, **launch.constants, "registers": registers, "stack": stack,
                    "shared": max(static, compiled.metadata.shared), "mma": "mma" in compiled.asm["ptx"],
                    **in_the_loops(launch, cubin),
                }  # fmt: skip
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    main(sys.argv[1:])

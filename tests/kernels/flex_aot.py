"""FlexAttention's own Triton kernels, generated and compiled for a GPU that is not there; prints one JSON line each.

    python -m tests.kernels.flex_aot 75 float16

PyTorch's compiler writes the kernels for tensors that only claim to be on a GPU: a device guard that does nothing
(built here with g++) and a few answers of torch.cuda stand in for the driver. What it wrote is then compiled by Triton
for the compute capability, with the options that the library passes, and its registers, stack and shared memory are
read out of the binary. Written for the torch of constraints.txt; sizes are gpt-oss-20b's.
"""

import ast
import ctypes
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.utils._triton
import triton
from torch._higher_order_ops.flex_attention import flex_attention as forward_operator
from torch._higher_order_ops.flex_attention import flex_attention_backward as backward_operator
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.compile_fx import compile_fx_inner
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from helpers.kernels.attention import kernel_options
from helpers.kernels.masks import AttentionMask, _rule
from tests.kernels.aot import resources

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl { C10_REGISTER_GUARD_IMPL(CUDA, NoOpDeviceGuardImpl<DeviceType::CUDA>) }
"""
BATCH, HEADS, KEY_HEADS, LENGTH, DIM = 2, 64, 8, 512, 64
#: What `flex_attention` adds to a caller's options.
STOCK = {
    "PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False,
    "WRITE_DQ": True, "OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False,
}  # fmt: skip


class Written(Exception):
    """The compiler has written a kernel and is about to load it, for which a GPU is needed."""


def pretend(capability, folder):
    """Let torch take this machine for one with a GPU."""
    (folder / "guard.cpp").write_text(GUARD)
    root = Path(torch.__file__).parent
    command = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{root}/include", folder / "guard.cpp", f"-L{root}/lib"]
    subprocess.run([*command, "-lc10", "-o", folder / "guard.so"], check=True)
    ctypes.CDLL(folder / "guard.so")
    card = SimpleNamespace(
        name="pretended", major=capability[0], minor=capability[1], multi_processor_count=40, warp_size=32,
        total_memory=2**34, regs_per_multiprocessor=65536, max_threads_per_multi_processor=1024,
        max_threads_per_block=1024, gcnArchName="",
    )  # fmt: skip
    cuda = torch.cuda
    cuda.is_available, cuda.device_count, cuda.current_device = lambda: True, lambda: 1, lambda: 0
    cuda.get_device_properties = cuda._get_device_properties = lambda device=None: card
    cuda.get_device_capability = lambda device=None: capability
    cuda.get_rng_state, cuda.set_rng_state = lambda *_: torch.get_rng_state(), lambda *_: None
    cuda.synchronize = cuda._lazy_init = lambda *_: None
    cuda.device.__enter__, cuda.device.__exit__ = lambda self: None, lambda *_: False
    torch.utils._triton.triton_hash_with_backend = lambda *_: "none"
    torch.version.cuda = "12.8"
    config.pattern_matcher = config.use_joint_graph_passes = config.fx_graph_cache = False
    config.use_pre_grad_passes = config.use_post_grad_passes = False


def written_kernel(function, arguments):
    """The Triton source that the compiler writes for the one operator in `function`."""
    sources = []

    def load(code, *_, **__):
        sources.append(code)
        raise Written

    PyCodeCache.load = load
    try:
        compile_fx_inner(make_fx(function)(*arguments), list(arguments))
    except Exception:
        if not sources:
            raise
    return sources[0]


def compiled(source, capability, folder):
    """Resources of the source's kernel for the capability."""
    signature = ast.literal_eval(re.search(r"'signature': (\{.*?\})", source)[1])
    found = {name: int(re.search(rf"{name}=(\d+)", source)[1]) for name in ("num_stages", "num_warps")}
    path = folder / "kernel.py"
    path.write_text(re.sub(r"@triton_heuristics\.template\(.*?\n\)\n(?=@triton)", "", source, flags=re.S))
    spec = importlib.util.spec_from_file_location("kernel", path)
    sys.modules["kernel"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = next(value for name, value in vars(module).items() if name.startswith("triton_flex"))
    aligned = {(n,): [["tt.divisibility", 16]] for n, kind in enumerate(signature.values()) if kind[0] == "*"}
    binary = triton.compile(
        ASTSource(fn=kernel, signature=signature, constexprs={}, attrs=aligned),
        target=GPUTarget("cuda", capability[0] * 10 + capability[1], 32), options=found,
    )  # fmt: skip
    registers, stack, static = resources(binary.asm["cubin"])
    blocks = {name: int(value) for name, value in re.findall(r"(BLOCK_[MN]\d?) : tl.constexpr = (\d+)", source)}
    return blocks | found | {
        "registers": registers, "stack": stack, "shared": max(static, binary.metadata.shared),
        "tensor_cores": "mma" in binary.asm["ptx"],
    }  # fmt: skip


def cases(options, dtype, few):
    """`(name, function, arguments)`: a sliding prefill, its gradient, a decoding step, and chunks of `few` queries.
    options: a function of the number of queries."""

    def like(x):
        return torch.empty(x.shape, dtype=x.dtype, device="cuda")

    def new(heads, length):
        return torch.empty(BATCH, heads, length, DIM, dtype=dtype, device="cuda")

    real = {q: AttentionMask(BATCH, q, LENGTH, window=128, q_offset=LENGTH - q) for q in (LENGTH, 1, *few)}
    tables = {q: mask.block_mask().as_tuple() for q, mask in real.items()}

    def visible(row, head, query, key, *tensors):
        return _rule(*tensors, None)(row, head, query, key)

    def score(value, row, head, query, key):
        return value

    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        tables = {q: [like(x) if isinstance(x, torch.Tensor) else x for x in t[:-1]] for q, t in tables.items()}
        window = torch.zeros((), dtype=torch.long)
        tensors = [like(x) for x in (real[1].q_offset, real[1].left_pad, window)]
        q, one, k, v = new(HEADS, LENGTH), new(HEADS, 1), new(KEY_HEADS, LENGTH), new(KEY_HEADS, LENGTH)
        lse, number, index = (
            torch.empty(shape, dtype=kind, device="cuda")
            for shape, kind in (((BATCH, HEADS, LENGTH), torch.float32), ((), torch.float32), ((), torch.int32))
        )
        positions = [index] * 4
        score_graph = make_fx(score)(number, *positions)
        joint = make_fx(lambda value, row, head, query, key, grad: [grad, None, None, None, None])
        joint_graph = joint(number, *positions, number)

        def forward(q, k, v, *tensors):
            mask = (*tables[q.shape[2]], visible)
            return forward_operator(q, k, v, score, mask, 0.125, options(q.shape[2]), (), tensors)

        def backward(q, k, v, output, lse, grad, grad_lse, *tensors):
            mask = (*tables[LENGTH], visible)
            graphs, last = (score_graph, joint_graph), (mask, 0.125, options(LENGTH), (), tensors)
            return backward_operator(q, k, v, output, lse, grad, grad_lse, *graphs, *last)

        yield "forward", forward, (q, k, v, *tensors)
        yield "backward", backward, (q, k, v, q, lse, q, lse, *tensors)
        yield "decode", forward, (one, k, v, *tensors)
        for queries in few:
            yield f"{queries} queries", forward, (new(HEADS, queries), k, v, *tensors)


def main(capability, dtype):
    capability = divmod(int(capability), 10)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        pretend(capability, folder)
        chosen = {"ours": (lambda queries: STOCK | kernel_options(capability, queries), (2, 17, 40, 127))}
        if capability < (8, 0):
            chosen["PyTorch's"] = (lambda queries: STOCK, ())
        for label, (options, few) in chosen.items():
            for name, function, arguments in cases(options, getattr(torch, dtype), few):
                row = compiled(written_kernel(function, arguments), capability, folder)
                print(json.dumps({"kernel": name, "options": label} | row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

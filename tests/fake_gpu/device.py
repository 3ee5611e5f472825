"""A fake GPU: fake CUDA tensors on a CPU build of PyTorch.

Importing this module builds `guard.cpp` and loads it, before torch. `FakeTensorMode` then runs code for device "cuda"
with shapes, dtypes and devices alone, and raises where devices are mixed up. `Gpu` stands above it and writes down what
makes a step unfit for a CUDA graph.
"""

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: The files of the fake GPU itself, which cause none of what it writes down.
OWN_FILES = ("device.py", "driver.py")


def build_guard() -> Path:
    """Compile `guard.cpp` against the installed torch, unless that was done before; return the library."""
    source = HERE / "guard.cpp"
    torch_folder = Path(importlib.util.find_spec("torch").origin).parent  # finds it without importing it
    key = hashlib.sha256(source.read_bytes() + version("torch").encode() + str(torch_folder).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"fake_gpu_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    library = folder / f"guard_{key}.so"
    if library.exists():
        return library

    unfinished = folder / f"guard_{key}_{os.getpid()}.so"  # another process may be building, too
    libraries = torch_folder / "lib"
    command = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{torch_folder / 'include'}", str(source)]
    command += ["-o", str(unfinished), f"-L{libraries}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{libraries}"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    unfinished.replace(library)
    return library


if "torch" in sys.modules:
    raise ImportError("tests.fake_gpu.device must be imported before torch, which looks for its CUDA hooks only once")
ctypes.CDLL(str(build_guard()), mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.optim import optimizer  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from helpers.kernels import experts  # noqa: E402
from helpers.kernels.launch import POINTERS, Launch  # noqa: E402
from tests.fake_gpu.driver import PRODUCTS, Driver, FakeGraph, FakeStream  # noqa: E402
from tests.fake_gpu.operations import describe, device_type, storage_of, tensors_in  # noqa: E402

#: Operations that launch no kernel, besides views.
LAUNCH_NOTHING = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "_local_scalar_dense", "_unsafe_view", "alias", "detach", "detach_", "lift", "lift_fresh",
}  # fmt: skip
#: Operations that are one kernel in a CUDA build, and composed of others in a CPU build.
FUSED = {"_fused_rms_norm"}
#: Operations whose CUDA code reads a result on the host, most of them for the shape of what they return.
WAITING = {
    "_unique2", "bincount", "equal", "masked_select", "multinomial", "nonzero", "repeat_interleave",
    "unique_consecutive", "unique_dim",
}  # fmt: skip
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
#: Triton's names of types -> torch's, or Python's.
DTYPES = {name: dtype for dtype, name in POINTERS.items()} | {"fp32": float, "i32": int}
#: The allocator of CUDA hands out multiples of so many bytes.
ALLOCATION = 512
#: What the fake card says that it has: more than any test takes.
CARD_BYTES = 80 * 2**30


@dataclass
class Record:
    """What happened during a step. The counters count each event under a sentence that says where it happened.

    Attributes:
        peak: bytes that were alive at once, at most. What a kernel allocates for itself is not known here.
        buffers: storages that were alive at the beginning.
        kernels: names of the operations that launch a kernel, or several, in order; Triton's begin with "triton ".
        operations: descriptions of all operations, in order; the same texts mean that a graph repeats the same work.
        waits: where the host waits for the GPU, which ends a capture with an error.
        factories: where tensors were made out of nothing on the GPU.
        problems: what a GPU refuses or computes wrongly, and values of the host that a graph would go on repeating.
    """

    peak: int
    buffers: frozenset[int]
    kernels: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    waits: Counter = field(default_factory=Counter)
    factories: Counter = field(default_factory=Counter)
    problems: Counter = field(default_factory=Counter)


def uniform(pairs: int, experts: int) -> list[int]:
    """Sizes of the experts' shares when the router treats all alike."""
    return [pairs // experts + (number < pairs % experts) for number in range(experts)]


def one_sided(pairs: int, experts: int, top_k: int = 4) -> list[int]:
    """Sizes when half of the tokens choose the first expert, and the other experts share the rest."""
    first = pairs // top_k // 2
    return [first, *uniform(pairs - first, experts - 1)]


class Gpu(TorchDispatchMode):
    """Counts the bytes of CUDA tensors, and writes down what happens.

    Enter it inside of a `FakeTensorMode`.
    """

    def __init__(self):
        super().__init__()
        self.live = 0  # bytes
        self.memory_fraction = 1.0  # of the card, that PyTorch may take
        self.record = Record(0, frozenset())
        self.driver = Driver(self._problem)
        self.routing = uniform  # pairs, experts -> the size of each expert's share, which only values could say
        self._storages = {}  # address -> weak reference

    @contextmanager
    def recording(self) -> Iterator[Record]:
        """Write a new `Record`. The one outside gets its peak, waits and problems."""
        outside = self.record
        inside = Record(self.live + self.pool, frozenset(self._storages))
        self.record = inside
        try:
            yield inside
        finally:
            outside.peak = max(outside.peak, inside.peak)
            outside.waits.update(inside.waits)
            outside.problems.update(inside.problems)
            self.record = outside

    @property
    def pool(self) -> int:
        """Bytes that captured graphs keep."""
        return sum(self.driver.pools.values())

    @contextmanager
    def capturing(self, graph: FakeGraph, pool: int | None, stream: FakeStream | None) -> Iterator[None]:
        """Keep in the graph's pool what the block takes at its peak."""
        before = self.live + self.pool
        with self.recording() as record, self.driver.capturing(graph, pool, stream):
            yield
        self.driver.keep(graph, record.peak - before)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        is_composite = func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        if is_composite and name not in FUSED:
            with self:  # what it is composed of comes back here
                return func.decompose(*args, **kwargs)

        inputs = tensors_in(args, kwargs)
        self.record.operations.append(describe(func, args, kwargs, self.record.buffers))
        if name == "_to_copy":
            self._look_at_copy(args[0], kwargs.get("device"))
        elif any(_is_on_gpu(tensor) for tensor in inputs):
            self._look_at_inputs(name, args, inputs)
        if name == "_local_scalar_dense":
            return getattr(args[0], "holds", False) or _any_value(args[0].dtype)
        out = func(*args, **kwargs)
        if name == "all":  # a check of values that are not there passes, and `any` finds nothing
            out.holds = True
        self._look_at_outputs(func, name, inputs, tensors_in(out))
        return out

    def _look_at_copy(self, source: Tensor, target: torch.device | None) -> None:
        """Note a copy from one device to another."""
        start = device_type(source)
        end = torch.device(target).type if target else start
        if start != end:
            self._wait(f"copy from {start} to {end}")
            source.constant = None  # else FakeTensorMode would really copy a number that it knows

    def _look_at_inputs(self, name: str, args: tuple, inputs: list[Tensor]) -> None:
        """Note waits, and values of the host that a graph would repeat. Some of the inputs are on the GPU."""
        all_on_gpu = all(_is_on_gpu(tensor) for tensor in inputs)
        dtypes = {str(tensor.dtype) for tensor in tensors_in(args)}  # without `out`, which may be wider
        if name in PRODUCTS and len(dtypes) > 1:
            self._problem(f"{name} of {' and '.join(sorted(dtypes))}")
        if name == "_local_scalar_dense":
            self._wait("item")
        elif name in WAITING:
            self._wait(name)
        elif name in INDEXING:
            self._look_at_indices(*args[:3])
        elif name == "copy_" and not all_on_gpu:
            self._wait(f"copy from {device_type(args[1])} to {device_type(args[0])}")
        elif name != "fill_" and not all_on_gpu:  # `x[:, 0] = 1` comes here as fill_ with a CPU tensor
            self._problem(f"{name} with a tensor of the CPU")

    def _look_at_indices(self, indexed: Tensor, indices: list[Tensor | None], values: Tensor | None = None) -> None:
        """Note waits of an indexing operation."""
        given = [index for index in indices if index is not None]
        if any(index.dtype == torch.bool for index in given):
            self._wait("boolean index")
        if not all(_is_on_gpu(index) for index in given):
            self._wait("index from the CPU")
        if not _is_on_gpu(indexed):
            self._problem("CPU tensor indexed from the GPU")
        if values is not None and not _is_on_gpu(values):
            self._wait("copy of values from the CPU")

    def _look_at_outputs(self, func, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Note bytes, factories and kernels."""
        made = [tensor for tensor in outputs if _is_on_gpu(tensor)]
        for tensor in made:
            self._note_bytes(tensor)
        is_factory = not inputs or name.startswith("new_") or name.endswith("_like")
        if made and is_factory:
            self.record.factories[f"{name} at {_place()}"] += 1
        uses_gpu = made or any(_is_on_gpu(tensor) for tensor in inputs)
        if uses_gpu and not func.is_view and name not in LAUNCH_NOTHING:
            dtypes = {str(tensor.dtype) for tensor in (*inputs, *outputs)}
            self._launch(name, f"{name} {sorted(dtypes)}")

    def _launch(self, name: str, form: str) -> None:
        """Note a kernel. form: what the driver loads it by, as it is compiled for each dtype."""
        self.record.kernels.append(name)
        self.driver.launch(name, form)

    def _note_bytes(self, tensor: Tensor) -> None:
        key = storage_of(tensor)
        if key in self._storages:
            return
        storage = tensor.untyped_storage()
        size = -(-storage.nbytes() // ALLOCATION) * ALLOCATION

        def freed(_: weakref.ref) -> None:
            del self._storages[key]
            self.live -= size

        self._storages[key] = weakref.ref(storage, freed)
        self.live += size
        self.record.peak = max(self.record.peak, self.live + self.pool)

    def _wait(self, what: str) -> None:
        self.record.waits[f"{what} at {_place()}"] += 1

    def _problem(self, what: str) -> None:
        self.record.problems[f"{what} at {_place()}"] += 1

    def launch(self, launch: Launch, grid: tuple, *arguments: object) -> None:
        """Take the place of a Triton launch: compare the arguments with the types that it is compiled for."""
        kernel = launch.kernel.__name__
        names = [name for name in launch.kernel.arg_names if name not in launch.constants]
        if len(names) != len(arguments):
            self._problem(f"{kernel} takes {len(names)} arguments and got {len(arguments)}")
        for name, argument in zip(names, arguments):
            problem = _problem_with(argument, launch.types[name], may_be_on_host=name == "table")
            if problem:
                self._problem(f"{kernel}: {name} is {problem}")
        if not all(isinstance(size, int) and size > 0 for size in grid) or max(grid[1:], default=1) > 65535:
            self._problem(f"{kernel}: grid {grid}")
        self._launch(f"triton {kernel}", f"triton {kernel} {launch.types} {launch.constants}")
        self.record.operations.append(describe(kernel, (grid, *arguments), launch.constants, self.record.buffers))


def _problem_with(argument: object, kind: str, may_be_on_host: bool) -> str | None:
    """What is wrong with an argument of a Triton kernel that is compiled for `kind`; None if nothing is."""
    wanted = DTYPES[kind]
    if not isinstance(argument, Tensor):
        return None if isinstance(argument, wanted) else f"{argument!r}, compiled for {kind}"
    if argument.dtype != wanted:
        return f"{argument.dtype}, compiled for {kind}"
    if not _is_on_gpu(argument) and not may_be_on_host:
        return "on the CPU"
    return None if argument.is_contiguous() else "not contiguous"


def _is_on_gpu(tensor: Tensor) -> bool:
    return device_type(tensor) == "cuda"


def _any_value(dtype: torch.dtype) -> bool | int | float:
    """What a fake tensor answers when the host reads it."""
    if dtype == torch.bool:
        return False
    return 1.0 if dtype.is_floating_point else 0


def _place() -> str:
    """The innermost line of the project that runs, outside of the fake GPU."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT / "helpers") or (path.is_relative_to(HERE) and path.name not in OWN_FILES):
            return f"{path.relative_to(ROOT)}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "an unknown place"


def _efficient_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """`scaled_dot_product_attention` as a T4 runs it in 16 bits: PyTorch's memory-efficient kernel.

    A boolean mask becomes a bias of 16 bits first.
    """
    assert q.is_cuda and not enable_gqa and q.shape[1] == k.shape[1], "this kernel wants as many key as query heads"
    assert q.shape[-1] % 8 == 0 and v.shape[-1] % 8 == 0, "this kernel wants head sizes in multiples of eight"
    if attn_mask is not None:
        assert attn_mask.dtype == torch.bool and attn_mask.shape[-1] % 8 == 0
        zero = torch.zeros((), dtype=q.dtype, device=q.device)
        attn_mask = torch.where(attn_mask, zero, -torch.inf)
        attn_mask = attn_mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    return kernel(q, k, v, attn_mask, needs_gradient, dropout_p, is_causal, scale=scale)[0]


@contextmanager
def fake_gpu(capability: tuple[int, int] = (7, 5)) -> Iterator[Gpu]:
    """Let code for device "cuda" run on fake tensors. It changes torch for good: use it in a process of its own.

    capability: of the GPU, a T4's by default.
    """
    gpu = Gpu()
    cuda = torch.cuda
    cuda.get_device_capability = lambda device=None: capability
    driver = gpu.driver
    cuda.Stream = driver.new_stream
    cuda.current_stream = lambda: driver.current
    cuda.stream = driver.on_stream
    cuda.graph_pool_handle = driver.new_pool
    cuda.CUDAGraph = driver.new_graph
    cuda.graph = lambda graph, pool=None, stream=None, **_: gpu.capturing(graph, pool, stream)
    cuda.empty_cache = driver.empty_cache
    cuda.current_device = lambda: 0
    torch._C._cuda_endAllocateToPool = driver.end_allocation
    torch._C._cuda_releasePool = driver.release_pool
    cuda.memory_reserved = lambda: gpu.live + gpu.pool
    cuda.mem_get_info = lambda: (CARD_BYTES - gpu.live - gpu.pool, CARD_BYTES)
    cuda.set_per_process_memory_fraction = lambda fraction: setattr(gpu, "memory_fraction", fraction)
    F.scaled_dot_product_attention = _efficient_attention
    optimizer._foreach_supported_types.append(FakeTensor)  # as for parameters that are there
    read_sizes = experts.read_sizes

    def sizes(expert_of_pair: Tensor, count: int) -> list[int]:
        read_sizes(expert_of_pair, count)  # its kernels and its wait count
        return gpu.routing(len(expert_of_pair), count)

    experts.read_sizes = sizes
    nn.Module._apply = _move
    FakeTensor.tolist = lambda tensor: _tolist(gpu, tensor)
    Launch.__call__ = lambda launch, grid, *arguments: gpu.launch(launch, grid, *arguments)
    with FakeTensorMode(allow_non_fake_inputs=True), gpu:
        yield gpu


@contextmanager
def planted(fault: tuple[object, str, Callable[[Callable], Callable]]) -> Iterator[None]:
    """Plant a fault: whose function is replaced, its name, and what makes the faulty one of it."""
    owner, name, replace_by = fault
    with patch.object(owner, name, replace_by(getattr(owner, name))):
        yield


def _move(module: nn.Module, convert, recurse: bool = True) -> nn.Module:
    """`nn.Module._apply` with new parameters; torch's own swaps the contents of fake ones, and then fails."""
    for child in module.children():
        child._apply(convert)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            with torch.no_grad():
                converted = convert(parameter)
            module._parameters[name] = nn.Parameter(converted, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = convert(buffer)
    return module


def _tolist(gpu: Gpu, tensor: FakeTensor) -> object:
    """`tolist` with one wait for all values."""
    if _is_on_gpu(tensor):
        gpu._wait("tolist")
    values = _any_value(tensor.dtype)
    for size in reversed(tensor.shape):
        values = [values] * size
    return values

"""The GPU's memory beside the tensors: what the driver takes, what is free, and how an error says that none is left."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from helpers.runtime import GIB, UserError, first_line

#: The fewest tokens of the cache that a step of decoding is captured for, unless the cache has fewer.
LEAST_CAPTURED_LENGTH = 2048

#: What is taken besides tensors. The numbers of things are counted on a fake GPU (tests/fake_gpu), for gpt-oss-20b with
#: an adapter. The bytes of one thing are estimates, inferred from public reports until `make try-gpu` measures a T4.
CONTEXT_BYTES = 0.14 * GIB  # a T4 has 14.56 GiB, and 14.42 are free in a new process
#: Kernels that are loaded when they are first launched, Triton's and PyTorch's, each for its dtypes. 200 are counted;
#: those of bitsandbytes, which have no fake form, are not.
MODULES = 220
MODULE_BYTES = 2**19  # all together 0.05 to 0.1 GiB
NODES_A_LAYER = 38  # kernels of a step of decoding
NODES_BESIDE = 51
NODE_BYTES = 64 * 2**10  # 10 kB (NVIDIA/cccl pull request 3768) to 64 KiB
STREAMS = 2  # PyTorch's own, and the one that captures: cuBLAS has a workspace for each
WORKSPACE_BYTES = 32 * 2**20  # 8 MiB that hold a page of 20 on a T4, 32 MiB on Hopper
#: Share of the tensors' bytes that the allocator loses by rounding, and by gaps that fit nothing.
ROUNDING = 0.01
#: What is kept free, as these are estimates.
MARGIN_BYTES = 0.1 * GIB
#: How errors say that memory is lacking where they are no `torch.OutOfMemoryError`: those of CUDA, of Triton for a
#: kernel that it loads, of NVRTC, and of cuBLAS and its relatives for a workspace or a handle.
OUT_OF_MEMORY = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "ERROR_OUT_OF_MEMORY",
    "STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
)


class OutOfMemory(UserError):
    """The end of what can be done about a lack of GPU memory.

    what_for: what there is no memory left for. reason: what the error said.
    """

    def __init__(self, reason: str, what_for: str = ""):
        super().__init__(
            f"The GPU has no memory left{what_for} ({reason}): restart the kernel and run this again. If that does not "
            "help, ask for less: shorter completions, or fewer at a time."
        )


def bytes_besides_tensors(layers: int, batch: int, length: int, tensor_bytes: float) -> dict[str, float]:
    """Estimate what a GPU takes besides tensors: counted numbers of things, times an estimate of each.

    layers: of the model. batch: completions in a rollout. length: tokens of prompt and completion. tensor_bytes: of all
    tensors at the worst moment.
    """
    graphs = len(captured_rows(batch)) * len(captured_lengths(length))
    nodes = layers * NODES_A_LAYER + NODES_BESIDE
    return {
        "CUDA context": CONTEXT_BYTES,
        "kernel modules": MODULES * MODULE_BYTES,
        "CUDA graphs": graphs * nodes * NODE_BYTES,
        "cuBLAS workspaces": STREAMS * WORKSPACE_BYTES,
        "rounding": ROUNDING * tensor_bytes,
        "margin": MARGIN_BYTES,
    }


def captured_rows(batch: int) -> list[int]:
    """The numbers of rows that a step of decoding is captured for on a GPU, ascending: all, half, and a quarter.

    Each is a graph, which takes memory of the driver. With fewer rows than a quarter the step decodes a quarter.
    """
    return sorted({-(-batch // 4), -(-batch // 2), batch})


def captured_lengths(length: int) -> list[int]:
    """The lengths of the cache that a step of decoding is captured for on a GPU, ascending.

    The longest, half of it, and so on, as long as that is at least `LEAST_CAPTURED_LENGTH`.
    """
    lengths = [length]
    while lengths[0] // 2 >= LEAST_CAPTURED_LENGTH:
        lengths.insert(0, lengths[0] // 2)
    return lengths


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory was lacking: by this error, or by the one that led to it."""
    for cause in _causes(error):
        if isinstance(cause, (torch.OutOfMemoryError, OutOfMemory)):
            return True
        if isinstance(cause, RuntimeError) and any(words in str(cause) for words in OUT_OF_MEMORY):
            return True
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from, or in the handling of, unless they are suppressed."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@contextmanager
def memory_errors_explained() -> Iterator[None]:
    """Raise OutOfMemory in place of the errors with which PyTorch, CUDA and Triton say that memory is lacking."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(first_line(error)) from error


def release_memory() -> None:
    """Collect what nobody refers to any more, and hand the allocator's unused memory back to the driver.

    Call it outside of the `except` block: the error's traceback refers to the tensors of the calls that failed.
    """
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU


def free_gpu_bytes() -> int:
    """Return the bytes of GPU memory that tensors and the driver may still take."""
    free, _ = torch.cuda.mem_get_info()
    reusable = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()  # held by PyTorch, for no tensor
    return free + reusable


def leave_to_driver(size: float) -> None:
    """Let PyTorch's allocator leave so many bytes of what is free now to the driver.

    At its limit the allocator frees what it has cached and tries again. Without a limit it would cache all there is,
    and the driver, which cannot ask for that, would have no memory for a kernel or a graph.
    """
    free, total = torch.cuda.mem_get_info()
    limit = torch.cuda.memory_reserved() + free - size
    torch.cuda.set_per_process_memory_fraction(min(1.0, max(0.0, limit / total)))

"""Record a decoding step once, to run it again without the host's work: as a CUDA graph, or traced on the CPU.

A step that is fit for the one is fit for the other: it works on buffers that stay where they are, and neither its
operations nor their order depend on a value in a tensor.
"""

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import Tensor

from helpers.rollout.decoder import Rows

#: Streams of `CudaGraphs` that are gone. PyTorch gives out 32 streams and then the first again, and keeps a workspace
#: of cuBLAS for each that was used.
_idle_streams: list["torch.cuda.Stream"] = []


@contextmanager
def one_thread() -> Iterator[None]:
    """Let operations on the CPU use one thread.

    A decoding step of a small model is hundreds of operations of some microseconds. On an idle machine a second thread
    saves a tenth of its time; where another process wants the core, the two wait for each other at every operation, and
    the step takes ten times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CudaGraphs:
    """The CUDA graphs of one engine. They share a stream and a memory pool, and are dropped together.

    A matrix product in a graph goes on using the workspace that cuBLAS has for the stream of the capture. Where a graph
    ends, newer versions of PyTorch free the workspaces of its stream, whatever other graphs were captured on it
    (pytorch/pytorch issue 193402). So no two engines that are alive share a stream, and of one engine's graphs none is
    dropped alone. A pool ends with the last of its graphs, so the graphs after that get a new one.
    """

    def __init__(self):
        self.stream = _idle_streams.pop() if _idle_streams else torch.cuda.Stream()
        weakref.finalize(self, _idle_streams.append, self.stream)
        self.graphs = []
        self.pool = torch.cuda.graph_pool_handle()

    def capture(self, step: Callable[[], None], rows: Rows) -> Callable[[], None]:
        """Capture a step; the rows stay as they are. Returns what replays it.

        It runs twice before, as capture wants kernels compiled and libraries initialised; on the same stream, so that
        the workspace of cuBLAS is made outside of the pool. A step that starts from the same rows writes the same keys
        and values again, so it does no harm to the cache.
        """
        before = rows.state()
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self.stream):  # a capture that fails would leave it the current stream
                for _ in range(2):
                    step()
                    rows.restore(before)
                # other threads, a display or a loader, may go on using CUDA
                with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                    step()
        except BaseException:
            self._end_allocation()
            graph.reset()  # now, and not when the error's traceback is gone
            raise
        finally:
            current.wait_stream(self.stream)
        self.graphs.append(graph)
        return graph.replay

    def _end_allocation(self) -> None:
        """Tell the allocator that a capture into the pool has ended.

        PyTorch 2.11 does not where the driver has invalidated the capture, and then refuses `empty_cache` for ever.
        """
        with suppress(RuntimeError):  # it knows already
            device = torch.cuda.current_device()
            torch._C._cuda_endAllocateToPool(device, self.pool)
            torch._C._cuda_releasePool(device, self.pool)

    def clear(self) -> None:
        """Drop all graphs, so that their memory is free; what `capture` returned must not be called any more."""
        for graph in self.graphs:
            graph.reset()
        self.graphs.clear()
        self.pool = torch.cuda.graph_pool_handle()


def trace(step: Callable[[], None], rows: Rows, changing: list[Tensor]) -> Callable[[], None]:
    """Record the operations of a step on the CPU; the rows stay as they are.

    Returns what runs the operations again without Python, in about half the time.

    changing: the tensors whose values change between two steps. They are arguments of what is recorded: all others are
    constants to torch.jit, which computes with constants once and leaves out what only writes to them.

    torch.jit is deprecated in favour of torch.compile, which would first compile C++ for a minute.
    """

    def recorded(*buffers: Tensor) -> Tensor:
        step()
        return buffers[0]

    before = rows.state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(recorded, tuple(changing), check_trace=False)
    rows.restore(before)
    return partial(traced, *changing)

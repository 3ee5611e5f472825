"""Record a decoding step once, to run it again without the host's work: as a CUDA graph, or traced on the CPU.

A step that is fit for the one is fit for the other: it works on buffers that stay where they are, and neither its
operations nor their order depend on a value in a tensor.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from helpers.rollout.decoder import Rows


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


def capture_graph(step: Callable[[], None], rows: Rows, pool: tuple) -> Callable[[], None]:
    """Capture a step as a CUDA graph; the rows stay as they are. Returns what replays it.

    It runs twice before, as capture wants kernels compiled and libraries initialised. A step that starts from the same
    rows writes the same keys and values again, so it does no harm to the cache. pool: from
    `torch.cuda.graph_pool_handle`, shared by graphs that never run at the same time.
    """
    before = rows.state()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
            rows.restore(before)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # other threads, a display or a loader, may go on using CUDA
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        step()
    return graph.replay


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

"""The driver's side of the fake GPU: streams, loaded kernels, workspaces of cuBLAS, and CUDA graphs with their pools.

It computes nothing. It writes down what a capture demands of the code around it, and what a graph's end takes with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Operations that cuBLAS computes: it has a workspace for each stream that it is used on.
PRODUCTS = {"mm", "bmm", "addmm", "addmm_", "baddbmm", "baddbmm_"}
#: PyTorch gives out so many streams, and then the first again.
STREAMS = 32


class FakeStream:
    """Stands in for `torch.cuda.Stream`.

    kernels: launched on it so far. seen: stream -> how many of its kernels this one has waited for.
    """

    def __init__(self, name: str):
        self.name = name
        self.kernels = 0
        self.seen: dict[FakeStream, int] = {}

    def wait_stream(self, stream: "FakeStream") -> None:
        for other, kernels in {**stream.seen, stream: stream.kernels}.items():
            self.seen[other] = max(kernels, self.seen.get(other, 0))


@dataclass(eq=False)
class Captured:
    """What the driver knows of a graph, whether or not its capture succeeded.

    kernels: names of those it repeats. is_dangling: a graph of the same stream has ended since, and with it the
    workspaces that this one goes on using, as newer versions of PyTorch have it.
    """

    pool: int | None
    stream: FakeStream
    kernels: list[str] = field(default_factory=list)
    is_dangling: bool = False


class FakeGraph:
    """Stands in for `torch.cuda.CUDAGraph`; a replay computes nothing."""

    def __init__(self, driver: "Driver"):
        self.driver = driver
        self.captured: Captured | None = None

    def replay(self) -> None:
        self.driver.replay(self.captured)

    def reset(self) -> None:
        if self.captured is not None:
            self.driver.end(self.captured)
        self.captured = None

    def __del__(self):
        self.reset()


class Driver:
    """What the driver knows of one process.

    Attributes:
        main: the stream that PyTorch begins with.
        streams: all that were asked for.
        current: the stream that kernels are launched on.
        loaded: forms of the kernels that were launched outside of a capture.
        workspaces: streams that cuBLAS has a workspace for.
        graphs: those that are alive.
        captures: how many graphs were ever captured; most_graphs: how many were alive at once, at most.
        pools: pool -> bytes that its graphs keep.
        spent_pools: those that have ended with the last of their graphs.
        unfinished_pools: those that a capture is allocating into. One that fails is taken to have been invalidated by
            the driver: then PyTorch 2.11 does not notice its end, and keeps the pool (`unreleased_pools`).
        on_replay: called at every replay, with the graph; a test plants its faults here.
    """

    def __init__(self, note_problem: Callable[[str], None]):
        self._problem = note_problem
        self.main = FakeStream("the main stream")
        self.current = self.main
        self.streams: list[FakeStream] = []
        self.loaded: set[str] = set()
        self.workspaces: set[FakeStream] = set()
        self.graphs: set[Captured] = set()
        self.captures = 0
        self.most_graphs = 0
        self.pools: dict[int, int] = {}
        self.spent_pools: set[int] = set()
        self.unfinished_pools: set[int | None] = set()
        self.unreleased_pools: set[int | None] = set()
        self.on_replay: Callable[[Captured], None] = lambda graph: None
        self._asked = 0
        self._pools_given = 0
        self._capture: Captured | None = None  # the one that is under way

    def new_stream(self) -> FakeStream:
        """Stand in for `torch.cuda.Stream()`."""
        if len(self.streams) < STREAMS:
            self.streams.append(FakeStream(f"side stream {len(self.streams)}"))
        stream = self.streams[self._asked % STREAMS]
        self._asked += 1
        return stream

    def new_pool(self) -> int:
        """Stand in for `torch.cuda.graph_pool_handle()`."""
        self._pools_given += 1
        return self._pools_given

    def new_graph(self) -> FakeGraph:
        """Stand in for `torch.cuda.CUDAGraph()`."""
        return FakeGraph(self)

    @contextmanager
    def on_stream(self, stream: FakeStream) -> Iterator[None]:
        """Stand in for `torch.cuda.stream(...)`."""
        before = self.current
        self.current = stream
        try:
            yield
        finally:
            self.current = before

    def launch(self, kernel: str, form: str) -> None:
        """Note a kernel on the current stream. form: what it is loaded by.

        One that a graph captures must have run before on the same stream: a capture ends with an error where it would
        load a kernel, and cuBLAS would take its workspace from the graph's pool.
        """
        if self._capture is not None:
            self._capture.kernels.append(kernel)
            if form not in self.loaded:
                self._problem(f"{kernel} is loaded during a capture: it did not run before")
            if kernel in PRODUCTS and self.current not in self.workspaces:
                self._problem(f"cuBLAS takes a workspace during a capture: {kernel} did not run on {self.current.name}")
            return
        self._queue()
        self.loaded.add(form)
        if kernel in PRODUCTS:
            self.workspaces.add(self.current)

    def _queue(self) -> None:
        """Put a kernel, or a graph, on the current stream: everything here depends on what was launched before."""
        for stream in (self.main, *self.streams):
            if stream is not self.current and stream.kernels > self.current.seen.get(stream, 0):
                self._problem(f"{self.current.name} did not wait for {stream.name}")
                self.current.wait_stream(stream)
        self.current.kernels += 1

    @contextmanager
    def capturing(self, graph: FakeGraph, pool: int | None, stream: FakeStream | None) -> Iterator[None]:
        """Stand in for `torch.cuda.graph(...)`."""
        if pool is None or stream is None:
            self._problem("a capture without a pool and a stream of the engine")
        if pool in self.spent_pools:
            self._problem("a capture into a pool whose graphs have all ended")
        if any(other.pool != pool and other.stream is stream for other in self.graphs):
            self._problem("a capture beside graphs of the same stream with another pool")
        self._capture = graph.captured = Captured(pool, stream or self.current)
        self.graphs.add(graph.captured)
        self.unfinished_pools.add(pool)
        self.unreleased_pools.add(pool)
        try:
            with self.on_stream(self._capture.stream):
                yield
            self.unfinished_pools.discard(pool)
            self.unreleased_pools.discard(pool)
        finally:
            self._capture = None
        self.captures += 1
        self.most_graphs = max(self.most_graphs, len(self.graphs))

    def end_allocation(self, device: int, pool: int) -> None:
        """Stand in for `torch._C._cuda_endAllocateToPool`."""
        if pool not in self.unfinished_pools:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.unfinished_pools.discard(pool)

    def release_pool(self, device: int, pool: int) -> None:
        """Stand in for `torch._C._cuda_releasePool`: the end of a graph whose capture failed does not do this."""
        self.unreleased_pools.discard(pool)

    def empty_cache(self) -> None:
        """Stand in for `torch.cuda.empty_cache`, which newer versions of PyTorch refuse during a capture."""
        if self.unfinished_pools:
            self._problem("the cache is emptied while the allocator takes a failed capture to go on")
        if self.unreleased_pools:
            self._problem("the cache is emptied while a failed capture keeps its pool")

    def keep(self, graph: FakeGraph, size: int) -> None:
        """Note the bytes that a graph needs in its pool, where those of other graphs serve it, too."""
        pool = graph.captured.pool
        self.pools[pool] = max(size, self.pools.get(pool, 0))

    def replay(self, graph: Captured | None) -> None:
        """Note a replay."""
        if graph is None:
            self._problem("a replay of a graph that has ended")
            return
        if graph.is_dangling:
            self._problem("a replay of a graph whose workspace was freed when another graph ended")
        self._queue()
        self.on_replay(graph)

    def end(self, graph: Captured) -> None:
        """End a graph, its pool if it was the last one there, and the workspaces of its stream."""
        self.graphs.remove(graph)
        self.workspaces.discard(graph.stream)
        for other in self.graphs:
            if other.stream is graph.stream:
                other.is_dangling = True
        if all(other.pool != graph.pool for other in self.graphs):
            self.pools.pop(graph.pool, None)
            self.spent_pools.add(graph.pool)

"""Rollouts with the project's own decoding step: captured as CUDA graphs on a GPU, traced on the CPU."""

import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from helpers.kernels.experts import workspace_for
from helpers.rollout.backends import Drawn, Request
from helpers.rollout.cache import RolloutCache
from helpers.rollout.decoder import Rows, decode_step, prefill
from helpers.rollout.sampling import SamplingParams
from helpers.rollout.weights import DecoderWeights, base_model, read_weights, signature
from helpers.runtime import UserError

#: Tokens of a prompt that are prefilled at once.
PREFILL_TOKENS = 512
#: Decoding steps between two looks at which rows are finished: each look waits for the device.
STEPS_PER_LOOK = 8
#: On the CPU a step runs so often before it is traced, which takes the time of some fifty steps.
USES_BEFORE_TRACE = 24
#: The places of the cache that a step looks at grow by so many at a time; on a GPU each number is a graph of its own.
LENGTH_STEP = {"cpu": 64, "cuda": 256}


@dataclass
class _Decoder:
    """The weights with the adapters that are on, and the steps captured over them.

    captured: (rows, length, rule) -> what runs the step. uses: how often a step ran that is not captured yet.
    """

    weights: DecoderWeights
    captured: dict[tuple, Callable[[], None]] = field(default_factory=dict)
    uses: Counter = field(default_factory=Counter)


class CapturedBackend:
    """Decodes up to `max_batch_size` rows at once; a finished row is refilled with the next request.

    model: a gpt-oss from `load_model`, adapted by `add_lora` or not; its tensors are read where they lie, with the
    adapters that are on when a rollout starts. max_length: the most tokens of a prompt and completion together.

    The buffers are allocated at the first rollout and kept. Raises UserError for a model that it cannot run.
    """

    def __init__(self, model: nn.Module, *, max_batch_size: int, max_length: int):
        self.model = model
        self.max_batch_size = max_batch_size
        self.max_length = max_length
        self.cache = None
        self.rows = None
        self.captures = 0  # steps captured so far
        self._decoders = {}  # signature of the model -> _Decoder
        self._workspaces = {}  # rows -> buffers of the experts
        self._pool = None
        self._run = 0  # number of the last call of `generate`

    def sync(self) -> None:
        """Read the weights again if others are in use than before: an adapter was switched, loaded or merged."""
        decoder = self._decoders.get(signature(self.model))
        if decoder is None:
            decoder = _Decoder(read_weights(self.model, self.max_length))
            while len(self._decoders) > 1:  # the adapted model and its base take turns
                self._decoders.pop(next(iter(self._decoders)))
            self._decoders[signature(self.model)] = decoder
        self._decoder = decoder
        if self.cache is None:
            self._allocate(decoder.weights)

    def _allocate(self, weights: DecoderWeights) -> None:
        config = base_model(self.model).config
        device = weights.cos.device
        self.cache = RolloutCache(config, self.max_batch_size, self.max_length, weights.cos.dtype, device)
        self.rows = Rows.empty(self.max_batch_size, self.max_length, config.vocab_size, device)
        self._views = {count: self.rows.first(count) for count in buckets(self.max_batch_size)}

    def generate(
        self, requests: Sequence[Request], params: SamplingParams, stop_ids: Sequence[int]
    ) -> Iterator[tuple[int, Drawn]]:
        """Draw one completion for each request, as `Backend` says."""
        self._run += 1
        run = self._run
        schedule = _Schedule(requests, self.max_batch_size)
        self._begin(params, stop_ids)
        while schedule.is_open:
            if run != self._run:
                raise UserError("These completions were not finished when another rollout began: draw them again.")
            yield from self._advance(schedule, params)

    @torch.inference_mode()
    def _begin(self, params: SamplingParams, stop_ids: Sequence[int]) -> None:
        """Set what is the same for all rows; every row is free."""
        self.rows.is_live.fill_(False)
        self.rows.is_stop.fill_(False)
        self.rows.is_stop[list(stop_ids)] = True
        self.rows.params.fill(params, len(self.rows.is_stop))

    @torch.inference_mode()
    def _advance(self, schedule: "_Schedule", params: SamplingParams) -> list[tuple[int, Drawn]]:
        """Fill the free rows, run a few steps, and return what finished."""
        self._fill(schedule)
        bucket = self._bucket_for(schedule)
        steps = min(STEPS_PER_LOOK, schedule.steps_left(params.max_new_tokens))
        length = self._length_for(schedule.longest + steps)
        for _ in range(steps):
            self._step(bucket, length, params.rule)
        schedule.count(steps)
        return self._collect(schedule)

    def _fill(self, schedule: "_Schedule") -> None:
        """Let free rows begin the next completions of the queue. Each distinct prompt is prefilled once."""
        starts = schedule.fill()
        fresh = [start for start in starts if start.prompt_ids != schedule.kept_prompt]
        for start in starts:
            if start.prompt_ids == schedule.kept_prompt:
                self.cache.copy_row(self.cache.prompt_row, start.rows, len(start.prompt_ids) - 1)
        for together in _packs(fresh):
            self._prefill(together)
        for start in fresh:
            self.cache.copy_row(start.rows[0], start.rows[1:], len(start.prompt_ids) - 1)
        for start in starts:
            self._start(start)
        if starts and schedule.next_prompt == starts[-1].prompt_ids != schedule.kept_prompt:
            # its other completions start later, when its own rows hold other tokens
            schedule.kept_prompt = starts[-1].prompt_ids
            self.cache.copy_row(starts[-1].rows[0], [self.cache.prompt_row], len(schedule.kept_prompt) - 1)

    def _prefill(self, starts: list["_Start"]) -> None:
        """Prefill all tokens of some prompts but the last, which the first decoding step reads."""
        rows = [start.rows[0] for start in starts]
        lengths = [len(start.prompt_ids) - 1 for start in starts]
        widest = max(lengths)
        padded = [start.prompt_ids[:-1] + [0] * (widest - length) for start, length in zip(starts, lengths)]
        tokens = torch.tensor(padded, dtype=torch.int64, device=self.rows.tokens.device)
        for begin in range(0, widest, PREFILL_TOKENS):
            prefill(self._decoder.weights, self.cache, rows, tokens[:, begin : begin + PREFILL_TOKENS], lengths, begin)

    def _start(self, start: "_Start") -> None:
        """Let rows begin completions of a prompt whose cache they have."""
        for row, key in zip(start.rows, start.keys, strict=True):
            self.rows.tokens[row] = start.prompt_ids[-1]
            self.rows.positions[row] = len(start.prompt_ids) - 1
            self.rows.counts[row] = 0
            self.rows.keys[row] = key
            self.rows.is_live[row] = True

    def _bucket_for(self, schedule: "_Schedule") -> int:
        """The number of rows to decode; with an empty queue, rows move down so that it is the smallest that serves."""
        for source, target in schedule.moves():
            self.cache.copy_row(source, [target], schedule.positions[target])
            self.rows.copy_row(source, target)
        return smallest_bucket(schedule.rows_in_use, self.max_batch_size)

    def _length_for(self, length: int) -> int:
        """`length`, rounded up to one of few values."""
        step = LENGTH_STEP[self.rows.tokens.device.type]
        return min(-(-length // step) * step, self.max_length)

    def _step(self, bucket: int, length: int, rule: str) -> None:
        """Run one decoding step of the first `bucket` rows, as it was captured or to capture it."""
        key = (bucket, length, rule)
        decoder = self._decoder
        if key in decoder.captured:
            decoder.captured[key]()
            return
        if bucket not in self._workspaces:
            experts = decoder.weights.layers[0].experts
            self._workspaces[bucket] = workspace_for(experts, bucket, decoder.weights.top_k)
        rows = self._views[bucket]
        step = partial(decode_step, decoder.weights, self.cache, rows, length, rule, self._workspaces[bucket])
        if self.rows.tokens.is_cuda:
            decoder.captured[key] = self._capture_graph(step, rows)
            decoder.captured[key]()
            return
        step()
        decoder.uses[key] += 1
        if decoder.uses[key] == USES_BEFORE_TRACE:
            before = rows.state()
            changing = [*rows.changing(), *self.cache.buffers(), *decoder.weights.adapter_matrices()]
            decoder.captured[key] = _trace(step, changing)
            rows.restore(before)
            self.captures += 1

    def _capture_graph(self, step: Callable[[], None], rows: Rows) -> Callable[[], None]:
        """Capture a step as a CUDA graph; the rows stay as they are. Returns what replays it.

        It runs twice before, as capture wants kernels compiled and libraries initialised. A step that starts from the
        same rows writes the same keys and values again, so the cache is none the worse for it.
        """
        before = rows.state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                step()
                rows.restore(before)
        torch.cuda.current_stream().wait_stream(stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            step()
        self.captures += 1
        return graph.replay

    def _collect(self, schedule: "_Schedule") -> list[tuple[int, Drawn]]:
        """Take what finished out of its rows, which are free then. This waits for the device."""
        is_live = self.rows.is_live.tolist()
        finished = []
        for row in schedule.occupied():
            if is_live[row]:
                continue
            count = int(self.rows.counts[row])
            drawn = Drawn(self.rows.drawn[row, :count].tolist(), self.rows.logprobs[row, :count].tolist())
            finished.append((schedule.release(row), drawn))
        return finished


class _Start(NamedTuple):
    """Completions of one prompt that begin now, and the rows they get."""

    prompt_ids: list[int]
    rows: list[int]
    keys: list[int]


def _packs(starts: list[_Start]) -> Iterator[list[_Start]]:
    """Cut into lists that are prefilled together: as many prompts as make up `PREFILL_TOKENS`, or one long one."""
    pack = []
    widest = 0
    for start in starts:
        widest = max(widest, len(start.prompt_ids))
        if pack and widest * (len(pack) + 1) > PREFILL_TOKENS:
            yield pack
            pack = []
            widest = len(start.prompt_ids)
        pack.append(start)
    if pack:
        yield pack


class _Schedule:
    """Which request is in which row, known on the host by counting.

    positions: of each row, at least the position that it has reached. kept_prompt: the one in the cache's prompt row.
    """

    def __init__(self, requests: Sequence[Request], rows: int):
        self.requests = requests
        self.queue = deque(range(len(requests)))
        self.in_row = [None] * rows  # number of a request
        self.positions = [0] * rows
        self.steps = [0] * rows
        self.kept_prompt = None

    @property
    def is_open(self) -> bool:
        """True until every request is finished."""
        return bool(self.queue or self.occupied())

    def occupied(self) -> list[int]:
        """The rows that hold a request."""
        return [row for row, request in enumerate(self.in_row) if request is not None]

    @property
    def rows_in_use(self) -> int:
        """One more than the last row that holds a request."""
        return self.occupied()[-1] + 1

    @property
    def longest(self) -> int:
        """Tokens of the longest row, at most."""
        return max(self.positions[row] for row in self.occupied())

    def steps_left(self, max_new_tokens: int) -> int:
        """Steps until the row that began last must be finished."""
        return max(max_new_tokens - self.steps[row] for row in self.occupied())

    @property
    def next_prompt(self) -> list[int] | None:
        """The prompt at the head of the queue."""
        return self.requests[self.queue[0]].prompt_ids if self.queue else None

    def fill(self) -> list["_Start"]:
        """Give free rows to requests of the queue."""
        free = [row for row, request in enumerate(self.in_row) if request is None]
        starts = []
        while free and self.queue:
            start = _Start(self.next_prompt, [], [])
            while free and self.next_prompt == start.prompt_ids:
                number = self.queue.popleft()
                row = free.pop(0)
                self.in_row[row] = number
                self.positions[row] = len(start.prompt_ids) - 1
                self.steps[row] = 0
                start.rows.append(row)
                start.keys.append(self.requests[number].key)
            starts.append(start)
        return starts

    def moves(self) -> list[tuple[int, int]]:
        """With an empty queue, move requests from the last rows to free ones before; return `(source, target)` pairs."""
        occupied = self.occupied()
        bucket = smallest_bucket(len(occupied), len(self.in_row))
        if self.queue or occupied[-1] < bucket:
            return []
        free = [row for row in range(bucket) if self.in_row[row] is None]
        moves = []
        for source in [row for row in occupied if row >= bucket]:
            target = free.pop(0)
            for column in (self.in_row, self.positions, self.steps):
                column[target] = column[source]
            self.in_row[source] = None
            moves.append((source, target))
        return moves

    def count(self, steps: int) -> None:
        """Note that every row has made so many steps."""
        for row in self.occupied():
            self.positions[row] += steps
            self.steps[row] += steps

    def release(self, row: int) -> int:
        """Free a row; returns the number of its request."""
        number = self.in_row[row]
        self.in_row[row] = None
        return number


def _trace(step: Callable[[], None], changing: list[torch.Tensor]) -> Callable[[], None]:
    """Record the operations of a step on the CPU; returns what runs them again, without Python: in about half the time.

    changing: the tensors whose values change between two steps. They are arguments of what is recorded: all other tensors
    are constants to torch.jit, which computes with constants once and leaves out what only writes to them.

    What makes a step fit for a CUDA graph makes it fit for this. torch.jit is deprecated in favour of torch.compile,
    which would first compile C++ for a minute.
    """

    def recorded(*buffers: torch.Tensor) -> torch.Tensor:
        step()
        return buffers[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(recorded, tuple(changing), check_trace=False)
    return partial(traced, *changing)


def buckets(most: int) -> list[int]:
    """The numbers of rows that are decoded together: powers of two, and `most`."""
    powers = []
    count = 1
    while count < most:
        powers.append(count)
        count *= 2
    return [*powers, most]


def smallest_bucket(rows: int, most: int) -> int:
    """The smallest of `buckets(most)` that holds so many rows."""
    return next(count for count in buckets(most) if count >= rows)

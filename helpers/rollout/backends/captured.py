"""Rollouts with the project's own decoding step: captured as CUDA graphs on a GPU, traced on the CPU."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from helpers.kernels.experts import workspace_for
from helpers.model.gpu_memory import captured_lengths, captured_rows, is_out_of_memory
from helpers.model.memory import PREFILL_TOKENS
from helpers.rollout.backends import Drawn, Request
from helpers.rollout.cache import RolloutCache
from helpers.rollout.capture import CudaGraphs, one_thread, trace
from helpers.rollout.decoder import Rows, decode_step, prefill
from helpers.rollout.sampling import SamplingParams
from helpers.rollout.schedule import Schedule, Start, packs, powers_of_two, smallest
from helpers.rollout.weights import (
    DecoderWeights,
    base_model,
    can_be_traced,
    check_model,
    most_rows,
    read_weights,
    signature,
)
from helpers.runtime import UserError, first_line

#: Decoding steps between two looks at which rows are finished: each look waits for the device.
STEPS_PER_LOOK = 8
#: On the CPU a step runs so often before it is traced, which takes the time of some fifty steps.
USES_BEFORE_TRACE = 24
#: On the CPU the places of the cache that a step looks at grow by so many at a time.
LENGTH_STEP = 64
#: Experts of a layer that one byte tells apart.
MOST_RECORDED = 256


@dataclass
class _Decoder:
    """The weights with the adapters that are on, and the steps captured over them.

    captured: (rows, length, trims) -> what runs the step. uses: how often a step ran that is not captured yet.
    """

    weights: DecoderWeights
    captured: dict[tuple, Callable[[], None]] = field(default_factory=dict)
    uses: Counter = field(default_factory=Counter)


class CapturedBackend:
    """Decodes up to `max_batch_size` rows at once; a finished row is refilled with the next request.

    model: a gpt-oss from `load_model`, adapted by `add_lora` or not; its tensors are read where they lie, with the
    adapters that are on when a rollout starts. max_length: the most tokens of a prompt and completion together.
    record_experts: return the experts that were chosen for each token, `Drawn.experts`.

    On a GPU it takes as many rows at once as the kernels over packed experts take, if `max_batch_size` is more. The
    buffers are allocated at the first rollout and kept. Raises UserError for a model that it cannot run, and for one
    whose experts cannot be recorded.
    """

    def __init__(self, model: nn.Module, *, max_batch_size: int, max_length: int, record_experts: bool = False):
        check_model(model)
        if record_experts:
            _check_recordable(model)
        self.model = model
        self.max_batch_size = min(max_batch_size, most_rows(model))
        self.max_length = max_length
        self.record_experts = record_experts
        self.cache = None
        self.rows = None
        self._views = {}  # rows -> the first rows of `self.rows`
        self._decoder = None  # of the last `sync`
        self.captures = 0  # steps captured so far
        self._decoders = {}  # signature of the model -> _Decoder
        self._workspaces = {}  # rows -> buffers of the experts
        self._buckets = []  # numbers of rows that a step may have, ascending
        self._lengths = []  # places of the cache that it may look at, ascending
        self._graphs = None  # on a GPU: the captured steps of the decoder of the last `sync`
        self._is_capturable = True
        self._trims = False  # whether the captured steps draw from a part of the distribution
        self._run = 0  # number of the last call of `generate`

    @torch.inference_mode(False)
    def sync(self) -> None:
        """Read the weights again if others are in use than before: an adapter was switched, loaded or merged."""
        decoder = self._decoders.get(signature(self.model))
        if decoder is None:
            while len(self._decoders) > 1:  # the adapted model and its base take turns
                self._decoders.pop(next(iter(self._decoders)))
            decoder = _Decoder(read_weights(self.model, self.max_length))
            self._decoders[signature(self.model)] = decoder
        if decoder is not self._decoder:
            self._drop_graphs()
        self._decoder = decoder
        if self.cache is not None and not self._fits(decoder.weights):
            self._decoders = {signature(self.model): decoder}
            self._release_buffers()

    def _fits(self, weights: DecoderWeights) -> bool:
        """Tell whether the buffers are of the model's dtype and on its device, which `model.to` may have changed."""
        keys = self.cache.layers[0].keys
        return (keys.dtype, keys.device) == (weights.cos.dtype, weights.cos.device)

    @torch.inference_mode(False)
    def _allocate(self) -> None:
        """Make the buffers for the decoder of the last `sync`."""
        config = base_model(self.model).config
        weights = self._decoder.weights
        device = weights.cos.device
        self._release_buffers()
        if device.type == "cuda":
            self._graphs = self._graphs or CudaGraphs()
            self._buckets = captured_rows(self.max_batch_size)
            self._lengths = captured_lengths(self.max_length)
        else:
            self._buckets = powers_of_two(self.max_batch_size)
            self._lengths = [*range(LENGTH_STEP, self.max_length, LENGTH_STEP), self.max_length]
        self.rows = Rows.empty(self.max_batch_size, self.max_length, config.vocab_size, device)
        self._views = {count: self.rows.first(count) for count in self._buckets}
        # last, so that an interrupt before this leaves the engine as if nothing had been allocated
        self.cache = RolloutCache(
            config, self.max_batch_size, self.max_length, weights.cos.dtype, device, self.record_experts
        )

    def _release_buffers(self) -> None:
        """Let go of the buffers, and of all steps that were captured over them."""
        self._drop_graphs()
        for decoder in self._decoders.values():
            decoder.captured.clear()
        self.cache = None
        self.rows = None
        self._views = {}
        self._workspaces = {}

    def _drop_graphs(self) -> None:
        """Drop the CUDA graphs: the driver keeps memory for each, so there are those of one kind of step only."""
        if self._graphs is None:
            return
        self._graphs.clear()
        for decoder in self._decoders.values():
            decoder.captured.clear()

    def use_less_memory(self) -> str | None:
        """Give up the CUDA graphs, or where there are none half of the rows, as `Backend` says."""
        if self._graphs is not None and self._is_capturable:
            self._is_capturable = False
            self._drop_graphs()
            return "decoding steps run one kernel after the other from here on, which is slower"
        if self.max_batch_size == 1:
            return None
        self.max_batch_size //= 2
        self._release_buffers()
        return f"completions are drawn {self.max_batch_size} at a time from here on"

    def generate(
        self, requests: Sequence[Request], params: SamplingParams, stop_ids: Sequence[int]
    ) -> Iterator[tuple[int, Drawn]]:
        """Draw one completion for each request, as `Backend` says. An earlier call that is not finished ends here."""
        self._run += 1
        if params.trims != self._trims:
            self._drop_graphs()
            self._trims = params.trims
        if self.cache is None:
            self._allocate()
        self._begin(params, stop_ids)
        return self._drawn(self._run, Schedule(requests, self._buckets), params)

    def _drawn(self, run: int, schedule: Schedule, params: SamplingParams) -> Iterator[tuple[int, Drawn]]:
        while schedule.is_open:
            if run != self._run:
                raise UserError("These completions were not finished when another rollout began: draw them again.")
            yield from self._advance(schedule, params)

    @torch.inference_mode()
    def _begin(self, params: SamplingParams, stop_ids: Sequence[int]) -> None:
        """Set what is the same for all rows; every row is free."""
        self.cache.clear()
        self.rows.is_live.fill_(False)
        self.rows.is_stop.fill_(False)
        self.rows.is_stop[list(stop_ids)] = True
        self.rows.params.fill(params, len(self.rows.is_stop))

    @torch.inference_mode()
    def _advance(self, schedule: Schedule, params: SamplingParams) -> list[tuple[int, Drawn]]:
        """Fill the free rows, run a few steps, and return what finished."""
        with torch.autocast(self.rows.tokens.device.type, enabled=False):  # it would round what is fp32 here
            self._fill(schedule)
            bucket = self._bucket_for(schedule)
            steps = min(STEPS_PER_LOOK, schedule.steps_left(params.max_new_tokens))
            length = smallest(self._lengths, min(schedule.longest + steps, self.max_length))
            with one_thread():
                for _ in range(steps):
                    self._step(bucket, length, params.trims)
            schedule.count(steps)
            return self._collect(schedule, params.max_new_tokens)

    def _fill(self, schedule: Schedule) -> None:
        """Let free rows begin the next completions of the queue. Each distinct prompt is prefilled once."""
        starts = schedule.fill()
        fresh = [start for start in starts if start.prompt_ids != schedule.kept_prompt]
        for start in starts:
            if start.prompt_ids == schedule.kept_prompt:
                self.cache.copy_row(self.cache.prompt_row, start.rows, len(start.prompt_ids) - 1)
        for together in packs(fresh, PREFILL_TOKENS):
            self._prefill(together)
        for start in fresh:
            self.cache.copy_row(start.rows[0], start.rows[1:], len(start.prompt_ids) - 1)
        self._start(starts)
        if starts and schedule.next_prompt == starts[-1].prompt_ids != schedule.kept_prompt:
            # its other completions start later, when its own rows hold other tokens
            schedule.kept_prompt = starts[-1].prompt_ids
            self.cache.copy_row(starts[-1].rows[0], [self.cache.prompt_row], len(schedule.kept_prompt) - 1)

    def _prefill(self, starts: list[Start]) -> None:
        """Prefill all tokens of some prompts but the last, which the first decoding step reads."""
        rows = [start.rows[0] for start in starts]
        lengths = [len(start.prompt_ids) - 1 for start in starts]
        widest = max(lengths)
        padded = [start.prompt_ids[:-1] + [0] * (widest - length) for start, length in zip(starts, lengths)]
        tokens = torch.tensor(padded, dtype=torch.int64, device=self.rows.tokens.device)
        for begin in range(0, widest, PREFILL_TOKENS):
            prefill(self._decoder.weights, self.cache, rows, tokens[:, begin : begin + PREFILL_TOKENS], lengths, begin)

    def _start(self, starts: list[Start]) -> None:
        """Let rows begin completions of prompts whose cache they have."""
        columns = []
        for start in starts:
            last = len(start.prompt_ids) - 1
            for row, key in zip(start.rows, start.keys, strict=True):
                columns.append((row, start.prompt_ids[last], last, key))
        if not columns:
            return
        together = torch.tensor(columns, dtype=torch.int64, device=self.rows.tokens.device)  # in one copy
        rows, tokens, positions, keys = together.T
        self.rows.tokens[rows] = tokens
        self.rows.positions[rows] = positions
        self.rows.keys[rows] = keys
        self.rows.counts.index_fill_(0, rows, 0)
        self.rows.is_live.index_fill_(0, rows, True)

    def _bucket_for(self, schedule: Schedule) -> int:
        """The number of rows to decode; with an empty queue, rows move down so that it is the smallest that serves."""
        for source, target in schedule.moves():
            self.cache.copy_row(source, [target], schedule.positions[target])
            self.rows.copy_row(source, target)
        return schedule.bucket

    def _step(self, bucket: int, length: int, trims: bool) -> None:
        """Run one decoding step of the first `bucket` rows: the captured one, once there is one."""
        key = (bucket, length, trims)
        decoder = self._decoder
        if key not in decoder.captured:
            step = self._eager_step(bucket, length, trims)
            if not self._is_worth_capturing(key):
                step()
                return
            decoder.captured[key] = self._capture(step, self._views[bucket])
        decoder.captured[key]()

    def _eager_step(self, bucket: int, length: int, trims: bool) -> Callable[[], None]:
        """`decode_step` with its arguments."""
        weights = self._decoder.weights
        if bucket not in self._workspaces:
            self._workspaces[bucket] = workspace_for(weights.layers[0].experts, bucket, weights.top_k)
        rows = self._views[bucket]
        return partial(decode_step, weights, self.cache, rows, length, trims, self._workspaces[bucket])

    def _is_worth_capturing(self, key: tuple) -> bool:
        """On a GPU at once; on the CPU when a step has been used so often that it is likely to be used again."""
        if self.rows.tokens.is_cuda:
            return self._is_capturable
        self._decoder.uses[key] += 1
        return self._decoder.uses[key] > USES_BEFORE_TRACE and can_be_traced(self._decoder.weights)

    def _capture(self, step: Callable[[], None], rows: Rows) -> Callable[[], None]:
        """Return what runs the step without the host's work, or the step itself where it cannot be captured."""
        if not rows.tokens.is_cuda:
            changing = [*rows.inputs(), *self.cache.buffers(), *self._decoder.weights.adapter_matrices()]
            captured = trace(step, rows, changing)
        else:
            try:
                captured = self._graphs.capture(step, rows)
            except BaseException as error:
                self._drop_graphs()  # the end of the graph that failed has taken the workspaces of all of them
                if not isinstance(error, RuntimeError) or is_out_of_memory(error):
                    raise
                warnings.warn(
                    f"Decoding steps cannot be captured as CUDA graphs here ({first_line(error)}): they run one kernel "
                    "after the other, which is slower; the results are the same.",
                    stacklevel=2,
                )
                self._is_capturable = False
                return step
        self.captures += 1
        return captured

    def _collect(self, schedule: Schedule, max_new_tokens: int) -> list[tuple[int, Drawn]]:
        """Take what finished out of its rows, which are free then. This waits for the device.

        Raises RuntimeError for a row that goes on after its last token: it would never end.
        """
        is_live, counts = self._progress()
        finished = []
        for row in schedule.occupied():
            if is_live[row]:
                if schedule.steps[row] >= max_new_tokens:
                    raise RuntimeError(
                        f"A completion of at most {max_new_tokens} tokens has made {schedule.steps[row]} steps and "
                        "goes on, which is a fault of the decoding step or of the GPU: make the engine with "
                        'backend="transformers", and please report it with the row that 01_load prints.'
                    )
                continue
            count = counts[row]
            number = schedule.release(row)
            token_ids = self.rows.drawn[row, :count].tolist()
            logprobs = self.rows.logprobs[row, :count].tolist()
            tokens_read = len(schedule.requests[number].prompt_ids) + count - 1
            finished.append((number, Drawn(token_ids, logprobs, self._recorded_experts(row, tokens_read))))
        return finished

    def _progress(self) -> tuple[list[int], list[int]]:
        """Return of each row whether it goes on, and how many tokens it has drawn."""
        is_live, counts = torch.stack([self.rows.is_live, self.rows.counts]).tolist()
        return is_live, counts

    def _recorded_experts(self, row: int, length: int) -> Tensor | None:
        """The experts of the first `length` tokens of a row, uint8 [length, layers, K], copied to the CPU."""
        if self.cache.experts is None:
            return None
        return self.cache.experts[row, :length].to("cpu", copy=True)


def _check_recordable(model: nn.Module) -> None:
    """Raise UserError unless the number of an expert fits a byte."""
    count = base_model(model).config.num_local_experts
    if count > MOST_RECORDED:
        raise UserError(
            f"record_experts keeps the number of an expert in one byte, up to {MOST_RECORDED} experts, and this model "
            f"has {count}: make the engine with record_experts=False."
        )

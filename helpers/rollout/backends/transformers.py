"""Rollouts with transformers' `generate` and a growing cache: the plain alternative, and the reference for tests."""

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from transformers import DynamicCache, LogitsProcessor, PreTrainedConfig
from transformers.cache_utils import DynamicSlidingWindowLayer

from helpers.rollout.backends import Drawn, Request
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import random_seed


class TransformersBackend:
    """Draws with `model.generate`, batch after batch; the model's weights are read as they are at each call.

    model: a causal LM, adapted or not. max_batch_size: completions drawn at once. A completion depends on the others of
    its batch: they share one stream of random numbers.
    """

    def __init__(self, model: nn.Module, tokenizer, *, max_batch_size: int):
        self.model = model
        self.tokenizer = tokenizer
        self.max_batch_size = max_batch_size

    def sync(self) -> None:
        """Do nothing: the trainer's own tensors are read."""

    def use_less_memory(self) -> str | None:
        """Draw half as many completions at once, as `Backend` says."""
        if self.max_batch_size == 1:
            return None
        self.max_batch_size //= 2
        return f"completions are drawn {self.max_batch_size} at a time from here on"

    def generate(
        self, requests: Sequence[Request], params: SamplingParams, stop_ids: Sequence[int]
    ) -> Iterator[tuple[int, Drawn]]:
        """Draw one completion for each request, as `Backend` says."""
        for start in range(0, len(requests), self.max_batch_size):
            batch = requests[start : start + self.max_batch_size]
            drawn = self._generate_batch(batch, params, stop_ids)
            yield from enumerate(drawn, start)

    @torch.inference_mode()
    def _generate_batch(
        self, requests: Sequence[Request], params: SamplingParams, stop_ids: Sequence[int]
    ) -> list[Drawn]:
        device = self.model.device
        prompt_ids = [request.prompt_ids for request in requests]
        seed = random_seed("batch", *(request.key for request in requests))
        inputs = self.tokenizer.pad({"input_ids": prompt_ids}, padding_side="left", return_tensors="pt").to(device)
        recorder = _LogprobRecorder(params.temperature)
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                sequences = self.model.generate(  # [B, prompt + T]
                    **inputs,
                    **_choice(params),
                    past_key_values=_empty_cache(self.model.config),
                    max_new_tokens=params.max_new_tokens,
                    eos_token_id=list(stop_ids),
                    pad_token_id=self.tokenizer.pad_token_id,
                    logits_processor=[recorder],
                )
        finally:
            self.model.train(was_training)
        drawn = sequences[:, inputs.input_ids.shape[1] :]  # [B, T]
        recorder.record(drawn[:, -1:])
        logprobs = torch.cat(recorder.recorded, 1)  # [B, T]
        return [Drawn(*row) for row in zip(drawn.tolist(), logprobs.tolist())]


def _choice(params: SamplingParams) -> dict:
    """Return arguments of `generate` for the way to draw; `_LogprobRecorder` applies the temperature before."""
    if params.temperature == 0:
        return {"do_sample": False}
    return {
        "do_sample": True,
        "temperature": 1.0,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p or None,
    }


class _SlidingLayer(DynamicSlidingWindowLayer):
    """A sliding layer of a cache that lets go of the prompt: transformers' own keeps a view of all its keys."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what transformers' layer returns. Tensors: [B, Hkv, T, D]."""
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        if keys.shape[-2] > self.sliding_window:  # not at a step of decoding, which leaves out one token
            self.keys = self.keys.clone()
            self.values = self.values.clone()
        return keys, values


def _empty_cache(config: PreTrainedConfig) -> DynamicCache:
    """Return the cache that `generate` would make, with the sliding layers above."""
    cache = DynamicCache(config=config)
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, DynamicSlidingWindowLayer):
            cache.layers[index] = _SlidingLayer(layer.sliding_window)
    return cache


class _LogprobRecorder(LogitsProcessor):
    """Turns logits into log-probabilities at the temperature, and records those of the tokens drawn."""

    def __init__(self, temperature: float):
        self.temperature = temperature or 1.0
        self.previous = None  # [B, vocabulary], of the step before
        self.recorded = []  # [B, 1] each

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.record(input_ids[:, -1:])
        self.previous = (scores.float() / self.temperature).log_softmax(-1)
        return self.previous

    def record(self, tokens: torch.Tensor) -> None:
        """Record the log-probabilities of the tokens that the step before drew. tokens: [B, 1]."""
        if self.previous is not None:
            self.recorded.append(self.previous.gather(1, tokens))

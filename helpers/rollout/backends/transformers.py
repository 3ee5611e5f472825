"""Rollouts with transformers' `generate` and a growing cache."""

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor

from helpers.rollout.backends import Drawn
from helpers.rollout.sampling import SamplingParams


class TransformersBackend:
    """Draws with `model.generate`; the model's weights are read as they are at each call.

    model: a causal LM, adapted or not. stop_ids: the tokens that end a completion.
    """

    def __init__(self, model, tokenizer, stop_ids: Sequence[int]):
        self.model = model
        self.tokenizer = tokenizer
        self.stop_ids = list(stop_ids)

    def sync(self) -> None:
        """Do nothing: the trainer's own tensors are read."""

    @torch.inference_mode()
    def generate(self, prompt_ids: Sequence[list[int]], params: SamplingParams, seed: int) -> list[Drawn]:
        """Draw one completion for each prompt."""
        device = self.model.device
        inputs = self.tokenizer.pad({"input_ids": prompt_ids}, padding_side="left", return_tensors="pt").to(device)
        recorder = _LogprobRecorder(params.temperature)
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                sequences = self.model.generate(  # [B, prompt + T]
                    **inputs,
                    **_choice(params.temperature),
                    max_new_tokens=params.max_completion_length,
                    eos_token_id=self.stop_ids,
                    pad_token_id=self.tokenizer.pad_token_id,
                    logits_processor=[recorder],
                )
        finally:
            self.model.train(was_training)
        drawn = sequences[:, inputs.input_ids.shape[1] :]  # [B, T]
        recorder.record(drawn[:, -1:])
        logprobs = torch.cat(recorder.recorded, 1)  # [B, T]
        return [Drawn(*row) for row in zip(drawn.tolist(), logprobs.tolist())]


def _choice(temperature: float) -> dict:
    """Return arguments of `generate` that leave the distribution untrimmed: `_LogprobRecorder` applies temperature."""
    if temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}


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

"""Text out of the model, with the log-probability of every token as the sampler saw it."""

from dataclasses import dataclass

import torch
from transformers import LogitsProcessor

from helpers.rollout.completion import Completion
from helpers.rollout.harmony import Harmony
from helpers.runtime import UserError, random_seed


@dataclass(frozen=True)
class SamplingParams:
    """How to draw. temperature 0 is greedy. There is no top_p or top_k: for a policy gradient
    the sampler must be the policy itself, untrimmed."""

    temperature: float = 1.0
    max_completion_length: int = 256
    seed: int = 0


class _Sampler(LogitsProcessor):
    """Turns logits into log-probabilities at the temperature, and keeps those of the tokens drawn."""

    def __init__(self, temperature):
        self.temperature = temperature or 1.0
        self.previous, self.kept = None, []

    def __call__(self, input_ids, scores):
        self.note(input_ids[:, -1:])
        self.previous = (scores.float() / self.temperature).log_softmax(-1)
        return self.previous

    def note(self, tokens):
        if self.previous is not None:
            self.kept.append(self.previous.gather(1, tokens))


class RolloutEngine:
    """Samples completions with transformers' `generate` and a growing cache.

    model: a causal LM, adapted or not; its weights are read as they are at each call.
    max_batch_size: completions drawn at once. max_length: prompt and completion together, tokens.
    chat_template_kwargs: passed to the chat template, such as {"reasoning_effort": "low"}.
    """

    def __init__(self, model, tokenizer, *, max_batch_size, max_length, chat_template_kwargs=None):
        self.model, self.tokenizer = model, tokenizer
        self.harmony = Harmony(tokenizer)
        self.max_batch_size, self.max_length = max_batch_size, max_length
        self.chat_template_kwargs = chat_template_kwargs or {}

    def generate(self, prompts, params, num_generations=1):
        """`num_generations` completions of each prompt, those of one prompt next to each other.

        prompts: message lists or strings. Returns: list[Completion]. The same seed, prompts and
        weights give the same completions.
        """
        prompt_ids = [self.harmony.render(prompt, **self.chat_template_kwargs) for prompt in prompts]
        longest = max(map(len, prompt_ids))
        if longest + params.max_completion_length > self.max_length:
            raise UserError(
                f"A prompt of {longest} tokens and max_completion_length={params.max_completion_length} exceed "
                f"the engine's max_length={self.max_length}: shorten one or raise the other."
            )
        rows = [ids for ids in prompt_ids for _ in range(num_generations)]
        completions = []
        was_training = self.model.training
        self.model.eval()
        try:
            for start in range(0, len(rows), self.max_batch_size):
                seed = random_seed("rollout", params.seed, start)
                completions += self._batch(rows[start : start + self.max_batch_size], params, seed)
        finally:
            self.model.train(was_training)
        return completions

    @torch.inference_mode()
    def _batch(self, rows, params, seed):
        device = self.model.device
        inputs = self.tokenizer.pad({"input_ids": rows}, padding_side="left", return_tensors="pt").to(device)
        sampler = _Sampler(params.temperature)
        untrimmed = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}  # the sampler has applied the temperature
        choice = {"do_sample": True, **untrimmed} if params.temperature > 0 else {"do_sample": False}
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            sequences = self.model.generate(
                **inputs,
                max_new_tokens=params.max_completion_length,
                **choice,
                eos_token_id=self.harmony.stop_ids,
                pad_token_id=self.tokenizer.pad_token_id,
                logits_processor=[sampler],
            )
        drawn = sequences[:, inputs.input_ids.shape[1] :]
        sampler.note(drawn[:, -1:])
        logprobs = torch.cat(sampler.kept, 1)  # [B, T]
        return [self._completion(*row) for row in zip(rows, drawn.tolist(), logprobs.tolist())]

    def _completion(self, prompt_ids, token_ids, logprobs):
        """Cut at the first stop token: what follows is padding, which is a stop token too."""
        length = next((n + 1 for n, t in enumerate(token_ids) if t in self.harmony.stop_ids), len(token_ids))
        token_ids = token_ids[:length]
        return Completion(prompt_ids, token_ids, logprobs[:length], *self.harmony.parse(token_ids))

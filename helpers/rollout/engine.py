"""Text out of the model, with the log-probability of every token as the sampler saw it."""

from collections.abc import Sequence

from helpers.rollout.backends import Backend, Drawn
from helpers.rollout.backends.transformers import TransformersBackend
from helpers.rollout.completion import Completion
from helpers.rollout.harmony import Harmony
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import UserError, random_seed


class RolloutEngine:
    """Renders prompts, generates in batches, and parses the completions.

    model: a causal LM, adapted or not; its weights are read as they are at each call.
    max_batch_size: completions drawn at once. max_length: prompt and completion together, tokens.
    chat_template_kwargs: passed to the chat template, such as {"reasoning_effort": "low"}.
    backend: what draws the tokens; default: transformers' `generate`.
    """

    def __init__(
        self,
        model,
        tokenizer,
        *,
        max_batch_size: int,
        max_length: int,
        chat_template_kwargs: dict | None = None,
        backend: Backend | None = None,
    ):
        self.harmony = Harmony(tokenizer)
        self.max_batch_size = max_batch_size
        self.max_length = max_length
        self.chat_template_kwargs = chat_template_kwargs or {}
        self.backend = backend or TransformersBackend(model, tokenizer, self.harmony.stop_ids)

    def generate(self, prompts: Sequence, params: SamplingParams, num_generations: int = 1) -> list[Completion]:
        """Return `num_generations` completions of each prompt, those of one prompt next to each other.

        prompts: message lists or strings. The same seed, prompts and weights give the same completions. Raises
        UserError for a prompt that leaves no room for `params.max_completion_length` tokens.
        """
        prompt_ids = [self.harmony.render(prompt, **self.chat_template_kwargs) for prompt in prompts]
        longest = max(map(len, prompt_ids))
        if longest + params.max_completion_length > self.max_length:
            raise UserError(
                f"A prompt of {longest} tokens and max_completion_length={params.max_completion_length} exceed "
                f"the engine's max_length={self.max_length}: shorten one or raise the other."
            )
        rows = [ids for ids in prompt_ids for _ in range(num_generations)]
        self.backend.sync()
        completions = []
        for start in range(0, len(rows), self.max_batch_size):
            batch = rows[start : start + self.max_batch_size]
            drawn = self.backend.generate(batch, params, random_seed("rollout", params.seed, start))
            completions += [self._completion(*pair) for pair in zip(batch, drawn, strict=True)]
        return completions

    def prompt_length(self, prompt: str | list[dict]) -> int:
        """Return the tokens of a prompt as it will be rendered."""
        return len(self.harmony.render(prompt, **self.chat_template_kwargs))

    def _completion(self, prompt_ids: list[int], drawn: Drawn) -> Completion:
        """Cut what was drawn after its first stop token, and parse it."""
        assert len(drawn.token_ids) == len(drawn.logprobs), "a backend gives one log-probability a token"
        stops = [place for place, token in enumerate(drawn.token_ids) if token in self.harmony.stop_ids]
        length = stops[0] + 1 if stops else len(drawn.token_ids)
        token_ids = drawn.token_ids[:length]
        text, thinking, finish_reason = self.harmony.parse(token_ids)
        return Completion(prompt_ids, token_ids, drawn.logprobs[:length], text, thinking, finish_reason)

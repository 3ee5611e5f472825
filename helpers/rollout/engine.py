"""Text out of the model, with the log-probability of every token as the sampler saw it."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from jinja2 import TemplateError
from torch import nn

from helpers.model.gpu_memory import OutOfMemory, is_out_of_memory, release_memory
from helpers.rollout.backends import Backend, Drawn, Request
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.backends.transformers import TransformersBackend
from helpers.rollout.completion import Completion
from helpers.rollout.harmony import Harmony, check_prompt
from helpers.rollout.random_streams import stream_key
from helpers.rollout.sampling import SamplingParams
from helpers.rollout.weights import problem_with
from helpers.runtime import UserError, check_whole, first_line

Result = TypeVar("Result")
BACKENDS = ("auto", "captured", "transformers")


class RolloutEngine:
    """Renders prompts, generates completions, and parses them.

    model: a causal LM, adapted or not; its weights are read as they are at each call.
    max_batch_size: completions drawn at once. max_length: prompt and completion together, tokens.
    chat_template_kwargs: passed to the chat template, such as {"reasoning_effort": "low"}.
    backend: what draws the tokens: "captured" (the project's own decoding step), "transformers" (its `generate`),
        "auto" (captured where it can run the model), or an object with the methods of `Backend`.
    record_experts: keep the experts that every layer chose for every token, as `Completion.experts`; only the captured
        backend does. An object as backend decides by itself.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer,
        *,
        max_batch_size: int,
        max_length: int,
        chat_template_kwargs: dict | None = None,
        backend: str | Backend = "auto",
        record_experts: bool = False,
    ):
        check_whole("max_batch_size", max_batch_size, 1)
        check_whole("max_length", max_length, 1)
        self.harmony = Harmony(tokenizer)
        self.max_length = max_length
        self.chat_template_kwargs = chat_template_kwargs or {}
        self.backend = _make_backend(backend, model, tokenizer, max_batch_size, max_length, record_experts)
        self.shortages = 0  # errors for want of memory so far

    def generate(
        self,
        prompts: Sequence,
        params: SamplingParams,
        num_generations: int = 1,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Completion]:
        """Return `num_generations` completions of each prompt, those of one prompt next to each other.

        prompts: message lists or strings. on_progress: called with the number of completions that are finished and the
        number of all, whenever more are. With the captured backend a completion depends on the weights, the seed, its
        prompt and its number among the completions of that prompt, and on nothing else.

        Raises UserError before anything is drawn for arguments that cannot be served: no prompt, an empty one, messages
        without 'role' and 'content', a prompt that leaves no room for `params.max_new_tokens` tokens, a stop token that
        the vocabulary does not have. Errors count prompts and messages from 1.
        """
        completions = {}
        for number, completion in self.stream(prompts, params, num_generations):
            completions[number] = completion
            if on_progress is not None:
                on_progress(len(completions), len(prompts) * num_generations)
        return [completions[number] for number in range(len(completions))]

    def stream(
        self, prompts: Sequence, params: SamplingParams, num_generations: int = 1
    ) -> Iterator[tuple[int, Completion]]:
        """Yield `(place in the list that generate would return, completion)` as they finish; arguments as there.

        A later call ends an iterator that was not read to its end. Where the GPU has no memory, what can be freed is
        freed, and what was not finished is drawn again: the first time in the same way, then with less at a time, as
        the backend's `use_less_memory` says.
        """
        requests = self._requests(prompts, params, num_generations)
        stop_ids = [*self.harmony.stop_ids, *params.stop_token_ids]
        self._retry_with_less_memory(self.backend.sync)
        drawn = self._draw(requests, params, stop_ids)
        return self._completions(requests, params, stop_ids, drawn)

    def _draw(
        self, requests: Sequence[Request], params: SamplingParams, stop_ids: list[int]
    ) -> Iterator[tuple[int, Drawn]]:
        """Let the backend begin, with the weights of its last `sync`."""
        return self._retry_with_less_memory(partial(self.backend.generate, requests, params, stop_ids))

    def _retry_with_less_memory(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns. Where the GPU has no memory for it, make room and call it again."""
        while True:
            try:
                return call()
            except RuntimeError as error:
                reason = self._note_shortage(error)
            self._make_room(reason)

    def _completions(
        self,
        requests: Sequence[Request],
        params: SamplingParams,
        stop_ids: list[int],
        drawn: Iterator[tuple[int, Drawn]],
    ) -> Iterator[tuple[int, Completion]]:
        unfinished = list(range(len(requests)))
        while unfinished:
            asked = list(unfinished)
            try:
                for place, tokens in drawn:
                    number = asked[place]
                    unfinished.remove(number)
                    yield number, self._completion(requests[number].prompt_ids, tokens, stop_ids)
                return
            except RuntimeError as error:
                reason = self._note_shortage(error)
            self._make_room(reason)
            drawn = self._draw([requests[number] for number in unfinished], params, stop_ids)

    def _note_shortage(self, error: RuntimeError) -> str:
        """Count an error for want of memory, and return what it says.

        Raises any other error again, and all errors of a backend that cannot take less memory.
        """
        if not is_out_of_memory(error) or not hasattr(self.backend, "use_less_memory"):
            raise error
        self.shortages += 1
        return first_line(error)

    def _make_room(self, reason: str) -> None:
        """Free what can be freed, and from the engine's second shortage on let the backend take less; say which.

        Call it when the error is gone, since its traceback refers to tensors. Raises OutOfMemory, with what the error
        said, if the backend can take no less.
        """
        change = "what can be freed is freed, and the rest is drawn again"
        if self.shortages > 1:
            change = self.backend.use_less_memory()
            if change is None:
                raise OutOfMemory(reason, " to draw a single completion")
        print(f"The GPU had no memory left for the rollout: {change}.")
        release_memory()

    def prompt_length(self, prompt: str | list[dict]) -> int:
        """Return the tokens of a prompt as it will be rendered. Raises UserError for what is no prompt."""
        return len(self._render(prompt, "the prompt"))

    def _render(self, prompt: str | list[dict], name: str) -> list[int]:
        """Return the tokens of a prompt. Raises UserError for what is no prompt. name: of the prompt, for the error."""
        check_prompt(prompt, name)
        try:
            return self.harmony.render(prompt, **self.chat_template_kwargs)
        except TemplateError as error:
            reason = first_line(error).rstrip(".")
            raise UserError(f"The chat template cannot render {name} ({reason}): change its messages.") from error

    def _requests(self, prompts: Sequence, params: SamplingParams, num_generations: int) -> list[Request]:
        """Check the arguments of `generate`, and turn them into requests."""
        if not _is_list_of_prompts(prompts):
            raise UserError("prompts must be a list of at least one prompt: each a string or a list of messages.")
        check_whole("num_generations", num_generations, 1)
        vocabulary = len(self.harmony.tokenizer)
        for token in params.stop_token_ids:
            if token >= vocabulary:
                raise UserError(f"stop_token_ids holds {token}, and the vocabulary ends at {vocabulary - 1}.")
        requests = []
        seen = Counter()  # completions of each prompt so far; a prompt that is given twice goes on counting
        for number, prompt in enumerate(prompts, 1):
            ids = self._render(prompt, f"prompt {number}")
            if len(ids) + params.max_new_tokens > self.max_length:
                raise UserError(
                    f"Prompt {number} of {len(ids)} tokens and max_new_tokens={params.max_new_tokens} exceed the "
                    f"engine's max_length={self.max_length}: shorten one or raise the other."
                )
            for _ in range(num_generations):
                requests.append(Request(ids, stream_key(params.seed, ids, seen[tuple(ids)])))
                seen[tuple(ids)] += 1
        return requests

    def _completion(self, prompt_ids: list[int], drawn: Drawn, stop_ids: Sequence[int]) -> Completion:
        """Cut what was drawn after its first stop token, and parse it."""
        assert len(drawn.token_ids) == len(drawn.logprobs), "a backend gives one log-probability a token"
        stops = [place for place, token in enumerate(drawn.token_ids) if token in stop_ids]
        length = stops[0] + 1 if stops else len(drawn.token_ids)
        token_ids = drawn.token_ids[:length]
        logprobs = drawn.logprobs[:length]
        experts = None
        if drawn.experts is not None:
            experts = drawn.experts[: len(prompt_ids) + length - 1]
        if any(math.isnan(logprob) for logprob in logprobs):
            raise UserError(
                "The model's logits are not numbers (NaN): look at the adapter, and at the profile's dtype."
            )
        text, thinking, _ = self.harmony.parse(token_ids[:-1] if stops else token_ids)
        return Completion(prompt_ids, token_ids, logprobs, text, thinking, "stop" if stops else "length", experts)


def _is_list_of_prompts(prompts) -> bool:
    """True for one prompt and more; a column of a data set is a list, too."""
    if isinstance(prompts, (str, dict)) or not hasattr(prompts, "__len__") or not len(prompts):
        return False
    return not any(isinstance(prompt, dict) for prompt in prompts)


def _make_backend(
    backend: str | Backend, model: nn.Module, tokenizer, max_batch_size: int, max_length: int, record_experts: bool
) -> Backend:
    """Resolve the argument of `RolloutEngine`."""
    if not isinstance(backend, str):
        return backend
    if backend not in BACKENDS:
        raise UserError(f"backend must be {', '.join(BACKENDS)} or an object; got {backend!r}.")
    if backend == "auto":
        backend = "transformers" if problem_with(model) else "captured"
    if backend == "transformers":
        if record_experts:
            raise UserError(
                "The transformers backend does not record the experts of a token: make the engine with "
                'backend="captured", which does, or with record_experts=False.'
            )
        return TransformersBackend(model, tokenizer, max_batch_size=max_batch_size)
    return CapturedBackend(model, max_batch_size=max_batch_size, max_length=max_length, record_experts=record_experts)

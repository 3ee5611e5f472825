"""A run tried out before it is started: nothing is written, and no weight is changed."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from helpers.grpo.batch import Generation, Group
from helpers.grpo.loop import places_of_step
from helpers.grpo.trainer import GRPOTrainer
from helpers.model.gpu_memory import memory_errors_explained
from helpers.rollout.completion import Completion
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import GIB

#: What the rewards are given to judge: texts that break careless ones.
MADE_UP_ANSWERS = ("", "42", "I do not know.", "```python\nprint(1)\n```", "\\boxed{42}", "```", "\u2028" * 3)
#: The share of groups with equal rewards above which a dry run says what to do about it.
MANY_GROUPS = 0.5
#: Largest relative change of the gradient, and of a log-probability in nats, that rounding explains, by the bits of the
#: arithmetic.
ROUNDING_OF_GRADIENT = {32: 1e-3, 16: 0.1}
ROUNDING_OF_LOGPROB = {32: 1e-4, 16: 0.05}
#: Tokens by which the weights of the rollout are compared before and after they are taken over again, and the standard
#: deviation of what a fresh adapter holds meanwhile.
TOKENS_COMPARED = 32
STAND_IN = 0.1


def dry_run(trainer: GRPOTrainer) -> None:
    """Try the data, the rewards and one step of a run, and print what was found. Raises UserError as training would."""
    try_rewards(trainer)
    try_step(trainer)


def try_rewards(trainer: GRPOTrainer) -> None:
    """Let the rewards and the grader judge made-up answers, and print what they paid."""
    dataset = trainer.train_dataset
    rows = dataset.select([number % len(dataset) for number in range(len(MADE_UP_ANSWERS))])
    groups = [Group(row["prompt"], [Completion.of_text(text)]) for row, text in zip(rows, MADE_UP_ANSWERS, strict=True)]
    generation = trainer.judge(rows, groups)
    print("The rewards of made-up answers:")
    for text, paid in zip(MADE_UP_ANSWERS, generation.rewards.tolist(), strict=True):
        values = ", ".join(f"{name} {_show(value)}" for name, value in zip(trainer.reward_names, paid, strict=True))
        print(f"  {text!r:<28}{values}")


@memory_errors_explained()
def try_step(trainer: GRPOTrainer) -> None:
    """Draw and judge one generation, take an optimizer step, take it back, and print what was found."""
    before = [weight.detach().to("cpu", copy=True) for weight in trainer.weights]  # the GPU has no room planned for it
    started = time.monotonic()
    generation = trainer.generate(0)
    generated = time.monotonic()
    try:
        statistics = trainer.backward(generation)
        trainer.clip_gradient()
        trainer.optimizer.step()
        metrics = statistics.metrics()
        updated = time.monotonic()
        change_of_gradient = change_by_micro_batches(trainer, generation)
    finally:
        with torch.no_grad():
            for weight, value in zip(trainer.weights, before, strict=True):
                weight.copy_(value)
        trainer.optimizer.state.clear()
        trainer.optimizer.zero_grad()
    drift = drift_of_sync(trainer)

    drawn = generation.metrics
    print(trainer.args.describe_run(len(trainer.train_dataset)))
    print(f"One step: {len(generation.completions)} completions in {generated - started:.1f} s, update in "
          f"{updated - generated:.1f} s.")  # fmt: skip
    print(f"Reward {_show(drawn['reward'])}; {drawn['frac_reward_zero_std']:.0%} of the groups teach nothing; "
          f"{drawn['completions/clipped_ratio']:.0%} of the completions are cut off; sampler and trainer are "
          f"{_show(metrics['sampling/sampling_logp_difference/mean'])} nats apart.")  # fmt: skip
    equal_groups = drawn["frac_reward_zero_std"]
    if equal_groups > MANY_GROUPS:
        print(f"In {equal_groups:.0%} of the groups all completions earn the same, and nothing is learnt from them: "
              "choose easier or harder prompts, more completions of each (num_generations), or a higher "
              "temperature.")  # fmt: skip
    bits = 8 * trainer.model.dtype.itemsize
    print(_describe_drift(drift, bits))
    print(_describe_change(change_of_gradient, bits))
    if torch.cuda.is_available():
        print(f"Largest memory so far: {torch.cuda.max_memory_allocated() / GIB:.2f} GiB.")


def drift_of_sync(trainer: GRPOTrainer) -> float:
    """Return how far the sampler's log-probabilities move, in nats, when it takes over the same weights again.

    A rollout that adds the adapter to weights which hold it already trains on completions of another policy. Each call
    of the engine takes over the weights, so the same completion is drawn twice. A fresh adapter adds nothing, and a
    step of a warm-up leaves it so: its zeros are random numbers meanwhile.
    """
    prompt = trainer.train_dataset[0]["prompt"]
    tokens = min(TOKENS_COMPARED, trainer.args.max_completion_length)
    params = SamplingParams(tokens, temperature=0.0)
    with _fresh_matrices_filled(trainer.weights):
        (first,), (second,) = [trainer.engine.generate([prompt], params) for _ in range(2)]
    if first.token_ids != second.token_ids:
        return math.inf
    moves = [abs(after - before) for before, after in zip(first.logprobs, second.logprobs, strict=True)]
    return max(moves, default=0.0)


@contextmanager
def _fresh_matrices_filled(weights: Sequence[torch.Tensor]) -> Iterator[None]:
    """Put random numbers, the same ones each time, into those of the weights that are all zero, for the block."""
    fresh = [weight for weight in weights if not weight.any()]
    try:
        with torch.no_grad():
            for weight in fresh:
                generator = torch.Generator(weight.device).manual_seed(0)
                weight.normal_(std=STAND_IN, generator=generator)
        yield
    finally:
        with torch.no_grad():
            for weight in fresh:
                weight.zero_()


def change_by_micro_batches(trainer: GRPOTrainer, generation: Generation) -> float | None:
    """Return how far the gradient of a generation moves with smaller micro-batches, as a share of its norm.

    None: there is no gradient, or each micro-batch has one completion already. The gradient that is left is that of the
    smaller ones.
    """
    trainer.backward(generation)
    whole = _gradient(trainer)
    micro_batching = trainer.micro_batching
    before = micro_batching.halvings
    places = places_of_step(trainer.state.global_step, trainer.args)  # a generation may serve several steps
    completions = [generation.completions[place] for place in places]
    try:
        if not micro_batching.cut_smaller(completions):
            return None
        trainer.backward(generation)
    finally:
        micro_batching.halvings = before
    norm = whole.norm().item()
    return (_gradient(trainer) - whole).norm().item() / norm if norm else None


def _gradient(trainer: GRPOTrainer) -> torch.Tensor:
    """Return the gradient of all weights as one vector on the CPU, float32."""
    parts = [weight.grad.flatten().float().cpu() for weight in trainer.weights if weight.grad is not None]
    return torch.cat(parts) if parts else torch.zeros(1)


def _describe_drift(drift: float, bits: int) -> str:
    moved = f"Taking over the weights again moves the log-probabilities of the sampler by {_show(drift)} nats"
    if drift <= ROUNDING_OF_LOGPROB[bits]:
        return f"{moved}."
    return f"{moved}, which rounding does not explain: the backend adds the adapter to weights that hold it already."


def _describe_change(change: float | None, bits: int) -> str:
    if change is None:
        return "Smaller micro-batches were not tried: there is no gradient, or each has one completion already."
    moved = f"Smaller micro-batches change the gradient by {change:.1e} of its norm"
    if change <= ROUNDING_OF_GRADIENT[bits]:
        return f"{moved}."
    return (
        f"{moved}, which rounding does not explain: a loss of yours may average over each micro-batch, and should use "
        "the weights of the whole step."
    )


def _show(value: float | None) -> str:
    return "none" if value is None or math.isnan(value) else f"{value:.3g}"

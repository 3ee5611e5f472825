"""A run tried out before it is started: nothing is written, and no weight is changed."""

import math
import time

import torch

from helpers.grpo.batch import Group
from helpers.grpo.trainer import GRPOTrainer
from helpers.model.gpu_memory import memory_errors_explained
from helpers.rollout.completion import Completion
from helpers.runtime import GIB

#: What the rewards are given to judge: texts that break careless ones.
MADE_UP_ANSWERS = ("", "42", "I do not know.", "```python\nprint(1)\n```", "\\boxed{42}", "```", "\u2028" * 3)
#: The share of groups with equal rewards above which a dry run says what to do about it.
MANY_GROUPS = 0.5


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
    finally:
        with torch.no_grad():
            for weight, value in zip(trainer.weights, before, strict=True):
                weight.copy_(value)
        trainer.optimizer.state.clear()
        trainer.optimizer.zero_grad()

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
    if torch.cuda.is_available():
        print(f"Largest memory so far: {torch.cuda.max_memory_allocated() / GIB:.2f} GiB.")


def _show(value: float | None) -> str:
    return "none" if value is None or math.isnan(value) else f"{value:.3g}"

"""Rejection sampling fine-tuning, the plainest thing that GRPO should be compared with.

The model as it is answers the prompts that a GRPO run of the same settings would draw, the correct answers are kept,
and the adapter learns to repeat them (RFT; Yuan et al., 2023, section 3.3). There are as many completions and as many
optimizer steps of the same size as in the GRPO run. Wrong answers teach nothing, and no answer is better than another.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from helpers.grpo.config import GRPOConfig
from helpers.grpo.loop import add_gradient, draw, prompts_of_step
from helpers.grpo.losses import LOSS_TYPES, token_weights
from helpers.grpo.trainer import GRPOTrainer
from helpers.grpo.update import UpdateBatch
from helpers.rollout.completion import Completion
from helpers.runtime import UserError, random_seed
from helpers.tasks.grading import grade_answers


@dataclass(frozen=True)
class RFTResult:
    """drawn: completions that were drawn. kept: those that were correct. steps: optimizer steps taken."""

    drawn: int
    kept: int
    steps: int


def train_rft(trainer: GRPOTrainer) -> RFTResult:
    """Fine-tune the adapter of a trainer on the correct answers of the model as it is.

    Prints a line for each generation and each step. Nothing is written to disk before the trainer's `save_model`, and a
    run that was interrupted starts again. Raises UserError for a trainer without a task, and where no answer is
    correct.
    """
    if trainer.task is None:
        raise UserError("Rejection sampling needs grades: give GRPOTrainer a task.")
    args = replace(trainer.args, beta=0.0, importance_sampling_correction=False)
    kept, drawn = draw_correct(trainer, args)
    if not kept:
        raise UserError(f"None of {drawn} completions is correct, so there is nothing to imitate: train longer.")
    batches = _endless_batches(kept, args)
    for step in range(1, args.max_steps + 1):
        trainer.optimizer.zero_grad()
        add_gradient(trainer.model, imitation_batch(next(batches), args), args)
        torch.nn.utils.clip_grad_norm_(trainer.weights, args.max_grad_norm or math.inf)
        trainer.optimizer.step()
        trainer.scheduler.step()
        print(f"step {step}/{args.max_steps}")
    trainer.state.global_step = args.max_steps
    trainer.method = "rejection sampling"
    return RFTResult(drawn, len(kept), args.max_steps)


def draw_correct(trainer: GRPOTrainer, args: GRPOConfig) -> tuple[list[Completion], int]:
    """Draw what a GRPO run would draw, all of it from the model as it is; return the correct ones, and how many were
    drawn."""
    kept = []
    drawn = 0
    for step in range(0, args.max_steps, args.steps_on_a_generation):
        prompts = prompts_of_step(trainer.train_dataset, step, args)
        seed = random_seed("training", args.seed, step)
        groups = draw(trainer.engine, prompts["prompt"], args.num_generations, seed, args)
        completions = [completion for group in groups for completion in group.completions]
        rows = [row for row in prompts for _ in range(args.num_generations)]
        grades = grade_answers(trainer.task, rows, completions)
        kept += [completion for completion, grade in zip(completions, grades, strict=True) if grade.correct]
        drawn += len(completions)
        print(f"drawn {drawn}, of these correct {len(kept)}")
    return kept, drawn


def imitation_batch(completions: Sequence[Completion], args: GRPOConfig) -> UpdateBatch:
    """Return completions as what an optimizer step learns from, each with an advantage of 1.

    Without log-probabilities of an older policy every ratio is 1, and the gradient is that of the mean of -log pi.
    """
    tokens = [len(completion.token_ids) for completion in completions]
    weighting = LOSS_TYPES[args.loss_type].weighting
    return UpdateBatch(
        completions=completions,
        advantages=torch.ones(len(completions)),
        weights=token_weights(weighting, tokens, args.max_completion_length, args.per_device_train_batch_size),
        tokens=tokens,
    )


def _endless_batches(kept: list[Completion], args: GRPOConfig):
    """Yield the completions of one optimizer step after the other: all that were kept, in another order each time."""
    rng = random.Random(args.seed)
    size = args.generation_batch_size // args.parts_per_generation
    waiting = []
    while True:
        while len(waiting) < size:
            waiting += rng.sample(kept, len(kept))
        batch, waiting = waiting[:size], waiting[size:]
        yield batch

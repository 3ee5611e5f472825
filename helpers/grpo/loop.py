"""GRPO on a page: read this file first.

A step of Group Relative Policy Optimization (DeepSeekMath, 2024, section 4.1) draws several completions of each prompt,
rewards them, and compares each with the others of its prompt. Then it moves the policy, so that the completions that
were better than their group become more likely, and the others less.

`train_simply` is all of that. `GRPOTrainer` runs the same functions and adds what a run of hours needs: checkpoints,
logs, grades, alarms, evaluations, and smaller micro-batches where memory runs out.

Letters of shapes: B completions, in G groups of N; T tokens of the longest; R reward functions.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from helpers.grpo.advantages import combine_rewards, group_advantages, reward_magnitudes
from helpers.grpo.batch import Generation, Group, completions_in_loss, into_groups, prompt_indices
from helpers.grpo.config import GRPOConfig
from helpers.grpo.correction import importance_weights
from helpers.grpo.logprobs import policy_logprobs
from helpers.grpo.losses import LOSS_TYPES, loss_scale, policy_loss, token_weights
from helpers.grpo.optimizer import make_optimizer, make_schedule
from helpers.grpo.scoring import score
from helpers.grpo.update import MicroBatchLoss, UpdateBatch, UpdateRows, micro_batches
from helpers.rollout.completion import Completion
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import random_seed

if TYPE_CHECKING:
    from datasets import Dataset


def train_simply(
    model: nn.Module, tokenizer, reward_funcs: Sequence[Callable], dataset: "Dataset", args: GRPOConfig
) -> Iterator[float]:
    """Train the adapter of a model from `add_lora`, and yield the mean reward of each optimizer step.

    With the same arguments `GRPOTrainer` takes the same steps, but for what this page leaves out: router_replay,
    router_aux_loss_coef, and the limits of a run. Nothing is written to disk.
    """
    args = args.for_prompts(len(dataset))
    engine = RolloutEngine(
        model,
        tokenizer,
        max_batch_size=args.generation_batch_size,
        max_length=args.max_length,
        chat_template_kwargs=args.chat_template_kwargs,
    )
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = make_optimizer(weights, args)
    scheduler = make_schedule(optimizer, args)
    for step in range(args.max_steps):
        if step % args.steps_on_a_generation == 0:
            generation = generate(engine, model, reward_funcs, dataset, args, step)
        batch = update_batch(generation, step, args)
        optimizer.zero_grad()
        add_gradient(model, batch, args)
        torch.nn.utils.clip_grad_norm_(weights, args.max_grad_norm or math.inf)
        optimizer.step()
        scheduler.step()
        yield combine_rewards(generation.rewards, args.reward_weights).nanmean().item()


def generate(
    engine: RolloutEngine,
    model: nn.Module,
    reward_funcs: Sequence[Callable],
    dataset: "Dataset",
    args: GRPOConfig,
    step: int,
) -> Generation:
    """Draw and reward the completions that the optimizer steps from `step` on learn from."""
    rows = prompts_of_step(dataset, step, args)
    seed = random_seed("training", args.seed, step)
    groups = draw(engine, rows["prompt"], args.num_generations, seed, args)
    state = SimpleNamespace(global_step=step)
    rewards_BR = score(reward_funcs, rows, groups, state, args.reward_timeout).rewards

    generation = Generation(groups, rewards_BR)
    generation.advantages = advantages_of(generation, args)
    completions = generation.completions
    if args.beta:
        with model.disable_adapter():
            generation.ref_logprobs = score_completions(model, completions, args)
    generation.old_logprobs = [None] * len(completions)
    if args.steps_on_a_generation > 1:
        generation.old_logprobs = score_completions(model, completions, args)
    return generation


def prompts_of_step(dataset: "Dataset", step: int, args: GRPOConfig) -> "Dataset":
    """Return the rows of a data set that the generation of optimizer step `step` uses, one a group."""
    number = step // args.steps_on_a_generation
    return dataset.select(prompt_indices(number, args.groups_per_generation, len(dataset), args.seed))


def draw(
    engine: RolloutEngine,
    prompts: Sequence,
    num_generations: int,
    seed: int,
    args: GRPOConfig,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Group]:
    """Draw a group of completions of each prompt. on_progress: told how many are finished, of how many."""
    params = SamplingParams(args.max_completion_length, args.temperature, seed=seed)
    completions = engine.generate(prompts, params, num_generations, on_progress)
    return into_groups(list(prompts), completions)


@torch.no_grad()
def score_completions(model: nn.Module, completions: Sequence[Completion], args: GRPOConfig) -> list[list[float]]:
    """Return the log-probabilities of completions under the model as it is now, one list each."""
    model.train()  # the mode of the update
    logprobs_BT, _, _ = policy_logprobs(model, completions, args.temperature)
    rows = zip(logprobs_BT.tolist(), completions, strict=True)
    return [row[: len(completion.token_ids)] for row, completion in rows]


def advantages_of(generation: Generation, args: GRPOConfig) -> Tensor:
    """Return how much better than its group each completion is: float32 [B]."""
    rewards_B = combine_rewards(generation.rewards, args.reward_weights)
    magnitudes_B = reward_magnitudes(generation.rewards, args.reward_weights)
    rewards_GN = generation.by_group(rewards_B)
    magnitudes_GN = generation.by_group(magnitudes_B)
    return group_advantages(rewards_GN, args.scale_rewards, magnitudes_GN).flatten()


def places_of_step(step: int, args: GRPOConfig) -> list[int]:
    """Return the places of the completions that optimizer step `step` learns from, in their generation.

    Where a generation serves several steps, they take turns: the first of three takes every third completion.
    """
    parts = args.parts_per_generation
    return list(range(step % parts, args.generation_batch_size, parts))


def update_batch(generation: Generation, step: int, args: GRPOConfig) -> UpdateBatch:
    """Return what optimizer step `step` learns from."""
    places = places_of_step(step, args)
    drawn = generation.completions
    completions = [drawn[place] for place in places]
    in_loss = completions_in_loss(completions, args.mask_truncated_completions)
    tokens = [
        len(completion.token_ids) if is_counted else 0
        for completion, is_counted in zip(completions, in_loss, strict=True)
    ]
    weighting = LOSS_TYPES[args.loss_type].weighting
    old_logprobs = [generation.old_logprobs[place] for place in places]
    return UpdateBatch(
        completions=completions,
        advantages=generation.advantages[places],
        weights=token_weights(weighting, tokens, args.max_completion_length, args.per_device_train_batch_size),
        tokens=tokens,
        old_logprobs=None if None in old_logprobs else old_logprobs,
        ref_logprobs=[generation.ref_logprobs[place] for place in places] if generation.ref_logprobs else None,
    )


def add_gradient(model: nn.Module, batch: UpdateBatch, args: GRPOConfig) -> None:
    """Add the gradient of one optimizer step's loss to the weights', one micro-batch after the other.

    The weights of the tokens are those of the whole step, so the cut makes no difference.
    """
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    scale = loss_scale(batch.weights, batch.tokens)
    size = args.per_device_train_batch_size
    for places in micro_batches(batch.completions, size * args.max_length, size):
        rows = batch.rows(places, weights[0].device)
        micro_batch_loss(model, rows, args, scale).policy.loss.backward()
    for weight in weights:
        if weight.grad is not None:
            weight.grad /= scale


def micro_batch_loss(model: nn.Module, rows: UpdateRows, args: GRPOConfig, scale: float) -> MicroBatchLoss:
    """Compute the loss of a micro-batch, times `scale`.

    In the first optimizer step on a generation the policy is still the one that drew, and every ratio is exactly 1. How
    far the sampler's own log-probabilities are from the trainer's goes into truncated importance weights.
    """
    logprobs_BT, entropy_BT, mask_BT = policy_logprobs(model, rows.completions, args.temperature)
    is_drawn_BT = mask_BT > 0
    is_counted_BT = is_drawn_BT & rows.is_kept_B[:, None]
    old_BT = logprobs_BT.detach() if rows.old_BT is None else rows.old_BT
    correction = None
    if args.importance_sampling_correction:
        correction = importance_weights(
            old_BT,
            rows.sampler_BT,
            is_counted_BT,
            args.importance_sampling_mode,
            args.importance_sampling_clip_max,
            args.importance_sampling_clip_min,
        )
    policy = policy_loss(
        logprobs_BT,
        old_BT,
        rows.advantages_B,
        weights=rows.weights_B[:, None] * is_counted_BT,
        objective=LOSS_TYPES[args.loss_type].objective,
        level=args.importance_sampling_level,
        clipping=args.clipping,
        importance_weights=correction.weights if correction else None,
        ref_logprobs=rows.ref_BT,
        beta=args.beta,
        use_bias_correction_kl=args.use_bias_correction_kl,
        scale=scale,
    )
    return MicroBatchLoss(policy, logprobs_BT, entropy_BT, old_BT, is_drawn_BT, is_counted_BT, correction)

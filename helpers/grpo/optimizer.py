"""The optimizer and the learning-rate schedule of a run."""

from collections.abc import Sequence

import torch
from torch import nn

from helpers.grpo.config import GRPOConfig
from helpers.model.memory import has_eight_bit_moments
from helpers.runtime import UserError, first_line


def make_optimizer(weights: Sequence[nn.Parameter], args: GRPOConfig) -> torch.optim.Optimizer:
    """Return AdamW over the weights of the adapter: PyTorch's, or bitsandbytes' with moments in 8 bits.

    With "auto" it is the latter on a GPU, where bitsandbytes is installed.

    Raises UserError where `args.optim` asks for 8 bits and bitsandbytes is missing.
    """
    settings = {"lr": args.learning_rate, "weight_decay": args.weight_decay}
    if not has_eight_bit_moments(args.optim, weights[0].is_cuda):
        return torch.optim.AdamW(weights, **settings)
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise UserError(
            f"Moments in 8 bits need bitsandbytes, which cannot be imported ({first_line(error)}): install it again, "
            "or choose optim='adamw_torch'."
        ) from error
    return AdamW8bit(weights, **settings)


def make_schedule(optimizer: torch.optim.Optimizer, args: GRPOConfig) -> torch.optim.lr_scheduler.LRScheduler:
    """Return transformers' learning-rate schedule over the optimizer steps of the run.

    Raises UserError for settings whose number of steps is not known yet, and for options that the schedule lacks.
    """
    from transformers import get_scheduler  # takes seconds to import

    if args.max_steps is None:
        raise UserError("The number of steps follows from the number of prompts: call args.for_prompts(count) first.")
    try:
        return get_scheduler(
            args.lr_scheduler_type,
            optimizer,
            num_warmup_steps=args.warmup_count,
            num_training_steps=args.max_steps,
            scheduler_specific_kwargs=args.lr_scheduler_kwargs,
        )
    except (TypeError, ValueError) as error:
        raise UserError(
            f"lr_scheduler_kwargs={args.lr_scheduler_kwargs!r} do not fit lr_scheduler_type="
            f"'{args.lr_scheduler_type}' ({error})."
        ) from error


def learning_rates(args: GRPOConfig, steps: Sequence[int] | None = None) -> list[float]:
    """Return the learning rates of optimizer steps of a run, counted from 0; None: of all.

    Raises UserError as `make_schedule` does.
    """
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=args.learning_rate)  # only to hold the rate
    schedule = make_schedule(optimizer, args)
    (factor,) = schedule.lr_lambdas
    return [args.learning_rate * factor(step) for step in (range(args.max_steps) if steps is None else steps)]

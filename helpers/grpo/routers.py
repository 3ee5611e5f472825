"""What a run asks of the routers that choose the experts: their agreement with the sampler's, and their balance."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from helpers.grpo.config import GRPOConfig
from helpers.grpo.logprobs import recorded_experts
from helpers.grpo.update import UpdateRows, UpdateStatistics
from helpers.model.routing import Routing, count_flips, load_balancing_loss, watched_routers
from helpers.rollout.completion import Completion
from helpers.runtime import UserError


def check_recorded(completions: Sequence[Completion], args: GRPOConfig) -> None:
    """Raise UserError where the run needs the sampler's experts and the engine did not record them."""
    if args.router_replay == "off":
        return
    if any(completion.experts is None for completion in completions):
        raise UserError(
            f"router_replay='{args.router_replay}' needs the experts that the sampler chose, and this engine "
            "does not record them: make it with record_experts=True, or leave router_replay out."
        )


@dataclass(frozen=True)
class WatchedRouters:
    """What the routers did in the forward pass of a micro-batch.

    routing: what they computed, or None where nothing is asked of them. recorded: the experts that the sampler chose,
    int64 [B, L, layers, K], or None where nobody asks for them.
    """

    args: GRPOConfig
    routing: Routing | None
    recorded: Tensor | None

    def balancing_loss(self, rows: UpdateRows) -> Tensor | None:
        """Return the loss that balances the experts, summed over the micro-batch; None where it has no weight."""
        if not self.args.router_aux_loss_coef:
            return None
        return load_balancing_loss(self.routing, _routed_tokens(rows)).sum()

    def note_flips(self, rows: UpdateRows, statistics: UpdateStatistics) -> None:
        """Count how often the trainer's routers chose other experts than the sampler's did."""
        if self.recorded is not None:
            statistics.add_flips(count_flips(self.routing.choices, self.recorded, _routed_tokens(rows)))


@contextmanager
def watch_routers(
    model: nn.Module, completions: Sequence[Completion], args: GRPOConfig, device: torch.device
) -> Iterator[WatchedRouters]:
    """Watch the routers during a forward and backward pass, where the run asks something of them.

    With router_replay "replay" they take the experts that the sampler chose.
    """
    recorded = None
    if args.router_replay != "off":
        recorded = recorded_experts(completions).to(device)
    elif not args.router_aux_loss_coef:
        yield WatchedRouters(args, None, None)
        return
    replayed = recorded if args.router_replay == "replay" else None
    with watched_routers(model, replayed) as routing:
        yield WatchedRouters(args, routing, recorded)


def _routed_tokens(rows: UpdateRows) -> Tensor:
    """float32 [B, L], 1 for the tokens of prompts and completions that count in the loss."""
    lengths = [len(completion.prompt_ids) + len(completion.token_ids) for completion in rows.completions]
    mask_BL = pad_sequence([torch.ones(length) for length in lengths], batch_first=True)
    return mask_BL.to(rows.is_kept_B.device) * rows.is_kept_B[:, None]

"""The routers of a model in a training pass: what they choose, and the sampler's choice in its place.

Sampler and trainer compute a router's logits with other kernels, so where two experts are nearly equal they choose
differently, and the trainer scores a token under other experts than it was drawn under. Rollout Routing Replay (R3, Ma
et al., arXiv 2510.11370) gives the trainer the experts of the sampler. Only the choice is replayed: the shares of the
experts are computed from the trainer's own logits, which carry the gradient.

Letters of shapes: B completions, S tokens of each with padding, N = B * S tokens, L layers, E experts, K of a token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Routing:
    """What the routers of a model computed in one forward pass, from `watched_routers`; complete after that pass."""

    def __init__(self, watches: "list[_RouterWatch]"):
        self._watches = watches

    @property
    def logits(self) -> list[Tensor]:
        """The logits of each layer, [N, E] with gradients."""
        return [watch.logits_NE for watch in self._watches]

    @property
    def choices(self) -> list[Tensor]:
        """The experts that each layer's router chose by itself, int64 [N, K], whatever was replayed."""
        return [watch.own_NK for watch in self._watches]


class _RouterWatch:
    """The forward hook of one router: notes what it computed, and replaces its choice.

    replay_NK: int64, the experts to take, -1 in all places of a token where the router's own stand; None: all stand.
    """

    def __init__(self, replay_NK: Tensor | None):
        self.replay_NK = replay_NK
        self.logits_NE = None
        self.own_NK = None

    def __call__(self, router: nn.Module, inputs: tuple, output: tuple) -> tuple | None:
        """Return what takes the place of `(logits, shares, experts)`, the router's output, or None to let it stand."""
        logits_NE, _, own_NK = output
        if self.logits_NE is None:  # a later call recomputes a checkpointed layer in the backward pass
            self.logits_NE = logits_NE
            self.own_NK = own_NK
        if self.replay_NK is None:
            return None
        if self.replay_NK.shape != own_NK.shape:
            raise ValueError(f"replay holds {list(self.replay_NK.shape)} experts a layer, not {list(own_NK.shape)}")
        experts_NK = torch.where(self.replay_NK < 0, own_NK, self.replay_NK)
        shares_NK = logits_NE.gather(1, experts_NK).softmax(-1)
        return logits_NE, shares_NK, experts_NK


@contextmanager
def watched_routers(model: nn.Module, replay: Tensor | None = None) -> Iterator[Routing]:
    """Note what the routers compute in one forward pass, and let them take the experts that the sampler chose.

    The backward pass belongs into the `with`, too: checkpointed layers run again there, and must take the same experts.
    They must be checkpointed as by `checkpoint_layers`, whose first pass makes the graph (use_reentrant=False).

    model: a `GptOssForCausalLM`, adapted by PEFT or not. replay: int64 [N, L, K] or [B, S, L, K] on any device, the
    experts to take; -1 where nothing was recorded, and the router's own choice stands. None: it stands everywhere.

    Raises ValueError for experts of another number of tokens, of layers, or of experts a token.
    """
    causal_lm = model.get_base_model() if hasattr(model, "get_base_model") else model
    routers = [layer.mlp.router for layer in causal_lm.model.layers]
    watches = [_RouterWatch(replay_NK) for replay_NK in _by_layer(replay, routers)]
    hooks = []
    try:
        for router, watch in zip(routers, watches):
            hooks.append(router.register_forward_hook(watch))
        yield Routing(watches)
    finally:
        for hook in hooks:
            hook.remove()


def _by_layer(replay: Tensor | None, routers: list[nn.Module]) -> list[Tensor | None]:
    """The experts to replay of each layer, [N, K] on the model's device, or None for each."""
    if replay is None:
        return [None] * len(routers)
    if replay.shape[-2] != len(routers):
        raise ValueError(f"replay holds the experts of {replay.shape[-2]} layers, and the model has {len(routers)}")
    replay_NLK = replay.flatten(0, -3).to(routers[0].weight.device)
    return list(replay_NLK.unbind(1))


class Flips(NamedTuple):
    """How often the trainer's routers choose otherwise than the sampler's did; sums on the device, to be added up.

    flipped: choices of the sampler, each of a token, a layer and one of its K experts, that are not among the trainer's
    own. choices: how many there are. flipped_tokens: tokens with a flipped choice in any layer. tokens: how many.
    """

    flipped: Tensor
    choices: Tensor
    flipped_tokens: Tensor
    tokens: Tensor


def count_flips(own_choices: list[Tensor], recorded: Tensor, mask: Tensor | None = None) -> Flips:
    """Compare the experts that the trainer's routers choose with those that the sampler recorded, as sets.

    own_choices: `Routing.choices`. recorded: what was given to `watched_routers`. mask: [N] or [B, S], not 0 for the
    tokens to count; None: all. Tokens without a record are never counted. The host waits for nothing.
    """
    own_NLK = torch.stack(own_choices, 1)
    recorded_NLK = recorded.flatten(0, -3).to(own_NLK.device)
    is_counted_N = recorded_NLK[:, 0, 0] >= 0
    if mask is not None:
        is_counted_N = is_counted_N & (mask.flatten() != 0)

    is_kept_NLK = (recorded_NLK[..., None] == own_NLK[..., None, :]).any(-1)
    is_flipped_NLK = ~is_kept_NLK & is_counted_N[:, None, None]
    choices_of_token = recorded_NLK.shape[1] * recorded_NLK.shape[2]
    tokens = is_counted_N.sum()
    return Flips(
        flipped=is_flipped_NLK.sum(),
        choices=tokens * choices_of_token,
        flipped_tokens=is_flipped_NLK.flatten(1).any(1).sum(),
        tokens=tokens,
    )


def load_balancing_loss(routing: Routing, mask: Tensor) -> Tensor:
    """The auxiliary loss of the Switch Transformer (Fedus et al., 2021, equations 4 to 6), by completion.

        E * sum over experts e of f(e) * P(e)

    f(e): how often expert e is among the K of a token; P(e): its probability in the softmax over all logits; both in
    the mean over a completion's tokens and all layers, as transformers takes it. Experts in equal use give K,
    one set of K experts for all tokens up to E. Only P carries a gradient.

    That a completion is balanced by itself is the sequence-wise loss of DeepSeek-V3 (arXiv 2412.19437). So the loss
    does not depend on how a step is cut into micro-batches.

    routing: of a forward pass of these completions. mask: [B, S], 1 for a token and 0 for padding. Returns: fp32 [B].
    """
    experts = routing.logits[0].shape[-1]
    mask_BS = mask.to(routing.logits[0])
    layer_tokens_B = len(routing.logits) * mask_BS.sum(1).clamp(min=1)
    counts_BE = mask_BS.new_zeros(len(mask_BS), experts)
    probabilities_BE = mask_BS.new_zeros(len(mask_BS), experts)
    for logits_NE, own_NK in zip(routing.logits, routing.choices):
        of_completion = own_NK.view(len(mask_BS), -1)  # [B, S * K]
        weights = mask_BS.repeat_interleave(own_NK.shape[1], 1)  # [B, S * K]
        counts_BE = counts_BE.scatter_add(1, of_completion, weights)
        probabilities_BSE = logits_NE.softmax(-1).unflatten(0, mask_BS.shape)
        probabilities_BE = probabilities_BE + (probabilities_BSE * mask_BS[..., None]).sum(1)
    f_BE = counts_BE / layer_tokens_B[:, None]
    p_BE = probabilities_BE / layer_tokens_B[:, None]
    return experts * (f_BE * p_BE).sum(1)

"""What one optimizer step learns from, how it is cut into micro-batches, and what is logged of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from helpers.grpo.correction import Correction
from helpers.grpo.losses import PolicyLoss
from helpers.model.routing import Flips
from helpers.rollout.completion import Completion


@dataclass(frozen=True)
class UpdateBatch:
    """The B completions of one optimizer step.

    advantages: float32 [B]. weights: float64 [B], how much each token of a completion counts. tokens: how many of each
    completion count; 0 where it is left out of the loss. old_logprobs: of the policy at the time of the generation, one
    list a completion, or None where that is the policy as it is now. ref_logprobs: of the reference, or None without.
    """

    completions: Sequence[Completion]
    advantages: Tensor
    weights: Tensor
    tokens: Sequence[int]
    old_logprobs: Sequence[list[float]] | None = None
    ref_logprobs: Sequence[list[float]] | None = None

    def rows(self, places: Sequence[int], device: torch.device) -> "UpdateRows":
        """Return the tensors of some of the completions. They travel in one copy, as each waits for the device."""
        places = list(places)
        completions = [self.completions[place] for place in places]
        sampler_BT = _padded([completion.logprobs for completion in completions])
        parts = [
            self.advantages[places, None],
            self.weights[places, None].float(),
            torch.tensor([[float(self.tokens[place] > 0)] for place in places]),
            sampler_BT,
        ]
        for logprobs in (self.old_logprobs, self.ref_logprobs):
            if logprobs is not None:
                parts.append(_padded([logprobs[place] for place in places]))
        together = torch.cat(parts, 1).to(device)
        advantages_B1, weights_B1, is_kept_B1, *logprobs_BT = together.split([part.shape[1] for part in parts], 1)
        sampler_BT, *others = logprobs_BT
        return UpdateRows(
            completions=completions,
            advantages_B=advantages_B1[:, 0],
            weights_B=weights_B1[:, 0],
            is_kept_B=is_kept_B1[:, 0] > 0,
            sampler_BT=sampler_BT,
            old_BT=others.pop(0) if self.old_logprobs is not None else None,
            ref_BT=others.pop(0) if self.ref_logprobs is not None else None,
        )


@dataclass(frozen=True)
class UpdateRows:
    """A micro-batch of an `UpdateBatch`, on the device. old_BT and ref_BT are None where the batch has none."""

    completions: Sequence[Completion]
    advantages_B: Tensor
    weights_B: Tensor
    is_kept_B: Tensor
    sampler_BT: Tensor
    old_BT: Tensor | None
    ref_BT: Tensor | None


class MicroBatchLoss(NamedTuple):
    """What `loop.micro_batch_loss` returns.

    policy: the loss, to call backward on, and what `policy_loss` says of it. logprobs, entropy: of the policy, float32
    [B, T]. old: log-probabilities of the policy that drew, as the trainer computes them. is_drawn: bool [B, T], the
    tokens of completions. is_counted: bool [B, T], those that count in the loss. correction: the importance weights, or
    None where they are switched off.
    """

    policy: PolicyLoss
    logprobs: Tensor
    entropy: Tensor
    old: Tensor
    is_drawn: Tensor
    is_counted: Tensor
    correction: Correction | None


def _padded(values: Sequence[list[float]]) -> Tensor:
    """float32 [B, T], padded with 0 on the right."""
    return pad_sequence([torch.tensor(row) for row in values], batch_first=True)


def micro_batches(
    completions: Sequence[Completion], max_tokens: int, max_completions: int | None = None
) -> list[list[int]]:
    """Cut completions into micro-batches: places of completions of like length, to pad less.

    max_tokens: of a micro-batch, prompts and padding counted. A longer completion is a micro-batch by itself.
    max_completions: of a micro-batch; None: as many as have the tokens.
    """
    lengths = [len(completion.prompt_ids) + len(completion.token_ids) for completion in completions]
    order = sorted(range(len(completions)), key=lengths.__getitem__)
    most = max_completions or len(completions)
    batches = []
    for place in order:
        # the lengths rise, so this completion is the longest of its micro-batch
        count = len(batches[-1]) + 1 if batches else 0
        if batches and count <= most and count * lengths[place] <= max_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


class UpdateStatistics:
    """Sums and extremes over the tokens of one optimizer step that count. They stay on the device until `metrics`,
    since reading a value would wait for the micro-batch."""

    def __init__(self, device: torch.device):
        self.device = device
        self.sums: dict[str, Tensor] = {}
        self.largest: dict[str, Tensor] = {}
        self.smallest: dict[str, Tensor] = {}
        self.correction_ratios: list[Tensor] = []  # NaN where no token counts
        # of these, sums are taken once a step: a kernel for each micro-batch costs the host of a small GPU
        self.log_ratios: list[Tensor] = []  # 0 where no token counts
        self.draws: list[tuple[Tensor, Tensor, Tensor]] = []  # log-probability, entropy, and which tokens were drawn

    def add(self, **values: Tensor) -> None:
        """Add to sums."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.double()

    def note_extremes(self, name: str, values: Tensor, is_counted: Tensor) -> None:
        """Keep the largest and the smallest of the values that count."""
        largest = values.masked_fill(~is_counted, -torch.inf).max().double()
        smallest = values.masked_fill(~is_counted, torch.inf).min().double()
        self.largest[name] = torch.maximum(self.largest.get(name, largest), largest)
        self.smallest[name] = torch.minimum(self.smallest.get(name, smallest), smallest)

    def add_micro_batch(self, found: MicroBatchLoss, sampler_BT: Tensor, scale: float, policy_drew: bool) -> None:
        """Take in a micro-batch.

        scale: that of its loss. policy_drew: whether the policy as it is now drew it.
        """
        self.add_loss(found.policy, found.entropy.detach(), found.is_counted, scale)
        self.add_sampler(found.old, sampler_BT, found.is_counted)
        if policy_drew:
            self.add_draws(found.logprobs.detach(), found.entropy.detach(), found.is_drawn)
        if found.correction:
            self.add_correction(found.correction, found.is_counted)

    def add_loss(self, found: PolicyLoss, entropy_BT: Tensor, is_counted_BT: Tensor, scale: float) -> None:
        """Take in the loss of a micro-batch. A ratio [B, 1] counts once for each completion, [B, T] for each token."""
        has_one_ratio = found.ratio.shape[1] == 1
        is_counted = is_counted_BT.any(1, keepdim=True) if has_one_ratio else is_counted_BT
        is_low = found.is_low & is_counted
        is_high = found.is_high & is_counted
        self.add(
            loss=found.loss.detach() / scale,
            tokens=is_counted_BT.sum(),
            entropy=entropy_BT.masked_fill(~is_counted_BT, 0.0).sum(),
            ratios=is_counted.sum(),
            low=is_low.sum(),
            high=is_high.sum(),
        )
        self.note_extremes("ratio", found.ratio, is_counted)
        ratios_B = is_counted.sum(1)
        is_row_counted = ratios_B > 0
        self.note_extremes("low", is_low.sum(1) / ratios_B.clamp(min=1), is_row_counted)
        self.note_extremes("high", is_high.sum(1) / ratios_B.clamp(min=1), is_row_counted)
        if found.kl is not None:
            self.add(kl=found.kl.masked_fill(~is_counted_BT, 0.0).sum())

    def add_sampler(self, old_BT: Tensor, sampler_BT: Tensor, is_counted_BT: Tensor) -> None:
        """Take in by how much the sampler and the trainer differ on the policy that drew."""
        log_ratio_BT = (old_BT - sampler_BT).masked_fill(~is_counted_BT, 0.0)
        difference_BT = log_ratio_BT.abs()
        self.add(difference=difference_BT.sum())
        self.note_extremes("difference", difference_BT, is_counted_BT)
        self.log_ratios.append(log_ratio_BT)

    def add_draws(self, logprobs_BT: Tensor, entropy_BT: Tensor, is_drawn_BT: Tensor) -> None:
        """Take in by how much the tokens surprise the policy that is said to have drawn them.

        The expected -log pi of a token that pi draws is the entropy of pi. So the difference is 0 on average, whatever
        the prompt, and each token's is uncorrelated with those before it. A choice among the completions would change
        that, so those that are left out of the loss count here.
        """
        self.draws.append((logprobs_BT, entropy_BT, is_drawn_BT))

    def add_correction(self, correction: Correction, is_counted_BT: Tensor) -> None:
        """Take in importance weights, and how many of the ratios were within the bounds."""
        weights, ratio = correction
        has_one_ratio = ratio.shape[1] == 1
        is_counted = is_counted_BT.any(1, keepdim=True) if has_one_ratio else is_counted_BT
        counted_weights = weights.masked_fill(~is_counted, 0.0)
        is_within = (weights == ratio) & is_counted
        self.add(
            corrections=is_counted.sum(),
            correction_weights=counted_weights.sum(),
            correction_squares=counted_weights.square().sum(),
            correction_ratios=ratio.masked_fill(~is_counted, 0.0).sum(),
            within=is_within.sum(),
        )
        self.note_extremes("correction", ratio, is_counted)
        self.correction_ratios.append(ratio.masked_fill(~is_counted, torch.nan).flatten())

    def add_flips(self, flips: Flips) -> None:
        """Take in how often the trainer's routers choose other experts than the sampler's."""
        self.add(
            flipped_choices=flips.flipped,
            expert_choices=flips.choices,
            flipped_tokens=flips.flipped_tokens,
            routed_tokens=flips.tokens,
        )

    def _sampler_sums(self) -> dict[str, Tensor]:
        """Return sums over the tokens of the step: of the ratios that nothing has bounded, and of the surprises."""
        log_ratios = torch.cat([log_ratio_BT.flatten() for log_ratio_BT in self.log_ratios]).double()
        ratios = log_ratios.exp()
        uncounted = len(log_ratios) - self.sums["tokens"]  # each has a ratio of 1
        sums = {
            "sum raw ratios": ratios.sum() - uncounted,
            "sum raw ratio squares": ratios.square().sum() - uncounted,
        }
        if self.draws:
            parts = zip(*self.draws, strict=True)
            logprobs, entropy, is_drawn = (torch.cat([part_BT.flatten() for part_BT in part]) for part in parts)
            surprises = (-logprobs - entropy).double().masked_fill(~is_drawn, 0.0)
            sums["sum drawn"] = is_drawn.sum().double()
            sums["sum surprise"] = surprises.sum()
            sums["sum surprise squares"] = surprises.square().sum()
        return sums

    def metrics(self) -> dict[str, float | None]:
        """Return what to log, in TRL's names where TRL has one. This waits for the device, once.

        None stands for what no token says.
        """
        values = {f"sum {name}": value for name, value in self.sums.items()}
        values |= {f"max {name}": value for name, value in self.largest.items()}
        values |= {f"min {name}": value for name, value in self.smallest.items()}
        if self.correction_ratios:
            ratios = torch.cat(self.correction_ratios).double()
            values["p99 correction"] = torch.nanquantile(ratios, 0.99)
        values |= self._sampler_sums()
        read = dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))

        def mean(name: str, count: str) -> float | None:
            return read[f"sum {name}"] / read[f"sum {count}"] if read[f"sum {count}"] else None

        has_tokens = read["sum tokens"] > 0
        found = {
            "loss": read["sum loss"],
            "entropy": mean("entropy", "tokens"),
            "clip_ratio/low_mean": mean("low", "ratios"),
            "clip_ratio/high_mean": mean("high", "ratios"),
            "clip_ratio/low_min": read["min low"],
            "clip_ratio/high_max": read["max high"],
            "ratio/min": read["min ratio"],
            "ratio/max": read["max ratio"],
            "sampling/sampling_logp_difference/mean": mean("difference", "tokens"),
            "sampling/sampling_logp_difference/max": read["max difference"],
        }
        if has_tokens:
            found["clip_ratio/region_mean"] = found["clip_ratio/low_mean"] + found["clip_ratio/high_mean"]
        raw_squares = read["sum raw ratio squares"] * read["sum tokens"]
        if raw_squares:
            found["sampling/raw_effective_sample_size"] = read["sum raw ratios"] ** 2 / raw_squares
        if "sum surprise" in read:
            found["sampling/surprise"] = mean("surprise", "drawn")
            spread = read["sum surprise squares"] ** 0.5
            found["sampling/surprise_z"] = read["sum surprise"] / spread if spread else None
        if "sum kl" in read:
            found["kl"] = mean("kl", "tokens")
        if "sum corrections" in read:
            squares = read["sum correction_squares"] * read["sum corrections"]
            found |= {
                "sampling/importance_sampling_ratio/min": read["min correction"],
                "sampling/importance_sampling_ratio/mean": mean("correction_ratios", "corrections"),
                "sampling/importance_sampling_ratio/max": read["max correction"],
                "sampling/importance_sampling_ratio/p99": read["p99 correction"],
                "sampling/effective_sample_size": read["sum correction_weights"] ** 2 / squares if squares else None,
                "sampling/kept_ratio": mean("within", "corrections"),
            }
        if "sum aux_loss" in read:
            found["aux_loss"] = read["sum aux_loss"]
        if "sum expert_choices" in read:
            found["router/flip_rate"] = mean("flipped_choices", "expert_choices")
            found["router/flipped_tokens"] = mean("flipped_tokens", "routed_tokens")
        if not has_tokens:
            drawn = {name: value for name, value in found.items() if name.startswith("sampling/surprise")}
            found = {**dict.fromkeys(found), "loss": 0.0, **drawn}
        return found

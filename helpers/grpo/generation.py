"""One generation: prompts, completions and what the reward functions made of them."""

import math
import random
import traceback
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path

import torch

from helpers.grpo.advantages import combine_rewards, equal_groups
from helpers.grpo.guards import LimitReached, time_limit
from helpers.rollout import Completion
from helpers.runtime import UserError, first_line

GOES_ON = "training goes on from the last checkpoint"
#: Names and beginnings of names that a reward may not log under: the trainer's own.
OWN_NAMES = {
    "step", "loss", "grad_norm", "learning_rate", "entropy", "num_tokens", "step_time",
    "reward", "reward_std", "frac_reward_zero_std",
}  # fmt: skip
RECORD_NAMES = {"prompt", "thinking", "completion", "finish_reason", "rewards", "reward", "advantage"}
OWN_BEGINNINGS = ("rewards/", "completions/", "clip_ratio/", "sampling/", "time/", "monitor/")


@dataclass
class Generation:
    """prompts: one a group. completions: B of them, those of a prompt together.
    rewards: float64 [B, R], NaN where a function gave None. metrics: what to log of it. extras: {name:
    one value a completion} that the functions gave to `log_extra`."""

    prompts: list
    completions: list
    rewards: torch.Tensor
    metrics: dict
    extras: dict = field(default_factory=dict)

    def to_dict(self):
        return {**vars(self), "completions": [asdict(c) for c in self.completions], "rewards": self.rewards.tolist()}

    @classmethod
    def from_dict(cls, saved):
        completions = [Completion(**c) for c in saved["completions"]]
        rewards = torch.tensor(saved["rewards"], dtype=torch.float64)
        return cls(saved["prompts"], completions, rewards, saved["metrics"], saved.get("extras", {}))


def prompt_indices(generation, count, size, seed):
    """Rows of a data set of `size` for one generation: epoch after epoch, each in its own order."""
    indices = []
    for position in range(generation * count, (generation + 1) * count):
        order = list(range(size))
        random.Random(f"{seed} {position // size}").shuffle(order)
        indices.append(order[position % size])
    return indices


def score(reward_funcs, columns, completions, trainer_state, timeout):
    """Call every reward function as TRL does, with keywords.

    columns: name -> one value a completion, `prompt` among them. timeout: seconds for each function.

    Returns `(rewards float64 [B, R], {metric: value}, {name: one value a completion})`, the last from
    `log_extra`. Raises UserError for a function that raises or takes too long, a wrong number of values,
    and a value that is not a finite number or None.
    """
    columns = {("prompts" if name == "prompt" else name): values for name, values in columns.items()}
    logged, extras, rewards = {}, {}, []

    def log_metric(name, value):
        if name in OWN_NAMES or name.startswith(OWN_BEGINNINGS):
            raise UserError(f"log_metric('{name}', ...): the trainer logs under that name; choose another.")
        logged[name] = float(value)

    def log_extra(name, values):
        if name in RECORD_NAMES:
            raise UserError(f"log_extra('{name}', ...): a completion's record has that already; choose another name.")
        if len(values) != len(completions):
            raise UserError(f"log_extra('{name}', ...) got {len(values)} values for {len(completions)} completions.")
        values = [value.item() if hasattr(value, "item") else value for value in values]
        extras[name] = [v if isinstance(v, (str, int, float, type(None))) else str(v) for v in values]

    for function in reward_funcs:
        arguments = {
            "completions": [c.message for c in completions],
            "completion_ids": [list(c.token_ids) for c in completions],
            "logprobs": [list(c.logprobs) for c in completions],
            "finish_reasons": [c.finish_reason for c in completions],
            "trainer_state": trainer_state,
            "log_metric": log_metric,
            "log_extra": log_extra,
            **columns,
        }
        values = _call(function, arguments, timeout)
        rewards.append(_column(name_of(function), values, len(completions)))
    return torch.stack(rewards, 1), logged, extras


def _call(function, arguments, timeout):
    name = name_of(function)
    try:
        with time_limit(timeout):
            return function(**arguments)
    except UserError:
        raise
    except LimitReached as error:
        raise UserError(
            f"Reward '{name}' gave no answer within reward_timeout={timeout:g} seconds: mend it or raise "
            f"reward_timeout, and run this again; {GOES_ON}."
        ) from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"Reward '{name}' raised {type(error).__name__}: {first_line(error)} "
            f"({Path(place.filename).name}, line {place.lineno}): mend it and run this again; {GOES_ON}."
        ) from error


def name_of(function):
    """What a reward is called in logs."""
    return getattr(function, "__name__", type(function).__name__)


def _column(name, values, count):
    """float64 [B] from what the reward `name` returned; None becomes NaN."""
    if not isinstance(values, (list, tuple)) or len(values) != count:
        returned = f"{len(values)} values" if isinstance(values, (list, tuple)) else f"a {type(values).__name__}"
        raise UserError(
            f"Reward '{name}' returned {returned}: return a list of {count}, one for each completion; {GOES_ON}."
        )
    for value in values:
        if value is not None and not _is_finite(value):
            raise UserError(
                f"Reward '{name}' returned {repr(value)[:80]}: return a finite number, or None for not applicable; "
                f"{GOES_ON}."
            )
    return torch.tensor([math.nan if value is None else float(value) for value in values], dtype=torch.float64)


def _is_finite(value):
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def rollout_metrics(completions, rewards, names, weights, num_generations):
    """TRL's log names for a generation; lengths in tokens."""
    total = combine_rewards(rewards, weights)
    lengths = torch.tensor([len(c.token_ids) for c in completions], dtype=torch.float64)
    judged = total[~total.isnan()]
    return {
        "reward": judged.mean().item(),
        "reward_std": judged.std().item(),
        "frac_reward_zero_std": equal_groups(total, num_generations).double().mean().item(),
        **{f"rewards/{name}/mean": column.nanmean().item() for name, column in zip(names, rewards.T)},
        "completions/mean_length": lengths.mean().item(),
        "completions/max_length": lengths.max().item(),
        "completions/clipped_ratio": sum(c.finish_reason == "length" for c in completions) / len(completions),
        "num_tokens": lengths.sum().item(),
    }


def records(generation, names, weights, advantages):
    """One plain dict a completion, for display and for files.

    Its `reward` is the weighted sum that the advantage was computed from, None where nothing was judged.
    """
    group = len(generation.completions) // len(generation.prompts)
    totals = combine_rewards(generation.rewards, weights).tolist()
    return [
        {
            "prompt": generation.prompts[n // group],
            "thinking": c.thinking,
            "completion": c.text,
            "finish_reason": c.finish_reason,
            "rewards": dict(zip(names, generation.rewards[n].tolist())),
            "reward": None if math.isnan(totals[n]) else totals[n],
            "advantage": advantages[n].item(),
            **{name: values[n] for name, values in generation.extras.items()},
        }
        for n, c in enumerate(generation.completions)
    ]

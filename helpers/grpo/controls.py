"""Controls: the same training without the lesson. One that wins shows that a win proves nothing.

"shuffle", "flip" and "freeze" change the task's rewards or the step. "certainty" and "majority" pay for something that
needs no task at all: for the model's own probability, and for doing what the others of the group do. Both make a model
surer of what it already does, which is a gain wherever the model is right when it answers greedily.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps

from helpers.rewards.calling import call_reward, name_of, reward_values
from helpers.runtime import UserError, did_you_mean

CONTROLS = ("shuffle", "flip", "freeze", "certainty", "majority")


def apply_control(
    name: str,
    reward_funcs: Sequence[Callable],
    seed: int = 0,
    behaviours: Callable | None = None,
    reward_weights: Sequence[float] | None = None,
) -> tuple[list[Callable], list[float], dict]:
    """Return `(reward_funcs, reward_weights, settings)` of a run; settings are fields of `GRPOConfig` to change.

    name: "" changes nothing.

    - "shuffle" deals the rewards of a batch out again in a random order, so they teach nothing.
    - "flip" pays for failure.
    - "freeze" trains with learning rate 0.
    - "certainty" pays a completion its own log-probability. The task's rewards are logged, with weight 0.
    - "majority" pays a completion the share of its group that behaves alike. The task's rewards are logged.

    behaviours: f(prompts, completions, **columns) -> one value a completion, equal where two answers amount to the
    same, None where it is not known; "majority" needs it. reward_weights: of the task's rewards; default: all 1.

    Changed functions have changed names, so a checkpoint of one run is refused by another. Raises UserError for an
    unknown name.
    """
    check_control(name)
    reward_funcs = list(reward_funcs)
    weights = [1.0] * len(reward_funcs) if reward_weights is None else list(reward_weights)
    only_logged = [0.0] * len(reward_funcs)
    if name == "shuffle":
        return [_shuffled(function, seed) for function in reward_funcs], weights, {}
    if name == "flip":
        return [_flipped(function) for function in reward_funcs], weights, {}
    if name == "freeze":
        return reward_funcs, weights, {"learning_rate": 0.0}
    if name == "certainty":
        return [certainty, *reward_funcs], [1.0, *only_logged], {}
    if name == "majority":
        if behaviours is None:
            raise UserError("CONTROL 'majority' compares what answers do: give apply_control a function `behaviours`.")
        return [_majority_of(behaviours), *reward_funcs], [1.0, *only_logged], {}
    return reward_funcs, weights, {}


def check_control(name: str) -> None:
    """Raise UserError for an unknown name."""
    if name not in ("", *CONTROLS):
        raise UserError(f"There is no control '{name}'{did_you_mean(name, CONTROLS)}: choose {', '.join(CONTROLS)}.")


def certainty(prompts, completions, logprobs, **_) -> list[float]:
    """The log-probability that the model itself gave to each completion, in nats. It knows nothing of the task."""
    return [sum(values) for values in logprobs]


def _majority_of(behaviours):
    """A reward that pays a completion for doing what the other answers to its prompt do, right or wrong."""

    def majority(prompts, completions, **columns) -> list[float | None]:
        groups = [json.dumps(prompt) for prompt in prompts]
        found = list(zip(groups, behaviours(prompts=prompts, completions=completions, **columns), strict=True))
        sizes = Counter(groups)
        alike = Counter(found)
        return [
            None if behaviour is None else (alike[group, behaviour] - 1) / max(1, sizes[group] - 1)
            for group, behaviour in found
        ]

    return majority


def _shuffled(function, seed):
    """The same values in an order of their own for every step, one order for all rewards of it."""

    @wraps(function)
    def shuffled(completions, trainer_state, **columns):
        returned = call_reward(function, completions=completions, trainer_state=trainer_state, **columns)
        values = reward_values(name_of(function), returned, len(completions))
        order = list(range(len(values)))
        random.Random(f"{seed} {trainer_state.global_step}").shuffle(order)
        return [values[n] for n in order]

    shuffled.__name__ = f"{name_of(function)}_shuffled"
    return shuffled


def _flipped(function):
    @wraps(function)
    def flipped(completions, **columns):
        returned = call_reward(function, completions=completions, **columns)
        values = reward_values(name_of(function), returned, len(completions))
        return [None if value is None else -value for value in values]

    flipped.__name__ = f"{name_of(function)}_flipped"
    return flipped

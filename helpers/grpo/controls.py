"""Controls: the same training with the lesson taken out. One that wins shows that the chain is broken."""

import random
from functools import wraps

from helpers.runtime import UserError, did_you_mean

CONTROLS = ("shuffle", "flip", "freeze")


def apply_control(name, reward_funcs, seed=0):
    """`(reward_funcs, settings)` of a control run; settings are fields of `GRPOConfig` to change.

    name: "" changes nothing. "shuffle" deals the rewards of a batch out again in a random order,
    so that they teach nothing: no win is possible but by luck. "flip" pays for failure: worse.
    "freeze" trains with learning rate 0: no difference at all.

    Changed functions have changed names, so a checkpoint of one run is refused by another.
    Raises UserError for an unknown name.
    """
    if name not in ("", *CONTROLS):
        raise UserError(f"There is no control '{name}'{did_you_mean(name, CONTROLS)}: choose {', '.join(CONTROLS)}.")
    if name == "freeze":
        return list(reward_funcs), {"learning_rate": 0.0}
    change = {"shuffle": _shuffled, "flip": _flipped}.get(name)
    return [change(function, seed) if change else function for function in reward_funcs], {}


def _shuffled(function, seed):
    """The same values in an order of their own for every step, one order for all rewards of it."""

    @wraps(function)
    def shuffled(completions, trainer_state, **columns):
        values = function(completions=completions, trainer_state=trainer_state, **columns)
        order = list(range(len(values)))
        random.Random(f"{seed} {trainer_state.global_step}").shuffle(order)
        return [values[n] for n in order]

    shuffled.__name__ = f"{function.__name__}_shuffled"
    return shuffled


def _flipped(function, _seed):
    @wraps(function)
    def flipped(**columns):
        return [None if value is None else -value for value in function(**columns)]

    flipped.__name__ = f"{function.__name__}_flipped"
    return flipped

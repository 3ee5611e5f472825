"""Rewards by name: register one, list them, and put several together with weights.

A reward function has TRL's signature, `f(prompts, completions, **columns) -> list[float or None]`. One that has
options is a class: derive it from `Reward`, and its instances are the functions.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.runtime import UserError, did_you_mean, first_line

RewardFunction = Callable[..., list[float | None]]


class Reward(ABC):
    """A reward function that has options. TRL names a reward by its `__name__`, which is `name` here."""

    name: str

    @property
    def __name__(self) -> str:
        return self.name

    @abstractmethod
    def __call__(self, prompts: Sequence, completions: Sequence, **columns) -> list[float | None]:
        """Return a value for each completion; None where the reward does not apply."""


@dataclass(frozen=True)
class RewardSpec:
    """A registered reward.

    make: takes the reward's options and returns the reward function. value_range: the lowest and the highest value
    that it pays. needs: the columns of the data set that it reads. pays_correctness: whether it tells right answers
    from wrong ones. summary: one line.
    """

    name: str
    make: Callable[..., RewardFunction]
    value_range: tuple[float, float]
    needs: tuple[str, ...]
    pays_correctness: bool
    summary: str


_REWARDS: dict[str, RewardSpec] = {}
_PRESETS: dict[str, tuple[tuple[str, float], ...]] = {}


def register_reward(
    name: str | None = None,
    *,
    value_range: tuple[float, float],
    needs: Sequence[str] = (),
    pays_correctness: bool = False,
) -> Callable:
    """Register the reward function, or the subclass of `Reward`, that this decorates.

    name: by which it is known; default: the function's name, or the class's attribute `name`. The other arguments are
    those of `RewardSpec`; the summary is the first line of the docstring. Raises UserError for a name that is taken, a
    range that is none, and a reward without a docstring.
    """

    def register(reward):
        is_class = inspect.isclass(reward)
        known_as = name or (reward.name if is_class else reward.__name__)
        low, high = value_range
        if not low < high:
            raise UserError(f"Reward '{known_as}': value_range must be (lowest, highest); got {value_range}.")
        if not reward.__doc__:
            raise UserError(f"Reward '{known_as}' has no docstring: its first line is what list_rewards shows.")
        if known_as in _REWARDS and not _is_same(_REWARDS[known_as], reward):
            raise UserError(f"There is a reward '{known_as}' already: choose another name.")
        make = reward if is_class else _without_options(known_as, reward)
        summary = inspect.cleandoc(reward.__doc__).split("\n")[0]
        _REWARDS[known_as] = RewardSpec(known_as, make, (low, high), tuple(needs), pays_correctness, summary)
        return reward

    return register


def _is_same(spec: RewardSpec, reward: Callable) -> bool:
    """Tell whether a cell or a module that registers a reward was run again."""
    earlier = inspect.unwrap(spec.make)
    return (earlier.__module__, earlier.__qualname__) == (reward.__module__, reward.__qualname__)


def _without_options(name: str, function: RewardFunction) -> Callable[..., RewardFunction]:
    def make(**options):
        if options:
            raise UserError(f"Reward '{name}' has no options; got {', '.join(options)}.")
        return function

    make.__wrapped__ = function
    return make


def get_reward(name: str, **options) -> RewardFunction:
    """Return the reward function of that name.

    options: those of its class. Raises UserError for an unknown name and for an option that the reward does not have.
    """
    spec = reward_spec(name)
    try:
        return spec.make(**options)
    except TypeError as error:
        raise UserError(f"Reward '{name}' cannot be made with these options ({first_line(error)}).") from error


def reward_spec(name: str) -> RewardSpec:
    """Return what is known of a reward. Raises UserError for an unknown name."""
    if name not in _REWARDS:
        raise UserError(f"There is no reward '{name}'{did_you_mean(name, _REWARDS)}: choose {', '.join(_REWARDS)}.")
    return _REWARDS[name]


def list_rewards() -> list[RewardSpec]:
    """Return the registered rewards, by name."""
    return [_REWARDS[name] for name in sorted(_REWARDS)]


def register_preset(name: str, rewards: Sequence[tuple[str, float]]) -> None:
    """Make a list of (reward name, weight) known by a name.

    Raises UserError for an unknown or repeated reward, and unless a right answer outweighs everything else: the
    weights, times the spans of the ranges, of the rewards that pay for correctness must be more than those of the
    others together.
    """
    names = [reward for reward, _ in rewards]
    if len(set(names)) < len(names):
        raise UserError(f"Preset '{name}' names a reward twice: {', '.join(names)}.")
    correctness = 0.0
    others = 0.0
    for reward, weight in rewards:
        spec = reward_spec(reward)
        low, high = spec.value_range
        if spec.pays_correctness:
            correctness += weight * (high - low)
        else:
            others += abs(weight) * (high - low)
    if correctness <= others:
        raise UserError(
            f"Preset '{name}' pays at most {correctness:g} for a right answer and {others:g} for everything else: "
            "give a reward for correctness more weight."
        )
    _PRESETS[name] = tuple(rewards)


def list_presets() -> dict[str, tuple[tuple[str, float], ...]]:
    """Return preset -> its rewards and their weights."""
    return dict(_PRESETS)


def reward_preset(name: str) -> tuple[list[RewardFunction], list[float]]:
    """Return the reward functions of a preset and their weights. Raises UserError for an unknown name."""
    if name not in _PRESETS:
        raise UserError(f"There is no preset '{name}'{did_you_mean(name, _PRESETS)}: choose {', '.join(_PRESETS)}.")
    functions = [get_reward(reward) for reward, _ in _PRESETS[name]]
    weights = [weight for _, weight in _PRESETS[name]]
    return functions, weights

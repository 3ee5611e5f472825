"""Rewards by name: register one, list them, and put several together with weights.

A reward function has TRL's signature, `f(prompts, completions, **columns) -> list[float or None]`. One that has
options is a class: derive it from `Reward`, and its instances are the functions.
"""

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

from helpers.rewards.calling import describe_failure, is_async, name_of
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
    from wrong ones. summary: one line. origin: the module and the name of what was registered.
    """

    name: str
    make: Callable[..., RewardFunction]
    value_range: tuple[float, float]
    needs: tuple[str, ...]
    pays_correctness: bool
    summary: str
    origin: tuple[str, str]


#: What TRL's trainer passes to every reward beside prompts, completions and columns.
_FROM_TRL = ("completion_ids", "trainer_state", "log_extra", "log_metric")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_REWARDS: dict[str, RewardSpec] = {}
_PRESETS: dict[str, tuple[tuple[str, float], ...]] = {}


def register_reward(
    name: str | None = None,
    *,
    value_range: tuple[float, float],
    needs: Sequence[str] = (),
    pays_correctness: bool = False,
) -> Callable:
    """Register the reward function, or the subclass of `Reward`, that this decorates; returns it as it is.

    name: by which it is known; default: the function's name, or the class's attribute `name`. The other arguments are
    those of `RewardSpec`; the summary is the first line of the docstring. What has the same module and name as an
    earlier registration takes its place, so that a cell can be run again.

    Raises UserError for a name that is taken or is no identifier, a range that is none, a reward without a docstring,
    one that a trainer could not call, and a class that is not a complete subclass of `Reward`.
    """

    def register(reward):
        if not callable(reward):
            raise UserError(f"register_reward takes a function or a subclass of Reward; got {reward!r:.80}.")
        known_as = _known_as(name, reward)
        lowest_and_highest = _check_range(known_as, value_range)
        columns = _check_columns(known_as, needs)
        _check_signature(known_as, reward, columns)
        origin = _origin(reward)
        if known_as in _REWARDS and _REWARDS[known_as].origin != origin:
            raise UserError(f"There is a reward '{known_as}' already: choose another name.")
        _REWARDS[known_as] = RewardSpec(
            known_as,
            reward if inspect.isclass(reward) else _without_options(known_as, reward),
            lowest_and_highest,
            columns,
            bool(pays_correctness),
            _summary(known_as, reward),
            origin,
        )
        return reward

    return register


def _known_as(name: str | None, reward: Callable) -> str:
    """Return the name of a reward that is to be registered."""
    if inspect.isclass(reward):
        return _name_of_class(name, reward)
    known_as = name_of(reward) if name is None else name
    if not isinstance(known_as, str) or not known_as.isidentifier():
        raise UserError(f"A reward cannot be called {known_as!r:.80}: give register_reward a name such as 'my_reward'.")
    return known_as


def _name_of_class(name: str | None, reward: type) -> str:
    """Return the name of a class of rewards, which its instances bear in logs, too."""
    if not issubclass(reward, Reward):
        raise UserError(f"{reward.__name__} is registered as a reward and is none: derive it from Reward.")
    if inspect.isabstract(reward):
        raise UserError(f"{reward.__name__} is registered as a reward and cannot be called: define its __call__.")
    own = getattr(reward, "name", None)
    if not isinstance(own, str) or not own.isidentifier():
        raise UserError(f"{reward.__name__} has no name: give the class an attribute such as name = 'my_reward'.")
    if name not in (None, own):
        raise UserError(f"{reward.__name__} is registered as '{name}' and has name = '{own}': make them the same.")
    return own


def _check_range(name: str, value_range: tuple[float, float]) -> tuple[float, float]:
    """Return (lowest, highest) as two finite numbers."""
    is_pair = isinstance(value_range, (tuple, list)) and len(value_range) == 2
    if is_pair and all(map(_is_finite, value_range)) and value_range[0] < value_range[1]:
        return tuple(value_range)
    raise UserError(f"Reward '{name}': value_range must be (lowest, highest), two finite numbers; got {value_range!r}.")


def _check_columns(name: str, needs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns. One text is no list of names: it would be taken apart into its letters."""
    if not isinstance(needs, (tuple, list)) or not all(isinstance(column, str) for column in needs):
        raise UserError(f"Reward '{name}': needs must be a tuple of names of columns; got {needs!r:.80}.")
    return tuple(needs)


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def _check_signature(name: str, reward: Callable, columns: tuple[str, ...]) -> None:
    """Raise UserError for a reward that a trainer's call would not fit, which passes all columns by their names."""
    passed = dict.fromkeys(("prompts", "completions", *_FROM_TRL, *columns, "another_column"))
    called = reward.__call__ if inspect.isclass(reward) else reward
    itself = [None] if inspect.isclass(reward) else []
    try:
        inspect.signature(called).bind(*itself, **passed)
    except (TypeError, ValueError) as error:  # ValueError: a function written in C that does not tell its signature
        raise UserError(
            f"Reward '{name}' cannot be called as trainers do ({first_line(error)}): let it take prompts, completions, "
            "the columns named in needs, and **_ for all others."
        ) from error


def _summary(name: str, reward: Callable) -> str:
    """Return the first line of the docstring. A partial's own is functools'."""
    documented = _behind_partials(reward)
    lines = inspect.cleandoc(documented.__doc__ or "").strip().split("\n")
    if not lines[0]:
        raise UserError(f"Reward '{name}' has no docstring: its first line is what list_rewards shows.")
    return lines[0]


def _origin(reward: Callable) -> tuple[str, str]:
    """Return what a cell or a module that is run again registers again: the same module and name."""
    defined = _behind_partials(reward)
    if not hasattr(defined, "__qualname__"):  # an object with __call__
        defined = type(defined)
    return defined.__module__, defined.__qualname__


def _behind_partials(function: Callable) -> Callable:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _without_options(name: str, function: RewardFunction) -> Callable[[], RewardFunction]:
    if name_of(function) != name:
        function = _RenamedAsync(name, function) if is_async(function) else _Renamed(name, function)

    def make():
        return function

    return make


class _Renamed(Reward):
    """A function that is registered under another name than its own, which logs must show."""

    def __init__(self, name: str, function: RewardFunction):
        self.name = name
        self.function = function

    def __call__(self, *arguments, **columns) -> list[float | None]:
        return self.function(*arguments, **columns)


class _RenamedAsync(_Renamed):
    """The same of an `async def` function: TRL looks at the method to know what it must await."""

    async def __call__(self, *arguments, **columns) -> list[float | None]:
        return await self.function(*arguments, **columns)


def get_reward(name: str, /, **options) -> RewardFunction:
    """Return the reward function of that name.

    options: those of its class. Raises UserError for an unknown name, for an option that the reward does not have, for
    one that it needs and that is not given, and if making the reward fails.
    """
    spec = reward_spec(name)
    _check_options(spec, options)
    try:
        return spec.make(**options)
    except UserError:
        raise
    except Exception as error:
        failure = describe_failure(f"Making reward '{name}'", error)
        raise UserError(f"{failure}: check its options.") from error


def _check_options(spec: RewardSpec, options: dict[str, object]) -> None:
    """Raise UserError unless a reward can be made with these options, as far as their names say."""
    parameters = inspect.signature(spec.make).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = [parameter for parameter in parameters if parameter.kind in _BY_NAME]
    known = [parameter.name for parameter in named]
    for option in options:
        if option not in known and not takes_any:
            advice = f"choose {', '.join(known)}" if known else "it has none"
            raise UserError(f"Reward '{spec.name}' has no option '{option}'{did_you_mean(option, known)}: {advice}.")
    missing = [parameter.name for parameter in named if parameter.default is parameter.empty]
    missing = [name for name in missing if name not in options]
    if missing:
        raise UserError(
            f"Reward '{spec.name}' needs {', '.join(missing)}: get_reward('{spec.name}', {missing[0]}=...)."
        )


def reward_spec(name: str) -> RewardSpec:
    """Return what is known of a reward. Raises UserError for an unknown name."""
    _check_known("reward", name, _REWARDS)
    return _REWARDS[name]


def _check_known(what: str, name: object, known: dict) -> None:
    """Raise UserError for a name that is not among the known ones. what: "reward" or "preset"."""
    if isinstance(name, str) and name in known:
        return
    choice = f"choose {', '.join(sorted(known))}" if known else "none is registered"
    raise UserError(f"There is no {what} '{name}'{did_you_mean(name, known)}: {choice}.")


def list_rewards() -> list[RewardSpec]:
    """Return the registered rewards, by name."""
    return [_REWARDS[name] for name in sorted(_REWARDS)]


def register_preset(name: str, rewards: Sequence[tuple[str, float]]) -> None:
    """Make a list of (reward name, weight) known by a name, in place of an earlier one of that name.

    Raises UserError for an unknown or repeated reward, one that has options it needs, a weight
    that is no finite number, and unless a reward that pays for correctness has a weight above 0.
    """
    pairs = _check_pairs(name, rewards)
    names = [reward for reward, _ in pairs]
    if len(set(names)) < len(names):
        raise UserError(f"Preset '{name}' names a reward twice: {', '.join(names)}.")
    pays_correctness = False
    for reward, weight in pairs:
        spec = reward_spec(reward)
        _check_options(spec, {})
        pays_correctness = pays_correctness or (spec.pays_correctness and weight > 0)
    if not pays_correctness:
        raise UserError(f"Preset '{name}' has no reward that pays for correctness: whatever else pays is learned.")
    _PRESETS[name] = pairs


def _check_pairs(name: str, rewards: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return the pairs (reward name, weight) of a preset."""
    if not isinstance(rewards, (tuple, list)):
        raise UserError(f"Preset '{name}' takes a list of pairs (reward name, weight); got {rewards!r:.80}.")
    pairs = []
    for entry in rewards:
        is_pair = isinstance(entry, (tuple, list)) and len(entry) == 2
        if not is_pair or not isinstance(entry[0], str) or not _is_finite(entry[1]):
            raise UserError(f"Preset '{name}' takes pairs (reward name, weight); got {entry!r:.80}.")
        pairs.append(tuple(entry))
    return tuple(pairs)


def list_presets() -> dict[str, tuple[tuple[str, float], ...]]:
    """Return preset -> its rewards and their weights."""
    return dict(_PRESETS)


def reward_preset(
    name: str, options: Mapping[str, Mapping[str, object]] | None = None
) -> tuple[list[RewardFunction], list[float]]:
    """Return the reward functions of a preset and their weights.

    options: reward name -> options of that reward. Raises UserError for an unknown name, and as `get_reward`.
    """
    _check_known("preset", name, _PRESETS)
    options = options or {}
    functions = [get_reward(reward, **options.get(reward, {})) for reward, _ in _PRESETS[name]]
    weights = [weight for _, weight in _PRESETS[name]]
    return functions, weights

"""Rewards by name: register one, list them, and put several together with weights.

A reward function has TRL's signature, `f(prompts, completions, **columns) -> list[float or None]`. One that has
options is a class: derive it from `Reward`, and its instances are the functions.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from helpers.rewards.calling import behind_partials, describe_failure, name_of
from helpers.runtime import UserError, did_you_mean, first_line, is_finite_number

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

    reward: the function, or the subclass of `Reward`. value_range: the lowest and the highest value that it pays.
    needs: the columns of the data set that it reads. pays_correctness: whether it tells right answers from wrong ones.
    """

    name: str
    reward: RewardFunction | type[Reward]
    value_range: tuple[float, float]
    needs: tuple[str, ...]
    pays_correctness: bool

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return _summary(self.name, self.reward)

    @property
    def origin(self) -> tuple[str, str]:
        """The module and the name under which it was defined."""
        defined = behind_partials(self.reward)
        if not hasattr(defined, "__qualname__"):  # an object with __call__
            defined = type(defined)
        return defined.__module__, defined.__qualname__

    def make(self, **options) -> RewardFunction:
        """Return the reward function. options: those of its class."""
        return self.reward(**options) if inspect.isclass(self.reward) else self.reward

    def made(self, function: Callable) -> bool:
        """Tell whether a reward function is this one, or an instance of this class."""
        return function == self.reward or (inspect.isclass(self.reward) and type(function) is self.reward)


@dataclass(frozen=True)
class _Preset:
    """Rewards with their weights, and what makes them together; None: each is made by itself."""

    rewards: tuple[tuple[str, float], ...]
    make: Callable[[], list[RewardFunction]] | None


#: What TRL's trainer passes to every reward beside prompts, completions and columns.
_FROM_TRL = ("completion_ids", "trainer_state", "log_extra", "log_metric")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_REWARDS: dict[str, RewardSpec] = {}
_PRESETS: dict[str, _Preset] = {}
#: preset -> the module that registers it, and its rewards, and has not been imported yet
_OTHER_MODULES: dict[str, str] = {}


def add_reward_modules(modules: Mapping[str, str]) -> None:
    """Name modules that register rewards when they are imported, which is when a list or an unknown name needs them.

    modules: the name of a module's preset -> the module.
    """
    _OTHER_MODULES.update(modules)


def _import_other_modules(until: Callable[[], bool] = lambda: False) -> None:
    """Import the modules in turn, until what is wanted is there."""
    for preset, module in list(_OTHER_MODULES.items()):
        if until():
            return
        import_module(module)
        _OTHER_MODULES.pop(preset, None)


def register_reward(
    value_range: tuple[float, float], needs: Sequence[str] = (), pays_correctness: bool = False
) -> Callable:
    """Register the reward function, or the subclass of `Reward`, that this decorates; returns it as it is.

    It is known by the function's name, or by the class's attribute `name`, which is also its name in logs. The
    arguments are those of `RewardSpec`. A reward of the same module and name takes the place of the earlier one, so a
    cell can be run again.

    Raises UserError for a name that is taken or is no identifier, an invalid range, a reward without a docstring, one
    that a trainer could not call, and a class that is not a complete subclass of `Reward`.
    """
    if callable(value_range):
        raise UserError("register_reward needs parentheses: write @register_reward(value_range=(0, 1)).")

    def register(reward):
        if not callable(reward):
            raise UserError(f"register_reward takes a function or a subclass of Reward; got {reward!r:.80}.")
        name = _name_of_class(reward) if inspect.isclass(reward) else _name_of_function(reward)
        columns = _check_columns(name, needs)
        spec = RewardSpec(name, reward, _check_range(name, value_range), columns, bool(pays_correctness))
        module, _ = spec.origin
        if not module.startswith("helpers."):
            _import_other_modules()  # so that a name which one of the project's rewards has is refused at once
        _summary(name, reward)
        check_signature(name, reward, columns)
        if name in _REWARDS and _REWARDS[name].origin != spec.origin:
            raise UserError(f"There is a reward '{name}' already: choose another name.")
        _REWARDS[name] = spec
        return reward

    return register


def _name_of_function(reward: Callable) -> str:
    name = name_of(reward)
    if not name.isidentifier():
        raise UserError(f"A reward cannot be called {name!r:.80}: define it with def, under a name of its own.")
    return name


def _name_of_class(reward: type) -> str:
    """Return the name of a class of rewards, which its instances bear in logs, too."""
    if not issubclass(reward, Reward):
        raise UserError(f"{reward.__name__} is not a reward: derive it from Reward.")
    if inspect.isabstract(reward):
        raise UserError(f"{reward.__name__} cannot be called: define its __call__.")
    name = getattr(reward, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise UserError(f"{reward.__name__} has no name: give the class an attribute such as name = 'my_reward'.")
    return name


def _check_range(name: str, value_range: tuple[float, float]) -> tuple[float, float]:
    """Return (lowest, highest) as two finite numbers."""
    is_pair = isinstance(value_range, (tuple, list)) and len(value_range) == 2
    if is_pair and all(map(is_finite_number, value_range)) and value_range[0] < value_range[1]:
        return tuple(value_range)
    raise UserError(f"Reward '{name}': value_range must be (lowest, highest), two finite numbers; got {value_range!r}.")


def _check_columns(name: str, needs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns. One text is no list of names: it would be taken apart into its letters."""
    if not isinstance(needs, (tuple, list)) or not all(isinstance(column, str) for column in needs):
        raise UserError(f"Reward '{name}': needs must be a tuple of names of columns; got {needs!r:.80}.")
    return tuple(needs)


def check_signature(name: str, reward: Callable, columns: Sequence[str]) -> None:
    """Raise UserError for a reward that a trainer's call would not fit, which passes all columns by their names."""
    passed = dict.fromkeys(("prompts", "completions", *_FROM_TRL, *columns, "another_column"))
    called = reward.__call__ if inspect.isclass(reward) else reward
    itself = [None] if inspect.isclass(reward) else []
    try:
        inspect.signature(called).bind(*itself, **passed)
    except (TypeError, ValueError) as error:  # ValueError: a function written in C that does not tell its signature
        raise UserError(
            f"Reward '{name}' cannot be called as trainers do ({first_line(error)}): let it take prompts, completions, "
            "columns of the data set, and **_ for all others."
        ) from error


def _summary(name: str, reward: Callable) -> str:
    """Return the first line of the docstring. A partial's own is functools'."""
    documented = behind_partials(reward)
    lines = inspect.cleandoc(documented.__doc__ or "").strip().split("\n")
    if not lines[0]:
        raise UserError(f"Reward '{name}' has no docstring: its first line is what list_rewards shows.")
    return lines[0]


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
    if not inspect.isclass(spec.reward):
        if options:
            raise UserError(f"Reward '{spec.name}' has no options; got {', '.join(options)}.")
        return
    parameters = inspect.signature(spec.reward).parameters.values()
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
    if isinstance(name, str):
        _import_other_modules(until=lambda: name in known)
    if isinstance(name, str) and name in known:
        return
    choice = f"choose {', '.join(sorted(known))}" if known else "none is registered"
    raise UserError(f"There is no {what} '{name}'{did_you_mean(name, known)}: {choice}.")


def columns_of(name: str) -> tuple[str, ...]:
    """Return the columns that a reward reads; none for one that is not registered, of which nobody knows."""
    return _REWARDS[name].needs if name in _REWARDS else ()


def list_rewards() -> list[RewardSpec]:
    """Return the registered rewards, by name."""
    _import_other_modules()
    return [_REWARDS[name] for name in sorted(_REWARDS)]


def register_preset(
    name: str, rewards: Sequence[tuple[str, float]], make: Callable[[], list[RewardFunction]] | None = None
) -> None:
    """Make a list of (reward name, weight) known by a name, in place of an earlier one of that name.

    make: returns the reward functions, where they share something; default: each is made by itself.

    Raises UserError for an unknown or repeated reward, one that has options it needs, a weight
    that is no finite number, and unless a reward that pays for correctness has a weight above 0.
    """
    if name in _OTHER_MODULES:
        import_module(_OTHER_MODULES[name])  # whose preset would take the place of this one later
    if not isinstance(name, str) or not name.isidentifier():
        raise UserError(f"A preset cannot be called {name!r:.80}: give it a name such as 'my_preset'.")
    pairs = _check_pairs(name, rewards)
    names = [reward for reward, _ in pairs]
    if len(set(names)) < len(names):
        raise UserError(f"Preset '{name}' names a reward twice: {', '.join(names)}. Give it once, with its weight.")
    pays_correctness = False
    for reward, weight in pairs:
        spec = reward_spec(reward)
        _check_options(spec, {})
        pays_correctness = pays_correctness or (spec.pays_correctness and weight > 0)
    if not pays_correctness:
        raise UserError(f"Preset '{name}' has no reward that pays for correctness: add one, with a weight above 0.")
    _PRESETS[name] = _Preset(pairs, make)


def _check_pairs(name: str, rewards: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return the pairs (reward name, weight) of a preset."""
    if not isinstance(rewards, (tuple, list)):
        raise UserError(f"Preset '{name}' takes a list of pairs (reward name, weight); got {rewards!r:.80}.")
    pairs = []
    for entry in rewards:
        is_pair = isinstance(entry, (tuple, list)) and len(entry) == 2
        if not is_pair or not isinstance(entry[0], str) or not is_finite_number(entry[1]):
            raise UserError(f"Preset '{name}' takes pairs (reward name, weight); got {entry!r:.80}.")
        pairs.append(tuple(entry))
    return tuple(pairs)


def list_presets() -> dict[str, tuple[tuple[str, float], ...]]:
    """Return preset -> its rewards and their weights."""
    _import_other_modules()
    return {name: preset.rewards for name, preset in _PRESETS.items()}


def reward_preset(
    name: str, options: Mapping[str, Mapping[str, object]] | None = None
) -> tuple[list[RewardFunction], list[float]]:
    """Return the reward functions of a preset and their weights.

    options: reward name -> options of that reward. Raises UserError for an unknown name, and as `get_reward`.
    """
    _check_known("preset", name, _PRESETS)
    preset = _PRESETS[name]
    options = options or {}
    if preset.make is not None and not options:
        functions = preset.make()
    else:
        functions = [get_reward(reward, **options.get(reward, {})) for reward, _ in preset.rewards]
    weights = [weight for _, weight in preset.rewards]
    return functions, weights

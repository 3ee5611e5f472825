"""A setting is said once, on its field: type, default, bounds or choices, what it means, and who may change it.

`setting` makes such a field of a frozen dataclass, and `check_settings` checks the values of all of them.
`documented_settings` shows them in `help`, answers an unknown name with the nearest one, and an assignment with advice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import wraps
from os import PathLike
from textwrap import fill
from types import NoneType
from typing import Any, TypeVar, get_args

from helpers.runtime import UserError, did_you_mean, is_finite_number, is_whole_number

Class = TypeVar("Class")


@dataclass(frozen=True)
class Setting:
    """What is said of a setting besides its name, type and default.

    help: what it means. choices: the values that it may have, or that the entries of a list may have; None: any. least:
    the least number that it may be. above: a number that it must be above. may_differ: whether a resumed run may change
    it, or a function of the settings that tells. refused: values that another program has beside the choices, and how
    the sentence ends that refuses them.
    """

    help: str
    choices: Sequence[str] | None = None
    least: float | None = None
    above: float | None = None
    may_differ: bool | Callable[[Any], bool] = False
    refused: Mapping[str, str] = field(default_factory=dict)


def setting(default: Any, help: str, is_positional: bool = False, **more: Any) -> Any:
    """Return a field of a dataclass with this default; MISSING: it must be given. more: as for `Setting`."""
    return field(default=default, kw_only=not is_positional, metadata={"setting": Setting(help, **more)})


def check_settings(cls: type, values: Mapping[str, Any]) -> None:
    """Raise UserError for the first value that its field does not allow: one sentence with name, rule and value.

    cls: a dataclass whose fields are made by `setting`. values: by name; other names are left alone.
    """
    for its_field in fields(cls):
        if its_field.name not in values:
            continue
        value = values[its_field.name]
        kinds = get_args(its_field.type) or (its_field.type,)
        if value is None and NoneType in kinds:
            continue
        about = its_field.metadata["setting"]
        rule = _broken_rule(value, kinds[0], about)
        if rule:
            raise UserError(f"{its_field.name} must be {rule}.")
        entries = value if kinds[0] is list and about.choices else ()
        for entry in entries:
            if entry not in about.choices:
                close = did_you_mean(entry, about.choices)
                raise UserError(f"{its_field.name} holds '{entry}'{close}: choose {', '.join(about.choices)}.")


def named_choices(about: Setting) -> str:
    """Return the values that a setting may have, with commas between them, but for the empty text."""
    return ", ".join(choice for choice in about.choices or () if choice)


def _broken_rule(value: Any, kind: type, about: Setting) -> str:
    """Return what a value must be and is not, "" where it is fine. kind: the type of the field."""
    if about.choices is not None and kind is not list:
        is_fine = value in about.choices
        empty = ", or empty" if "" in about.choices else ""
        return "" if is_fine else f"one of {named_choices(about)}{empty}; got {value!r}{_advice(value, about)}"
    is_fine, rule = RULES[kind](value, about)
    return "" if is_fine else f"{rule}; got {value!r}"


def _advice(value: Any, about: Setting) -> str:
    """Return how the sentence ends that refuses a value which is none of the choices, "" where nothing helps."""
    if not isinstance(value, str):
        return ""
    return about.refused.get(value) or did_you_mean(value, about.choices)


def _check_count(value: Any, about: Setting) -> tuple[bool, str]:
    is_fine = is_whole_number(value) and value >= about.least
    return is_fine, f"a whole number from {about.least} on"


def _check_number(value: Any, about: Setting) -> tuple[bool, str]:
    if about.above is not None:
        return _is_number(value) and value > about.above, f"a number above {about.above}"
    return _is_number(value) and value >= about.least, f"a number from {about.least} on"


def _check_texts(value: Any, about: Setting) -> tuple[bool, str]:
    is_fine = isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    return is_fine and len(value) > 0, "a list of texts"


def _check_numbers(value: Any, about: Setting) -> tuple[bool, str]:
    is_fine = isinstance(value, (list, tuple)) and all(_is_number(one) for one in value)
    return is_fine, "a list of finite numbers"


#: Type of a field -> a function of value and `Setting`: whether the value is fine, and what it must be.
RULES = {
    int: _check_count,
    float: _check_number,
    bool: lambda value, about: (isinstance(value, bool), "True or False"),
    str: lambda value, about: (isinstance(value, str), "a text"),
    dict: lambda value, about: (isinstance(value, dict), "a dictionary"),
    tuple: _check_numbers,
    list: _check_texts,
    PathLike: lambda value, about: (isinstance(value, (str, PathLike)) and bool(str(value)), "a path"),
}


def _is_number(value: object) -> bool:
    """Tell whether a value is a finite number, and no boolean."""
    return is_finite_number(value) and not isinstance(value, bool)


def documented_settings(cls: type[Class]) -> type[Class]:
    """Add the fields with their help to a dataclass's docstring, and let `cls.refuse_unknown` answer other names.

    cls: frozen. Its objects raise UserError, with what to do instead, where somebody assigns to them.

    A class that knows settings by more names than those of its fields has a method `own_settings(settings)`, which
    returns the keywords that the constructor takes in their place.
    """
    cls.__doc__ += "\n    Settings:\n" + "\n".join(_describe(its_field) for its_field in fields(cls)) + "\n    "
    known = [its_field.name for its_field in fields(cls)]
    generated = cls.__init__
    frozen = cls.__setattr__
    own_settings = getattr(cls, "own_settings", dict)  # without such a method they stay as they are

    @wraps(generated)
    def __init__(self, *values, **settings):
        settings = own_settings(settings)
        for name in settings:
            if name not in known:
                cls.refuse_unknown(name)
        generated(self, *values, **settings)

    @wraps(frozen)
    def __setattr__(self, name, value):
        try:
            frozen(self, name, value)
        except FrozenInstanceError:
            raise UserError(
                f"{cls.__name__} cannot be changed after it is made: make another, "
                f"dataclasses.replace(config, {name}=...)."
            ) from None

    cls.__init__ = __init__
    cls.__setattr__ = __setattr__
    return cls


def _describe(its_field: Field) -> str:
    about = its_field.metadata["setting"]
    choices = f" One of {named_choices(about)}." if about.choices else ""
    default = "" if its_field.default is MISSING else f" (default {its_field.default!r})"
    text = f"{its_field.name}{default}: {about.help}{choices}"
    return fill(text, width=112, initial_indent=" " * 8, subsequent_indent=" " * 12)

"""Options as fields of configuration classes: help, valid values and search space stand beside each field.

    gamma: Annotated[float, Option("Discount of the reward of the next decision.", SHARE)] = 0.99

The command line, files of options and `steersman tune` read these fields, so a module with a configuration class
imports neither torch nor Gymnasium.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from steersman.core.errors import UsageError, unknown_name


class ValueCheck(NamedTuple):
    """The range of values that an option takes, and its name in an error message."""

    holds: Callable[[float], bool]
    text: str


COUNT = ValueCheck(lambda value: value >= 1, "a whole number of 1 or more")
EVEN = ValueCheck(lambda value: value >= 4 and value % 2 == 0, "an even number of 4 or more")
AMOUNT = ValueCheck(lambda value: value >= 0 and math.isfinite(value), "0 or more")
POSITIVE = ValueCheck(lambda value: value > 0 and math.isfinite(value), "a number above 0")
SHARE = ValueCheck(lambda value: 0 <= value <= 1, "a number from 0 to 1")
BELOW_1 = ValueCheck(lambda value: 0 <= value < 1, "0 or more and less than 1")
POSITIVE_SHARE = ValueCheck(lambda value: 0 < value <= 1, "a number above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class FloatRange:
    """Numbers from `low` to `high`; if `log`, they are sampled on a logarithmic scale."""

    low: float
    high: float
    log: bool = False


KINDS: dict[type[Any], str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
"""Types of options, and their names in error messages."""

Config = TypeVar("Config")
Function = TypeVar("Function", bound=Callable[..., Any])
Choices = tuple[int | float | str, ...]
SearchSpace = FloatRange | Choices


@dataclass(frozen=True, slots=True)
class Option:
    """Help, range and search space of a field."""

    help: str  # for `--help`, without the default
    valid: ValueCheck | None = None  # the range of values; None: any
    search: SearchSpace | None = None  # the values that `steersman tune` tries; None: only the default
    shown_default: str = ""  # what `--help` says instead of the field's default, where that depends on others
    # Name of another field and the value without which this one has no effect; None: it always has one
    only_with: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A field of a configuration class that has an `Option`."""

    name: str
    type: Any
    default: int | float | bool | str
    option: Option


def config_fields(config: type[Any]) -> dict[str, ConfigField]:
    """Return the fields of a dataclass or named tuple by name, without those that have no `Option`."""
    hints = get_type_hints(config, include_extras=True)
    fields: dict[str, ConfigField] = {}
    for name, parameter in inspect.signature(config).parameters.items():
        kind, *metadata = get_args(hints[name]) if hasattr(hints[name], "__metadata__") else (hints[name],)
        for option in metadata:
            if isinstance(option, Option):
                fields[name] = ConfigField(name, kind, parameter.default, option)
    return fields


def check_config(config: Any) -> None:
    for name, field in config_fields(type(config)).items():
        value, valid = getattr(config, name), field.option.valid
        if field.type in KINDS and not is_of_kind(value, field.type):
            raise UsageError(f"{flag(name)} {value!r} does not work; expected {KINDS[field.type]}")
        if get_origin(field.type) is Literal and value not in get_args(field.type):
            raise UsageError(f"{flag(name)} {value} is unknown; expected {' or '.join(get_args(field.type))}")
        if valid is not None and not valid.holds(value):
            raise UsageError(f"{flag(name)} {value} does not work; expected {valid.text}")


def is_of_kind(value: object, kind: type[Any]) -> bool:
    """Return whether a value is of one of the types of `KINDS`; whole numbers are floats, too, but no truth values."""
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, kind)


def checked_arguments(function: Function) -> Function:
    """Check arguments whose annotation names plain types (`int | None`, `str | Path`) at every call."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        for name, value in signature.bind(*values, **named).arguments.items():
            _check_kind(f"{function.__name__}: {name}", value, signature.parameters[name].annotation)
        return function(*values, **named)

    return cast(Function, call)


def check_kinds(config: Any) -> None:
    """Check the fields of a dataclass whose annotation names plain types. Raises UsageError: one is of another type."""
    for field in fields(config):
        _check_kind(f"{type(config).__name__}: {field.name}", getattr(config, field.name), field.type)


def _check_kind(label: str, value: object, annotation: object) -> None:
    plain: tuple[type[Any], ...] = (*KINDS, Path)
    known = {kind.__name__: kind for kind in plain}
    parts = str(annotation).split(" | ")
    if not {*parts} <= {*known, "None"} or (value is None and "None" in parts):
        return
    expected = [known[part] for part in parts if part != "None"]
    if not any(is_of_kind(value, kind) for kind in expected):
        texts = " or ".join(KINDS.get(kind, "a path") for kind in expected)
        raise UsageError(f"{label} {value!r} is not {texts}")


def make_config(config: type[Config], settings: Mapping[str, Any], label: str) -> Config:
    """Return a configuration with these values by name."""
    known = inspect.signature(config).parameters
    for name in settings:
        if name not in known:
            raise unknown_name(f"option of {label}", name, known)
    return config(**settings)


def options_without_effect(config: Any) -> dict[str, tuple[str, str]]:
    """Return name of an option without effect -> the option that is the reason, and the value it should have.

    See `Option.only_with`.
    """
    conditions = {name: field.option.only_with for name, field in config_fields(type(config)).items()}
    return {
        name: condition
        for name, condition in conditions.items()
        if condition is not None and getattr(config, condition[0]) != condition[1]
    }


def check_effects(config: Any, given: Iterable[str]) -> None:
    """Check that every given option has an effect."""
    useless = options_without_effect(config)
    for name in given:
        if name in useless:
            other, value = useless[name]
            raise UsageError(
                f"{flag(name)} has no effect with {flag(other)} {getattr(config, other)}; leave it out, or give "
                f"{flag(other)} {value}"
            )


def flag(name: str) -> str:
    """Return an option as the command line spells it."""
    return f"--{name.replace('_', '-')}"

"""Commands take dataclasses whose fields declare options: their spelling, help, range, and what they belong to.

    @dataclass(frozen=True, slots=True)
    class Fitting:
        fit: bool = option("First fit a policy.", default=False)
        fit_generations: int | None = option("Generations.", RequiresOption("fit"))

A flag that is off by default has no negative spelling. An option that several dataclasses have is a type, such as
`Jobs = Annotated[int | None, option("Number of processes.")]`. A field that is such a dataclass itself stands for its
fields, and `RULES` of a dataclass apply to all of its options. A command may also take options itself.
From this one declaration come the command line (`with_options`), the check of combinations (`check_options`) and the
arguments that a report records (`to_arguments`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from steersman.core.config.fields import ValueCheck, flag
from steersman.core.errors import UsageError
from steersman.core.redaction import redact_url

OPTION = "option"  # key of what typer is told of a field, and of its rules, in the field's metadata


def option(
    text: str, *flags_and_rules: Any, default: Any = None, default_factory: Any = MISSING, **further: Any
) -> Any:
    """Return a field of a dataclass that is an option, or what makes a type one, in its `Annotated`.

    Args:
        flags_and_rules: how the command line spells it, if not by its name, and instances of the classes below.
        default: what it is if it is not given; `...`: it must be given.
        further: what `typer.Option` takes.
    """
    flags = [each for each in flags_and_rules if isinstance(each, str)]
    rules = [each for each in flags_and_rules if not isinstance(each, str)]
    metadata = {OPTION: (typer.Option(*flags, help=text, **further), *rules)}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=MISSING if default is ... else default, metadata=metadata)


MORE = "More options"  # panel of what `--help` leaves out, as it does options of all panels
advanced = partial(option, rich_help_panel=MORE)


class RequiresOption:
    """Other options, one of which must be given beside this one. Without effect in a command that has none of them."""

    def __init__(self, *options: str) -> None:
        self.options = options

    def check(self, given: GivenOption, every: Mapping[str, GivenOption]) -> None:
        # Options are declared once for several commands, not all of which have the other ones.
        known = [every[name] for name in self.options if name in every]
        if known and not any(each.is_given for each in known):
            owners = " or ".join(each.flag for each in known)
            raise UsageError(f"{given.flag} belongs to {owners}; give that too, or leave it out")


class RequiresProtocol:
    """Protocols in which an option has an effect.

    Args:
        is_stated: whether --protocol must say so; else the data may choose one of them.
    """

    def __init__(self, *protocols: str, is_stated: bool = False) -> None:
        self.protocols, self.is_stated = protocols, is_stated

    def check(self, given: GivenOption, every: Mapping[str, GivenOption]) -> None:
        if "protocol" not in every:
            return
        protocol = every["protocol"].value or every["protocol"].assumed
        if protocol in self.protocols or (protocol is None and not self.is_stated):
            return
        other = f", not to {protocol}" if protocol else "; give that too, or leave it out"
        *others, last = self.protocols
        names = f"{', '.join(others)} or {last}" if others else last
        raise UsageError(f"{given.flag} belongs to --protocol {names}{other}")


@dataclass(frozen=True, slots=True)
class Excludes:
    """Another option that must not be given beside this one."""

    other: str

    def check(self, given: GivenOption, every: Mapping[str, GivenOption]) -> None:
        if self.other in every and every[self.other].is_given:
            raise UsageError(f"{given.flag} and {every[self.other].flag} exclude each other; leave one out")


@dataclass(frozen=True, slots=True)
class AssumedValue:
    """The value that stands for an option that is not given, where others depend on it."""

    value: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a number, as the command line spells it."""

    text: str


@dataclass(frozen=True, slots=True)
class GivenOption:
    flag: str  # as the command line spells it, in its negative form if that is what changes the default
    # `value`, `default`: what it is, and would be if it were not given.
    value: Any
    default: Any
    metadata: tuple[Any, ...]  # the rest of the field's annotation

    @property
    def is_given(self) -> bool:
        return bool(self.value != self.default)

    @property
    def assumed(self) -> str | None:
        """Return the value that it has if it is not given; None: unknown."""
        return next((each.value for each in self.metadata if isinstance(each, AssumedValue)), None)


def every_option(*groups: Any) -> dict[str, GivenOption]:
    result: dict[str, GivenOption] = {}
    for group in groups:
        for each in _declared(type(group)):
            name, hint, default = each.name, each.annotation, each.default
            value = getattr(group, name)
            if _is_group(hint):
                result |= every_option(value)
            else:
                metadata = (*get_args(hint)[1:], *getattr(type(group), "RULES", ()))
                # Only --no-... changes the default here, so a message must name that spelling.
                is_negative = default is True or (default is None and value is False)
                result[name] = GivenOption(_flag(name, metadata, is_negative), value, default, metadata)
    return result


def given_options(*groups: Any) -> dict[str, Any]:
    return {name: option.value for name, option in every_option(*groups).items() if option.is_given}


def annotations_of(*groups: type[Any]) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return name of an option -> its type without None, and the rest of its annotation."""
    result = {}
    for group in groups:
        for each in _declared(group):
            kind, *metadata = get_args(each.annotation) or (each.annotation,)
            result[each.name] = (next((of for of in get_args(kind) if of is not NoneType), kind), tuple(metadata))
    return result


def check_options(*groups: Any) -> None:
    every = every_option(*groups)
    for option in every.values():
        for rule in option.metadata if option.is_given else ():
            for value in option.value if isinstance(option.value, list) else [option.value]:
                if isinstance(rule, ValueCheck) and not rule.holds(value):
                    raise UsageError(f"{option.flag} {value:g}: must be {rule.text}")
            if isinstance(rule, RequiresOption | RequiresProtocol | Excludes):
                rule.check(option, every)


def to_arguments(*groups: Any) -> list[str]:
    """Return options that differ from their defaults as a command line, without secrets and the machine's folders.

    Of an absolute path the name is left; a relative one stays.
    """
    arguments: list[str] = []
    for option in every_option(*groups).values():
        unit = next((each.text for each in option.metadata if isinstance(each, Unit)), "")
        if option.is_given:
            arguments += spelled(option.flag, option.value, unit)
    return arguments


def spelled(flag: str, value: Any, unit: str = "") -> list[str]:
    """Return an option as a command line spells it: a flag alone, or repeated with each value."""
    if isinstance(value, bool):
        return [flag]
    return [part for each in (value if isinstance(value, list) else [value]) for part in (flag, f"{_text(each)}{unit}")]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Path):  # whose folders are the machine's if it is absolute
        return value.name if value.is_absolute() else str(value)
    return redact_url(str(value))


def with_options(
    function: Callable[..., None],
    # Returns parameters for its `**declared`; those that are not given are not passed
    declared: Callable[[], Iterable[inspect.Parameter]] = tuple,
    *,
    is_checked: bool = True,  # whether `check_options` is called; False: by the function, which knows more
) -> Callable[..., None]:
    """Return a command that takes the fields of a function's dataclasses as options, and checks them."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    rest: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            # `load` is a common option and one of the settings of `latency`; the common one is taken.
            taken = {each.name for each in parameters}
            made = [each for each in declared() if each.name not in taken]
            rest = [each.name for each in made]
            parameters += made
        elif _is_group(hints[parameter.name]):
            groups[parameter.name] = hints[parameter.name]
            parameters += _parameters(hints[parameter.name])
        else:
            parameters.append(_parameter(parameter.name, hints[parameter.name], parameter.default))

    def command(**given: Any) -> None:
        gathered = {name: _gathered(group, given) for name, group in groups.items()}
        if is_checked:
            check_options(*gathered.values())
        further = {name: value for name in rest if (value := given.pop(name)) is not None}
        function(**gathered, **given, **further)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    # typer would read `given: Any` from here; the signature has everything.
    command.__annotations__ = {}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _declared(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_parameter(each.name, hints[each.name], each) for each in fields(group)]


def _parameter(name: str, hint: Any, declared: Any) -> inspect.Parameter:
    """Return an option as typer takes it, with its spelling and its rules in the type; `declared`: field or default."""
    default = declared
    stated: tuple[Any, ...] = ()
    if isinstance(declared, Field):
        default = declared.default if declared.default_factory is MISSING else declared.default_factory()
        default = inspect.Parameter.empty if default is MISSING else default
        stated = declared.metadata.get(OPTION, ())
    kind, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    for each in metadata:
        stated = (*stated, *(each.metadata[OPTION] if isinstance(each, Field) else (each,)))
    if kind is bool and default is False:
        stated = tuple(_without_negative(name, option) for option in stated)
    annotation = cast(Any, Annotated)[kind, *stated] if stated else hint
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _without_negative(name: str, declared: Any) -> Any:
    """Return a flag that is off by default with its positive spelling alone, unless it states others."""
    if not isinstance(declared, OptionInfo) or _spellings(declared):
        return declared
    result = copy(declared)
    result.param_decls = (flag(name),)
    return result


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    return [
        parameter
        for each in _declared(group)
        for parameter in (_parameters(each.annotation) if _is_group(each.annotation) else [each])
    ]


def _gathered(group: type[Any], given: dict[str, Any]) -> Any:
    return group(
        **{
            each.name: _gathered(each.annotation, given) if _is_group(each.annotation) else given.pop(each.name)
            for each in _declared(group)
        }
    )


def _flag(name: str, metadata: Iterable[Any], is_negative: bool) -> str:
    declared = next((each for each in metadata if isinstance(each, OptionInfo)), OptionInfo())
    stated = _spellings(declared)
    positive, _, negative = stated[0].partition("/") if stated else (flag(name), "", "")
    return (negative or flag(f"no_{name}")) if is_negative else positive


def _spellings(declared: OptionInfo) -> list[str]:
    return [text for text in (declared.default, *(declared.param_decls or ())) if isinstance(text, str)]

"""Options of training from a file, such as `best.json` of `steersman tune`: those of the command line win."""

from __future__ import annotations

import enum
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from steersman.agents.registry import find_algorithm
from steersman.cli.training_options import NetworkOptions, Normalisation
from steersman.cli.training_plan import TrainOptions
from steersman.config_fields import config_fields
from steersman.errors import InputError, UsageError
from steersman.policies.network_registry import find_network

COMMON: dict[str, type[Any]] = {
    "algorithm": str,
    "network": str,
    "hidden": str,
    "dropout": float,
    "normalisation": Normalisation,
    "reference": str,
}
"""What a file may say beside the options of an algorithm."""

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def merge_options(options: TrainOptions) -> TrainOptions:
    """Return the same with what the file `--options` says about what the command line does not.

    Raises:
        InputError: the file is no JSON object, or says something that is no option of the algorithm.
    """
    file = options.task.options
    if file is None:
        return options
    told = _read(file)
    common = {name: _value(file, name, told.pop(name), COMMON[name]) for name in COMMON if name in told}
    for name, find in (("algorithm", find_algorithm), ("network", find_network)):
        if name in common:
            try:
                find(common[name])
            except UsageError as error:
                raise InputError(file, "", name, str(error)) from None
    options = replace(
        options,
        task=_filled(options.task, common, ("algorithm", "network")),
        network=_filled(options.network, common, tuple(field.name for field in fields(NetworkOptions))),
        learning=_filled(options.learning, common, ("reference",)),
    )
    known = config_fields(options.algorithm.config)
    for name in told:
        if name not in known:
            raise InputError(file, "", name, f"is no option of {options.algorithm.label}; it has {', '.join(known)}")
    declared = {name: _value(file, name, value, known[name].type) for name, value in told.items()}
    return replace(options, declared=declared | options.declared)


def _filled(options: Any, told: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Options with those of the file that were not given."""
    return replace(options, **{name: told[name] for name in names if name in told and getattr(options, name) is None})


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(file, "", "", f"is no JSON: {error}") from None
    if not isinstance(told, dict):
        raise InputError(file, "", "", 'is no JSON object such as {"learning_rate": 0.001}')
    return told


def _value(file: Path, name: str, value: Any, kind: Any) -> Any:
    """The value as an option of that type. Raises InputError: it is none."""
    if choices := _choices(kind):
        if value not in choices:
            raise InputError(file, "", name, f"is {value!r}; {', '.join(choices)} are right")
        return kind(value) if isinstance(kind, type) else value
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and numeric:
        return float(value)
    if type(value) is not kind:
        raise InputError(file, "", name, f"is {value!r}; {WORDS[kind]} is right")
    return value


def _choices(kind: Any) -> list[str]:
    """The values of an enumeration of texts, or of a Literal."""
    if isinstance(kind, type):
        return [str(choice.value) for choice in kind] if issubclass(kind, enum.Enum) else []
    return [str(choice) for choice in get_args(kind)]

"""Training options from a file, such as `best.json` of `steersman tune`; the command line overrides them."""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from steersman.agents.registry import AlgorithmSpec, find_algorithm
from steersman.cli.options.algorithms import options_of
from steersman.cli.options.declaring import annotations_of
from steersman.cli.options.training import LearningOptions, NetworkOptions, TrainingTask
from steersman.cli.options.training_plan import TrainOptions, widths
from steersman.core.config.fields import (
    KINDS,
    ValueCheck,
    check_effects,
    config_fields,
    is_of_kind,
    options_without_effect,
)
from steersman.core.errors import InputError, UsageError
from steersman.policies.networks.registry import find_network

FROM_FILE = ("algorithm", "network", "protocol", "objective", "hidden", "dropout", "normalisation", "reference")
"""What a file may say beside the options of an algorithm."""


def merge_options(options: TrainOptions) -> TrainOptions:
    """Return the options, with those of the file `--options` that the command line does not state."""
    file = options.task.options
    if file is None:
        given = options_of(options.algorithm, options.declared)
        # Only what the command line states: a default without effect is no mistake.
        check_effects(options.algorithm.config(**given), given)
        return options
    common, stated = read_options(file, FROM_FILE)
    if options.task.protocol not in (None, common.get("protocol", options.task.protocol)):
        common.pop("objective", None)  # it is of the file's protocol
    options = replace(
        options,
        task=_filled(options.task, common),
        network=_filled(options.network, common),
        learning=_filled(options.learning, common),
    )
    algorithm = options.algorithm
    from_file, given = settings_of(file, stated, algorithm), options_of(algorithm, options.declared)
    # Those of the file were checked in `settings_of`, where the message can name the file.
    check_effects(algorithm.config(**(from_file | given)), given)
    return replace(options, declared=from_file | options.declared)


def read_options(file: Path, names: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those options of a file that have one of the names of `FROM_FILE`, and the others, for `settings_of`."""
    stated = _read(file)
    declared = annotations_of(TrainingTask, NetworkOptions, LearningOptions)
    common = {name: _value(file, name, stated.pop(name), declared[name][0]) for name in names if name in stated}
    for name, value in common.items():
        for rule in declared[name][1]:
            if isinstance(rule, ValueCheck):
                _check_range(file, name, value, rule)
    for name, check in (("algorithm", find_algorithm), ("network", find_network), ("hidden", widths)):
        if name in common:
            try:
                check(common[name])
            except UsageError as error:
                raise InputError(file, "", name, str(error)) from None
    return common, stated


def settings_of(file: Path, stated: Mapping[str, Any], algorithm: AlgorithmSpec) -> dict[str, Any]:
    """Return the options of an algorithm, as a file states them."""
    known = config_fields(algorithm.config)
    for name in stated:
        if name not in known:
            raise InputError(file, "", name, f"is not an option of {algorithm.label}; it has {', '.join(known)}")
    settings = {name: _value(file, name, value, known[name].type) for name, value in stated.items()}
    for name, value in settings.items():
        _check_range(file, name, value, known[name].option.valid)
    try:
        config = algorithm.config(**settings)
    except UsageError as error:  # of several options together
        raise InputError(file, "", "", str(error)) from None
    useless = options_without_effect(config)
    for name in settings:
        if name in useless:
            other, value = useless[name]
            raise InputError(file, "", name, f"has no effect unless {other} is {value}; leave one of them out")
    return settings


def _filled(options: Any, stated: dict[str, Any]) -> Any:
    names = [field.name for field in fields(options) if field.name in stated]
    return replace(options, **{name: stated[name] for name in names if getattr(options, name) is None})


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=partial(_unique, file))
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(file, "", "", f"is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(file, "", "", 'is no JSON object such as {"learning_rate": 0.001}')
    return content


def _unique(file: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises InputError: a name is there twice, of which Python would take the last."""
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise InputError(file, "", name, "is there twice; leave one of them out")
        content[name] = value
    return content


def _value(file: Path, name: str, value: Any, kind: Any) -> Any:
    if choices := _choices(kind):
        if value not in choices:
            raise InputError(file, "", name, f"is {value!r}; expected {', '.join(choices)}")
        return kind(value) if isinstance(kind, type) else value
    if not is_of_kind(value, kind):
        raise InputError(file, "", name, f"is {value!r}; expected {KINDS[kind]}")
    return kind(value)


def _check_range(file: Path, name: str, value: Any, valid: ValueCheck | None) -> None:
    if valid is not None and not valid.holds(value):
        raise InputError(file, "", name, f"is {value}; expected {valid.text}")


def _choices(kind: Any) -> list[str]:
    if isinstance(kind, type):
        return [str(choice.value) for choice in kind] if issubclass(kind, enum.Enum) else []
    return [str(choice) for choice in get_args(kind)]

"""Users' extensions: registered in this process, by `module:NAME`, or by entry points of installed packages."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from glob import iglob
from pathlib import Path
from typing import Any

from steersman.core.errors import SteersmanError, UsageError


@contextmanager
def attribute_errors(who: str) -> Iterator[None]:
    """Turn any exception of the block into one line that names `who`, the error, and where it was raised."""
    try:
        yield
    except SteersmanError:
        raise
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise SteersmanError(f"{who} failed: {what} ({Path(place.filename).name}, line {place.lineno})") from error


def attribute_foreign_errors(kind: str, name: str, cls: type[Any]) -> AbstractContextManager[None]:
    """Return `attribute_errors` for a user's class, and a context that does nothing for one of steersman's."""
    return nullcontext() if cls.__module__.startswith("steersman.") else attribute_errors(f"{kind} {name!r}")


def import_object(kind: str, spec: str) -> Any:
    """Import `module:NAME`; modules other than steersman's are also looked for in the current folder.

    Args:
        kind: what it is to a user, such as `policy`.
        spec: module and name.

    Raises:
        UsageError: it has another form, or there is no such module or name in it.
        SteersmanError: the module raises an error of its own.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name.startswith("steersman.") and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # an installed command does not import from the current folder
    if not (module_name and attribute):
        raise UsageError(f"{kind} {spec!r}: write it as module:Class")
    try:
        with attribute_errors(f"{kind} {spec!r}"):
            module = importlib.import_module(module_name)
    except SteersmanError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise UsageError(f"{kind} {spec!r}: cannot import {module_name!r}: {error.__cause__}") from error.__cause__
        raise
    result = getattr(module, attribute, None)
    if result is None:
        raise UsageError(f"{kind} {spec!r}: module {module_name!r} has no {attribute!r}")
    return result


_registered: dict[str, dict[str, Any]] = {}
_installed: dict[str, dict[str, Any]] = {}
"""By group the objects of entry points, which are loaded once."""


def register_extension(kind: str, group: str, value: Any, expected: type[Any]) -> None:
    """Register an object for this process, as an entry point of the group registers it for every process.

    Args:
        kind: what it is to a user, such as `objective`.
        group: group of entry points.
        value: an instance of `expected` or a subclass of it.
        expected: type of the group's objects, which have a `name`.

    Raises:
        UsageError: it is of another type.
    """
    value = _instance(value, expected)
    if not isinstance(value, expected):
        raise UsageError(f"{kind} {value!r}: expected a {expected.__name__}")
    _registered.setdefault(group, {})[value.name] = value


def load_extensions(kind: str, group: str, expected: type[Any]) -> dict[str, Any]:
    """Return the registered objects of a group by name: instances of `expected`, or of subclasses.

    Where an entry point cannot be loaded, or refers to anything but an `expected` of its name, its value is the
    SteersmanError that says so: errors of one package do not concern those who use another.
    """
    if group not in _installed:
        _installed[group] = _load_entry_points(kind, group, expected)
    return _installed[group] | _registered.get(group, {})


def _load_entry_points(kind: str, group: str, expected: type[Any]) -> dict[str, Any]:
    loaded: dict[str, Any] = {}
    if not has_entry_points():
        return loaded
    from importlib import metadata

    for point in metadata.entry_points(group=group):
        who = f"{kind} {point.name!r} of the entry point {point.value}"
        try:
            with attribute_errors(who):
                value = _instance(point.load(), expected)
            if not isinstance(value, expected) or value.name != point.name:
                raise UsageError(f"{who}: expected a {expected.__name__} of that name, not {value!r}")
        except SteersmanError as error:
            value = error
        loaded[point.name] = value
    return loaded


def _instance(value: Any, expected: type[Any]) -> Any:
    """Return an instance of a class that is a subclass of `expected`; anything else as it is."""
    return value() if isinstance(value, type) and issubclass(value, expected) else value


@cache
def has_entry_points() -> bool:
    """Return whether any installed package may have entry points of ours.

    Every start of the command line asks, and mostly the answer is no: `importlib.metadata`, which reads all packages'
    files once for each group, takes ten times as long.
    """
    files = (file for folder in sys.path for file in iglob(os.path.join(folder, "*-info", "entry_points.txt")))
    return any(b"[steersman." in Path(file).read_bytes() for file in files)

"""What users add: objects that `module:NAME` or the entry points of installed packages lead to."""

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

from steersman.errors import SteersmanError, UsageError


@contextmanager
def attribute_errors(who: str) -> Iterator[None]:
    """Turn whatever the code inside raises into one line that names `who`, the error, and where it was raised."""
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
    """Import what `module:NAME` names; modules that are not steersman's are also looked for in the current folder.

    Args:
        kind: what it is to a user, such as `policy`.
        spec: module and name.

    Raises:
        UsageError: it is not written so, or there is no such module or name in it.
        SteersmanError: the module raises an error of its own.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name.startswith("steersman.") and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # an installed command does not look where the user stands
    if not (module_name and attribute):
        raise UsageError(f"{kind} {spec!r}: write it as module:Class")
    try:
        with attribute_errors(f"{kind} {spec!r}"):
            module = importlib.import_module(module_name)
    except SteersmanError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise UsageError(f"{kind} {spec!r}: cannot import {module_name!r}: {error.__cause__}") from error.__cause__
        raise
    found = getattr(module, attribute, None)
    if found is None:
        raise UsageError(f"{kind} {spec!r}: module {module_name!r} has no {attribute!r}")
    return found


def load_extensions(kind: str, group: str, wanted: type[Any]) -> dict[str, Any]:
    """Return what installed packages register in a group of entry points, by name: a `wanted`, or a class of it.

    Where an entry point cannot be loaded, or leads to anything but a `wanted` of its name, its value is the
    SteersmanError that says so: what one package does wrong is of no matter to those who do not ask for it.
    """
    loaded: dict[str, Any] = {}
    if not _mentions_steersman():
        return loaded
    from importlib import metadata

    for point in metadata.entry_points(group=group):
        who = f"{kind} {point.name!r} of the entry point {point.value}"
        try:
            with attribute_errors(who):
                value = point.load()
                if isinstance(value, type) and issubclass(value, wanted):
                    value = value()
            if not isinstance(value, wanted) or value.name != point.name:
                raise UsageError(f"{who}: a {wanted.__name__} of that name is right, not {value!r}")
        except SteersmanError as error:
            value = error
        loaded[point.name] = value
    return loaded


@cache
def _mentions_steersman() -> bool:
    """Return whether any installed package may have entry points of ours.

    Every start of the command line asks, and mostly the answer is no: `importlib.metadata`, which reads all packages'
    files once for each group, takes ten times as long to say so.
    """
    files = (file for folder in sys.path for file in iglob(os.path.join(folder, "*-info", "entry_points.txt")))
    return any(b"[steersman." in Path(file).read_bytes() for file in files)

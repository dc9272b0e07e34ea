"""Users' extensions: registered in this process, by `module:NAME`, or by entry points of installed packages."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from steersman.core.errors import SteersmanError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


@contextmanager
def attribute_errors(who: str) -> Iterator[None]:
    """Turn any exception of the block into one line that names `who`, the error, and where it was raised."""
    try:
        yield
    except SteersmanError:
        raise
    # A script that calls sys.exit when it is imported must not end the command without a message.
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise SteersmanError(f"{who} failed: {what} ({Path(place.filename).name}, line {place.lineno})") from error


def attribute_foreign_errors(algorithm: str, cls: type[Any]) -> AbstractContextManager[None]:
    """Return `attribute_errors` for the class of a user's algorithm, and an empty context for one of steersman's."""
    return nullcontext() if cls.__module__.startswith("steersman.") else attribute_errors(f"algorithm {algorithm!r}")


def import_object(kind: str, spec: str) -> Any:
    """Import `module:NAME`; modules other than steersman's are also looked for in the current folder."""
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


class Registry(Generic[T]):
    """Objects of one kind by name: built-in ones, those of installed packages' entry points, those of this process.

    Of an installed package nothing is imported to list names. What is wrong with one package does not concern those
    who use another.
    """

    def __init__(
        self,
        kind: str,  # what an object is to a user, such as `objective`
        group: str,  # group of entry points
        expected: type[Any],  # type of the objects, which have a `name`; `object`: anything is one
        # By name the objects, or `module:NAME` of a class to make them of
        built_in: Mapping[str, T | str] | None = None,
        others: Sequence[str] = (),  # what is accepted beside names, for the error of an unknown one
    ) -> None:
        self.kind, self.group, self.expected, self.others = kind, group, expected, tuple(others)
        self._built_in = dict(built_in or {})
        self._registered: dict[str, T] = {}
        self._loaded: dict[str, T | SteersmanError] = {}

    def register(self, value: T | type[T], name: str = "") -> None:
        """Register an object for this process, as an entry point of the group registers it for every process."""
        self._registered[name or value.name] = self._checked(value, f"{self.kind} {value!r}")  # type: ignore[union-attr]

    def names(self) -> tuple[str, ...]:
        """Return all names: of built-in objects, then of others, also of those whose package cannot be loaded."""
        added = {*self._points(), *self._registered} - set(self._built_in)
        return (*self._built_in, *sorted(added))

    def usable(self) -> tuple[T, ...]:
        """Return all objects that can be used, in the order of `names`."""
        points = self._points()
        added = {name: self._load(point) for name, point in points.items()} | self._registered
        found = (added[name] for name in sorted(added) if name not in self._built_in)
        return (*map(self.find, self._built_in), *(each for each in found if not isinstance(each, SteersmanError)))

    def get(self, name: str) -> T | None:
        """Return the object of a name, None if there is none. Raises SteersmanError: its package cannot be loaded."""
        if name in self._built_in:
            built_in = self._built_in[name]
            if isinstance(built_in, str):
                built_in = self._built_in[name] = import_object(self.kind, built_in)()
            return built_in
        if name in self._registered:
            return self._registered[name]
        point = self._points().get(name)
        value = None if point is None else self._load(point)
        if isinstance(value, SteersmanError):
            raise value
        return value

    def find(self, name: str) -> T:
        """Return the object of a name, or of `module:NAME` if that is among `others`."""
        value = self.get(name)
        if value is not None:
            return value
        if ":" in name and any("module:NAME" in each for each in self.others):
            return self._checked(import_object(self.kind, name), f"{self.kind} {name!r}")
        raise UsageError(f"unknown {self.kind} {name!r}; known are {', '.join((*self.names(), *self.others))}")

    def _points(self) -> dict[str, EntryPoint]:
        if self.group not in entry_point_groups(tuple(sys.path)):
            return {}
        # Here, since this import alone takes a noticeable part of a start.
        from importlib import metadata

        return {point.name: point for point in metadata.entry_points(group=self.group)}

    def _load(self, point: EntryPoint) -> T | SteersmanError:
        """Return what an entry point leads to, which is loaded once; else the error that says what is wrong with it."""
        who = f"{self.kind} {point.name!r} of the entry point {point.value}"
        if who not in self._loaded:
            try:
                with attribute_errors(who):
                    self._loaded[who] = self._checked(point.load(), who, point.name)
            except SteersmanError as error:
                # Kept, or each call would run the failing import again.
                self._loaded[who] = error
        return self._loaded[who]

    def _checked(self, value: Any, who: str, name: str = "") -> T:
        """Return an object of the expected type, and of the name if one is given; of its class an instance."""
        if self.expected is not object:
            value = value() if isinstance(value, type) and issubclass(value, self.expected) else value
            if not isinstance(value, self.expected) or (name and value.name != name):
                named = " of that name" if name else ""
                article = "an" if self.expected.__name__[0] in "AEIO" else "a"
                raise UsageError(f"{who}: expected {article} {self.expected.__name__}{named}, not {value!r}")
        return value  # type: ignore[no-any-return]


@cache
def entry_point_groups(path: tuple[str, ...]) -> frozenset[str]:
    """Return our groups of entry points that packages in the folders of `sys.path` may have.

    Every start of the command line asks for some, and mostly nobody has them: `importlib.metadata`, which reads all
    packages' files once for each group, takes ten times as long.
    """
    files = (file for folder in path for file in iglob(os.path.join(folder, "*-info", "entry_points.txt")))
    texts = (Path(file).read_text("utf-8", "replace") for file in files)
    return frozenset(group for text in texts for group in re.findall(r"^\[(steersman\.\w+)\]", text, re.MULTILINE))

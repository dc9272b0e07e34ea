"""Kernels run as the Python that they are written in, over arrays that refuse an index out of range.

Machine code checks no index: what lies out of range is read, or written over. Numba's own check (`boundscheck`) lets
negative indices wrap around, and compiling every kernel with it takes minutes. So `install`, called before any kernel
is imported, keeps kernels from being compiled: they run over `Checked` arrays, on clusters that are small enough.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import steersman
from steersman.core import compiled

KERNELS: dict[str, Callable[..., Any]] = {}
"""Every kernel of the modules that were imported, by its module and name."""

EXECUTED: set[str] = set()
"""Those that ran."""


class Checked(np.ndarray[Any, Any]):
    """An array whose indices are counted from its beginning and lie within it; so are all views of it."""

    def __getitem__(self, index: Any) -> Any:
        _check(self.shape, index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        _check(self.shape, index)
        super().__setitem__(index, value)


def _check(shape: tuple[int, ...], index: Any) -> None:
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) > len(shape):
        raise IndexError(f"{len(parts)} indices for an array of shape {shape}")
    for axis, part in enumerate(parts):
        size = shape[axis]
        if isinstance(part, slice):
            start, stop = 0 if part.start is None else part.start, size if part.stop is None else part.stop
            fine = part.step is None and 0 <= start <= stop <= size
        else:
            fine = isinstance(part, int | np.integer) and 0 <= part < size
        if not fine:
            raise IndexError(f"{part!r} on axis {axis} of an array of shape {shape}")


def checked(value: Any) -> Any:
    """An argument of a kernel with all its arrays checked; they share memory with the given ones."""
    if isinstance(value, np.ndarray):
        return value if isinstance(value, Checked) else value.view(Checked)
    if isinstance(value, tuple):
        parts = [checked(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel as Python calls it, here also where kernels do: its arrays are checked, and it is known to have run."""
    name = f"{function.__module__.removeprefix('steersman.')}.{function.__qualname__}"
    KERNELS[name] = function

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        EXECUTED.add(name)
        # Hashes overflow, and dividing by zero is as in NumPy.
        if _running[0]:
            return function(*args)
        _running[0] = True
        try:
            with np.errstate(all="ignore"):
                return function(*map(checked, args))
        finally:
            _running[0] = False

    run.py_func = function  # type: ignore[attr-defined]  # as of what is compiled
    return run


_running = [False]
"""Whether a kernel runs: what it calls gets arrays that are checked already."""


def install() -> None:
    """Run all kernels like this from now on. Raises RuntimeError: there are some already."""
    already = [name for name in sys.modules if name.startswith("steersman.cluster")]
    if already:
        raise RuntimeError(f"{already[0]} is imported already, with kernels that are compiled")
    compiled._compile = lambda function, **_: watched(function)  # type: ignore[assignment]


def has_kernels(file: Path) -> bool:
    """Whether a file defines a kernel."""
    return re.search(r"^@(kernel|inlined_kernel|called_kernel|ir_inlined)$", file.read_text(), re.M) is not None


def import_all() -> None:
    """Import every module of the package that has kernels, so that `KERNELS` knows all of them."""
    package = Path(steersman.__file__).parent
    for file in sorted(package.rglob("*.py")):
        if has_kernels(file):
            importlib.import_module(".".join(("steersman", *file.relative_to(package).with_suffix("").parts)))

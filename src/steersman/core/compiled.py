"""Compile kernels: decorators, and a cache of machine code that survives checkouts and is never stale.

Numba's own cache notices a change of the file of a kernel, but not of the files whose kernels it calls, and takes a
copy of the same file for another one. Here the cache folder's name is a digest of Numba's version, of the file and of
everything of the package that it imports.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core.caching import CacheImpl, _CacheLocator

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = Path(__file__).parents[1]
KEPT_FOLDERS = 400
"""Number of most recently used cache folders to keep: one per state of a file with kernels and its imports."""
IMPORTS = re.compile(r"^(?:from (steersman[\w.]*) import (\([^)]*\)|.*)|import (steersman[\w.]*))", re.MULTILINE)


def cache_root() -> Path:
    """Return the user's cache folder: `$STEERSMAN_CACHE_DIR`, else below `$XDG_CACHE_HOME` or `~/.cache`."""
    own = os.environ.get("STEERSMAN_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steersman"


@cache
def imported_files(file: Path) -> frozenset[Path]:
    """Return the files of the package that a file imports at module level, without their own imports."""
    candidates = set()
    for module, names, plain in IMPORTS.findall(file.read_text(encoding="utf-8")):
        folder = PACKAGE.joinpath(*(module or plain).split(".")[1:])
        candidates |= {folder.with_suffix(".py"), folder / "__init__.py"}
        candidates |= {folder / f"{name}.py" for name in re.findall(r"\w+", names)}
    return frozenset(path for path in candidates if path.is_file())


def source_files(file: Path) -> set[Path]:
    """Return the files that machine code of a file's kernels depends on: the file and its transitive imports."""
    sources, open_files = {file}, [file]
    while open_files:
        new = imported_files(open_files.pop()) - sources
        sources |= new
        open_files += new
    return sources


@cache
def cache_folder(file: Path) -> Path:
    """Return the folder for machine code of a file's kernels; it changes with any source."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(source_files(file)):
        digest.update(_content_digest(source))
    return cache_root() / "kernels" / digest.hexdigest()[:16]


@cache
def _content_digest(file: Path) -> bytes:
    return hashlib.sha256(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes()).digest()


class KernelCacheLocator(_CacheLocator):
    """Numba's locator of machine code, by the content of sources and not by their location.

    Args:
        folder: folder of the cache.
        line: line of the function, which distinguishes equal names.
    """

    def __init__(self, folder: Path, line: int) -> None:
        self._folder, self._line = folder, line

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """Return a value that is equal for machine code of the same sources."""
        return self._folder.name

    def get_disambiguator(self) -> str:
        """Return the number of the function's line."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCacheLocator | None:
        """Return the locator of a function; None if it is not the package's, or the folder cannot be written to."""
        file = Path(py_file)
        if PACKAGE not in file.parents:
            return None
        folder = cache_folder(file)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        except OSError:
            return None  # a read-only home: Numba falls back to a folder of its own choice
        return cls(folder, py_func.__code__.co_firstlineno)


def _configure() -> None:
    # Higher optimization levels take a fifth longer to compile, and the kernels run no faster (measured).
    os.environ.setdefault("NUMBA_OPT", "1")
    # Loop vectorization takes a tenth of it and finds hardly any loop; block copies do not need it (measured).
    os.environ.setdefault("NUMBA_LOOP_VECTORIZE", "0")
    numba.config.reload_config()  # type: ignore[no-untyped-call]


def _set_up_cache() -> None:
    """Register `KernelCacheLocator` before Numba's own locators, and delete the least recently used folders."""
    own = f"{__name__}.{KernelCacheLocator.__name__}"
    others = (each.__name__ for each in CacheImpl._locator_classes)
    numba.config.CACHE_LOCATOR_CLASSES = ",".join([own, *others])  # type: ignore[attr-defined]
    try:
        folders = sorted((cache_root() / "kernels").iterdir(), key=lambda path: path.stat().st_mtime)
    except OSError:
        return
    for old in folders[:-KEPT_FOLDERS]:
        shutil.rmtree(old, ignore_errors=True)


def _load_without_scipy() -> None:
    """Load Numba's array functions without SciPy, which saves a quarter of a second of every start.

    They import SciPy's BLAS, if it is installed, for functions that no kernel of ours uses. Compiling one of these,
    such as `numpy.dot`, imports it then.
    """
    if "scipy.linalg" in sys.modules:
        return
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules["scipy.linalg"]


_configure()
_set_up_cache()
_load_without_scipy()


def kernel(function: F) -> F:
    """Compile a plain function over arrays at its first call, and cache the machine code.

    Kernels own no memory: what they write to is passed in. So they are compiled without Numba's reference counting
    (`_nrt`), whose atomic counters cost ten times the arithmetic where many arrays are passed around; a kernel that
    allocates fails to compile. Division follows NumPy (no check for zero).
    """
    return _compile(function, cache=True)


def inlined_kernel(function: F) -> F:
    """Compile a kernel that only kernels call: always inlined, and without an entry from Python.

    Named tuples of arrays are passed by value, hundreds of words a call; inlined, an FGD run takes 40 % of the time.
    """
    return _compile(function, no_cpython_wrapper=True, forceinline=True)


def called_kernel(function: F) -> F:
    """Compile a kernel that only kernels call, as a call: for what is long and rarely called.

    Inlining optimizes a function again in every function that inlines it, and in those that inline these.
    """
    return _compile(function, no_cpython_wrapper=True)


def ir_inlined(function: F) -> F:
    """Compile a kernel into its callers' intermediate code, before any optimization.

    For what merely forwards to a large kernel, which is then not optimized again for this function alone.
    """
    return _compile(function, no_cpython_wrapper=True, inline="always")


def _compile(function: F, **options: bool | str) -> F:
    # Numba's type hints lack the options that its documentation calls internal; the version is pinned.
    njit = cast(Any, numba.njit)
    compiled = njit(error_model="numpy", _nrt=False, no_cfunc_wrapper=True, **options)(function)
    _by_types(compiled)
    return cast(F, compiled)


def _by_types(dispatcher: Any) -> None:
    """Let a function be compiled once for all integers and flags.

    Numba would compile it for each constant argument, and for those that are none.
    """
    template = dispatcher.get_call_template

    unliteral: Callable[[Any], Any] = types.unliteral

    def general(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return template(tuple(map(unliteral, args)), {key: unliteral(each) for key, each in keywords.items()})

    dispatcher.get_call_template = general

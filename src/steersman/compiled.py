"""Compiled kernels: decorators, and a cache of machine code that outlives checkouts and is never stale.

Numba's own cache notices a change of the file that a kernel stands in, but not of the files whose kernels it calls, and
takes a copy of the same file for another one. Here machine code lies in a folder whose name is a digest of the file and
of all that it imports.
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

PACKAGE = Path(__file__).parent
KEPT_FOLDERS = 400
"""Folders of machine code that are kept, the last used: one for each state of a file with kernels and its imports."""
IMPORTS = re.compile(r"^(?:from (steersman[\w.]*) import (\([^)]*\)|.*)|import (steersman[\w.]*))", re.MULTILINE)


def cache_root() -> Path:
    """The user's cache folder for steersman: `$STEERSMAN_CACHE_DIR`, else below `$XDG_CACHE_HOME` or `~/.cache`."""
    own = os.environ.get("STEERSMAN_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steersman"


@cache
def imported_files(file: Path) -> frozenset[Path]:
    """Return the files of the package that a file of it imports at the start, without what these import."""
    found = set()
    for module, names, plain in IMPORTS.findall(file.read_text(encoding="utf-8")):
        folder = PACKAGE.joinpath(*(module or plain).split(".")[1:])
        found |= {folder.with_suffix(".py"), folder / "__init__.py"}
        found |= {folder / f"{name}.py" for name in re.findall(r"\w+", names)}
    return frozenset(path for path in found if path.is_file())


def source_files(file: Path) -> set[Path]:
    """Return the files that machine code of kernels in a file depends on: it, and what it imports, at any distance."""
    found, open_files = {file}, [file]
    while open_files:
        new = imported_files(open_files.pop()) - found
        found |= new
        open_files += new
    return found


@cache
def cache_folder(file: Path) -> Path:
    """Return the folder for machine code of kernels in a file of the package; another one if any source changes."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(source_files(file)):
        digest.update(_content_digest(source))
    return cache_root() / "kernels" / digest.hexdigest()[:16]


@cache
def _content_digest(file: Path) -> bytes:
    return hashlib.sha256(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes()).digest()


class KernelCacheLocator(_CacheLocator):
    """Says where Numba keeps machine code of the package's kernels, by what is in the sources, not by where they lie.

    Args:
        folder: of the cache.
        line: of the function, which tells those of equal names apart.
    """

    def __init__(self, folder: Path, line: int) -> None:
        self._folder, self._line = folder, line

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """Return what is equal for machine code of the same sources."""
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
    # LLVM's higher levels compile a fifth longer, and the kernels run no faster for it (measured).
    os.environ.setdefault("NUMBA_OPT", "1")
    # Looking for loops to vectorise is a tenth of it, and hardly finds any; block copies need no vectoriser (measured).
    os.environ.setdefault("NUMBA_LOOP_VECTORIZE", "0")
    numba.config.reload_config()  # type: ignore[no-untyped-call]


def _open_cache() -> None:
    """Let Numba ask `KernelCacheLocator` before its own locators; delete what was not used for long."""
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
    """Load Numba's array functions without SciPy, a quarter of a second of every start.

    They import SciPy's BLAS, if there is one, for functions that no kernel of ours has. Whoever compiles one of these,
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
_open_cache()
_load_without_scipy()


def kernel(function: F) -> F:
    """Compile a plain function over arrays at its first call, and keep the machine code for later processes.

    Kernels own no memory: what they write to is passed in. So they are compiled without Numba's reference counting
    (`_nrt`), whose atomic counters cost ten times the arithmetic where many arrays are passed around; a kernel that
    allocates fails to compile. Division follows NumPy (no check for zero).
    """
    return _compile(function, cache=True)


def inner(function: F) -> F:
    """Like `kernel`, for what only kernels call: always inlined, and without an entry from Python.

    Named tuples of arrays are passed by value, hundreds of words a call; inlined, an FGD run takes 40 % of the time.
    """
    return _compile(function, no_cpython_wrapper=True, forceinline=True)


def outlined(function: F) -> F:
    """Like `inner`, but a call: for what is long and rarely called.

    A function is optimised once more in every function that it is inlined in, and in those that these are inlined in.
    """
    return _compile(function, no_cpython_wrapper=True)


def pasted(function: F) -> F:
    """Like `inner`, but put into its callers before anything is compiled: for what does little but call a large kernel.

    The large one is then not optimised once more for this function alone.
    """
    return _compile(function, no_cpython_wrapper=True, inline="always")


def _compile(function: F, **options: bool | str) -> F:
    # Numba's type hints lack the options that its documentation calls internal; the version is pinned.
    njit = cast(Any, numba.njit)
    compiled = njit(error_model="numpy", _nrt=False, no_cfunc_wrapper=True, **options)(function)
    _by_types(compiled)
    return cast(F, compiled)


def _by_types(dispatcher: Any) -> None:
    """Let a function be compiled once for all whole numbers and flags.

    Numba would do so for each constant that it is called with, and for those that are none.
    """
    template = dispatcher.get_call_template

    unliteral: Callable[[Any], Any] = types.unliteral

    def general(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return template(tuple(map(unliteral, args)), {key: unliteral(each) for key, each in keywords.items()})

    dispatcher.get_call_template = general

"""Compiled kernels: one decorator, one cache that outlives checkouts and is never stale.

Numba's own cache notices a change of the file a kernel stands in, but not of the files whose kernels it calls. So the
cache folder's name holds a digest of the package's sources: a changed kernel anywhere means a new folder.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types

F = TypeVar("F", bound=Callable[..., Any])

KERNEL_ROOMS = (
    "cluster",
    "envs/kernels",
    "objectives",
    "policies",
    "service/kernels",
    "simulation",
    "telemetry",
    "workloads",
)
KEPT_CACHES = 3


def cache_root() -> Path:
    """The user's cache folder for steersman: `$STEERSMAN_CACHE_DIR`, else below `$XDG_CACHE_HOME` or `~/.cache`."""
    own = os.environ.get("STEERSMAN_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steersman"


def kernel_sources() -> list[Path]:
    """Every file that machine code depends on: those with kernels, bounds of features, and this one, which compiles."""
    package = Path(__file__).parent
    return [
        Path(__file__),
        package / "features.py",
        *(file for room in KERNEL_ROOMS for file in sorted(package.joinpath(room).glob("*.py"))),
    ]


def _digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for file in kernel_sources():
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _configure() -> None:
    # LLVM's higher levels compile a fifth longer, and the kernels run no faster for it (measured).
    os.environ.setdefault("NUMBA_OPT", "1")
    # Looking for loops to vectorise is a tenth of it, and hardly finds any; block copies need no vectoriser (measured).
    os.environ.setdefault("NUMBA_LOOP_VECTORIZE", "0")
    numba.config.reload_config()  # type: ignore[no-untyped-call]


def _open_cache() -> None:
    kernels = cache_root() / "kernels"
    folder = kernels / _digest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        for old in sorted(kernels.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_CACHES]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError:
        return  # a read-only home: Numba falls back to a folder of its own choice
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]


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

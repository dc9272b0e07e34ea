"""Compile kernels: decorators, and a cache of machine code that survives checkouts and is never stale.

Numba's own cache asks whether the file of a kernel has changed. It misses a change of a kernel that this one calls, and
it compiles again after a comment. Here the key is what machine code is made from: the bytecode of the kernel and of all
that it calls, the values of the constants that they use, and the types of the arguments.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from steersman.core.cache import cache_root, read_cached, write_cached

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = Path(__file__).parents[1]
PACKAGED = PACKAGE / "data" / "kernels"
"""Folder of the machine code in a platform wheel (`release.kernels`), for any processor of its architecture."""
PORTABLE = "generic", ""  # name and features of LLVM's processor that packaged machine code is made for
KEPT_FILES = 3000
"""Number of most recently used files of machine code to keep: one per kernel, its arguments' types, and its content."""


class KernelCache(NullCache):
    """Machine code of one kernel on disk, one file for each key."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher

    @property
    def cache_path(self) -> str:
        return str(cache_root() / "kernels")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for arguments of these types; None if there is no usable file."""
        # As Numba's own cache does: machine code refers to functions that a new context has not loaded yet.
        target_context.refresh()
        triple, *processor = target_context.codegen().magic_tuple()
        body = _read_used(Path(self.cache_path) / self._file_name(sig, (triple, *processor)))
        if body is None:
            body = read_cached(PACKAGED / self._file_name(sig, (triple, *PORTABLE)))
        if body is None:
            return None
        rebuild: Any = CompileResult._rebuild
        return rebuild(target_context, *pickle.loads(body))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save machine code; a folder that cannot be written to keeps none."""
        if data.library.has_dynamic_globals:
            return  # it holds addresses of this process
        file = Path(self.cache_path) / self._file_name(sig, data.codegen.magic_tuple())
        # Types of variables in words, for people: with addresses of this process, so that no two files were equal.
        body = cast(Any, dumps)(data._replace(type_annotation="")._reduce())
        write_cached(file, body)
        files = []
        with suppress(OSError), os.scandir(file.parent) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process may delete at the same time
                    if entry.is_file():
                        files.append((entry.stat().st_mtime, entry.path))
        for _, path in sorted(files)[:-KEPT_FILES]:  # all but the most recently used
            with suppress(OSError):
                os.unlink(path)

    def _file_name(self, sig: Any, processor: tuple[str, ...]) -> str:
        arguments = sig.args if hasattr(sig, "args") else sig
        key = (_versions(), processor, kernel_digest(self._dispatcher), [*map(_type_key, arguments)])
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
        return f"{self._dispatcher.py_func.__name__}-{name}"


def _read_used(file: Path) -> bytes | None:
    """Return the machine code in a file of the user's cache, which counts as used now."""
    body = read_cached(file)
    if body is not None:
        with suppress(OSError):  # a read-only folder
            os.utime(file)
    return body


@cache
def _versions() -> tuple[object, ...]:
    config: Any = numba.config
    return (
        numba.__version__,
        np.__version__.partition(".")[0],  # what a kernel sees of NumPy is the layout of its arrays
        # Bytecode, from which digests are made, changes with the minor version.
        sys.version_info[:2],
        config.OPT,
        config.LOOP_VECTORIZE,
        config.BOUNDSCHECK,
    )


def _type_key(kind: Any) -> object:
    """Return what distinguishes an argument's type. Numba's names of named tuples leave out their fields."""
    if not isinstance(kind, types.BaseTuple):
        return repr(kind)
    named: Any = kind
    if isinstance(kind, types.BaseNamedTuple):  # the file refers to it by module and name
        cls = named.instance_class
        return (cls.__module__, cls.__qualname__, named.fields), [_type_key(each) for each in named]
    return (), [_type_key(each) for each in named]


@cache
def kernel_digest(dispatcher: Any) -> str:
    """Return a digest of everything that a kernel's machine code is made from, except for its arguments' types."""
    digest = hashlib.sha256()
    for each in _reachable(dispatcher):
        digest.update(_content(each).encode() + b"\0")
    return digest.hexdigest()


def _reachable(dispatcher: Any) -> list[Any]:
    """Return a kernel and all kernels, functions and named tuples that it uses, directly or through others."""
    found = {dispatcher: None}
    open_values = [dispatcher]
    while open_values:
        new = [each for _, each in _uses(open_values.pop()) if _is_definition(each) and each not in found]
        found.update(dict.fromkeys(new))
        open_values += new
    return list(found)


def _is_definition(value: object) -> bool:
    return isinstance(value, (Dispatcher, FunctionType)) or (isinstance(value, type) and hasattr(value, "_fields"))


@cache
def _uses(definition: Any) -> tuple[tuple[str, Any], ...]:
    """Return names and values of the globals, of attributes of our modules, and of the closure that a kernel uses."""
    function = getattr(definition, "py_func", definition)
    if isinstance(function, type):
        return ()
    found: dict[str, Any] = dict(
        zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True)
    )
    attributes = {name for code in _nested(function.__code__) for name in code.co_names}
    for name in sorted(attributes & function.__globals__.keys()):
        value = function.__globals__[name]
        if isinstance(value, ModuleType) and value.__name__.startswith(f"{PACKAGE.name}."):
            found.update({f"{name}.{each}": getattr(value, each) for each in sorted(attributes & vars(value).keys())})
        elif not isinstance(value, ModuleType):
            found[name] = value
    return tuple(found.items())


def _nested(code: CodeType) -> list[CodeType]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return [code, *(below for each in inner for below in _nested(each))]


@cache
def _content(definition: Any) -> str:
    """Return what a kernel, function or named tuple consists of itself, without the definitions that it uses."""
    name = f"{definition.__module__}.{definition.__qualname__}"
    function = getattr(definition, "py_func", definition)
    if isinstance(function, type):
        return f"{name} {function._fields}"  # type: ignore[attr-defined]
    options = sorted(getattr(definition, "targetoptions", {}).items())
    bytecode = [_bytecode(code, function.__doc__) for code in _nested(function.__code__)]
    return repr(
        (name, options, function.__defaults__, bytecode, [(used, _value(each)) for used, each in _uses(definition)])
    )


def _bytecode(code: CodeType, doc: str | None) -> tuple[object, ...]:
    """Return bytecode without line numbers, file name and docstring."""
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    if constants and doc is not None and constants[0] == doc:
        constants[0] = None
    return code.co_code, code.co_exceptiontable, code.co_flags, code.co_names, code.co_varnames, constants


def _value(value: Any) -> object:
    """Return what the value of a global adds to a key: of a constant its value, of all else a name."""
    if isinstance(value, (bool, int, float, str, bytes, type(None), np.generic)):
        return repr(value)
    if isinstance(value, tuple):
        return [*map(_value, value)]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', value)}"
    raise TypeError(f"a kernel uses {value!r}, which cannot be part of the key of its machine code")


def _configure() -> None:
    # Higher optimization levels take a fifth longer to compile, and the kernels run no faster (measured).
    os.environ.setdefault("NUMBA_OPT", "1")
    # Loop vectorization takes a tenth of it and finds hardly any loop; block copies do not need it (measured).
    os.environ.setdefault("NUMBA_LOOP_VECTORIZE", "0")
    numba.config.reload_config()  # type: ignore[no-untyped-call]


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
_load_without_scipy()


def kernel(function: F) -> F:
    """Compile a plain function over arrays at its first call, and cache the machine code.

    Kernels own no memory: what they write to is passed in. So they are compiled without Numba's reference counting
    (`_nrt`), whose atomic counters cost ten times the arithmetic where many arrays are passed around; a kernel that
    allocates fails to compile. Division follows NumPy (no check for zero).
    """
    return _cached(_compile(function))


def unlocked_kernel(function: F) -> F:
    """Compile a kernel that releases the GIL, so that long ones run in parallel in several threads.

    No other thread may use the arrays that it writes to.
    """
    return _cached(_compile(function, nogil=True))


def _cached(compiled: F) -> F:
    if isinstance(compiled, Dispatcher):  # not where kernels run as Python
        cast(Any, compiled)._cache = KernelCache(compiled)
    return compiled


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

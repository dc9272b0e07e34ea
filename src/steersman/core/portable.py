"""The compiled core as WebAssembly: for machines that no shared library was built for."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steersman.core.cache import cache_root, read_cached, write_cached
from steersman.core.errors import SteersmanError
from steersman.core.extras import require_extra
from steersman.core.interface import BUFFERS, BYTES, ERROR_BYTES, FUNCTIONS, NUMBER, OUTPUTS, SIZE, SIZES, Buffers

if TYPE_CHECKING:
    import wasmtime

Bytes = npt.NDArray[np.generic]

LIMIT = 1 << 32
"""Bytes that 32 bits can address."""
KEPT_BYTES = 1 << 20
"""Size up to which the buffer of a call's arrays stays for the next call."""
POINTERS_BYTES = 8 * 4
"""Size of the structure `Buffers` of `core/src/api.rs`."""
BUG = "this is a bug: the core panicked"
FULL = "the portable core holds at most 4 GB; for the native one install Rust 1.85 or newer, then steersman again"
LOST = "the portable core stopped in an earlier call, and what it held is lost; start the program again"


class PortableCore:
    """An instance of the core, whose calls wait for each other.

    Its memory is its own: arrays are copied into it, and results back.
    """

    def __init__(self, module: Path) -> None:
        require_extra("the portable core", "portable", "wasmtime")
        import wasmtime

        self._engine = wasmtime.Engine()
        self._store = wasmtime.Store(self._engine)
        self._exports: Any = wasmtime.Instance(self._store, _compiled(self._engine, module), []).exports(self._store)
        self._trap = wasmtime.Trap
        # Reentrant, since the garbage collector may forget objects at any time.
        self._lock = threading.RLock()
        self._is_lost = False
        self._error = self._function("allocate", ERROR_BYTES)
        self._buffer = self._buffer_bytes = 0
        atexit.register(self._end)

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        with self._lock:
            if self._is_lost:
                if name == "forget":
                    return 0
                raise SteersmanError(LOST)
            try:
                answer = self._call(name, arguments)
            except self._trap as trap:
                self._is_lost = True
                raise SteersmanError(self._reason(trap)) from None
            if answer < 0:
                raise SteersmanError(self._error_text())
            return answer

    def _end(self) -> None:
        """Free the instance: wasmtime's destructors fail while the interpreter ends."""
        with self._lock:
            self._is_lost = True
            self._store.close()
            self._engine.close()

    def _call(self, name: str, arguments: tuple[Any, ...]) -> int:
        given = [(kind, value, _arrays(kind, value)) for kind, value in zip(FUNCTIONS[name], arguments, strict=True)]
        size = sum(_padded(array) for _, _, arrays in given for array in arrays)
        # An object that the garbage collector forgets meanwhile needs no buffer, so that this one stays.
        end = self._reserve(size + POINTERS_BYTES) if size else 0
        written: list[tuple[int, Bytes]] = []

        def place(array: Bytes, *, is_written: bool) -> int:
            nonlocal end
            start, end = end, end + _padded(array)
            ctypes.memmove(self._base() + start, array.ctypes.data, array.nbytes)
            if is_written:
                written.append((start, array))
            return start

        words = []
        for kind, value, arrays in given:
            if kind == BUFFERS:
                starts = [place(array, is_written=True) for array in arrays]
                pointers = np.array([*starts, *(array.size for array in arrays)], dtype=np.uint32)
                words.append(place(pointers, is_written=False))
            elif arrays:
                words.append(place(arrays[0], is_written=kind in OUTPUTS))
            else:
                words.append(min(int(value), LIMIT - 1) if kind == SIZE else int(value))
        answer = self._function(name, *words)
        for start, array in written:
            ctypes.memmove(array.ctypes.data, self._base() + start, array.nbytes)
        return answer

    def _function(self, name: str, *words: int) -> int:
        """Call an exported function; pointers and sizes have 32 bits, whose sign WebAssembly leaves open."""
        answer: int = self._exports[f"steersman_{name}"](self._store, *words)
        return answer

    def _base(self) -> int:
        """Return where the memory begins now; it may move when it grows."""
        return ctypes.addressof(self._exports["memory"].data_ptr(self._store).contents)

    def _reserve(self, size: int) -> int:
        """Return the address of a buffer of at least this size."""
        if not size <= self._buffer_bytes <= max(size, KEPT_BYTES):
            if self._buffer_bytes:
                self._function("release", self._buffer, self._buffer_bytes)
                self._buffer_bytes = 0
            self._buffer = self._function("allocate", size) % LIMIT if size < LIMIT else 0
            if not self._buffer:
                raise SteersmanError(FULL)
            self._buffer_bytes = size
        return self._buffer

    def _error_text(self) -> str:
        length = self._function("error", self._error, ERROR_BYTES)
        return ctypes.string_at(self._base() + self._error, min(length, ERROR_BYTES)).decode(errors="replace")

    def _reason(self, trap: wasmtime.Trap) -> str:
        """Return why a call stopped: a panic leaves a text, and memory that cannot grow does not."""
        from wasmtime import TrapCode

        text = ""
        with suppress(self._trap):
            text = self._error_text()
        if trap.trap_code == TrapCode.UNREACHABLE and (not text.startswith(BUG) or "capacity overflow" in text):
            return FULL
        return text if text.startswith(BUG) else f"{BUG}: {trap.trap_code}"


def _arrays(kind: Any, value: Any) -> tuple[Bytes, ...]:
    """Return the arrays of an argument. Raises TypeError: it has another type, as ctypes does."""
    kind.from_param(value)
    if isinstance(value, Buffers):
        return value.arrays
    if kind in (NUMBER, SIZE):
        return ()
    if kind == BYTES:
        return (np.frombuffer(value, dtype=np.uint8),)
    return (value.astype(np.uint32) if kind == SIZES else value,)


def _padded(array: Bytes) -> int:
    """Return an array's bytes, up to the next address that any element may have."""
    return (array.nbytes + 7) // 8 * 8


def _compiled(engine: wasmtime.Engine, module: Path) -> wasmtime.Module:
    """Return the module as machine code, from the user's cache if it was compiled before."""
    import wasmtime

    try:
        content = module.read_bytes()
    except OSError as error:
        raise SteersmanError(f"{module}: cannot be read: {error.strerror}; build it: make core-wasm") from None
    file = cache_root() / "core" / hashlib.sha256(content).hexdigest()[:32]
    if (code := read_cached(file)) is not None:
        with suppress(wasmtime.WasmtimeError):  # of another processor, or another version of wasmtime
            return wasmtime.Module.deserialize(engine, code)
    compiled = wasmtime.Module(engine, content)
    write_cached(file, bytes(compiled.serialize()))
    return compiled

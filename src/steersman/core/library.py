"""The compiled core (`core/`, in Rust), called with numbers and flat arrays.

It is a shared library where one was built for this machine, and else WebAssembly, which runs everywhere and gives the
same results (`steersman.core.portable`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError, checkout_of_this, unknown_name

NAME = {"darwin": "libsteersman_core.dylib", "win32": "steersman_core.dll"}.get(sys.platform, "libsteersman_core.so")
CHECKOUT = checkout_of_this()
LIBRARY = CHECKOUT / "core" / "target" / "release" / NAME if CHECKOUT else Path(__file__).with_name(NAME)
MODULE = (CHECKOUT / "plugin/pkg/core" if CHECKOUT else Path(__file__).parents[1] / "data") / "core.wasm"
VARIABLE = "STEERSMAN_CORE"
ERROR_BYTES = 4096
"""Longest error text of the core."""


class Buffers:
    """Arrays that a batch writes to: observations (nodes, pods, contexts, masks), and what steps lead to.

    The latter are rewards, whether episodes are terminated or truncated, and states.
    """

    def __init__(self, *arrays: npt.NDArray[np.generic]) -> None:
        self.arrays = arrays
        lengths = (SIZE * len(arrays))(*(array.size for array in arrays))
        self._as_parameter_ = ctypes.byref(_Buffers(*(array.ctypes.data for array in arrays), lengths))


class _Buffers(ctypes.Structure):
    """As in `core/src/api.rs`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("nodes", "pods", "contexts", "masks")),
        *((name, ctypes.c_void_p) for name in ("rewards", "terminated", "truncated", "states")),
        ("lengths", ctypes.c_size_t * 8),
    ]


def _array(kind: type[np.generic], *flags: Literal["WRITEABLE"]) -> Any:
    return np.ctypeslib.ndpointer(kind, flags=("C_CONTIGUOUS", *flags))


NUMBER, SIZE, DOUBLE = ctypes.c_int64, ctypes.c_size_t, ctypes.c_double
BYTES, BUFFERS = ctypes.c_char_p, ctypes.POINTER(_Buffers)
SIZES = _array(np.uintp)
_INTEGERS, _FLOATS = _array(np.int64), _array(np.float64)
_OUT_INTEGERS, _OUT_FLOATS = _array(np.int64, "WRITEABLE"), _array(np.float64, "WRITEABLE")
_OUT_SINGLES, _OUT_FLAGS = _array(np.float32, "WRITEABLE"), _array(np.int8, "WRITEABLE")
_OUT_COUNTS = _array(np.int32, "WRITEABLE")
OUTPUTS = {_OUT_INTEGERS, _OUT_FLOATS, _OUT_SINGLES, _OUT_FLAGS, _OUT_COUNTS}
FUNCTIONS: dict[str, list[Any]] = {
    "decider_new": [BYTES, SIZE],
    "forget": [NUMBER],
    "decider_decide": [NUMBER, NUMBER, NUMBER, _OUT_INTEGERS],
    "decider_scores": [NUMBER, NUMBER, NUMBER, _OUT_FLOATS, SIZE],
    "decider_place": [NUMBER] * 5,
    "decider_remove": [NUMBER] * 5,
    "decider_fill": [NUMBER, _INTEGERS, _INTEGERS, _OUT_INTEGERS, _OUT_INTEGERS, SIZE],
    "batch_new": [SIZE],
    "batch_begin": [NUMBER, NUMBER, BYTES, SIZE, BUFFERS],
    "batch_step": [NUMBER, _INTEGERS, SIZE, BUFFERS],
    "batch_replay": [NUMBER, SIZE, _INTEGERS, SIZE, BUFFERS],
    "batch_rule": [NUMBER, NUMBER, _OUT_INTEGERS, SIZE],
    "batch_engine": [NUMBER, SIZE],
    "engine_new": [BYTES, SIZE],
    "engine_again": [NUMBER, BYTES, SIZE],
    "engine_watch": [NUMBER, BYTES, SIZE],
    "engine_advance": [NUMBER, SIZE],
    "engine_advance_to": [NUMBER, _INTEGERS, SIZE, DOUBLE],
    "engine_question": [NUMBER],
    "engine_observe": [NUMBER, _OUT_SINGLES, _OUT_SINGLES, _OUT_SINGLES, _OUT_FLAGS, SIZES],
    "engine_answer": [NUMBER, NUMBER],
    "engine_set_head": [NUMBER, NUMBER],
    "engine_events": [NUMBER, SIZE, _OUT_FLOATS, _OUT_INTEGERS, _OUT_FLOATS, SIZE],
    "engine_progress": [NUMBER, _OUT_INTEGERS, _OUT_FLOATS],
    "engine_arrivals": [NUMBER, SIZE, _OUT_INTEGERS, _OUT_FLOATS, SIZE],
    "engine_heads": [NUMBER, _OUT_INTEGERS, _OUT_FLOATS, SIZE],
    "engine_state": [NUMBER, *[_OUT_INTEGERS] * 4, _OUT_COUNTS, _OUT_COUNTS, _OUT_INTEGERS, _OUT_COUNTS, SIZES],
    "engine_scores": [NUMBER, NUMBER, NUMBER, _OUT_FLOATS, SIZE],
    "engine_lacks_room": [NUMBER, NUMBER, NUMBER],
    "engine_mask": [NUMBER, _OUT_FLAGS, SIZE],
    "lacks_room": [BYTES, SIZE, _INTEGERS, _INTEGERS, _OUT_FLAGS, SIZE],
}
"""Arguments of the functions of `core/src/api.rs`, by their names without `steersman_`."""


class Core(Protocol):
    """A loaded core."""

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        """Call a function; raise SteersmanError with the core's text if it fails."""


class NativeCore:
    """The core as a shared library. Calls release the interpreter's lock."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(str(LIBRARY))
            self._functions = {name: getattr(self._library, f"steersman_{name}") for name in FUNCTIONS}
            for name, function in self._functions.items():
                function.argtypes, function.restype = FUNCTIONS[name], NUMBER
            for name in ("error", "compiler"):
                function = getattr(self._library, f"steersman_{name}")
                function.argtypes, function.restype = [BYTES, SIZE], SIZE
        except (OSError, AttributeError) as error:
            build = "build it again: make core" if CHECKOUT else f"{VARIABLE}=portable does without"
            raise SteersmanError(f"the native core cannot be loaded: {error}; {build}") from None

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        answer: int = self._functions[name](*arguments)
        if answer < 0:
            raise SteersmanError(self._text("error"))
        return answer

    def __str__(self) -> str:
        return f"native ({' '.join(self._text('compiler').split()[:2])})"

    def _text(self, name: str) -> str:
        text = ctypes.create_string_buffer(ERROR_BYTES)
        length = getattr(self._library, f"steersman_{name}")(text, len(text))
        return text.raw[:length].decode(errors="replace")


def _chosen() -> str:
    chosen = os.environ.get(VARIABLE) or ("native" if LIBRARY.exists() else "portable")
    if chosen not in (names := ("native", "portable")):
        raise unknown_name(f"core in ${VARIABLE}", chosen, names)
    return chosen


@cache
def _load() -> Core:
    if _chosen() == "native":
        return NativeCore()
    from steersman.core.portable import PortableCore

    return PortableCore(MODULE)


_loading = threading.RLock()


def core() -> Core:
    """Return the core of this process, which `$STEERSMAN_CORE` may choose.

    Raises:
        SteersmanError: it cannot be loaded.
    """
    with _loading:  # threads that ask first at the same time would get two
        return _load()


def core_line() -> str:
    """Return which core this process uses, for people."""
    return f"core {core()}" if _chosen() == "native" else "core portable (WebAssembly)"


def call(name: str, *arguments: Any) -> int:
    """Call a function of the core and return its answer.

    Raises:
        SteersmanError: the core says what is wrong.
    """
    return core().call(name, arguments)

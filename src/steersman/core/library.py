"""The compiled core (`core/`, in Rust), called with numbers and flat arrays: a shared library, built by `make core`."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from steersman.core.errors import SteersmanError

NAME = {"darwin": "libsteersman_core.dylib", "win32": "steersman_core.dll"}.get(sys.platform, "libsteersman_core.so")
LIBRARY = Path(__file__).parents[3] / "core" / "target" / "release" / NAME

_NUMBER, SIZE, _BYTES = ctypes.c_int64, ctypes.c_size_t, ctypes.c_char_p
_INTEGERS = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
_FLOATS = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
_SINGLES = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
_FLAGS = np.ctypeslib.ndpointer(np.int8, flags="C_CONTIGUOUS")


class Buffers(ctypes.Structure):
    """Buffers of observations, as in `core/src/api.rs`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("nodes", "pods", "contexts", "masks")),
        ("lengths", SIZE * 4),
    ]


_BUFFERS = ctypes.POINTER(Buffers)
_FUNCTIONS: dict[str, list[Any]] = {
    "decider_new": [_BYTES, SIZE],
    "forget": [_NUMBER],
    "decider_decide": [_NUMBER, _NUMBER, _NUMBER, _INTEGERS],
    "decider_scores": [_NUMBER, _NUMBER, _NUMBER, _FLOATS, SIZE],
    "decider_place": [_NUMBER] * 5,
    "decider_remove": [_NUMBER] * 5,
    "decider_fill": [_NUMBER, _INTEGERS, _INTEGERS, _INTEGERS, _INTEGERS, SIZE],
    "batch_new": [SIZE],
    "batch_begin": [_NUMBER, _NUMBER, _BYTES, SIZE, _BUFFERS],
    "batch_step": [_NUMBER, _INTEGERS, _FLOATS, _FLAGS, _FLAGS, SIZE, _BUFFERS],
    "batch_states": [_NUMBER, SIZE, _FLOATS],
    "engine_new": [_BYTES, SIZE],
    "engine_stand": [_NUMBER, _INTEGERS, _INTEGERS, SIZE],
    "engine_let_leave": [_NUMBER, _FLOATS, _FLOATS, SIZE],
    "engine_queue_first": [_NUMBER, SIZE],
    "engine_advance": [_NUMBER, SIZE],
    "engine_question": [_NUMBER],
    "engine_observe": [_NUMBER, _SINGLES, _SINGLES, _SINGLES, _FLAGS, np.ctypeslib.ndpointer(np.uintp)],
    "engine_answer": [_NUMBER, _NUMBER],
    "engine_set_head": [_NUMBER, _NUMBER],
    "engine_count": [_NUMBER],
    "engine_events": [_NUMBER, _FLOATS, _INTEGERS, _FLOATS, SIZE],
    "policy_new": [_BYTES, SIZE, _BYTES, SIZE],
    "policy_card": [_NUMBER, np.ctypeslib.ndpointer(np.uint8), SIZE],
    "policy_scores": [
        *(_NUMBER, _SINGLES, _SINGLES, _SINGLES, _FLAGS, _INTEGERS, _FLOATS),
        np.ctypeslib.ndpointer(np.uintp),
    ],
    "decider_observe": [_NUMBER, _NUMBER, _FLAGS, SIZE, _INTEGERS, _INTEGERS, SIZE],
    "decider_contributions": [*[_NUMBER] * 5, _FLOATS, SIZE],
    "decider_variances": [_NUMBER, _NUMBER, _FLOATS, _FLOATS],
    "requests_play": [_INTEGERS, SIZE, _INTEGERS, _INTEGERS, SIZE, SIZE, _FLOATS, _INTEGERS],
    "requests_undo": [_INTEGERS, SIZE, _INTEGERS, _INTEGERS, SIZE, _INTEGERS, _FLOATS, _FLOATS],
}


@cache
def library() -> ctypes.CDLL:
    """Return the shared library."""
    loaded = ctypes.CDLL(str(LIBRARY))
    for name, arguments in _FUNCTIONS.items():
        function = getattr(loaded, f"steersman_{name}")
        function.argtypes, function.restype = arguments, _NUMBER
    loaded.steersman_error.argtypes, loaded.steersman_error.restype = [ctypes.c_char_p, SIZE], SIZE
    return loaded


def call(name: str, *arguments: Any) -> int:
    """Call a function of the core and return its answer.

    Raises:
        SteersmanError: the core says what is wrong.
    """
    loaded = library()
    answer: int = getattr(loaded, f"steersman_{name}")(*arguments)
    if answer < 0:
        text = ctypes.create_string_buffer(4096)
        length = loaded.steersman_error(text, len(text))
        raise SteersmanError(text.raw[:length].decode(errors="replace"))
    return answer

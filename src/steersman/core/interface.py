"""The functions of `core/src/api.rs`, and the types of their arguments."""

from __future__ import annotations

import ctypes
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

ERROR_BYTES = 4096
"""Longest error text of the core."""


class Buffers:
    """Arrays of observations that the core writes to: rows of nodes, pods, contexts, masks."""

    def __init__(self, *arrays: npt.NDArray[np.generic]) -> None:
        self.arrays = arrays
        lengths = (SIZE * len(arrays))(*(array.size for array in arrays))
        self._as_parameter_ = ctypes.byref(_Buffers(*(array.ctypes.data for array in arrays), lengths))


class _Buffers(ctypes.Structure):
    """As in `core/src/api.rs`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("nodes", "pods", "contexts", "masks")),
        ("lengths", ctypes.c_size_t * 4),
    ]


def _array(kind: type[np.generic], *flags: Literal["WRITEABLE"]) -> Any:
    return np.ctypeslib.ndpointer(kind, flags=("C_CONTIGUOUS", *flags))


NUMBER, SIZE, BYTES, BUFFERS = ctypes.c_int64, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(_Buffers)
SIZES = _array(np.uintp)
_INTEGERS, _FLOATS = _array(np.int64), _array(np.float64)
_OUT_INTEGERS, _OUT_FLOATS = _array(np.int64, "WRITEABLE"), _array(np.float64, "WRITEABLE")
_OUT_SINGLES, _OUT_FLAGS = _array(np.float32, "WRITEABLE"), _array(np.int8, "WRITEABLE")
OUTPUTS = {_OUT_INTEGERS, _OUT_FLOATS, _OUT_SINGLES, _OUT_FLAGS}
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
    "batch_step": [NUMBER, _INTEGERS, _OUT_FLOATS, _OUT_FLAGS, _OUT_FLAGS, SIZE, BUFFERS],
    "batch_states": [NUMBER, SIZE, _OUT_FLOATS],
    "engine_new": [BYTES, SIZE],
    "engine_stand": [NUMBER, _INTEGERS, _INTEGERS, SIZE],
    "engine_let_leave": [NUMBER, _FLOATS, _FLOATS, SIZE],
    "engine_queue_first": [NUMBER, SIZE],
    "engine_advance": [NUMBER, SIZE],
    "engine_question": [NUMBER],
    "engine_observe": [NUMBER, _OUT_SINGLES, _OUT_SINGLES, _OUT_SINGLES, _OUT_FLAGS, SIZES],
    "engine_answer": [NUMBER, NUMBER],
    "engine_set_head": [NUMBER, NUMBER],
    "engine_count": [NUMBER],
    "engine_events": [NUMBER, _OUT_FLOATS, _OUT_INTEGERS, _OUT_FLOATS, SIZE],
}
"""Arguments of the functions of `core/src/api.rs`, by their names without `steersman_`."""

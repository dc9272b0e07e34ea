"""The interface of the compiled core: its functions and their arguments, as in `core/src/api.rs`."""

from __future__ import annotations

import ctypes
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

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
_SINGLES, _FLAGS = _array(np.float32), _array(np.int8)
_OUT_INTEGERS, _OUT_FLOATS = _array(np.int64, "WRITEABLE"), _array(np.float64, "WRITEABLE")
_OUT_SINGLES, _OUT_FLAGS = _array(np.float32, "WRITEABLE"), _array(np.int8, "WRITEABLE")
_OUT_COUNTS, _OUT_BYTES = _array(np.int32, "WRITEABLE"), _array(np.uint8, "WRITEABLE")
HEAD = np.dtype([("group", np.int64), ("since", np.float64), ("number", np.int64), ("score", np.float64)])
"""The oldest pod of a group that waits: the group, since when, a number that decides ties, and a score."""
_OUT_HEADS = np.ctypeslib.ndpointer(HEAD, flags=("C_CONTIGUOUS", "WRITEABLE"))
OUTPUTS = {_OUT_HEADS, _OUT_INTEGERS, _OUT_FLOATS, _OUT_SINGLES, _OUT_FLAGS, _OUT_COUNTS, _OUT_BYTES}
_NAME = [BYTES, SIZE]
_POD = [*_NAME, *_NAME, *_NAME, *_NAME, DOUBLE]
"""What tells the run time of a pod: requests, namespace, owner, image and stated run time."""
FUNCTIONS: dict[str, list[Any]] = {
    "decider_new": [BYTES, SIZE],
    "forget": [NUMBER],
    "decider_decide": [NUMBER, NUMBER, NUMBER, _FLAGS, SIZE, _OUT_INTEGERS],
    "decider_plugins": [NUMBER, NUMBER, NUMBER, _FLAGS, SIZE, _OUT_FLOATS, SIZE],
    "decider_start": [NUMBER, NUMBER],
    "decider_scores": [NUMBER, NUMBER, NUMBER, _FLAGS, SIZE, _OUT_FLOATS, SIZE],
    "decider_follow": [NUMBER, BYTES, SIZE],
    "decider_set_pods": [NUMBER, NUMBER, _INTEGERS, SIZE],
    "decider_replace": [NUMBER, BYTES, SIZE],
    "decider_devices": [NUMBER, NUMBER, NUMBER],
    "decider_mask": [NUMBER, NUMBER, NUMBER, _OUT_FLAGS, SIZE],
    "decider_storage": [NUMBER, _INTEGERS, SIZE],
    "decider_watch": [NUMBER, BYTES, SIZE],
    "decider_look": [NUMBER, NUMBER, _FLAGS, _OUT_SINGLES, _OUT_SINGLES, _OUT_SINGLES, _OUT_FLAGS, _OUT_FLOATS, SIZES],
    "fragments": [BYTES, SIZE, _OUT_FLOATS, SIZE],
    "recount": [BYTES, SIZE, _OUT_FLOATS, SIZE],
    "decider_features": [NUMBER, NUMBER, _OUT_FLOATS, SIZE],
    "decider_state": [NUMBER, _OUT_FLOATS, SIZE],
    "decider_outcome": [NUMBER, NUMBER, NUMBER, _OUT_FLOATS, SIZE],
    "decider_place": [NUMBER] * 5,
    "decider_remove": [NUMBER] * 5,
    "decider_preempt": [NUMBER, BYTES, SIZE, _OUT_INTEGERS, SIZE],
    "decider_fill": [NUMBER, _INTEGERS, _INTEGERS, _OUT_INTEGERS, _OUT_INTEGERS, SIZE],
    "batch_new": [SIZE],
    "batch_begin": [NUMBER, NUMBER, BYTES, SIZE, BUFFERS],
    "batch_step": [NUMBER, _INTEGERS, SIZE, BUFFERS],
    "batch_replay": [NUMBER, SIZE, _INTEGERS, SIZE, BUFFERS],
    "batch_actions": [NUMBER, SIZE, _OUT_INTEGERS, SIZE],
    "batch_rule": [NUMBER, NUMBER, _OUT_INTEGERS, SIZE],
    "batch_counts": [NUMBER, _OUT_INTEGERS, SIZE],
    "batch_figures": [NUMBER, _OUT_FLOATS, SIZE],
    "batch_truth": [NUMBER, SIZE, _OUT_FLOATS, _OUT_FLOATS, SIZE],
    "batch_loads": [NUMBER, SIZE, _OUT_FLOATS, SIZE],
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
    "engine_accounts": [NUMBER, SIZE, _OUT_FLOATS, SIZE],
    "engine_heads": [NUMBER, _OUT_INTEGERS, _OUT_FLOATS, SIZE],
    "engine_state": [NUMBER, *[_OUT_INTEGERS] * 4, _OUT_COUNTS, _OUT_COUNTS, _OUT_INTEGERS, _OUT_COUNTS, SIZES],
    "engine_scores": [NUMBER, NUMBER, NUMBER, _OUT_FLOATS, SIZE],
    "engine_lacks_room": [NUMBER, NUMBER, NUMBER],
    "engine_mask": [NUMBER, _OUT_FLAGS, SIZE],
    "decider_observe": [NUMBER, NUMBER, _FLAGS, SIZE, _INTEGERS, _INTEGERS, SIZE],
    "decider_contributions": [*[NUMBER] * 5, _OUT_FLOATS, SIZE],
    "decider_variances": [NUMBER, NUMBER, _OUT_FLOATS, _OUT_FLOATS],
    "engine_variances": [NUMBER, NUMBER, _OUT_FLOATS, _OUT_FLOATS],
    "policy_new": [BYTES, SIZE, BYTES, SIZE],
    "policy_observes": [NUMBER],
    "policy_card": [NUMBER, _OUT_BYTES, SIZE],
    "policy_scores": [NUMBER, _SINGLES, _SINGLES, _SINGLES, _FLAGS, _INTEGERS, _OUT_FLOATS, SIZES],
    "requests_play": [_INTEGERS, SIZE, _INTEGERS, _OUT_INTEGERS, SIZE, SIZE, _FLOATS, _OUT_INTEGERS],
    "requests_undo": [_INTEGERS, SIZE, _INTEGERS, _INTEGERS, SIZE, _OUT_INTEGERS, _OUT_FLOATS, _OUT_FLOATS],
    "run_times_new": [SIZE],
    "run_times_note": [NUMBER, *_POD, DOUBLE],
    "run_times_knows": [NUMBER, *_NAME, *_NAME],
    "run_times_estimate": [NUMBER, *_POD, _OUT_FLOATS],
    "run_times_distribution": [NUMBER, *_POD, _OUT_FLOATS],
    "run_times_set": [NUMBER, _INTEGERS, *_NAME, NUMBER, NUMBER, _FLOATS, _FLOATS],
    "run_times_counts": [NUMBER, _INTEGERS, *_NAME, _OUT_FLOATS],
    "run_times_size": [NUMBER, _OUT_INTEGERS],
    "run_times_groups": [NUMBER, _OUT_FLOATS, _OUT_INTEGERS, SIZE, _OUT_BYTES, SIZE],
    "run_times_weights": [NUMBER, _OUT_FLOATS, _OUT_FLOATS],
    "run_times_set_weights": [NUMBER, _FLOATS, _FLOATS],
    "owner_lengths": [*_NAME, _OUT_INTEGERS],
    "order_new": [NUMBER, NUMBER, _FLOATS, SIZE, DOUBLE, DOUBLE],
    "order_join": [NUMBER, NUMBER, DOUBLE, DOUBLE, DOUBLE, *_POD],
    "order_leave": [NUMBER, NUMBER],
    "order_give": [NUMBER, _INTEGERS, _FLOATS, SIZE],
    "order_estimate": [NUMBER, NUMBER, _OUT_FLOATS],
    "order_first": [NUMBER, _OUT_HEADS, SIZE, DOUBLE, DOUBLE, DOUBLE, DOUBLE],
    "order_file_new": [*_NAME, *_NAME],
    "order_file_card": [NUMBER, _OUT_BYTES, SIZE],
    "order_file_weights": [NUMBER, _OUT_FLOATS, SIZE],
    "order_scores": [NUMBER, _FLOATS, _OUT_FLOATS, SIZE],
    "rewards": [_INTEGERS, _FLOATS, SIZE, _FLOATS, _FLOATS, _OUT_FLOATS, SIZE],
    "telemetry_scores": [BYTES, SIZE, NUMBER, _OUT_FLOATS, SIZE],
    "telemetry_contributions": [BYTES, SIZE, NUMBER, SIZE, SIZE, _OUT_FLOATS, SIZE],
    "telemetry_limit": [BYTES, SIZE, _OUT_FLAGS, SIZE],
    "telemetry_observe": [BYTES, SIZE, *[_OUT_SINGLES] * 3, SIZES],
    "telemetry_outcome": [BYTES, SIZE, NUMBER, _INTEGERS, _FLOATS, SIZE, _OUT_FLOATS],
    "model_new": [BYTES, SIZE],
    "model_add_node": [NUMBER, _INTEGERS, NUMBER, DOUBLE, DOUBLE],
    "model_change_node": [NUMBER, NUMBER, _INTEGERS, DOUBLE],
    "model_remove_node": [NUMBER, NUMBER, DOUBLE],
    "model_bind": [NUMBER, NUMBER, NUMBER, _INTEGERS, _FLOATS, DOUBLE],
    "model_unbind": [NUMBER, NUMBER, DOUBLE],
    "model_scrape": [NUMBER, NUMBER, DOUBLE, _OUT_FLOATS],
    "model_truth": [NUMBER, DOUBLE, _OUT_FLOATS],
    "lacks_room": [BYTES, SIZE, _INTEGERS, _INTEGERS, _OUT_FLAGS, SIZE],
}
"""Arguments of the functions of `core/src/api.rs`, by their names without `steersman_`."""


class Core(Protocol):
    """A loaded core."""

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        """Call a function; raise SteersmanError with the core's text if it fails."""

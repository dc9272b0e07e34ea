"""Named tuples of arrays with a leading axis: one set of contiguous buffers for a batch of runs of different sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Tuple = TypeVar("Tuple", bound=tuple[Any, ...])

Array = npt.NDArray[Any]

PADDING = {"domain": -1}
"""Padding of a run that is smaller than the batch, 0 if not listed: an absent node is in no topology domain."""


def empty_like(item: Tuple, count: int) -> Tuple:
    """Return buffers for `count` items like this one, every array filled with its padding."""
    buffers = {}
    for name, value in _fields(item):
        if isinstance(value, np.ndarray):
            buffers[name] = np.full((count, *value.shape), PADDING.get(name, 0), value.dtype)
        else:
            buffers[name] = empty_like(value, count)
    return type(item)(**buffers)


def put(buffers: Tuple, index: int, item: Tuple) -> Tuple:
    """Write an item at `index`; return the buffers, which are new ones if they had to grow."""
    held = {}
    for (name, buffer), (_, value) in zip(_fields(buffers), _fields(item), strict=True):
        if isinstance(value, np.ndarray):
            held[name] = _put_array(buffer, index, value, PADDING.get(name, 0))
        else:
            held[name] = put(buffer, index, value)
    return type(buffers)(**held)


def _put_array(buffer: Array, index: int, array: Array, padding: int) -> Array:
    shape = tuple(np.maximum(buffer.shape[1:], array.shape).tolist())
    if shape != buffer.shape[1:]:
        larger = np.full((buffer.shape[0], *shape), padding, buffer.dtype)
        larger[tuple(slice(size) for size in buffer.shape)] = buffer
        buffer = larger
    # What an earlier, larger run left at this index must not be read.
    buffer[index] = padding
    here: Array = buffer[index]
    here[tuple(slice(size) for size in array.shape)] = array
    return buffer


def arrays_of(buffers: tuple[Any, ...], prefix: str = "") -> Iterator[tuple[str, Array]]:
    """Yield every array in nested named tuples, with its dotted name."""
    for name, value in _fields(buffers):
        if isinstance(value, np.ndarray):
            yield prefix + name, value
        else:
            yield from arrays_of(value, f"{prefix}{name}.")


def restored(buffers: Tuple, arrays: Mapping[str, Array], prefix: str = "") -> Tuple:
    """Return the same nested named tuples with copies of the arrays of these dotted names."""
    arrays_by_field = {}
    for name, value in _fields(buffers):
        if isinstance(value, np.ndarray):
            arrays_by_field[name] = np.array(arrays[prefix + name], dtype=value.dtype, order="C")
        else:
            arrays_by_field[name] = restored(value, arrays, f"{prefix}{name}.")
    return type(buffers)(**arrays_by_field)


def _fields(buffers: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    yield from buffers._asdict().items()  # type: ignore[attr-defined]

"""Where a run is, in a small file that is rewritten at a bounded rate, for those who watch it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.core.atomic_files import write_atomically
from steersman.core.errors import InputError

PROGRESS = "progress.json"
EVERY_SECONDS = 1.0
"""Least time between two versions of the file, unless the state changes."""
MOST_BINS = 40

State = Literal["learning", "paused", "done", "stopped"]
"""`stopped`: an error or a signal ended it before its limits. A process that was killed leaves what it last wrote."""


class Histogram(msgspec.Struct):
    """Counts [B] of values between edges [B + 1]; whole numbers have a bin each where there are few."""

    edges: list[float]
    counts: list[int]


class RunProgress(msgspec.Struct, kw_only=True, rename="camel"):
    """Progress of a run and its limits.

    Attributes:
        state: see `State`.
        iteration, seconds: done so far, over all sessions; seconds without pauses.
        iterations, minutes: limits; None: no limit.
        validate_every: iterations between two validations.
        patience, stale: validations without a better one after which it ends (0: never), and those so far.
        best, best_iteration: the best validation; None before the first.
        requests: what the run can be asked to do.
        histograms: of the newest iteration, such as its actions.
    """

    state: State
    iteration: int
    seconds: float
    iterations: int | None
    minutes: float | None
    validate_every: int
    patience: int
    stale: int
    best: float | None
    best_iteration: int
    requests: tuple[str, ...]
    histograms: dict[str, Histogram]


class ProgressFile:
    """The file of a run, written by its process.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._written = folder / PROGRESS, -math.inf

    @property
    def is_due(self) -> bool:
        """Whether the last version is old enough for another."""
        return time.monotonic() - self._written >= EVERY_SECONDS

    def write(self, progress: RunProgress, *, is_last: bool = False) -> None:
        """Replace the file.

        Args:
            progress: its content.
            is_last: whether the process writes none after it. Then the previous version, which says that it learns,
                is removed if there is no space for both.

        Raises:
            InputError: it cannot be written.
        """
        content = msgspec.json.encode(progress) + b"\n"
        try:
            write_atomically(self._path, content)
        # A full disk: the previous version would say forever that the run learns.
        except InputError:
            if not is_last:
                raise
            self._path.unlink(missing_ok=True)
            write_atomically(self._path, content)
        self._written = time.monotonic()


def decode_progress(path: Path, content: bytes) -> RunProgress:
    """Return what a file says. Raises InputError: it is no progress of a run."""
    try:
        return msgspec.json.decode(content, type=RunProgress)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(path, "", "", f"is no progress of a training run: {error}") from None


def histograms_of(numbers: Mapping[str, Any]) -> dict[str, Histogram]:
    """Return histograms of the arrays among an iteration's metrics."""
    return {name: histogram(value) for name, value in numbers.items() if isinstance(value, np.ndarray) and value.size}


def histogram(values: npt.NDArray[np.generic]) -> Histogram:
    """Return the histogram of an array's finite numbers."""
    flat = np.ravel(values).astype(np.float64)
    flat = flat[np.isfinite(flat)]
    if not flat.size:
        return Histogram([0.0, 1.0], [0])
    low, high = float(flat.min()), float(flat.max())
    whole = values.dtype.kind in "biu"
    if whole and high - low < MOST_BINS:
        # One bin per integer: the edges go one beyond the largest, since NumPy's last bin includes its right edge.
        edges = np.arange(low, high + 2)
    elif whole:
        width = math.ceil((high - low + 1) / MOST_BINS)
        edges = np.arange(low, high + 1 + width, width)
    else:
        edges = np.histogram_bin_edges(flat, MOST_BINS)
    counts, _ = np.histogram(flat, edges)
    return Histogram(edges.tolist(), counts.tolist())

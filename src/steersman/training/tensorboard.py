"""Metrics for TensorBoard, if it is installed (the extra `train`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from steersman.core.atomic_files import naming_in_errors
from steersman.core.errors import SteersmanError
from steersman.core.extras import is_installed


def summary_writer() -> Any:
    """Return the class that writes event files, None without TensorBoard. The first import takes seconds."""
    if not (is_installed("torch") and is_installed("tensorboard")):
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


class Board:
    """Scalars and histograms of a run; without TensorBoard they are in `metrics.csv` alone.

    Args:
        start: iterations that are done; what an earlier session wrote beyond them is hidden.
    """

    def __init__(self, folder: Path, start: int) -> None:
        writer = summary_writer()
        self._writer: Any = None
        self._folder = folder
        if writer is not None:
            _hide_write_errors()
            with naming_in_errors(folder):
                # purge_step hides what was logged after the checkpoint that the run resumes from.
                self._writer = writer(str(folder), purge_step=start + 1 if start else None)

    def scalars(self, values: Mapping[str, float], iteration: int) -> None:
        if self._writer is not None:
            with naming_in_errors(self._folder):
                for name, value in values.items():
                    self._writer.add_scalar(name, value, iteration)

    def histogram(self, name: str, values: npt.NDArray[np.generic], iteration: int) -> None:
        """Write many numbers, such as the actions of an iteration."""
        if self._writer is not None:
            with naming_in_errors(self._folder):
                self._writer.add_histogram(name, values, iteration)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the event file. Raises InputError: it cannot be written, and the run itself has not failed."""
        if self._writer is not None:
            with nullcontext() if kind is None else suppress(SteersmanError), naming_in_errors(self._folder):
                self._writer.close()


def _hide_write_errors() -> None:
    """Print no traceback of an OSError in TensorBoard's thread: the next call of the writer raises it again.

    The hook stays, since the thread may still end when the writer is closed.
    """
    previous = threading.excepthook
    # Already installed by an earlier run in this process.
    if previous.__module__ == __name__:
        return

    def hook(error: threading.ExceptHookArgs) -> None:
        is_writer = type(error.thread).__module__.startswith("tensorboard.")
        if not (is_writer and isinstance(error.exc_value, OSError)):
            previous(error)

    threading.excepthook = hook

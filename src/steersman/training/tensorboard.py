"""Metrics for TensorBoard, if it is installed (the extra `train`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def summary_writer() -> Any:
    """Return the class that writes event files, None without TensorBoard. The first import takes seconds."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


class Board:
    """Scalars and histograms of a run; without TensorBoard they are in `metrics.csv` alone.

    Args:
        folder: of the run.
        start: iterations that are done; what an earlier session wrote beyond them is hidden.
    """

    def __init__(self, folder: Path, start: int) -> None:
        writer = summary_writer()
        self._writer: Any = None
        if writer is not None:
            self._writer = writer(str(folder), purge_step=start + 1 if start else None)

    def scalars(self, values: Mapping[str, float], iteration: int) -> None:
        """Write numbers by name."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, iteration)

    def histogram(self, name: str, values: npt.NDArray[np.generic], iteration: int) -> None:
        """Write many numbers, such as the actions of an iteration."""
        if self._writer is not None:
            self._writer.add_histogram(name, values, iteration)

    def artifact(self, file: Path) -> None:
        """Do nothing: TensorBoard has no files."""

    def close(self, *, failed: bool) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()

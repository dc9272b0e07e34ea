"""Where the metrics of a run go beside its folder: TensorBoard, MLflow, or Trackio, which works as wandb does."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.atomic_files import write_atomically
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extensions import attribute_errors
from steersman.core.extras import is_installed
from steersman.training.tensorboard import Board

TRACKERS = {"tensorboard": "", "mlflow": "mlflow", "trackio": "trackio"}
"""Trackers by name, and the package to install; TensorBoard is left out where it is missing."""
PROJECT = "steersman"  # MLflow's experiment, unless the environment names one, and Trackio's project
RUN_ID = "mlflow-run.txt"  # file of a run's folder with MLflow's id of it, by which a resumed run goes on there


class MlflowTracker:
    """A run of MLflow, at $MLFLOW_TRACKING_URI or where MLflow keeps runs otherwise."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        file = folder / RUN_ID
        known = file.read_text().strip() if file.exists() else None
        # A user's own experiment must not be overridden.
        if not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & os.environ.keys():
            _call("mlflow", "set_experiment", PROJECT)
        run = _call("mlflow", "start_run", run_id=known, run_name=None if known else folder.name)
        # Written at once, so that a run that is killed soon still resumes there.
        write_atomically(file, f"{run.info.run_id}\n".encode())
        if known is None:
            _call("mlflow", "log_params", dict(_flat(options)))

    def scalars(self, values: Mapping[str, float], iteration: int) -> None:
        """Log metrics."""
        _call("mlflow", "log_metrics", dict(values), step=iteration)

    def histogram(self, name: str, values: npt.NDArray[np.generic], iteration: int) -> None:
        """Do nothing: MLflow has no histograms."""

    def artifact(self, file: Path) -> None:
        """Log a file."""
        _call("mlflow", "log_artifact", str(file))

    def close(self, *, failed: bool) -> None:
        """End the run."""
        _call("mlflow", "end_run", "FAILED" if failed else "FINISHED")


class TrackioTracker:
    """A run of Trackio, which keeps it on this machine; `trackio show` displays it."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        _call("trackio", "init", PROJECT, folder.name, config=dict(_flat(options)), resume="allow", embed=False)

    def scalars(self, values: Mapping[str, float], iteration: int) -> None:
        """Log metrics."""
        _call("trackio", "log", dict(values), step=iteration)

    def histogram(self, name: str, values: npt.NDArray[np.generic], iteration: int) -> None:
        """Log a histogram."""
        _call("trackio", "log", {name: _call("trackio", "Histogram", np.ravel(values))}, step=iteration)

    def artifact(self, file: Path) -> None:
        """Log a file."""
        _call("trackio", "log_artifact", str(file), name=file.stem, type="model")

    def close(self, *, failed: bool) -> None:
        """End the run; Trackio does not tell failed ones apart."""
        _call("trackio", "finish")


AnyTracker = Board | MlflowTracker | TrackioTracker


def check_tracker(name: str) -> None:
    """Raise SteersmanError if the package of a tracker is not installed, UsageError if there is none of that name."""
    if name not in TRACKERS:
        raise UsageError(f"tracker {name!r}: expected one of {', '.join(TRACKERS)}")
    if TRACKERS[name] and not is_installed(name):
        raise SteersmanError(f"--track {name}: {name} is not installed; pip install {TRACKERS[name]}")


@contextmanager
def opened(name: str, folder: Path, options: Mapping[str, Any], start: int) -> Iterator[AnyTracker]:
    """Open the tracker of a run, of which `start` iterations are done, and close it; SteersmanError: it failed."""
    tracker: AnyTracker
    if name == "tensorboard":
        tracker = Board(folder, start)
    else:
        tracker = MlflowTracker(folder, options) if name == "mlflow" else TrackioTracker(folder, options)
    failed = True
    try:
        yield tracker
        failed = False
    finally:
        tracker.close(failed=failed)


def _call(module: str, function: str, *arguments: Any, **named: Any) -> Any:
    """Call a tracker; an error is one line, and what it prints goes to standard error."""
    with attribute_errors(f"tracking with {module}"), redirect_stdout(sys.stderr):
        return getattr(importlib.import_module(module), function)(*arguments, **named)


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield options by dotted names, lists as JSON."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value) if isinstance(value, list | tuple) else value

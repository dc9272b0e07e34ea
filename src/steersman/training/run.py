"""A training run: a folder with its options, log, metrics, checkpoint and the best policy so far.

    run.json                the options; a checkpoint belongs to them
    command.json            the command of the command line that began it
    log.txt                 one line per event
    metrics.csv             one row per iteration
    validation.csv          one row per validation
    checkpoint.safetensors  everything that later iterations depend on
    policy.safetensors      the best policy by validation; without one (live) the newest
    events.out.tfevents.*   metrics and histograms for TensorBoard, if it is installed

    run.lock                locked by the process that trains there; says which one that is

A run that is killed resumes from its checkpoint to the same policy. What it wrote after the checkpoint stays in
`metrics.csv.1` and so on, as does what a run left that ended before its first checkpoint: nothing is deleted.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from steersman.core.atomic_files import keep_copy, naming_in_errors, set_aside, write_atomically
from steersman.core.config.fields import flag
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.extras import is_installed
from steersman.core.folder_lock import FolderLock, lock_folder
from steersman.core.stored_command import StoredCommand

OPTIONS, LOG, METRICS, VALIDATION = "run.json", "log.txt", "metrics.csv", "validation.csv"
CHECKPOINT, POLICY = "checkpoint.safetensors", "policy.safetensors"


class Learner(Protocol):
    """What a run trains: an algorithm of `steersman.agents`."""

    def iterate(self) -> dict[str, Any]:
        """Run one iteration; return its metrics, and arrays that are shown as histograms."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later iterations depend on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""


class RunEndedError(SteersmanError):
    """The environment has no more decisions; the run ends as if it had reached its limits."""

    def __init__(self) -> None:
        super().__init__("the run has ended")


@dataclass(frozen=True, slots=True)
class TrainingLimits:
    """When a run validates, saves and ends."""

    iterations: int = 100  # at most
    minutes: float | None = None  # at most, over all sessions; None: no limit
    validate_every: int = 10  # iterations between two validations
    patience: int = 0  # validations without a better one after which it ends early, 0: never
    checkpoint_seconds: float = 60.0  # time between two checkpoints; each validation is followed by one, too

    def __post_init__(self) -> None:
        for name in ("iterations", "validate_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{flag(name)} must be at least 1, not {getattr(self, name)}")
        check_minutes(self.minutes)
        if self.patience < 0:
            raise UsageError(f"{flag('patience')} must be at least 0, not {self.patience}")


def check_minutes(minutes: float | None) -> None:
    """Check that a number of minutes is above 0. Raises UsageError: it is not."""
    if minutes is not None and not 0 < minutes < math.inf:
        raise UsageError(f"{flag('minutes')} must be above 0, not {minutes:g}")


@dataclass(slots=True)
class TrainingProgress:
    """Progress of a run."""

    iteration: int = 0  # iterations done
    seconds: float = 0.0  # time spent, over all sessions
    best: float = -math.inf  # the best validation so far, and its iteration; -inf before the first one
    best_iteration: int = 0
    stale: int = 0  # validations since then


OnIteration = Callable[[TrainingProgress, dict[str, float]], None]  # called after each iteration with its metrics
Save = Callable[[Path], None]  # writes the current policy


class TrainingRun:
    """A run in a folder.

    Raises:
        SteersmanError: there is a run already and `resume` is False, or no checkpoint and it is True.
    """

    def __init__(
        self,
        folder: Path,  # created if it does not exist
        options: dict[str, Any],  # the plan as JSON; the same options are needed to resume it
        limits: TrainingLimits,  # when it ends, which a later command may change
        *,
        resume: bool = False,  # resume from the existing checkpoint, instead of refusing to overwrite a run
        lock: FolderLock | None = None,  # lock on the folder; None: `train` takes it
        command: StoredCommand | None = None,  # that begins the run; its folder stores it
    ) -> None:
        self.folder, self.options, self.limits = folder, options, limits
        self.progress = TrainingProgress()
        self.resumed, self._lock, self._command = resume, lock, command
        # Also here, before networks are built; `_train` checks again under the lock.
        self._check()

    def train(
        self,
        learner: Learner,
        # Returns the quality of the current policy, higher is better; None: the newest is kept
        validate: Callable[[], float] | None,
        save: Save,
        on_iteration: OnIteration | None = None,
    ) -> TrainingProgress:
        """Train to the limits.

        Raises:
            SteersmanError: another process trains in the folder, the run diverged, a file cannot be written, or
                the checkpoint is of other options; the last checkpoint and the best policy are kept.
        """
        with self._lock or lock_folder(self.folder):
            return self._train(learner, validate, save, on_iteration)

    def _train(
        self, learner: Learner, validate: Callable[[], float] | None, save: Save, on_iteration: OnIteration | None
    ) -> TrainingProgress:
        self._check()  # again: another process may have trained here until we got the lock
        self._open()
        if self.resumed:
            state = read_checkpoint(self.folder / CHECKPOINT, self.options)
            learner.load_state_dict(state["learner"])
            self.progress = TrainingProgress(**{name: state["progress"][name] for name in TrainingProgress.__slots__})
            self._truncate_logs()
        # `before`: earlier sessions' time.
        began, before, saved = time.monotonic(), self.progress.seconds, time.monotonic()
        with Board(self.folder, self.progress.iteration) as board:
            self._log(f"{'continuing at' if self.resumed else 'starting at'} iteration {self.progress.iteration}")
            while not self._over():
                try:
                    numbers = learner.iterate()
                except RunEndedError:
                    save(self.folder / POLICY)
                    self._checkpoint(learner)
                    break
                except SteersmanError as error:
                    with suppress(SteersmanError):  # the log cannot be written, which is no reason to hide the error
                        self._log(f"stopped: {error}")
                    raise SteersmanError(f"{error}{self._kept()}") from error
                self.progress.iteration += 1
                self.progress.seconds = before + time.monotonic() - began
                scalars = self._record(numbers, board)
                # The last iteration is validated in any case, or its policy would be lost.
                due = self.progress.iteration % self.limits.validate_every == 0 or self._over()
                # Validation first: the checkpoint then knows its result.
                if due and validate is not None:
                    self._validate(validate, save, board)
                elif due:
                    save(self.folder / POLICY)
                if due or time.monotonic() - saved > self.limits.checkpoint_seconds:
                    self._checkpoint(learner)
                    saved = time.monotonic()
                if on_iteration is not None:
                    on_iteration(self.progress, scalars)
            self._log(f"done after {self.progress.iteration} iterations; best {self.progress.best:.4f}")
        return self.progress

    def _check(self) -> None:
        folder, has_checkpoint = self.folder, (self.folder / CHECKPOINT).exists()
        if self.resumed and not has_checkpoint:
            raise SteersmanError(f"{folder}: there is no {CHECKPOINT} to resume from; leave out --resume to start")
        if not self.resumed and has_checkpoint:
            raise SteersmanError(f"{folder}: a run exists already; resume it, or name another folder")
        # With a lock from outside (a live run) `live.learner.plan.init_run` has prepared the folder.
        if not self.resumed and self._lock is None and (folder / POLICY).exists():
            raise SteersmanError(f"{folder}: holds {POLICY} of an ended run; name another folder")

    def _open(self) -> None:
        if not self.resumed and self._lock is None:
            for name in (OPTIONS, METRICS, VALIDATION):  # of a run that ended before its first checkpoint
                set_aside(self.folder / name)
        if not (self.folder / OPTIONS).exists():
            write_options(self.folder, self.options)
        if self._command is not None and not self.resumed:
            self._command.store(self.folder)

    def _kept(self) -> str:
        """Return what is left of a run that cannot continue, for a message."""
        if not self.progress.best_iteration:
            return ""
        best = f"the best policy, of iteration {self.progress.best_iteration}, is in {self.folder / POLICY}"
        return f"; {best}, the last checkpoint in {self.folder / CHECKPOINT}"

    def _over(self) -> bool:
        progress, limits = self.progress, self.limits
        return (
            progress.iteration >= limits.iterations
            or (limits.minutes is not None and progress.seconds >= 60 * limits.minutes)
            or (limits.patience > 0 and progress.stale >= limits.patience)
        )

    def _validate(self, validate: Callable[[], float], save: Save, board: Board) -> None:
        value = validate()
        progress = self.progress
        # Strictly better: of equal validations the earlier policy stays.
        if value > progress.best:
            progress.best, progress.best_iteration, progress.stale = value, progress.iteration, 0
            save(self.folder / POLICY)
        else:
            progress.stale += 1
        row = {"iteration": progress.iteration, "seconds": round(progress.seconds, 1), "value": value}
        self._append(VALIDATION, row)
        board.scalars({"validation": value}, progress.iteration)
        self._log(f"iteration {progress.iteration}: validation {value:.4f}, best {progress.best:.4f}")

    def _checkpoint(self, learner: Learner) -> None:
        progress = {name: getattr(self.progress, name) for name in TrainingProgress.__slots__}
        state = {"learner": learner.state_dict(), "progress": progress}
        write_checkpoint(self.folder / CHECKPOINT, state, self.options)

    def _record(self, numbers: dict[str, Any], board: Board) -> dict[str, float]:
        """Record an iteration's metrics; return the scalars among them."""
        progress = self.progress
        scalars = {name: float(value) for name, value in numbers.items() if not isinstance(value, np.ndarray)}
        scalars["throughput"] = scalars.get("steps", 0.0) / max(progress.seconds, 1e-9)
        self._append(METRICS, {"iteration": progress.iteration, "seconds": round(progress.seconds, 1), **scalars})
        for name, value in numbers.items():
            if isinstance(value, np.ndarray) and value.size:
                board.histogram(name, value, progress.iteration)
        board.scalars(scalars, progress.iteration)
        return scalars

    def _append(self, name: str, row: dict[str, Any]) -> None:
        path = self.folder / name
        header = _header(path)
        with naming_in_errors(path):
            if new := [column for column in row if column not in header]:
                # Such as a loss, which a replay buffer first has after enough transitions.
                header += new
                _widen(path, header)
            with open(path, "a", newline="") as file:
                csv.DictWriter(file, header, restval="", lineterminator="\n").writerow(row)

    def _truncate_logs(self) -> None:
        """Take what was written after the checkpoint out of the tables, and keep it in copies of them."""
        for name in (METRICS, VALIDATION):
            path = self.folder / name
            if path.exists():
                header, *rows = path.read_text().splitlines()
                numbers = (row.split(",")[0] for row in rows)
                last = self.progress.iteration
                kept = [row for row, n in zip(rows, numbers, strict=True) if n.isdigit() and int(n) <= last]
                if len(kept) < len(rows):
                    keep_copy(path)
                    write_atomically(path, ("\n".join([header, *kept]) + "\n").encode())

    def _log(self, line: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with naming_in_errors(self.folder / LOG), open(self.folder / LOG, "a") as file:
            file.write(f"{stamp} {line}\n")


def write_options(folder: Path, options: dict[str, Any]) -> None:
    """Write the options of a run. Raises InputError: the file cannot be written."""
    write_atomically(folder / OPTIONS, (json.dumps(options, indent=2, sort_keys=True) + "\n").encode(), sync=True)


def read_metrics(folder: Path) -> dict[str, npt.NDArray[np.float64]]:
    """Return the columns of the metrics of a run by name, a value per iteration, NaN where undefined; {} before any."""
    if not (folder / METRICS).exists():
        return {}
    with (folder / METRICS).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name] or math.nan) for row in rows]) for name in (rows[0] if rows else ())}


def _header(path: Path) -> list[str]:
    """Return the columns of a CSV file, none if it does not exist."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return next(csv.reader(file), [])


def _widen(path: Path, header: list[str]) -> None:
    """Give a CSV file these columns; earlier rows have nothing in the new ones."""
    rows = []
    if path.exists():
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    content = io.StringIO()
    writer = csv.DictWriter(content, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, content.getvalue().encode())


STATE, IDENTITY = "state", "identity"


def write_checkpoint(path: Path, state: Any, identity: dict[str, Any]) -> None:
    """Write a state; `identity` identifies the run it belongs to. Raises InputError: the file cannot be written."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    shape = _take_apart(state, arrays)
    content = save(arrays, metadata={STATE: json.dumps(shape), IDENTITY: json.dumps(identity, sort_keys=True)})
    write_atomically(path, content, sync=True)


def read_checkpoint(path: Path, identity: dict[str, Any]) -> Any:
    """Return the state that was written for the run `identity`.

    Raises:
        InputError: the file is missing, truncated, or of another run; it names the option that differs.
    """
    metadata, arrays = _read(path)
    was = json.loads(metadata[IDENTITY])
    now = json.loads(json.dumps(identity))
    for name in sorted(set(was) | set(now)):
        if was.get(name) != now.get(name):
            raise InputError(
                str(path), "run", name, f"was {was.get(name)!r}, now {now.get(name)!r}: a checkpoint of another run"
            )
    return _put_together(json.loads(metadata[STATE]), arrays)


def read_identity(path: Path) -> dict[str, Any]:
    """Return what identifies the run of a checkpoint. Raises InputError: the file is missing or truncated."""
    identity: dict[str, Any] = json.loads(_read(path)[0][IDENTITY])
    return identity


def _read(path: Path) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        raise InputError(str(path), "file", "checkpoint", f"cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(str(path), "file", "checkpoint", f"is truncated or no checkpoint ({error})") from None
    if STATE not in metadata or IDENTITY not in metadata:
        raise InputError(str(path), "metadata", STATE, "is missing: this is no checkpoint of a training run")
    return metadata, arrays


def _take_apart(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return JSON for `value`; its arrays go to `arrays`."""
    if isinstance(value, dict):
        # As pairs: keys of JSON are texts, and an optimiser's state has integers.
        return {"dict": [[_take_apart(k, arrays), _take_apart(v, arrays)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        # JSON knows lists alone, so the kind is kept.
        return {type(value).__name__: [_take_apart(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    name = f"a{len(arrays)}"
    if isinstance(value, np.ndarray):
        # ascontiguousarray turns an array without axes into one of length 1.
        arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array": name}
    # A state without tensors needs no torch, whose import takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous().numpy()
        arrays[name] = tensor.copy()
        return {"tensor": name}
    return value


def _put_together(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {_put_together(k, arrays): _put_together(v, arrays) for k, v in content}
    if kind == "list":
        return [_put_together(item, arrays) for item in content]
    if kind == "tuple":
        return tuple(_put_together(item, arrays) for item in content)
    if kind == "array":
        return arrays[content].copy()
    import torch

    return torch.from_numpy(arrays[content].copy())


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

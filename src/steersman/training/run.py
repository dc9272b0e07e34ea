"""A training run: a folder with its options, log, metrics, checkpoint and the best policy so far.

    run.json                the options; a checkpoint belongs to them
    command.json            the command of the command line that began it
    log.txt                 one line per event
    metrics.csv             one row per iteration
    validation.csv          one row per validation
    checkpoint.safetensors  everything that later iterations depend on
    policy.safetensors      the best policy by validation; without one (live) the newest
    policy-N.safetensors    the policy of iteration N, written by request
    progress.json           where the run is, and histograms of the newest iteration (`control.progress`)
    request.txt             what the run is asked to do, between two iterations (`control.requests`)
    events.out.tfevents.*   metrics and histograms for TensorBoard, if it is installed and no other tracker is chosen

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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from steersman.core.atomic_files import keep_copy, naming_in_errors, replacing, set_aside, write_atomically
from steersman.core.config.fields import flag
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.folder_lock import FolderLock, lock_folder
from steersman.core.stored_command import StoredCommand
from steersman.policies.files.policy_file import read_policy, write_policy
from steersman.training import trackers
from steersman.training.checkpoint import read_checkpoint, write_checkpoint
from steersman.training.control import requests
from steersman.training.control.progress import ProgressFile, RunProgress, State, histograms_of
from steersman.training.control.requests import LOG

OPTIONS, METRICS, VALIDATION = "run.json", "metrics.csv", "validation.csv"
CHECKPOINT, POLICY = "checkpoint.safetensors", "policy.safetensors"
TAKEN_POLICY = "policy-{:06d}.safetensors"
POLL_SECONDS = 0.2
"""Time between two looks for a request while a run is paused."""


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
    """When a run validates, saves and ends.

    Attributes:
        iterations: at most.
        minutes: at most, over all sessions; None: no limit.
        validate_every: iterations between two validations.
        patience: validations without a better one after which it ends early, 0: never.
        checkpoint_seconds: time between two checkpoints; each validation is followed by one, too.
    """

    iterations: int = 100
    minutes: float | None = None
    validate_every: int = 10
    patience: int = 0
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Check the values."""
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
    """Progress of a run.

    Attributes:
        iteration: iterations done.
        seconds: time spent, over all sessions.
        best: the best validation so far, and its iteration; -inf before the first one.
        stale: validations since then.
        paused: whether it waits for the request to continue.
    """

    iteration: int = 0
    seconds: float = 0.0
    best: float = -math.inf
    best_iteration: int = 0
    stale: int = 0
    paused: bool = False


OnIteration = Callable[[TrainingProgress, dict[str, float]], None]
"""Called after each iteration with its metrics, and again when the run is paused or continues."""
Save = Callable[[Path], None]
"""Writes the current policy."""


class TrainingRun:
    """A run in a folder.

    Args:
        folder: created if it does not exist.
        options: the plan as JSON; the same options are needed to resume it.
        limits: when it ends, which a later session may change.
        resume: resume from the existing checkpoint, instead of refusing to overwrite a run.
        obeyed: which of `requests.REQUESTS` it obeys.
        lock: lock on the folder; None: `train` takes it.
        command: that begins the run; its folder stores it.

    Raises:
        SteersmanError: there is a run already and `resume` is False, or no checkpoint and it is True.
    """

    def __init__(
        self,
        folder: Path,
        options: dict[str, Any],
        limits: TrainingLimits,
        *,
        resume: bool = False,
        obeyed: tuple[str, ...] = requests.REQUESTS,
        lock: FolderLock | None = None,
        command: StoredCommand | None = None,
    ) -> None:
        self.folder, self.options, self.limits, self.obeyed = folder, options, limits, obeyed
        self.progress = TrainingProgress()
        self._stopped, self._validated = False, 0
        self._progress_file = ProgressFile(folder)
        self._newest: dict[str, Any] = {}
        self.resumed, self._lock, self._command = resume, lock, command
        # Also here, before networks are built; `_train` checks again under the lock.
        self._check()

    def train(
        self,
        learner: Learner,
        validate: Callable[[], float] | None,
        save: Save,
        on_iteration: OnIteration | None = None,
        tracker: str = "tensorboard",
    ) -> TrainingProgress:
        """Train to the limits.

        Args:
            learner: what learns.
            validate: returns the quality of the current policy, higher is better; None: the newest is kept.
            save: writes the current policy.
            on_iteration: progress.
            tracker: one of `trackers.TRACKERS`, which must be installed.

        Raises:
            SteersmanError: another process trains in the folder, the run diverged, a file cannot be written, the
                checkpoint is of other options, or the tracker failed; the last checkpoint and the best policy are kept.
        """
        with self._lock or lock_folder(self.folder):
            return self._train(learner, validate, save, on_iteration, tracker)

    def _train(
        self,
        learner: Learner,
        validate: Callable[[], float] | None,
        save: Save,
        on_iteration: OnIteration | None,
        tracker: str,
    ) -> TrainingProgress:
        self._check()  # again: another process may have trained here until we got the lock
        self._open()
        if self.resumed:
            state = read_checkpoint(self.folder / CHECKPOINT, self.options)
            learner.load_state_dict(state["learner"])
            # A run that was paused when it was killed goes on at once.
            self.progress = TrainingProgress(**state["progress"] | {"paused": False})
            self._truncate_logs()
        # `before`: earlier sessions' time; `began` moves on by every pause.
        began, before, saved = time.monotonic(), self.progress.seconds, time.monotonic()
        with (
            self._shown(),
            trackers.opened(tracker, self.folder, self.options, self.progress.iteration) as tracker_log,
        ):
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
                scalars = self._record(numbers, tracker_log)
                report = partial(on_iteration, self.progress, scalars) if on_iteration is not None else _nothing
                began += self._obey(learner, save, report)
                # The last iteration is validated in any case, or its policy would be lost.
                due = self.progress.iteration % self.limits.validate_every == 0 or self._over()
                # Validation first: the checkpoint then knows its result.
                if due and validate is not None:
                    self._validate(validate, save, tracker_log)
                elif due:
                    save(self.folder / POLICY)
                if due or time.monotonic() - saved > self.limits.checkpoint_seconds:
                    self._checkpoint(learner)
                    saved = time.monotonic()
                report()
                if self._progress_file.is_due:
                    self._show("learning")
            if (self.folder / POLICY).exists():
                tracker_log.artifact(self.folder / POLICY)
            self._log(f"done after {self.progress.iteration} iterations; best {self.progress.best:.4f}")
        return self.progress

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Show in the folder that a process trains there, and in the end how it ended."""
        # A request that a killed run has left is not meant for this one.
        requests.remove_request(self.folder)
        end: State = "stopped"
        try:
            self._show("learning")
            try:
                yield
                end = "done"
            finally:
                self.progress.paused = False
                self._show(end)
        finally:
            requests.remove_request(self.folder)  # one that came after the last iteration

    def _show(self, state: State) -> None:
        progress, limits = self.progress, self.limits
        shown = RunProgress(
            state=state,
            iteration=progress.iteration,
            seconds=round(progress.seconds, 1),
            iterations=limits.iterations if limits.iterations < sys.maxsize else None,
            minutes=limits.minutes,
            validate_every=limits.validate_every,
            patience=limits.patience,
            stale=progress.stale,
            best=progress.best if math.isfinite(progress.best) else None,
            best_iteration=progress.best_iteration,
            requests=self.obeyed,
            histograms=histograms_of(self._newest),
        )
        with suppress(InputError):  # a full disk ends a run by what it must write, not by what it shows
            self._progress_file.write(shown, is_last=state in ("done", "stopped"))

    def _obey(self, learner: Learner, save: Save, report: Callable[[], None]) -> float:
        """Do what the run is asked to do since the last iteration; return the seconds that it was paused."""
        began: float | None = None
        while True:
            if request := requests.pending_request(self.folder):
                self._answer(request, save)
                requests.remove_request(self.folder)
            if self._stopped or not self.progress.paused:
                break
            if began is None:
                began = time.monotonic()
                # A paused run may be killed without loss.
                self._checkpoint(learner)
                self._show("paused")
                report()
            time.sleep(POLL_SECONDS)
        if began is None:
            return 0.0
        self.progress.paused = False
        self._show("learning")
        return time.monotonic() - began

    def _answer(self, request: str, save: Save) -> None:
        if request not in self.obeyed:
            self._log(f"request {request!r} is none of {', '.join(self.obeyed)}, and is left out")
        elif request == requests.CHECKPOINT:
            self._log(f"by request: the current policy is in {self._take(save)}")
        else:
            self._log(f"by request: {request} after iteration {self.progress.iteration}")
            self._stopped = self._stopped or request == requests.STOP
            self.progress.paused = request == requests.PAUSE

    def _take(self, save: Save) -> str:
        """Write the current policy to a file of its own; its card has no scores of an earlier iteration's policy."""
        file = self.folder / TAKEN_POLICY.format(self.progress.iteration)
        set_aside(file)  # of a session that was killed after its last checkpoint
        with replacing(file) as part:
            save(part)
            # The scores in the card are those of the last validation, which may be of an earlier policy.
            if self._validated != self.progress.iteration:
                card, weights = read_policy(part)
                write_policy(part, msgspec.structs.replace(card, scores=()), weights)
        return file.name

    def _check(self) -> None:
        folder, has_checkpoint = self.folder, (self.folder / CHECKPOINT).exists()
        if self.resumed and not has_checkpoint:
            raise SteersmanError(f"{folder}: there is no {CHECKPOINT} to resume from; leave out --resume to start")
        if not self.resumed and has_checkpoint:
            raise SteersmanError(f"{folder}: a run exists already; resume it, or name another folder")
        # With a lock from outside (a live run) `apps.learner.plan.init_run` has prepared the folder.
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
            self._stopped
            or progress.iteration >= limits.iterations
            or (limits.minutes is not None and progress.seconds >= 60 * limits.minutes)
            or (limits.patience > 0 and progress.stale >= limits.patience)
        )

    def _validate(self, validate: Callable[[], float], save: Save, tracker_log: trackers.AnyTracker) -> None:
        value = validate()
        progress = self.progress
        self._validated = progress.iteration
        # Strictly better: of equal validations the earlier policy stays.
        if value > progress.best:
            progress.best, progress.best_iteration, progress.stale = value, progress.iteration, 0
            save(self.folder / POLICY)
        else:
            progress.stale += 1
        row = {"iteration": progress.iteration, "seconds": round(progress.seconds, 1), "value": value}
        self._append(VALIDATION, row)
        tracker_log.scalars({"validation": value}, progress.iteration)
        self._log(f"iteration {progress.iteration}: validation {value:.4f}, best {progress.best:.4f}")

    def _checkpoint(self, learner: Learner) -> None:
        progress = {name: getattr(self.progress, name) for name in TrainingProgress.__slots__}
        state = {"learner": learner.state_dict(), "progress": progress}
        write_checkpoint(self.folder / CHECKPOINT, state, self.options)

    def _record(self, numbers: dict[str, Any], tracker_log: trackers.AnyTracker) -> dict[str, float]:
        """Record an iteration's metrics; return the scalars among them."""
        progress = self.progress
        scalars = {name: float(value) for name, value in numbers.items() if not isinstance(value, np.ndarray)}
        self._newest = numbers
        scalars["throughput"] = scalars.get("steps", 0.0) / max(progress.seconds, 1e-9)
        self._append(METRICS, {"iteration": progress.iteration, "seconds": round(progress.seconds, 1), **scalars})
        for name, value in numbers.items():
            if isinstance(value, np.ndarray) and value.size:
                tracker_log.histogram(name, value, progress.iteration)
        tracker_log.scalars(scalars, progress.iteration)
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


def _nothing() -> None:
    """Do nothing."""

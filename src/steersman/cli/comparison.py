"""Shared by `evaluate` and `demo`: run an experiment, write its files, print its outcome, handle Ctrl-C."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from steersman.cli.options.common import Format
from steersman.cli.options.results import Results, continuation
from steersman.cli.output.display import Progress, Warnings, print_json, print_table, width, wrapped
from steersman.cli.output.tables import comparison_table, kinds_table, regret_table, summary_records, workloads_table
from steersman.core.errors import InputError, SteersmanError
from steersman.core.signals import defer_signals
from steersman.core.stored_command import COMMAND, StoredCommand
from steersman.evaluation.evaluation import evaluate_experiments
from steersman.evaluation.experiment import Experiment, Finished, InterruptionError, OnRun
from steersman.evaluation.finished_runs import Description, MadeFiles, describe, read_finished, write_finished
from steersman.evaluation.report.curves import LearningCurve
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.page import Comparison
from steersman.evaluation.results import FINISHED, PARTIAL, staged, summary_csv, write_partial
from steersman.simulation.result import Protocol, RunResult

KEEP_SECONDS, KEEP_SHARE = 60.0, 20.0  # least time between writes of the finished runs: seconds, and times of a write


@dataclass(frozen=True, slots=True)
class ReportNotes:
    command: str
    reason: str = ""
    learning: LearningCurve | None = None
    kept: tuple[Path, ...] = ()


def compare(
    experiments: Sequence[Experiment],  # equal but for their protocols
    results: Results,  # where the files go, and whether runs that are there are not done again
    notes: ReportNotes,
    *,
    jobs: int,
    baseline: str,
    warn: Warnings,
    bound: bool = False,  # whether to compute an upper bound on any scheduler's allocation, for protocols that have one
    command: StoredCommand | None = None,  # that `--resume` continues from finished runs; None: nothing does
    made: MadeFiles | None = None,  # files that it made before
) -> list[Comparison]:
    """Run experiments and write their files.

    Returns:
        The comparison of each protocol.
    """

    def progress(protocol: Protocol) -> AbstractContextManager[OnRun]:
        return shown(f"simulating {protocol}" if len(experiments) > 1 else "simulating")

    resumable = None if command is None else Resumable(describe(experiments), command, made or {})
    finished: dict[int, RunResult] = {}
    if resumable is not None and results.resume:
        finished = read_finished(results.output, resumable.description)
    elif resumable is not None and made:
        resumable.write(results.output, {})
    try:
        evaluation = evaluate_experiments(
            experiments,
            baseline=baseline,
            jobs=jobs,
            bound=bound,
            progress=progress,
            bound_progress=lambda _: shown("computing the bound"),
            finished=finished,
            keep=None if resumable is None else RunKeeper(results.output, resumable),
        )
        try:
            with keeping_runs(evaluation.runs):
                said = {each.name: getattr(notes, each.name) for each in fields(notes)}
                evaluation.write(results.output, **said)
        except KeyboardInterrupt:
            # All runs are done, and only the files are missing.
            raise InterruptionError(dict(enumerate(evaluation.runs)), len(evaluation.runs)) from None
    except InterruptionError as interruption:
        raise keep_finished(interruption, results.output, resumable) from None
    warn(evaluation.warnings)
    return list(evaluation.comparisons)


@dataclass(frozen=True, slots=True)
class Resumable:
    description: Description
    command: StoredCommand
    made: MadeFiles = field(default_factory=dict)

    def write(self, output: Path, finished: Mapping[int, RunResult]) -> None:
        """Write the finished runs, and what continues from them, into the folder of the results."""
        # Ctrl-C, or a second one, would lose the finished runs.
        with defer_signals(), staged(output, (FINISHED, COMMAND)) as stage:
            _write_partial(stage, finished)
            write_finished(stage, self.description, finished, self.made)
            self.command.store(stage)


class RunKeeper:
    """Writes the finished runs from time to time, so that `--resume` continues even if the process is killed."""

    def __init__(self, output: Path, resumable: Resumable, clock: Callable[[], float] = time.monotonic) -> None:
        self._output, self._resumable, self._clock = output, resumable, clock
        self._due = clock() + KEEP_SECONDS

    def __call__(self, finished: Finished) -> None:
        """Write the finished runs if they were not written for a minute, or for twenty times as long as that takes."""
        began = self._clock()
        if began < self._due:
            return
        # A full disk is reported at the end, when the runs are kept elsewhere.
        with suppress(InputError):
            self._resumable.write(self._output, finished())
        now = self._clock()
        self._due = now + max(KEEP_SECONDS, KEEP_SHARE * (now - began))


@contextmanager
def shown(what: str) -> Iterator[OnRun]:
    with Progress(what) as progress:
        yield progress.update


def keep_finished(interruption: InterruptionError, output: Path, resumable: Resumable | None) -> InterruptionError:
    """Write finished runs to `results.partial.csv`; return the error to raise, which names the file."""
    finished, clauses = interruption.finished, []
    if resumable is not None and (finished or resumable.made):
        resumable.write(output, finished)
    elif finished:
        with defer_signals(), staged(output, (FINISHED, COMMAND)) as stage:
            _write_partial(stage, finished)
    if finished:
        clauses.append(f"the finished ones are in {output / PARTIAL}")
    if resumable is not None and (output / FINISHED).exists():
        clauses.append(continuation(resumable.command, output))
    return InterruptionError(finished, interruption.total, "; ".join(clauses), interruption.cause)


def _write_partial(folder: Path, finished: Mapping[int, RunResult]) -> None:
    write_partial(folder, [finished[position] for position in sorted(finished)])


@contextmanager
def keeping_runs(runs: Sequence[RunResult]) -> Iterator[None]:
    """If results cannot be written, keep the runs in a temporary folder and name it in the error."""
    try:
        yield
    except InputError as error:
        folder = Path(tempfile.mkdtemp(prefix="steersman-"))
        try:
            write_partial(folder, runs)
        except OSError:  # the temporary folder is on the same disk
            shutil.rmtree(folder, ignore_errors=True)
            raise error from None
        raise SteersmanError(f"{error}; the finished runs are in {folder / PARTIAL}") from None


def show(comparisons: Sequence[Comparison], output_format: Format) -> None:
    summary = [row for each in comparisons for row in each.summary]
    if output_format is Format.CSV:
        print(summary_csv(summary), end="")
    elif output_format is Format.JSON:
        print_json(summary_records(summary))
    else:
        for number, each in enumerate(sorted(comparisons, key=lambda each: not each.headline.differs)):
            if number:
                print()
            show_table(each.headline)


def show_table(headline: Headline) -> None:
    if len(headline.workloads) > 1:
        print_table(workloads_table(headline, width()))
        if headline.protocol == "timed":
            print_table(regret_table(headline))
    print_table(comparison_table(headline, width()))
    if (kinds := kinds_table(headline, width())) is not None:
        print_table(kinds)
    texts = [*headline.sentences(), headline.kinds_sentence(), headline.bound_sentence()]
    print(wrapped("\n".join(filter(None, texts)), width()))

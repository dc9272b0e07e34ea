"""What `evaluate` and `demo` share: run an experiment, write its files, print its outcome, survive Ctrl-C."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from steersman.cli.compiling import compile_kernels
from steersman.cli.display import Progress, Warnings, print_table, width, wrapped
from steersman.cli.options import Format
from steersman.cli.tables import comparison_table, summary_records, to_json, workloads_table
from steersman.errors import InputError, SteersmanError
from steersman.evaluation.experiment import Experiment, InterruptionError, run_experiment
from steersman.evaluation.headline import Headline
from steersman.evaluation.learning import LearningCurve
from steersman.evaluation.limits import Limits, find_limits, limit_summary
from steersman.evaluation.output import staged
from steersman.evaluation.recorded import Recordings, find_recordings, recorded_summary
from steersman.evaluation.report import Comparison, write_report
from steersman.evaluation.results import (
    EVALUATION_FILES,
    PARTIAL,
    REPORT,
    summary_csv,
    write_evaluation,
    write_partial,
)
from steersman.evaluation.summary import Table, summarise
from steersman.signals import defer_signals
from steersman.simulation.result import RunResult


def compare(
    experiments: Sequence[Experiment],
    *,
    baseline: str,
    output: Path,
    jobs: int,
    command: str,
    warn: Warnings,
    bound: bool = False,
    reason: str = "",
    learning: LearningCurve | None = None,
    fitted: str = "",
    kept: Sequence[Path] = (),
) -> list[Comparison]:
    """Run experiments and write their files to `output`; with `bound` also what no scheduler exceeds.

    Args:
        experiments: the same but for their protocols.
        baseline: one of their policies.
        output: the folder.
        jobs: processes.
        command: what was typed, for the report.
        warn: says what there is to say about the workloads.
        bound: whether the limit is computed, for protocols that have one.
        reason: why these protocols, where the data chose them; for the report.
        learning: how one of the policies was trained, for the report.
        fitted: how one of the policies was fitted to the workload, for the report.
        kept: files that are put beside the results.

    Returns:
        The outcome in each protocol.

    Raises:
        InterruptionError: Ctrl-C; the finished runs are in `results.partial.csv`.
        SteersmanError: a run failed; nothing is written.
    """
    runs: list[RunResult] = []
    comparisons: list[Comparison] = []
    try:
        compile_kernels(experiments[0].policies, experiments[0].workloads)
        recordings = {each.protocol: find_recordings(each.workloads, each.protocol) for each in experiments}
        for experiment in experiments:
            of_experiment = run_all(experiment, jobs, named=len(experiments) > 1)
            runs += of_experiment
            label = of_experiment[experiment.policies.index(baseline) * len(experiment.seeds)].policy
            limits = limit_all(experiment, jobs) if bound and experiment.protocol != "timed" else None
            recorded = recordings[experiment.protocol]
            comparisons.append(compared(of_experiment, label, limits, recorded, experiment.ratio))
        understood = [f"{each.name}: {each.understood}" for each in experiments[0].workloads if each.understood]
        with keeping_runs(runs), staged(output, EVALUATION_FILES) as stage:
            limits_found = [each.headline.found_limits for each in comparisons if each.headline.found_limits]
            summary = [row for each in comparisons for row in each.summary]
            write_evaluation(stage, runs, summary, limits_found, recordings)
            write_report(
                stage / REPORT,
                comparisons,
                command=command,
                reason=reason,
                learning=learning,
                understood=understood,
                fitted=fitted,
            )
            for file in kept:
                shutil.copyfile(file, stage / file.name)
    except InterruptionError as interruption:
        total = sum(experiment.runs for experiment in experiments)
        raise keep_finished(InterruptionError([*runs, *interruption.finished], total), output) from None
    except KeyboardInterrupt:
        total = sum(experiment.runs for experiment in experiments)
        raise keep_finished(InterruptionError(runs, total), output) from None
    for run in runs:
        warn(run.warnings)
    for each in comparisons:
        warn(each.headline.found_limits.warnings if each.headline.found_limits else ())
    return comparisons


def compared(
    runs: Sequence[RunResult], baseline: str, limits: Limits | None, recordings: Recordings, ratio: float
) -> Comparison:
    """Return what runs of one protocol amount to."""
    summary = summarise(runs, baseline)
    if limits is not None:
        summary += limit_summary(limits, Table(runs), baseline)
    summary += recorded_summary(recordings, Table(runs).workloads, runs[0].protocol)
    return Comparison(runs, summary, Headline(runs, summary, baseline, limits), ratio)


def run_all(experiment: Experiment, jobs: int, *, named: bool) -> list[RunResult]:
    """Run an experiment and show how far it is; `named`: in which protocol."""
    with Progress(f"simulating {experiment.protocol}" if named else "simulating") as progress:
        return run_experiment(experiment, jobs=jobs, on_run=progress.update)


def limit_all(experiment: Experiment, jobs: int) -> Limits:
    """Compute the limit of an experiment and show how far that is."""
    with Progress("computing the limit") as progress:
        return find_limits(experiment, jobs=jobs, on_limit=progress.update)


def keep_finished(interruption: InterruptionError, output: Path) -> InterruptionError:
    """Write what was finished to `results.partial.csv`; what to raise says so."""
    finished = interruption.finished
    if not finished:
        return interruption
    with defer_signals(), staged(output) as stage:
        write_partial(stage, finished)
    return InterruptionError(finished, interruption.total, kept=str(output / PARTIAL))


@contextmanager
def keeping_runs(runs: Sequence[RunResult]) -> Iterator[None]:
    """Where results cannot be written, keep the runs in a folder for temporary files, and say where."""
    try:
        yield
    except InputError as error:
        folder = Path(tempfile.mkdtemp(prefix="steersman-"))
        try:
            write_partial(folder, runs)
        except OSError:  # the same disk
            shutil.rmtree(folder, ignore_errors=True)
            raise error from None
        raise SteersmanError(f"{error}; the finished runs are in {folder / PARTIAL}") from None


def show(comparisons: Sequence[Comparison], output_format: Format) -> None:
    """Print the outcome in every protocol."""
    summary = [row for each in comparisons for row in each.summary]
    if output_format is Format.CSV:
        print(summary_csv(summary), end="")
    elif output_format is Format.JSON:
        print(to_json(summary_records(summary)))
    else:
        for number, each in enumerate(comparisons):
            if number:
                print()
            show_table(each.headline)


def show_table(headline: Headline) -> None:
    """Print the outcome in one protocol as tables and sentences."""
    if len(headline.workloads) > 1:
        print_table(workloads_table(headline, width()))
    print_table(comparison_table(headline, width()))
    print(wrapped("\n".join(filter(None, [headline.sentence(), headline.limit_sentence()])), width()))

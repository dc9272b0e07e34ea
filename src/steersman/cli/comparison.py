"""What `evaluate` and `demo` share: run an experiment, write its files, print its outcome, survive Ctrl-C."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steersman.cli.compiling import compile_kernels
from steersman.cli.display import Progress, Warnings, print_table, width, wrapped
from steersman.cli.options import Format
from steersman.cli.tables import comparison_table, summary_records, to_json, workloads_table
from steersman.evaluation.experiment import Experiment, InterruptionError, run_experiment
from steersman.evaluation.headline import Headline
from steersman.evaluation.interrupts import undisturbed
from steersman.evaluation.learning import LearningCurve
from steersman.evaluation.limits import Limits, find_limits, limit_summary
from steersman.evaluation.output import staged
from steersman.evaluation.recorded import find_recordings, recorded_summary
from steersman.evaluation.report import write_report
from steersman.evaluation.results import (
    EVALUATION_FILES,
    PARTIAL,
    REPORT,
    summary_csv,
    write_evaluation,
    write_partial,
)
from steersman.evaluation.summary import SummaryRow, Table, summarise
from steersman.simulation.result import RunResult


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is told of an experiment."""

    headline: Headline
    summary: list[SummaryRow]


def compare(
    experiment: Experiment,
    *,
    baseline: str,
    output: Path,
    jobs: int,
    command: str,
    warn: Warnings,
    bound: bool = False,
    learning: LearningCurve | None = None,
) -> Outcome:
    """Run an experiment and write its files to `output`; with `bound` also what no scheduler exceeds.

    `learning` is how one of the policies was trained, for the report.

    Raises:
        InterruptionError: Ctrl-C; the finished runs are in `results.partial.csv`.
        SteersmanError: a run failed; nothing is written.
    """
    runs: list[RunResult] = []
    try:
        compile_kernels(experiment.policies, experiment.workloads)
        recordings = find_recordings(experiment.workloads, experiment.protocol)
        runs = run_all(experiment, jobs)
        label = runs[experiment.policies.index(baseline) * len(experiment.seeds)].policy
        limits = limit_all(experiment, jobs) if bound else None
        summary = summarise(runs, label)
        if limits is not None:
            summary += limit_summary(limits, Table(runs), label)
        summary += recorded_summary(recordings, Table(runs).workloads)
        headline = Headline(runs, summary, label, limits)
        with staged(output, EVALUATION_FILES) as stage:
            write_evaluation(stage, runs, summary, limits, recordings)
            report = stage / REPORT
            ratio = experiment.ratio
            understood = [f"{each.name}: {each.understood}" for each in experiment.workloads if each.understood]
            write_report(
                report,
                runs,
                summary,
                headline,
                command=command,
                ratio=ratio,
                learning=learning,
                understood=understood,
            )
    except InterruptionError as interruption:
        raise keep_finished(interruption, output) from None
    except KeyboardInterrupt:
        raise keep_finished(InterruptionError(runs, experiment.runs), output) from None
    for run in runs:
        warn(run.warnings)
    warn(limits.warnings if limits is not None else ())
    return Outcome(headline, summary)


def run_all(experiment: Experiment, jobs: int) -> list[RunResult]:
    """Run an experiment and show how far it is."""
    with Progress("simulating") as progress:
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
    with undisturbed(), staged(output) as stage:
        write_partial(stage, finished)
    return InterruptionError(finished, interruption.total, kept=str(output / PARTIAL))


def show(outcome: Outcome, output_format: Format) -> None:
    """Print the outcome."""
    headline = outcome.headline
    if output_format is Format.CSV:
        print(summary_csv(outcome.summary), end="")
    elif output_format is Format.JSON:
        print(to_json(summary_records(outcome.summary)))
    else:
        if len(headline.workloads) > 1:
            print_table(workloads_table(headline, width()))
        print_table(comparison_table(headline, width()))
        print(wrapped("\n".join(filter(None, [headline.sentence(), headline.limit_sentence()])), width()))

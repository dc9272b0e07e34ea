"""An evaluation: experiments run, compared with a baseline, and written as files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from steersman.core.engines import ClusterLostError
from steersman.core.extras import to_frame
from steersman.evaluation.bound.experiment_bounds import ExperimentBounds, bound_summary, check_bounded, find_bounds
from steersman.evaluation.criteria import criterion
from steersman.evaluation.experiment import Experiment, Finished, InterruptionError, Keep, OnRun, run_experiment
from steersman.evaluation.report.curves import LearningCurve
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.page import Comparison, notebook_tables, write_report
from steersman.evaluation.report.style import styles
from steersman.evaluation.results import (
    EVALUATION_FILES,
    METRICS_COLUMNS,
    REPORT,
    metric_cells,
    staged,
    write_evaluation,
)
from steersman.evaluation.summary import (
    Recordings,
    SummaryRow,
    SummaryTable,
    find_recordings,
    recorded_summary,
    summarise,
)
from steersman.policies.base import Policy
from steersman.policies.user_policy import PolicyProtocol
from steersman.simulation.result import Protocol, RunResult

Progress = Callable[[Protocol], AbstractContextManager[OnRun | None]]
"""Return the progress callback of a protocol's runs as a context manager."""


def no_progress(_: Protocol) -> AbstractContextManager[OnRun | None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """The results of experiments that are equal but for their protocols.

    Attributes:
        experiments: what was run.
        comparisons: their results, in the same order.
        recordings: by protocol, the metrics of the placements that workloads record.
    """

    experiments: tuple[Experiment, ...]
    comparisons: tuple[Comparison, ...]
    recordings: dict[Protocol, Recordings]

    @property
    def runs(self) -> list[RunResult]:
        """Return all runs."""
        return [run for each in self.comparisons for run in each.runs]

    @property
    def summary(self) -> list[SummaryRow]:
        """Return the rows of `summary.csv`."""
        return [row for each in self.comparisons for row in each.summary]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings about the workloads and the bounds, each once."""
        bounds = [each.headline.computed_bounds for each in self.comparisons]
        texts = [run.warnings for run in self.runs] + [each.warnings for each in bounds if each is not None]
        return tuple(dict.fromkeys(warning for warnings in texts for warning in warnings))

    @property
    def colours(self) -> dict[str, str]:
        """Return the colours of the policies in the report, `#0072b2`, for plots of your own."""
        return {name: style.colour for name, style in styles(tuple(dict.fromkeys(r.policy for r in self.runs))).items()}

    def to_frame(self) -> Any:
        """Return a data frame of every metric of every run: the columns of `metrics.csv`."""
        rows = [cells for run in self.runs for cells in metric_cells(run)]
        return to_frame(dict(zip(METRICS_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))

    def summary_frame(self) -> Any:
        """Return a data frame of means, intervals and differences from the baseline: the columns of `summary.csv`."""
        rows = [row.cells for row in self.summary]
        return to_frame({name: [row[name] for row in rows] for name in rows[0]})

    def write(
        self,
        folder: str | Path,
        *,
        command: str = "",
        reason: str = "",
        learning: LearningCurve | None = None,
        kept: Sequence[Path] = (),
    ) -> None:
        """Write `report.html` and the CSV files into a folder, all of them or none.

        Args:
            folder: created if it does not exist; files of an earlier evaluation are replaced.
            command: the command line, for the report.
            reason: why these protocols, if the data chose them; for the report.
            learning: how one of the policies was trained, for the report.
            kept: files that are put beside the results.

        Raises:
            InputError: the folder cannot be written to, or holds something else.
        """
        workloads = self.experiments[0].workloads
        understood = [f"{each.name}: {each.understood}" for each in workloads if each.understood]
        accounts = [f"{each.name}: {each.account.sentence}" for each in workloads if each.nodes]
        bounds = [each.headline.computed_bounds for each in self.comparisons if each.headline.computed_bounds]
        with staged(Path(folder), EVALUATION_FILES) as stage:
            write_evaluation(stage, self.runs, self.summary, bounds, self.recordings)
            write_report(
                stage / REPORT,
                self.comparisons,
                command=command,
                reason=reason,
                learning=learning,
                understood=understood,
                accounts=accounts,
            )
            for file in kept:
                shutil.copyfile(file, stage / file.name)

    def __repr__(self) -> str:
        """Return the outcome of all protocols in sentences."""
        headlines = [each.headline for each in self.comparisons]
        return " ".join(
            filter(None, (text for each in headlines for text in [*each.sentences(), each.kinds_sentence()]))
        )

    def _repr_html_(self) -> str:
        """Return the tables and sentences of all protocols for notebooks."""
        return notebook_tables([each.headline for each in self.comparisons])


def evaluate_experiments(
    experiments: Sequence[Experiment],
    *,
    baseline: str | Policy | PolicyProtocol,
    jobs: int = 1,
    bound: bool = False,
    progress: Progress = no_progress,
    bound_progress: Progress = no_progress,
    finished: Mapping[int, RunResult] = MappingProxyType({}),
    keep: Keep | None = None,
) -> Evaluation:
    """Run experiments and compare their policies.

    Args:
        experiments: equal but for their protocols.
        bound: whether to compute an upper bound on any scheduler's allocation, for protocols that have one.
        finished: runs that were done before, by their position among the runs of all experiments.
        keep: called after each run; positions are those among the runs of all experiments.
    """
    runs: list[RunResult] = []
    comparisons: list[Comparison] = []
    total = sum(experiment.runs for experiment in experiments)

    def all_finished(of_experiment: Mapping[int, RunResult]) -> dict[int, RunResult]:
        done = {len(runs) + position: run for position, run in of_experiment.items()}
        return {**finished, **dict(enumerate(runs)), **done}

    def keep_all(of_experiment: Finished) -> None:
        if keep is not None:
            keep(lambda: all_finished(of_experiment()))

    bounded = {each.protocol for each in experiments if bound} & {"inflation", "arrivals"}
    for experiment in experiments:
        if experiment.protocol in bounded:
            check_bounded(experiment)
    try:
        recordings = {each.protocol: find_recordings(each.workloads, each.protocol) for each in experiments}
        for experiment in experiments:
            positions = range(len(runs), len(runs) + experiment.runs)
            before = {i: finished[position] for i, position in enumerate(positions) if position in finished}
            with progress(experiment.protocol) as on_run:
                of_experiment = run_experiment(experiment, jobs=jobs, on_run=on_run, finished=before, keep=keep_all)
            runs += of_experiment
            label = of_experiment[experiment.policies.index(baseline) * len(experiment.seeds)].policy
            bounds = None
            if experiment.protocol in bounded:
                with bound_progress(experiment.protocol) as on_bound:
                    bounds = find_bounds(experiment, jobs=jobs, on_bound=on_bound)
            comparisons.append(_compare(experiment, of_experiment, label, bounds, recordings[experiment.protocol]))
    except InterruptionError as interruption:
        raise InterruptionError(all_finished(interruption.finished), total, cause=interruption.cause) from None
    except (KeyboardInterrupt, ClusterLostError) as error:
        raise InterruptionError(all_finished({}), total, cause=error) from None
    return Evaluation(tuple(experiments), tuple(comparisons), recordings)


def _compare(
    experiment: Experiment,
    runs: Sequence[RunResult],
    baseline: str,
    bounds: ExperimentBounds | None,
    recordings: Recordings,
) -> Comparison:
    summary = summarise(runs, baseline)
    if bounds is not None:
        summary += bound_summary(bounds, SummaryTable(runs), baseline)
    summary += recorded_summary(recordings, SummaryTable(runs).workloads, runs[0].protocol)
    criteria = [criterion(objective, experiment.protocol) for objective in experiment.objectives]
    headline = Headline(runs, summary, baseline, bounds, criteria)
    return Comparison(runs, summary, headline, experiment)

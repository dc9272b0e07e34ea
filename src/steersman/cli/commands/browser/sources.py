"""What the dashboard shows: a live cluster, runs simulated now, runs in folders and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from steersman.cli.options.arrivals import ArrivalOptions
from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.inputs import Inputs
from steersman.cli.output.display import Progress, Warnings
from steersman.core.redaction import redact_url

if TYPE_CHECKING:
    from steersman.apps.dashboard.screens import Screen
    from steersman.apps.dashboard.simulation.sources import RunSource


def live_screen(cluster: ClusterOptions, urls: Mapping[str, str | None], telemetry: Path | None) -> Screen:
    from steersman.apps.dashboard.live.metrics import MetricsSource, metrics_url
    from steersman.apps.dashboard.live.screen import LiveScreen
    from steersman.prometheus.configuration import read_configuration

    sources = [MetricsSource(name, metrics_url(f"--{name}", url)) for name, url in urls.items() if url is not None]
    queries = None if telemetry is None else read_configuration(telemetry)
    config = cluster.find().config
    return LiveScreen(config, config.context or redact_url(config.cluster.server), sources, queries)


def simulated_runs(names: Sequence[str], inputs: Inputs, arrivals: ArrivalOptions, seed: int) -> list[RunSource]:
    """Simulate a run of each policy on the same arrivals, whose digest finds runs in folders that have the same."""
    from steersman.policies.registry import check_policy_names, resolve
    from steersman.simulation.run import Simulator

    check_policy_names(names)
    warn = Warnings()
    (source,) = inputs.read(warn)
    arrivals.warn_of(source, warn)

    from steersman.apps.dashboard.simulation.sources import SimulatedRun
    from steersman.cli.compiling import compile_for
    from steersman.evaluation.replay_file import RunOptions, replay_file

    policies = [resolve(name) for name in names]
    compile_for(names, (source,))
    results, simulator = [], Simulator(source)
    with Progress("simulating") as progress:
        for done, each in enumerate(policies):
            progress.update(done, len(policies))
            results.append(simulator.run(each, seed=seed, record=True, **arrivals.settings))
    for result in results:
        warn(result.warnings)
    options = RunOptions(names[0], *arrivals.numbers)
    common = replay_file(source, options, names[0], results[0].protocol, seed).arrivals()
    return [SimulatedRun(source, each, result, common) for each, result in zip(policies, results, strict=True)]


def screens_of(simulated: Sequence[RunSource], given: Sequence[Path]) -> list[Screen]:
    """Return the screens of simulated runs and of what is in folders and files, without those with nothing to show."""
    from steersman.apps.dashboard.comparison.screen import ComparisonScreen
    from steersman.apps.dashboard.runs.folders import Kind, find_runs
    from steersman.apps.dashboard.simulation.recordings import RecordingRun
    from steersman.apps.dashboard.simulation.screen import SimulationScreen
    from steersman.apps.dashboard.simulation.sources import FolderRun
    from steersman.apps.dashboard.workload.screen import WorkloadScreen

    found, problems = find_runs(given)
    Warnings()([str(problem) for problem in problems])
    by_kind = {kind: [run for run in found if run.kind == kind] for kind in get_args(Kind)}
    simulations = [*simulated, *map(FolderRun, by_kind["simulation"])]
    played = [*simulations, *map(RecordingRun, by_kind["bindings"])]
    screens: list[Screen] = [SimulationScreen(played)] if played else []
    if by_kind["evaluation"]:
        screens.append(ComparisonScreen(by_kind["evaluation"]))
    if by_kind["deployments"] or by_kind["bindings"]:
        screen = WorkloadScreen([*by_kind["deployments"], *by_kind["bindings"]])
        screens.insert(len(screens) if simulations else 0, screen)  # what a recording says comes before its replay
    return screens

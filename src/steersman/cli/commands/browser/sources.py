"""What the dashboard shows: a live cluster, runs simulated now, runs in folders and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from steersman.cli.options.cluster import find_cluster
from steersman.cli.options.common import Protocol
from steersman.cli.options.inputs import Inputs
from steersman.cli.output.display import Progress, Warnings
from steersman.core.redaction import redact_url

if TYPE_CHECKING:
    from steersman.apps.dashboard.screens import Screen
    from steersman.apps.dashboard.simulation.sources import RunSource
    from steersman.simulation.result import Protocol as ProtocolName
    from steersman.workloads.workload import Workload


def live_screen(
    kubeconfig: Path | None, context: str | None, urls: Mapping[str, str | None], telemetry: Path | None
) -> Screen:
    """Return the screen of a live cluster.

    Raises:
        SteersmanError: there is no cluster, an address is none, or the file makes no sense.
    """
    from steersman.apps.dashboard.live.metrics import MetricsSource, metrics_url
    from steersman.apps.dashboard.live.screen import LiveScreen
    from steersman.prometheus.configuration import read_configuration

    sources = [MetricsSource(name, metrics_url(f"--{name}", url)) for name, url in urls.items() if url is not None]
    queries = None if telemetry is None else read_configuration(telemetry)
    config = find_cluster(kubeconfig, context, None).config
    return LiveScreen(config, config.context or redact_url(config.cluster.server), sources, queries)


@dataclass(frozen=True, slots=True)
class RunArrivals:
    """How the pods of simulated runs arrive, see `Simulator.run`."""

    protocol: Protocol
    seed: int
    ratio: float
    load: float | None
    mean_duration: float | None


def simulated_runs(names: Sequence[str], inputs: Inputs, arrivals: RunArrivals) -> list[RunSource]:
    """Simulate a run of each policy on the same arrivals."""
    from steersman.policies.registry import check_policy_names, resolve
    from steersman.simulation.protocols import duration_warnings
    from steersman.simulation.run import Simulator

    check_policy_names(names)
    warn = Warnings()
    (source,) = inputs.read(warn)
    if arrivals.protocol is Protocol.TIMED:
        warn(duration_warnings(source, arrivals.load, arrivals.mean_duration))

    from steersman.apps.dashboard.simulation.sources import SimulatedRun
    from steersman.cli.compiling import compile_for

    policies = [resolve(name) for name in names]
    compile_for(names, (source,))
    results, simulator = [], Simulator(source)
    with Progress("simulating") as progress:
        for done, each in enumerate(policies):
            progress.update(done, len(policies))
            results.append(
                simulator.run(
                    each,
                    protocol=arrivals.protocol.value,
                    seed=arrivals.seed,
                    ratio=arrivals.ratio,
                    load=arrivals.load,
                    mean_duration=arrivals.mean_duration,
                    record=True,
                )
            )
    for result in results:
        warn(result.warnings)
    common = _digest(source, names[0], arrivals)
    return [SimulatedRun(source, each, result, common) for each, result in zip(policies, results, strict=True)]


def _digest(source: Workload, policy: str, arrivals: RunArrivals) -> str:
    """Return the digest of arrivals, by which runs in folders are found that have the same."""
    from steersman.evaluation.replay_file import RunOptions, replay_file

    protocol: ProtocolName = arrivals.protocol.value
    options = RunOptions(policy, arrivals.ratio, arrivals.load, arrivals.mean_duration)
    return replay_file(source, options, policy, protocol, arrivals.seed).arrivals()


def screens_of(simulated: Sequence[RunSource], given: Sequence[Path]) -> list[Screen]:
    """Return the screens of simulated runs and of what is in folders and files, without those with nothing to show."""
    from steersman.apps.dashboard.comparison.screen import ComparisonScreen
    from steersman.apps.dashboard.runs.folders import Kind, find_runs
    from steersman.apps.dashboard.simulation.recordings import RecordingRun
    from steersman.apps.dashboard.simulation.screen import SimulationScreen
    from steersman.apps.dashboard.simulation.sources import FolderRun
    from steersman.apps.dashboard.training.screen import TrainingScreen
    from steersman.apps.dashboard.workload.screen import WorkloadScreen

    found, problems = find_runs(given)
    Warnings()([str(problem) for problem in problems])
    by_kind = {kind: [run for run in found if run.kind == kind] for kind in get_args(Kind)}
    simulations = [*simulated, *map(FolderRun, by_kind["simulation"])]
    played = [*simulations, *map(RecordingRun, by_kind["bindings"])]
    screens: list[Screen] = [SimulationScreen(played)] if played else []
    if by_kind["training"]:
        screens.append(TrainingScreen(given, by_kind["training"]))
    if by_kind["evaluation"]:
        screens.append(ComparisonScreen(by_kind["evaluation"]))
    if by_kind["deployments"] or by_kind["bindings"]:
        screen = WorkloadScreen([*by_kind["deployments"], *by_kind["bindings"]])
        screens.insert(len(screens) if simulations else 0, screen)  # what a recording says comes before its replay
    return screens

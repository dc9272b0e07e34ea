"""`steersman dashboard`: runs in the browser, simulated now or read from folders."""

from __future__ import annotations

import asyncio
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.options.common import (
    POLICIES_HELP,
    FromNow,
    Load,
    MeanDuration,
    Nodes,
    Pinned,
    Protocol,
    ProtocolOption,
    Ratio,
    check_load,
    check_mean_duration,
    check_ratio,
    path,
    running_of,
)
from steersman.cli.options.inputs import (
    ClusterContext,
    ClusterKubeconfig,
    FromCluster,
    Inputs,
    LiveSource,
    WorkloadName,
)
from steersman.cli.output.display import Progress, Warnings, print_text
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.apps.dashboard.screens import Screen
    from steersman.apps.dashboard.simulation.sources import RunSource
    from steersman.simulation.result import Protocol as ProtocolName
    from steersman.workloads.workload import Workload

PORT = 8050
SEED = 42
MOST_POLICIES = 2


def dashboard(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=path,
            metavar="FOLDER...",
            help="Folders of **simulate**, **evaluate**, **train**, **tune** or **schedule** --learn, or with such "
            "folders in them; before --policy.",
            show_default=False,
        ),
    ] = None,
    nodes: Nodes = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Pods of the workload: an openb pod list (CSV), or a file or folder of Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadName = None,
    cluster: FromCluster = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help=f"One policy to watch, or two to compare on the same arrivals: {POLICIES_HELP} "
            "[default: kube-default steersman]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrival order, of ties and of random choices.")] = SEED,
    protocol: ProtocolOption = None,
    ratio: Ratio = None,
    load: Load = None,
    mean_duration: MeanDuration = None,
    pinned: Pinned = False,
    from_now: FromNow = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = PORT,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    kubeconfig: ClusterKubeconfig = None,
    context: ClusterContext = None,
) -> None:
    """Watch runs in the browser: simulated now, or in folders, those that still learn included.

    With a workload, simulates one policy or two, and shows how they fill the cluster: GPUs of all nodes as a heat map,
    a time slider, the decisions in which two policies differ, and the reasons for each. With folders, shows what is in
    them: simulated runs, comparisons, and training, which can be paused and stopped from there. Serves pages on
    127.0.0.1 until Ctrl-C; the address has a token, and nothing is sent elsewhere.

    **Examples**:

    steersman dashboard --workload default-small --policy fgd steersman

    steersman dashboard my-policy comparison
    """
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    check_mean_duration(mean_duration, protocol)
    running = running_of(pinned, from_now, protocol)
    live = LiveSource(cluster, kubeconfig, context)
    simulated: list[RunSource] = []
    if not folders or policy or nodes or pods or workload or cluster:
        names = policy or ["kube-default", "steersman"]
        if len(names) > MOST_POLICIES or len(set(names)) < len(names):
            raise UsageError(f"--policy {' '.join(names)}: give one policy, or two different ones")
        inputs = Inputs(nodes, (pods,) if pods else (), (workload,) if workload else (), live, running)
        simulated = _simulated(names, inputs, RunArrivals(protocol, seed, share, load, mean_duration))
    asyncio.run(_serve(_screens(simulated, folders or []), port, browser))


@dataclass(frozen=True, slots=True)
class RunArrivals:
    """How the pods of simulated runs arrive, see `Simulator.run`."""

    protocol: Protocol
    seed: int
    ratio: float
    load: float | None
    mean_duration: float | None


def _simulated(names: Sequence[str], inputs: Inputs, arrivals: RunArrivals) -> list[RunSource]:
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


def _screens(simulated: Sequence[RunSource], folders: Sequence[Path]) -> list[Screen]:
    """Return the screens of simulated runs and of what is in folders, without those that have nothing to show."""
    from steersman.apps.dashboard.comparison.screen import ComparisonScreen
    from steersman.apps.dashboard.runs.folders import find_runs
    from steersman.apps.dashboard.simulation.screen import SimulationScreen
    from steersman.apps.dashboard.simulation.sources import FolderRun
    from steersman.apps.dashboard.training.screen import TrainingScreen

    found, problems = find_runs(folders)
    Warnings()([str(problem) for problem in problems])
    by_kind = {kind: [run for run in found if run.kind == kind] for kind in ("simulation", "training", "evaluation")}
    sources = [*simulated, *map(FolderRun, by_kind["simulation"])]
    screens: list[Screen] = [SimulationScreen(sources)] if sources else []
    if by_kind["training"]:
        screens.append(TrainingScreen(folders, by_kind["training"]))
    if by_kind["evaluation"]:
        screens.append(ComparisonScreen(by_kind["evaluation"]))
    return screens


async def _serve(screens: Sequence[Screen], port: int, browser: bool) -> None:
    """Serve the pages of screens until cancelled, and print the address."""
    from prometheus_client import CollectorRegistry

    from steersman.apps.dashboard.access import new_token
    from steersman.apps.dashboard.server import application
    from steersman.apps.runtime.http_server import ADDRESS, WebServer

    token = new_token()
    app = application(screens, token, ADDRESS)
    async with WebServer(CollectorRegistry(), {}, {}, ADDRESS, port, app) as server, asyncio.TaskGroup() as group:
        address = f"http://{ADDRESS}:{server.port}/?token={token}"
        print_text(f"The dashboard is at {address}\nCtrl-C ends it.")
        if browser:
            webbrowser.open(address)
        for screen in screens:
            group.create_task(screen.run())
        await asyncio.Event().wait()

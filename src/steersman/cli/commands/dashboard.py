"""`steersman dashboard`: simulated runs in the browser."""

from __future__ import annotations

import asyncio
import webbrowser
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

PORT = 8050
SEED = 42
MOST_POLICIES = 2


def dashboard(
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
    """Watch in the browser how one policy, or two beside each other, fill a cluster, and ask why.

    Simulates the runs, then serves a page on 127.0.0.1 until Ctrl-C: GPUs of all nodes as a heat map, a time slider,
    the decisions in which two policies differ, and the reasons for each. The address has a token; nothing is sent
    elsewhere.

    **Example**: steersman dashboard --workload default-small --policy fgd steersman
    """
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    check_mean_duration(mean_duration, protocol)
    running = running_of(pinned, from_now, protocol)
    names = policy or ["kube-default", "steersman"]
    if len(names) > MOST_POLICIES or len(set(names)) < len(names):
        raise UsageError(f"--policy {' '.join(names)}: give one policy, or two different ones")
    live = LiveSource(cluster, kubeconfig, context)
    inputs = Inputs(nodes, (pods,) if pods else (), (workload,) if workload else (), live, running)

    from steersman.policies.registry import check_policy_names, resolve
    from steersman.simulation.protocols import duration_warnings
    from steersman.simulation.run import Simulator

    check_policy_names(names)
    warn = Warnings()
    (source,) = inputs.read(warn)
    if protocol is Protocol.TIMED:
        warn(duration_warnings(source, load, mean_duration))

    from steersman.apps.dashboard.simulation.screen import SimulationScreen
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
                    protocol=protocol.value,
                    seed=seed,
                    ratio=share,
                    load=load,
                    mean_duration=mean_duration,
                    record=True,
                )
            )
    for result in results:
        warn(result.warnings)
    asyncio.run(_serve([SimulationScreen(source, policies, results)], port, browser))


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

"""`steersman dashboard`: simulated runs and live clusters in the browser."""

from __future__ import annotations

import asyncio
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.cli.completing import contexts
from steersman.cli.options.cluster import DEFAULT_CLUSTER, find_cluster
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
    FromCluster,
    Inputs,
    LiveSource,
    WorkloadName,
)
from steersman.cli.output.display import Progress, Warnings, print_text
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.apps.dashboard.screens import Screen

MetricsUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="With --live: the scheduler's metrics too ('steersman schedule', or kube-scheduler)."
    ),
]
ServiceUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="With --live: the metrics of a 'steersman serve' too.")
]
LiveTelemetry = Annotated[
    Path | None,
    typer.Option(
        parser=path, metavar="FILE", help="With --live: YAML with queries of Prometheus, for the latency to users."
    ),
]
WatchedKubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        parser=path,
        metavar="FILE",
        help=f"With --live or --cluster: its kubeconfig. [default: {DEFAULT_CLUSTER}]",
    ),
]
WatchedContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        autocompletion=contexts,
        help="With --live or --cluster: a context. [default: the current one]",
    ),
]
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
    live: Annotated[
        bool, typer.Option("--live", help="A live cluster as it is and was in the last 24 hours; nothing is written.")
    ] = False,
    scheduler: MetricsUrl = None,
    service: ServiceUrl = None,
    telemetry: LiveTelemetry = None,
    kubeconfig: WatchedKubeconfig = None,
    context: WatchedContext = None,
) -> None:
    """Watch in the browser how one policy, or two beside each other, fill a cluster, or how a live one fills; ask why.

    Simulates the runs, then serves a page on 127.0.0.1 until Ctrl-C: GPUs of all nodes as a heat map, a time slider,
    the decisions in which two policies differ, and the reasons for each. With --live a page of a live cluster, alone or
    beside these. The address has a token; nothing is sent elsewhere.

    **Example**: steersman dashboard --workload default-small --policy fgd steersman

    **A live cluster**: steersman dashboard --live --scheduler http://127.0.0.1:10251
    """
    screens: list[Screen] = []
    if live:
        screens.append(_live_screen(kubeconfig, context, {"scheduler": scheduler, "service": service}, telemetry))
    elif scheduler or service or telemetry:
        raise UsageError("--scheduler, --service and --telemetry belong to --live; give that too, or leave them out")
    if not live or nodes or pods or workload or cluster or policy:
        protocol = protocol or Protocol.INFLATION
        options = {"protocol": protocol.value, "seed": seed, "ratio": check_ratio(ratio, protocol), "load": load}
        check_load(load, protocol)
        check_mean_duration(mean_duration, protocol)
        running = running_of(pinned, from_now, protocol)
        names = policy or ["kube-default", "steersman"]
        if len(names) > MOST_POLICIES or len(set(names)) < len(names):
            raise UsageError(f"--policy {' '.join(names)}: give one policy, or two different ones")
        read = LiveSource(cluster, *((kubeconfig, context) if cluster or not live else ()))
        inputs = Inputs(nodes, (pods,) if pods else (), (workload,) if workload else (), read, running)
        screens.append(_simulation_screen(inputs, names, options | {"mean_duration": mean_duration}))
    from steersman.apps.runtime.tasks import run

    run(_serve(screens, port, browser))


def _live_screen(
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
    return LiveScreen(config, config.context or config.cluster.server, sources, queries)


def _simulation_screen(inputs: Inputs, names: Sequence[str], options: Mapping[str, Any]) -> Screen:
    """Simulate policies, and return the screen of their runs.

    Raises:
        SteersmanError: a policy or the workload cannot be used.
    """
    from steersman.policies.registry import check_policy_names, resolve
    from steersman.simulation.protocols import duration_warnings
    from steersman.simulation.run import Simulator

    check_policy_names(names)
    warn = Warnings()
    (source,) = inputs.read(warn)
    if options["protocol"] == Protocol.TIMED:
        warn(duration_warnings(source, options["load"], options["mean_duration"]))

    from steersman.apps.dashboard.simulation.screen import SimulationScreen
    from steersman.cli.compiling import compile_for

    policies = [resolve(name) for name in names]
    compile_for(names, (source,))
    results, simulator = [], Simulator(source)
    with Progress("simulating") as progress:
        for done, each in enumerate(policies):
            progress.update(done, len(policies))
            results.append(simulator.run(each, record=True, **options))
    for result in results:
        warn(result.warnings)
    return SimulationScreen(source, policies, results)


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
